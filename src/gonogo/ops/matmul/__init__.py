"""Matrix product."""

from gonogo.ops._op import Input, Kernel, Op

CURRENT = {"float32": 0.05}
OP = Op(
    name="matmul",
    inputs=(Input("a", "M K"), Input("b", "K N")),
    output="M N",
    sizes={
        "M": (1, 2, 7, 64, 128, 256, 512),
        "K": (1, 3, 16, 64, 127, 256, 512, 1024, 4096),
        "N": (1, 2, 15, 64, 128, 256, 512),
    },
    main="K",
    reduced=("K",),
    sums_of_products=True,
    is_matrix_product=True,
    takes=("nan",),
    kernels=(
        Kernel("matmul_torch", "torch"),
        Kernel("matmul", "numpy", current=CURRENT),
        Kernel("matmul_triton", "triton", current=CURRENT),
        Kernel("matmul_triton_dot", "triton"),
        Kernel(
            "matmul_triton_buggy",
            "triton",
            "faulty",
            calibrate_against="matmul_triton",
            current=CURRENT,
        ),
        Kernel("matmul_tf32", "triton", "faulty", calibrate_against="matmul_triton_dot"),
        Kernel("matmul_bf16_inputs", "triton", "faulty", calibrate_against="matmul_triton_dot"),
        Kernel("matmul_half_accumulator", "triton", "faulty", calibrate_against="matmul_triton_dot"),
        Kernel("matmul_narrow_partials", "triton", "faulty", calibrate_against="matmul_triton_dot"),
        Kernel("matmul_drops_last_k", "triton", "faulty", calibrate_against="matmul_triton_dot"),
        Kernel("matmul_k_tail_unmasked", "triton", "faulty", calibrate_against="matmul_triton_dot"),
        Kernel("matmul_b_stride", "triton", "faulty", calibrate_against="matmul_triton_dot"),
    ),
)

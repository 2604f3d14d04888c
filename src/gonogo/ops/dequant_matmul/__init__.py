"""Matrix product with int8 weights and one scale per column."""

from gonogo.ops._op import Input, Kernel, Op

OP = Op(
    name="dequant_matmul",
    inputs=(Input("x", "M K"), Input("w", "K N", kind="int8"), Input("scale", "N", kind="scale")),
    output="M N",
    sizes={
        "M": (1, 2, 7, 64, 128, 256),
        "K": (1, 3, 16, 64, 127, 256, 512, 1024, 4096),
        "N": (1, 2, 33, 64, 128, 256),
    },
    main="K",
    reduced=("K",),
    kernels=(
        Kernel("dequant_matmul_torch", "torch"),
        Kernel("dequant_matmul_triton", "triton"),
        Kernel("dequant_matmul_triton_scale_last", "triton"),
        Kernel("dequant_matmul_half_weight", "triton", "faulty", calibrate_against="dequant_matmul_triton"),
        Kernel("dequant_matmul_half_product", "triton", "faulty", calibrate_against="dequant_matmul_triton"),
        Kernel("dequant_matmul_zero_point", "triton", "faulty", calibrate_against="dequant_matmul_triton"),
        Kernel("dequant_matmul_shared_scale", "triton", "faulty", calibrate_against="dequant_matmul_triton"),
        Kernel("dequant_matmul_clipped", "triton", "faulty", calibrate_against="dequant_matmul_triton"),
        Kernel("dequant_matmul_drops_last_k", "triton", "faulty", calibrate_against="dequant_matmul_triton"),
    ),
)

"""leaky_relu: negative elements are multiplied by 0.01."""

from gonogo.ops._op import Input, Kernel, Op

CURRENT = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 1e-3}

OP = Op(
    name="leaky_relu",
    inputs=(Input("input", "B S H"),),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (1, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    takes=("nan",),
    kernels=(
        Kernel("leaky_relu_torch", "torch"),
        Kernel("leaky_relu_triton", "triton", in_dtype=True, current=CURRENT),
        Kernel("leaky_relu_triton_fp32", "triton"),
        Kernel(
            "leaky_relu_triton_buggy",
            "triton",
            "faulty",
            calibrate_against="leaky_relu_triton",
            in_dtype=True,
            current=CURRENT,
        ),
        Kernel("leaky_relu_half_product", "triton", "faulty", calibrate_against="leaky_relu_triton_fp32"),
        Kernel("leaky_relu_bf16_slope", "triton", "faulty", calibrate_against="leaky_relu_triton_fp32"),
        Kernel("leaky_relu_late_edge", "triton", "faulty", calibrate_against="leaky_relu_triton_fp32"),
    ),
)

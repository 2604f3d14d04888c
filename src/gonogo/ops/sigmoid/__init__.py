"""sigmoid: 1/(1 + exp(−x))."""

from gonogo.ops._op import Input, Kernel, Op

CURRENT = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.05}

OP = Op(
    name="sigmoid",
    inputs=(Input("input", "B S H"),),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (1, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    takes=("nan",),
    kernels=(
        Kernel("sigmoid_torch", "torch"),
        Kernel("sigmoid_triton", "triton", current=CURRENT),
        Kernel("sigmoid_half_exp", "triton", "faulty", calibrate_against="sigmoid_triton"),
        Kernel("sigmoid_bf16_reciprocal", "triton", "faulty", calibrate_against="sigmoid_triton"),
        Kernel("sigmoid_early_saturation", "triton", "faulty", calibrate_against="sigmoid_triton"),
        Kernel("sigmoid_short_log2e", "triton", "faulty", calibrate_against="sigmoid_triton"),
    ),
)

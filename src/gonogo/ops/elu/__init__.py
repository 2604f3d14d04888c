"""elu: x above 0, exp(x) − 1 below."""

from gonogo.ops._op import Input, Kernel, Op

CURRENT = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.05}

OP = Op(
    name="elu",
    inputs=(Input("input", "B S H"),),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (1, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    kernels=(
        Kernel("elu_torch", "torch"),
        Kernel("elu_triton", "triton", current=CURRENT),
        Kernel("elu_half_exp", "triton", "faulty", calibrate_against="elu_triton"),
        Kernel("elu_early_floor", "triton", "faulty", calibrate_against="elu_triton"),
        Kernel("elu_short_series", "triton", "faulty", calibrate_against="elu_triton"),
        Kernel("elu_late_branch", "triton", "faulty", calibrate_against="elu_triton"),
    ),
)

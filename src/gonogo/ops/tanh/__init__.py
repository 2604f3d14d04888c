"""tanh."""

from gonogo.ops._op import Input, Kernel, Op

CURRENT = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.05}

OP = Op(
    name="tanh",
    inputs=(Input("input", "B S H"),),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (1, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    takes=("nan",),
    kernels=(
        Kernel("tanh_torch", "torch"),
        Kernel("tanh_triton", "triton", current=CURRENT),
        Kernel("tanh_no_abs", "triton", "faulty", calibrate_against="tanh_triton"),
        Kernel("tanh_half_reciprocal", "triton", "faulty", calibrate_against="tanh_triton"),
        Kernel("tanh_early_saturation", "triton", "faulty", calibrate_against="tanh_triton"),
        Kernel("tanh_fraction", "triton", "faulty", calibrate_against="tanh_triton"),
    ),
)

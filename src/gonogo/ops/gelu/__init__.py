"""gelu in its tanh approximation."""

from gonogo.ops._op import Input, Kernel, Op

CURRENT = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.05}

OP = Op(
    name="gelu",
    inputs=(Input("input", "B S H"),),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (1, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    takes=("nan",),
    kernels=(
        Kernel("gelu_torch", "torch"),
        Kernel("gelu_triton", "triton", current=CURRENT),
        Kernel("gelu_triton_buggy", "triton", "faulty", calibrate_against="gelu_triton", current=CURRENT),
        Kernel("gelu_erf", "triton", "faulty", calibrate_against="gelu_triton"),
        Kernel("gelu_short_cubic", "triton", "faulty", calibrate_against="gelu_triton"),
        Kernel("gelu_short_root", "triton", "faulty", calibrate_against="gelu_triton"),
        Kernel("gelu_half_cube", "triton", "faulty", calibrate_against="gelu_triton"),
        Kernel("gelu_half_tanh", "triton", "faulty", calibrate_against="gelu_triton"),
        Kernel("gelu_quick", "triton", "faulty", calibrate_against="gelu_triton"),
    ),
)

"""silu: x·σ(x)."""

from gonogo.ops._op import Input, Kernel, Op

CURRENT = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.05}

OP = Op(
    name="silu",
    inputs=(Input("input", "B S H"),),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (1, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    takes=("nan",),
    kernels=(
        Kernel("silu_torch", "torch"),
        Kernel("silu_triton", "triton", current=CURRENT),
        Kernel("silu_triton_buggy", "triton", "faulty", calibrate_against="silu_triton", current=CURRENT),
        Kernel("silu_half_sigmoid", "triton", "faulty", calibrate_against="silu_triton"),
        Kernel("silu_one_newton_step", "triton", "faulty", calibrate_against="silu_triton"),
        Kernel("silu_short_log2e", "triton", "faulty", calibrate_against="silu_triton"),
        Kernel("silu_linear_above", "triton", "faulty", calibrate_against="silu_triton"),
    ),
)

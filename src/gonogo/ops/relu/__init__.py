"""relu: negative elements become 0."""

from gonogo.ops._op import Input, Kernel, Op

CURRENT = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 1e-3}

OP = Op(
    name="relu",
    inputs=(Input("input", "B S H"),),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (1, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    kernels=(
        Kernel("relu_torch", "torch"),
        Kernel("relu_triton", "triton", current=CURRENT),
        Kernel("relu_dead_zone", "triton", "faulty", calibrate_against="relu_triton"),
        Kernel("relu_through_half", "triton", "faulty", calibrate_against="relu_triton"),
        Kernel("relu_skips_tail", "triton", "faulty", calibrate_against="relu_triton"),
    ),
)

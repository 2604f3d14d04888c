"""Mean over the last axis."""

from gonogo.ops._op import Input, Kernel, Op

OP = Op(
    name="mean",
    inputs=(Input("input", "B S H"),),
    output="B S",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (1, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    reduced=("H",),
    takes=("nan",),
    kernels=(
        Kernel("mean_torch", "torch"),
        Kernel("mean_triton", "triton"),
        Kernel("mean_half_accumulator", "triton", "faulty", calibrate_against="mean_triton"),
        Kernel("mean_drops_last", "triton", "faulty", calibrate_against="mean_triton"),
        Kernel("mean_padded_length", "triton", "faulty", calibrate_against="mean_triton"),
        Kernel("mean_half_reciprocal", "triton", "faulty", calibrate_against="mean_triton"),
        Kernel("mean_of_means", "triton", "faulty", calibrate_against="mean_triton"),
    ),
)

"""Sum over the last axis."""

from gonogo.ops._op import Input, Kernel, Op

OP = Op(
    name="sum",
    inputs=(Input("input", "B S H"),),
    output="B S",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (1, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    reduced=("H",),
    sums_of_products=True,
    takes=("nan",),
    kernels=(
        Kernel("sum_torch", "torch"),
        Kernel("sum_triton", "triton"),
        Kernel("sum_half_accumulator", "triton", "faulty", calibrate_against="sum_triton"),
        Kernel("sum_drops_last", "triton", "faulty", calibrate_against="sum_triton"),
        Kernel("sum_drops_tail", "triton", "faulty", calibrate_against="sum_triton"),
        Kernel("sum_row_stride", "triton", "faulty", calibrate_against="sum_triton"),
        Kernel("sum_race", "triton", "faulty", calibrate_against="sum_triton"),
    ),
)

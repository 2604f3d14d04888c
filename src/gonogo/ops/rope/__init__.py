"""rope: rotary embedding; the pair (x[s, 0, p], x[s, 1, p]) is turned by the angle s·10000^(−p/P)."""

from gonogo.ops._op import Input, Kernel, Op

OP = Op(
    name="rope",
    inputs=(Input("x", "S two P"),),
    output="S two P",
    sizes={"S": (1, 7, 128, 257, 1024, 2048, 4096), "two": (2,), "P": (1, 3, 16, 32, 40, 48, 64, 65, 128)},
    main="P",
    only_listed=("two",),
    largest={"P": 512},
    takes=("nan",),
    kernels=(
        Kernel("rope_torch", "torch"),
        Kernel("rope_triton", "triton"),
        Kernel("rope_half_angle", "triton", "faulty", calibrate_against="rope_triton"),
        Kernel("rope_bf16_frequency", "triton", "faulty", calibrate_against="rope_triton"),
        Kernel("rope_half_table", "triton", "faulty", calibrate_against="rope_triton"),
        Kernel("rope_short_log", "triton", "faulty", calibrate_against="rope_triton"),
        Kernel("rope_block_position", "triton", "faulty", calibrate_against="rope_triton"),
        Kernel("rope_overwritten_half", "triton", "faulty", calibrate_against="rope_triton"),
        Kernel("rope_odd_tail", "triton", "faulty", calibrate_against="rope_triton"),
    ),
)

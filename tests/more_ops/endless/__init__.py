"""Kernels that do not come back, or leave processes behind."""

from gonogo.ops import Input, Kernel, Op

OP = Op(
    name="endless",
    inputs=(Input("x", "rows cols"),),
    output="rows cols",
    sizes={"rows": (1, 2), "cols": (3, 16)},
    main="cols",
    reduced=(),
    kernels=(
        Kernel("copies", "torch"),
        Kernel("starts_and_crashes", "torch", "faulty", calibrate_against="copies"),
        Kernel("eats_memory_elsewhere", "torch", "faulty", calibrate_against="copies"),
        Kernel("spins", "torch", "faulty", calibrate_against="copies"),
    ),
)

"""A kernel that waits, on the first case that comes, until a test lets it go on."""

from gonogo.ops import Input, Kernel, Op

OP = Op(
    name="gated",
    inputs=(Input("x", "rows cols"),),
    output="rows cols",
    sizes={"rows": (1, 2), "cols": (3, 16)},
    main="cols",
    reduced=(),
    kernels=(
        Kernel("copies", "torch"),
        Kernel("waits_once", "torch", "faulty", calibrate_against="copies"),
    ),
)

"""Kernels that end their process: one as another's would where a GPU is shared, one by itself."""

from gonogo.ops import Input, Kernel, Op

OP = Op(
    name="fated",
    inputs=(Input("x", "rows cols"),),
    output="rows cols",
    sizes={"rows": (1, 2), "cols": (3, 16)},
    main="cols",
    kernels=(
        Kernel("copies", "torch"),
        Kernel("dies_with_others", "torch"),
        Kernel("hangs_with_others", "torch"),
        Kernel("dies", "torch", "faulty", calibrate_against="copies"),
        Kernel("copies_too", "torch"),
    ),
)

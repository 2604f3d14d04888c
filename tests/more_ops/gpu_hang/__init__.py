"""An op with a kernel that never ends."""

from gonogo.ops import Input, Kernel, Op

OP = Op(
    name="gpu_hang",
    inputs=(Input("x", "rows cols"),),
    output="rows cols",
    sizes={"rows": (2, 3), "cols": (5, 8)},
    main="cols",
    kernels=(
        Kernel("copies", "torch"),
        Kernel("never_ends", "triton", "faulty", calibrate_against="copies"),
        Kernel("copies_too", "torch"),
    ),
)

"""An op whose kernels say something."""

from gonogo.ops import Input, Kernel, Op

OP = Op(
    name="tells",
    inputs=(Input("x", "rows cols"),),
    output="rows cols",
    sizes={"rows": (2, 3), "cols": (5, 8)},
    main="cols",
    kernels=(Kernel("tells_environment", "torch"), Kernel("tells_markup", "torch")),
)

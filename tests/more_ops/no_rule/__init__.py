"""An op whose reference is not made of primitive ops."""

from gonogo.ops import Input, Kernel, Op

OP = Op(
    name="no_rule",
    inputs=(Input("x", "rows cols"),),
    output="rows cols",
    sizes={"rows": (2,), "cols": (5,)},
    main="cols",
    kernels=(Kernel("no_rule_torch", "torch"),),
)

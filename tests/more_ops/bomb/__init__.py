"""A kernel that leaves something behind of which its process ends later, as one that writes past its memory may."""

from gonogo.ops import Input, Kernel, Op

OP = Op(
    name="bomb",
    inputs=(Input("x", "rows cols"),),
    output="rows cols",
    sizes={"rows": (1, 2), "cols": (3, 16)},
    main="cols",
    kernels=(Kernel("copies", "torch"), Kernel("leaves_a_bomb", "torch", "faulty", calibrate_against="copies")),
)

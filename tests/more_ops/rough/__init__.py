"""An op with controls that cannot always be compared with: one ends its process, one is for one dtype only."""

from gonogo.ops import Input, Kernel, Op

OP = Op(
    name="rough",
    inputs=(Input("x", "rows cols"),),
    output="rows cols",
    sizes={"rows": (2, 3), "cols": (5, 8)},
    main="cols",
    kernels=(
        Kernel("rough_plain", "torch"),
        Kernel("rough_torch", "torch"),
        Kernel("rough_half", "torch", dtypes=("float16",)),
        Kernel("rough_after_torch", "torch", "faulty", calibrate_against="rough_torch"),
        Kernel("rough_after_half", "torch", "faulty", calibrate_against="rough_half"),
        Kernel("rough_last", "torch"),
    ),
)

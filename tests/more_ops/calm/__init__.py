"""A small op with quick kernels."""

from gonogo.ops import Input, Kernel, Op

OP = Op(
    name="calm",
    inputs=(Input("x", "rows cols"), Input("w", "cols")),
    output="rows",
    sizes={"rows": (1, 2, 8), "cols": (3, 16)},
    main="cols",
    reduced=("cols",),
    sums_of_products=True,
    kernels=(
        Kernel("calm_torch", "torch"),
        Kernel("calm_sum", "torch"),
        Kernel("calm_drops_last", "torch", "faulty", calibrate_against="calm_torch"),
    ),
)

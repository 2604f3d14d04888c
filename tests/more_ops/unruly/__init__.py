"""Kernels that change switches of their process, and some that show whether they were changed."""

from gonogo.ops import Input, Kernel, Op

OP = Op(
    name="unruly",
    inputs=(Input("x", "rows cols"),),
    output="rows cols",
    sizes={"rows": (1, 2), "cols": (3, 16)},
    main="cols",
    reduced=(),
    kernels=(
        Kernel("halves", "torch"),
        Kernel("flushes", "torch", "faulty", calibrate_against="halves"),
        Kernel("has_numpy_raise", "numpy", "faulty", calibrate_against="halves"),
        Kernel("counts_in_float64", "torch", "faulty", calibrate_against="halves"),
        Kernel("needs_defaults", "torch", "faulty", calibrate_against="halves"),
        Kernel("needs_numpy", "numpy", "faulty", calibrate_against="halves"),
    ),
)

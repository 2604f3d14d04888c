"""Cumulative sum along the last axis."""

from gonogo.ops._op import Input, Kernel, Op
from gonogo.schema import Contract

OP = Op(
    name="cumsum",
    inputs=(Input("input", "B S H"),),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (1, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    reduced=("H",),
    sums_of_products=True,
    kernels=(
        # On a GPU the framework's scan of one long row gives other bits in every call.
        Kernel("cumsum_torch", "torch", contract=Contract(atomics=True), in_dtype=True),
        Kernel("cumsum_torch_fp32", "torch", contract=Contract(atomics=True)),
        Kernel("cumsum_triton", "triton"),
        Kernel("cumsum_no_carry", "triton", "faulty", calibrate_against="cumsum_triton"),
        Kernel("cumsum_stale_carry", "triton", "faulty", calibrate_against="cumsum_triton"),
        Kernel("cumsum_short_carry", "triton", "faulty", calibrate_against="cumsum_triton"),
        Kernel("cumsum_narrow_carry", "triton", "faulty", calibrate_against="cumsum_triton"),
        Kernel("cumsum_half_scan", "triton", "faulty", calibrate_against="cumsum_triton"),
        Kernel("cumsum_row_stride", "triton", "faulty", calibrate_against="cumsum_triton"),
    ),
)

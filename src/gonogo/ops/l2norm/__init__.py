"""Rows of the last axis over their Euclidean norm."""

from gonogo.ops._op import Input, Kernel, Op

CURRENT = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.05}

OP = Op(
    name="l2norm",
    inputs=(Input("input", "B S H"),),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (2, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    reduced=("H",),
    takes=("nan",),
    kernels=(
        Kernel("l2norm_torch", "torch"),
        Kernel("l2norm_triton", "triton", current=CURRENT),
        Kernel("l2norm_triton_buggy", "triton", "faulty", calibrate_against="l2norm_triton", current=CURRENT),
        Kernel("l2norm_pads_one", "triton", "faulty", calibrate_against="l2norm_triton"),
        Kernel("l2norm_half_sum", "triton", "faulty", calibrate_against="l2norm_triton"),
        Kernel("l2norm_half_reciprocal", "triton", "faulty", calibrate_against="l2norm_triton"),
        Kernel("l2norm_row_stride", "triton", "faulty", calibrate_against="l2norm_triton"),
        Kernel("l2norm_drops_partial_tile", "torch", "faulty", calibrate_against="l2norm_triton"),
    ),
)

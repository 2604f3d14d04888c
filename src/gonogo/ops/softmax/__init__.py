"""softmax over the last axis."""

from gonogo.ops._op import Input, Kernel, Op

CURRENT = {"float32": 1e-5, "float16": 0.02, "bfloat16": 0.02}

OP = Op(
    name="softmax",
    inputs=(Input("input", "B S H"),),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (1, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    reduced=("H",),
    repeats=("ties", "rows", "whole", "tiny", "zeros"),
    takes=("masked", "nan"),
    kernels=(
        Kernel("softmax_torch", "torch"),
        Kernel("softmax", "numpy", current=CURRENT),
        Kernel("softmax_triton", "triton", current=CURRENT),
        Kernel("softmax_llm_buggy", "numpy", "faulty", calibrate_against="softmax_triton", current=CURRENT),
        Kernel("softmax_triton_buggy", "triton", "faulty", calibrate_against="softmax_triton", current=CURRENT),
        Kernel("softmax_no_shift", "triton", "faulty", calibrate_against="softmax_triton"),
        Kernel("softmax_half_sum", "triton", "faulty", calibrate_against="softmax_triton"),
        Kernel("softmax_drops_last", "triton", "faulty", calibrate_against="softmax_triton"),
        Kernel("softmax_row_stride", "triton", "faulty", calibrate_against="softmax_triton"),
    ),
)

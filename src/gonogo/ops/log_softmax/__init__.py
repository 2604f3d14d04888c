"""Logarithm of softmax over the last axis."""

from gonogo.ops._op import Input, Kernel, Op

OP = Op(
    name="log_softmax",
    inputs=(Input("input", "B S H"),),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (1, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    reduced=("H",),
    repeats=("ties", "rows", "whole", "tiny", "zeros"),
    takes=("masked", "nan"),
    kernels=(
        Kernel("log_softmax_torch", "torch"),
        Kernel("log_softmax_triton", "triton"),
        Kernel("log_softmax_no_rescale", "triton", "faulty", calibrate_against="log_softmax_triton"),
        Kernel("log_softmax_no_shift", "triton", "faulty", calibrate_against="log_softmax_triton"),
        Kernel("log_softmax_pads_zero", "triton", "faulty", calibrate_against="log_softmax_triton"),
        Kernel("log_softmax_half_sum", "triton", "faulty", calibrate_against="log_softmax_triton"),
        Kernel("log_softmax_stale_max", "triton", "faulty", calibrate_against="log_softmax_triton"),
        Kernel("log_softmax_eps_inside", "torch", "faulty", calibrate_against="log_softmax_triton"),
    ),
)

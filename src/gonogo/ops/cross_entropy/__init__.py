"""Cross-entropy of each row of logits with its target class."""

from gonogo.ops._op import Input, Kernel, Op

OP = Op(
    name="cross_entropy",
    inputs=(Input("logits", "N V"), Input("target", "N", kind="index", below="V")),
    output="N",
    sizes={"N": (1, 7, 128, 200), "V": (2, 10, 128, 1000, 1024, 1025, 4096, 32000, 50257, 128256)},
    main="V",
    reduced=("V",),
    repeats=("ties", "rows", "whole", "tiny", "zeros"),
    takes=("masked", "nan"),
    kernels=(
        Kernel("cross_entropy_torch", "torch"),
        Kernel("cross_entropy_triton", "triton"),
        Kernel("cross_entropy_no_rescale", "triton", "faulty", calibrate_against="cross_entropy_triton"),
        Kernel("cross_entropy_drops_last", "triton", "faulty", calibrate_against="cross_entropy_triton"),
        Kernel("cross_entropy_pads_zero", "triton", "faulty", calibrate_against="cross_entropy_triton"),
        Kernel("cross_entropy_coarse_ln2", "triton", "faulty", calibrate_against="cross_entropy_triton"),
        Kernel("cross_entropy_half_logsumexp", "triton", "faulty", calibrate_against="cross_entropy_triton"),
        Kernel("cross_entropy_target_at_edge", "triton", "faulty", calibrate_against="cross_entropy_triton"),
        Kernel("cross_entropy_no_shift", "torch", "faulty", calibrate_against="cross_entropy_triton"),
    ),
)

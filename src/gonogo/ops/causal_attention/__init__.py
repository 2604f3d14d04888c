"""Scaled dot-product attention of one head in which a query sees no later key."""

from gonogo.ops._op import Input, Kernel, Op

CONTROL = "causal_attention_triton"

OP = Op(
    name="causal_attention",
    inputs=(Input("q", "N D"), Input("k", "N D"), Input("v", "N D")),
    output="N D",
    sizes={"N": (1, 7, 64, 128, 129, 256, 512), "D": (8, 16, 24, 32, 64, 80, 96, 128)},
    main="N",
    only_listed=("D",),
    reduced=("N",),
    repeats=("ties", "rows", "whole", "tiny", "zeros"),
    work="N N D",
    kernels=(
        Kernel("causal_attention_torch", "torch"),
        Kernel("causal_attention_triton", "triton"),
        Kernel("causal_attention_sees_next", "triton", "faulty", calibrate_against=CONTROL),
        Kernel("causal_attention_finite_mask", "triton", "faulty", calibrate_against=CONTROL),
        Kernel("causal_attention_max_sees_all", "triton", "faulty", calibrate_against=CONTROL),
        Kernel("causal_attention_padded_scale", "triton", "faulty", calibrate_against=CONTROL),
        Kernel("causal_attention_skips_diagonal", "triton", "faulty", calibrate_against=CONTROL),
        Kernel("causal_attention_stale_shrink", "triton", "faulty", calibrate_against=CONTROL),
        Kernel("causal_attention_half_probs", "triton", "faulty", calibrate_against=CONTROL),
        Kernel("causal_attention_half_scores", "triton", "faulty", calibrate_against=CONTROL),
    ),
)

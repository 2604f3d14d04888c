"""Scaled dot-product attention of one head."""

from gonogo.ops._op import Input, Kernel, Op

CURRENT = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.05}

OP = Op(
    name="attention",
    inputs=(Input("q", "M D"), Input("k", "N D"), Input("v", "N D")),
    output="M D",
    sizes={
        "M": (1, 2, 8, 64, 128, 512),
        "N": (1, 3, 16, 128, 256, 1024, 2048),
        "D": (8, 16, 24, 32, 64, 80, 96, 128),
    },
    main="N",
    only_listed=("D",),
    reduced=("N",),
    repeats=("ties", "rows", "whole", "tiny", "zeros"),
    kernels=(
        Kernel("attention_torch", "torch"),
        Kernel("attention_triton", "triton", current=CURRENT),
        Kernel("attention_triton_buggy", "triton", "faulty", calibrate_against="attention_triton", current=CURRENT),
        Kernel("attention_half_probs", "triton", "faulty", calibrate_against="attention_triton"),
        Kernel("attention_half_scale", "triton", "faulty", calibrate_against="attention_triton"),
        Kernel("attention_tf32_scores", "triton", "faulty", calibrate_against="attention_triton"),
        Kernel("attention_drops_last_key", "triton", "faulty", calibrate_against="attention_triton"),
        Kernel("attention_padding_counts", "triton", "faulty", calibrate_against="attention_triton"),
    ),
)

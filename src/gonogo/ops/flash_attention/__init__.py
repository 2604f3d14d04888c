"""Scaled dot-product attention of one head, tile by tile with an online softmax."""

from gonogo.ops._op import Input, Kernel, Op

CURRENT = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.05}
CONTROL = "flash_attention_triton"

OP = Op(
    name="flash_attention",
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
        Kernel("flash_attention_torch", "torch"),
        Kernel("flash_attention_triton", "triton", current=CURRENT),
        Kernel("flash_attention_triton_buggy", "triton", "faulty", calibrate_against=CONTROL, current=CURRENT),
        Kernel("flash_attention_sum_not_rescaled", "triton", "faulty", calibrate_against=CONTROL),
        Kernel("flash_attention_max_from_zero", "triton", "faulty", calibrate_against=CONTROL),
        Kernel("flash_attention_shared_max", "triton", "faulty", calibrate_against=CONTROL),
        Kernel("flash_attention_tail_as_zero", "triton", "faulty", calibrate_against=CONTROL),
        Kernel("flash_attention_skips_last_tile", "triton", "faulty", calibrate_against=CONTROL),
        Kernel("flash_attention_half_probs", "triton", "faulty", calibrate_against=CONTROL),
        Kernel("flash_attention_half_accumulator", "triton", "faulty", calibrate_against=CONTROL),
        Kernel("flash_attention_half_reciprocal", "triton", "faulty", calibrate_against=CONTROL),
    ),
)

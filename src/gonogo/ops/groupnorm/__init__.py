"""Group normalisation: every group over its channels and positions, then weight and bias per channel."""

from gonogo.ops._op import Input, Kernel, Op

OP = Op(
    name="groupnorm",
    inputs=(Input("input", "N G C L"), Input("weight", "G C", far=False), Input("bias", "G C", far=False)),
    output="N G C L",
    sizes={
        "N": (1, 2, 4),
        "G": (1, 2, 8, 32),
        "C": (1, 3, 4, 8, 16, 64),
        "L": (2, 7, 49, 64, 196, 257, 1024, 1025, 4096),
    },
    main="L",
    largest={"G": 256, "C": 4096},
    reduced=("C", "L"),
    kernels=(
        # On a GPU the framework's op keeps mean and reciprocal deviation in the dtype of its input.
        Kernel("groupnorm_torch", "torch", in_dtype=True),
        Kernel("groupnorm_triton", "triton"),
        Kernel("groupnorm_one_pass", "triton", "faulty", calibrate_against="groupnorm_triton"),
        Kernel("groupnorm_half_mean", "triton", "faulty", calibrate_against="groupnorm_triton"),
        Kernel("groupnorm_pads_centred", "triton", "faulty", calibrate_against="groupnorm_triton"),
        Kernel("groupnorm_skips_partial_tile", "triton", "faulty", calibrate_against="groupnorm_triton"),
        Kernel("groupnorm_first_group_weight", "triton", "faulty", calibrate_against="groupnorm_triton"),
        Kernel("groupnorm_unbiased", "torch", "faulty", calibrate_against="groupnorm_triton"),
    ),
)

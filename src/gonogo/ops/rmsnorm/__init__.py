"""RMS normalisation over the last axis, without a weight."""

from gonogo.ops._op import Input, Kernel, Op

CURRENT = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.05}

OP = Op(
    name="rmsnorm",
    inputs=(Input("input", "B S H"),),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (2, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    reduced=("H",),
    takes=("nan",),
    kernels=(
        Kernel("rmsnorm_torch", "torch"),
        Kernel("rmsnorm_triton", "triton", in_dtype=True, current=CURRENT),
        Kernel("rmsnorm_triton_fp32", "triton"),
        Kernel("rmsnorm_triton_buggy", "triton", "faulty", calibrate_against="rmsnorm_triton", current=CURRENT),
        Kernel("rmsnorm_eps_outside", "triton", "faulty", calibrate_against="rmsnorm_triton_fp32"),
        Kernel("rmsnorm_eps_small", "triton", "faulty", calibrate_against="rmsnorm_triton_fp32"),
        Kernel("rmsnorm_padded_mean", "triton", "faulty", calibrate_against="rmsnorm_triton_fp32"),
        Kernel("rmsnorm_drops_last", "triton", "faulty", calibrate_against="rmsnorm_triton_fp32"),
        Kernel("rmsnorm_stale_row", "triton", "faulty", calibrate_against="rmsnorm_triton_fp32"),
        Kernel("rmsnorm_coarse_rsqrt", "triton", "faulty", calibrate_against="rmsnorm_triton_fp32"),
        Kernel("rmsnorm_half_squares", "torch", "faulty", calibrate_against="rmsnorm_triton_fp32"),
    ),
)

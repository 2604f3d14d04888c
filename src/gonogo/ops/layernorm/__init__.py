"""Layer normalisation over the last axis, without weight and bias."""

from gonogo.ops._op import Input, Kernel, Op

CURRENT = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.05}

OP = Op(
    name="layernorm",
    inputs=(Input("input", "B S H"),),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (2, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    reduced=("H",),
    takes=("nan",),
    kernels=(
        Kernel("layernorm_torch", "torch"),
        Kernel("layernorm", "numpy", current=CURRENT),
        Kernel("layernorm_triton", "triton"),
        Kernel("layernorm_one_pass", "triton", "faulty", calibrate_against="layernorm_triton"),
        Kernel("layernorm_unbiased", "triton", "faulty", calibrate_against="layernorm_triton"),
        Kernel("layernorm_pads_centred", "triton", "faulty", calibrate_against="layernorm_triton"),
        Kernel("layernorm_stale_row", "triton", "faulty", calibrate_against="layernorm_triton"),
        Kernel("layernorm_eps_outside", "triton", "faulty", calibrate_against="layernorm_triton"),
        Kernel("layernorm_no_eps", "triton", "faulty", calibrate_against="layernorm_triton"),
        Kernel("layernorm_half_centred", "triton", "faulty", calibrate_against="layernorm_triton"),
        Kernel("layernorm_mean_of_means", "torch", "faulty", calibrate_against="layernorm_triton"),
    ),
)

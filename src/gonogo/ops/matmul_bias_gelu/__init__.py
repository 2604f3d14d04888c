"""Matrix product, bias and gelu (tanh form) in one."""

from gonogo.ops._op import Input, Kernel, Op

OP = Op(
    name="matmul_bias_gelu",
    inputs=(Input("a", "M K"), Input("b", "K N"), Input("bias", "N")),
    output="M N",
    sizes={
        "M": (1, 2, 7, 64, 128, 256),
        "K": (1, 3, 16, 64, 127, 256, 512, 1024, 4096),
        "N": (1, 2, 33, 64, 128, 256),
    },
    main="K",
    reduced=("K",),
    kernels=(
        Kernel("matmul_bias_gelu_torch", "torch", in_dtype=True),
        Kernel("matmul_bias_gelu_torch_fp32", "torch"),
        Kernel("matmul_bias_gelu_triton", "triton"),
        Kernel("matmul_bias_gelu_erf", "triton", "faulty", calibrate_against="matmul_bias_gelu_triton"),
        Kernel("matmul_bias_gelu_cubic", "triton", "faulty", calibrate_against="matmul_bias_gelu_triton"),
        Kernel("matmul_bias_gelu_bias_after", "triton", "faulty", calibrate_against="matmul_bias_gelu_triton"),
        Kernel("matmul_bias_gelu_bias_tile", "triton", "faulty", calibrate_against="matmul_bias_gelu_triton"),
        Kernel("matmul_bias_gelu_narrow_sum", "triton", "faulty", calibrate_against="matmul_bias_gelu_triton"),
        Kernel("matmul_bias_gelu_drops_last_k", "triton", "faulty", calibrate_against="matmul_bias_gelu_triton"),
        Kernel("matmul_bias_gelu_tf32", "triton", "faulty", calibrate_against="matmul_bias_gelu_triton"),
    ),
)

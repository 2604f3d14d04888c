"""swiglu: silu(a)·b."""

from gonogo.ops._op import Input, Kernel, Op

OP = Op(
    name="swiglu",
    inputs=(Input("a", "B S H"), Input("b", "B S H")),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (1, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    takes=("nan",),
    kernels=(
        Kernel("swiglu_torch", "torch", in_dtype=True),
        Kernel("swiglu_triton", "triton"),
        Kernel("swiglu_half_gate", "triton", "faulty", calibrate_against="swiglu_triton"),
        Kernel("swiglu_half_product", "triton", "faulty", calibrate_against="swiglu_triton"),
        Kernel("swiglu_coarse_reciprocal", "triton", "faulty", calibrate_against="swiglu_triton"),
        Kernel("swiglu_b_stride", "triton", "faulty", calibrate_against="swiglu_triton"),
        Kernel("swiglu_swapped", "triton", "faulty", calibrate_against="swiglu_triton"),
    ),
)

"""Residual addition and RMS normalisation in one step, with a weight per column."""

from gonogo.ops._op import Input, Kernel, Op

OP = Op(
    name="add_rmsnorm",
    inputs=(Input("x", "B S H"), Input("residual", "B S H"), Input("weight", "H")),
    output="B S H",
    sizes={"B": (1, 2, 8), "S": (1, 7, 128), "H": (2, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192)},
    main="H",
    reduced=("H",),
    takes=("nan",),
    kernels=(
        Kernel("add_rmsnorm_torch", "torch"),
        Kernel("add_rmsnorm_triton", "triton"),
        Kernel("add_rmsnorm_half_residual", "triton", "faulty", calibrate_against="add_rmsnorm_triton"),
        Kernel("add_rmsnorm_half_normed", "triton", "faulty", calibrate_against="add_rmsnorm_triton"),
        Kernel("add_rmsnorm_no_eps", "triton", "faulty", calibrate_against="add_rmsnorm_triton"),
        Kernel("add_rmsnorm_drops_odd", "triton", "faulty", calibrate_against="add_rmsnorm_triton"),
        Kernel("add_rmsnorm_residual_unsummed", "triton", "faulty", calibrate_against="add_rmsnorm_triton"),
        Kernel("add_rmsnorm_residual_stride", "triton", "faulty", calibrate_against="add_rmsnorm_triton"),
    ),
)

"""2-D convolution, padded so that the output is as large as the input."""

from gonogo.ops._op import Input, Kernel, Op
from gonogo.schema import Contract

OP = Op(
    name="conv2d",
    inputs=(Input("x", "N C Y X"), Input("weight", "O C R T", far=False)),
    output="N O Y X",
    sizes={
        "N": (1, 2),
        "C": (1, 3, 16, 32, 33, 64, 128),
        "Y": (1, 7, 14, 16, 56),
        "X": (1, 5, 14, 17, 32, 64),
        "O": (1, 4, 33, 64, 128),
        "R": (1, 3, 5),
        "T": (1, 3, 5),
    },
    main="C",
    only_listed=("R", "T"),
    reduced=("C", "R", "T"),
    sums_of_products=True,
    kernels=(
        # cuDNN takes Winograd or FFT for some shapes, whose error is not that of sums of products, and for half
        # inputs may add up parts of a sum in their dtype.
        Kernel("conv2d_torch", "torch", contract=Contract(fast_math=True), in_dtype=True),
        Kernel("conv2d_torch_unfold", "torch"),
        Kernel("conv2d_triton", "triton"),
        Kernel("conv2d_edge_wraps", "triton", "faulty", calibrate_against="conv2d_triton"),
        Kernel("conv2d_edge_repeats", "triton", "faulty", calibrate_against="conv2d_triton"),
        Kernel("conv2d_square_padding", "triton", "faulty", calibrate_against="conv2d_triton"),
        Kernel("conv2d_half_accumulator", "triton", "faulty", calibrate_against="conv2d_triton"),
        Kernel("conv2d_drops_last_channel", "triton", "faulty", calibrate_against="conv2d_triton"),
        Kernel("conv2d_tf32", "triton", "faulty", calibrate_against="conv2d_triton"),
        Kernel("conv2d_row_stride", "triton", "faulty", calibrate_against="conv2d_triton"),
    ),
)

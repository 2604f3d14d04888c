"""Batched matrix product."""

from gonogo.ops._op import Input, Kernel, Op

OP = Op(
    name="bmm",
    inputs=(Input("a", "Z M K"), Input("b", "Z K N")),
    output="Z M N",
    sizes={
        "Z": (1, 2, 5, 16),
        "M": (1, 7, 33, 64, 128, 256),
        "K": (1, 3, 16, 64, 127, 257, 512, 1024, 4096),
        "N": (1, 15, 33, 64, 128, 256),
    },
    main="K",
    largest={"Z": 4096},
    reduced=("K",),
    sums_of_products=True,
    kernels=(
        Kernel("bmm_torch", "torch"),
        Kernel("bmm_triton", "triton"),
        Kernel("bmm_tf32", "triton", "faulty", calibrate_against="bmm_triton"),
        Kernel("bmm_half_accumulator", "triton", "faulty", calibrate_against="bmm_triton"),
        Kernel("bmm_narrow_partials", "triton", "faulty", calibrate_against="bmm_triton"),
        Kernel("bmm_drops_k_tail", "triton", "faulty", calibrate_against="bmm_triton"),
        Kernel("bmm_stale_batch", "triton", "faulty", calibrate_against="bmm_triton"),
        Kernel("bmm_batch_stride", "triton", "faulty", calibrate_against="bmm_triton"),
    ),
)

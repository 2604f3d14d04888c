"""Rules that torch's own samples exercise, and the functions of tests/atlas beside them: no table of one test's."""

from __future__ import annotations

from gonogo.instrument.running_error.rules.backward import BACKWARD
from gonogo.instrument.running_error.rules.complex_numbers import COMPLEX
from gonogo.instrument.running_error.rules.linear_algebra import LINEAR_ALGEBRA
from gonogo.instrument.running_error.rules.scatters import SCATTERS
from gonogo.instrument.running_error.rules.special import SPECIAL

SAMPLED = {
    *BACKWARD, *COMPLEX, *LINEAR_ALGEBRA, *SCATTERS, *SPECIAL,
    *(
        f"aten.{name}" for name in (
            "_cdist_forward", "_pdist_forward", "_scaled_dot_product_flash_attention_for_cpu_backward",
            "_trilinear", "_unique2", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa",
            "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
            "adaptive_max_pool2d", "adaptive_max_pool3d", "addbmm", "as_strided", "as_strided_scatter", "copy",
            "embedding_renorm", "fill", "fractional_max_pool2d", "fractional_max_pool3d", "logcumsumexp",
            "mish_backward", "mode",
            "nanmedian", "unique_consecutive", "unique_dim", "unsafe_chunk", "unsafe_split",
            "unsafe_split_with_sizes", "upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d",
            "upsample_trilinear3d",
        )
    ),
}  # fmt: skip

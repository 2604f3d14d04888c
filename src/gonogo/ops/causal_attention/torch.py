"""causal_attention by torch."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def causal_attention_torch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The framework's own op on inputs cast to float32, by its unfused backend; cast back at the end."""
    with sdpa_kernel(SDPBackend.MATH):  # the fused ones round P to the dtype, or take 3xTF32 products
        return scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True).to(q.dtype)

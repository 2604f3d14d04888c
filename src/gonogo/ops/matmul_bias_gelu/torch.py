"""Matrix product, bias and gelu by torch."""

import torch


def matmul_bias_gelu_torch(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The framework's own ops, which round what goes into gelu to the dtype of the inputs."""
    return torch.nn.functional.gelu(torch.addmm(bias, a, b), approximate="tanh")


def matmul_bias_gelu_torch_fp32(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The same in float32, cast back at the end."""
    return matmul_bias_gelu_torch(a.float(), b.float(), bias.float()).to(a.dtype)

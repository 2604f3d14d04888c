"""Any kernel as it is: codes with scales, an in-place step, a gradient; each told by a reference and its inputs."""

import torch

import gonogo


def rand(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Without its rounding: an int8 code stands for all that rounds to it."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    return x / scale, scale


def quantize_kernel(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scale = quantize(x.float())
    return codes.round().to(torch.int8), scale.to(x.dtype)


def truncates(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scale = quantize(x.float())
    return codes.to(torch.int8), scale.to(x.dtype)


def step(weight: torch.Tensor, gradient: torch.Tensor, momentum: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    moved = 0.9 * momentum + gradient
    return weight - 0.01 * moved, moved


def step_(weight: torch.Tensor, gradient: torch.Tensor, momentum: torch.Tensor) -> None:
    momentum.mul_(0.9).add_(gradient)
    weight.copy_(weight.float() - 0.01 * momentum)


def silu_and_mul(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    return x * torch.nn.functional.silu(gate)


for kernel in (quantize_kernel, truncates):
    found = gonogo.verify(
        kernel, reference=quantize, inputs=lambda seed, dtype: (rand(seed, 9, 130).to(dtype),), strict=False
    )
    worst = found.worst_case
    print(f"{kernel.__name__}: {worst.verdict.message if worst else found.decision}")

# The weights in bfloat16, the rest in float32: each leaf is judged in its own dtype.
inputs = rand(1, 300).bfloat16(), rand(2, 300), rand(3, 300)
print("step_:", gonogo.verify(step_, reference=step, inputs=inputs, mutates=("weight", "momentum")).decision)

found = gonogo.verify(silu_and_mul, reference=silu_and_mul, inputs=(rand(1, 9, 64), rand(2, 9, 64)), grads=True)
print("silu_and_mul:", [leaf.path for leaf in found.verdicts[0].record.leaves], found.decision)

"""A softmax with a bug in its tail mask, caught in one call; and a correct one, passed."""

import torch

import gonogo


def tail_counts(x: torch.Tensor) -> torch.Tensor:
    """Rows are padded to a power of two with zeros, and the zeros enter the sum."""
    lanes = 2 ** (x.shape[-1] - 1).bit_length()
    wide = torch.nn.functional.pad(x.float(), (0, lanes - x.shape[-1]))
    powers = (wide - wide.amax(-1, keepdim=True)).exp()
    return (powers / powers.sum(-1, keepdim=True))[..., : x.shape[-1]].to(x.dtype)


print(gonogo.verify(lambda x: torch.softmax(x, -1), op="softmax"))
print()
try:
    gonogo.verify(tail_counts, op="softmax")
except gonogo.errors.NoGo as failure:
    print(failure)

# One output at hand is judged the same way.
x = torch.randn(8, 100)
print()
print(gonogo.check(tail_counts(x.view(1, 8, 100)), op="softmax", inputs={"input": x.view(1, 8, 100)}).message)

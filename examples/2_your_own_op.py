"""An op gonogo does not know: named axes and a reference are all it takes; the error scale comes by itself."""

import torch

import gonogo

rmsnorm = gonogo.Op(
    "my_rmsnorm",
    inputs={"x": "rows cols", "w": "cols"},
    output="rows cols",
    sizes={"rows": (1, 7, 16), "cols": (1, 3, 255, 513)},
    reduced=("cols",),
    reference=lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w,
)


def right(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6) * w.float()).to(x.dtype)


def eps_outside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Eps is added to the root instead of under it."""
    wide = x.float()
    return (wide / ((wide * wide).mean(-1, keepdim=True).sqrt() + 1e-6) * w.float()).to(x.dtype)


def half_squares(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Squares are summed in float16: a promise of float32 is broken, one of float16 kept where none overflows."""
    mean = (x.half() * x.half()).mean(-1, keepdim=True).float()
    return (x.float() * torch.rsqrt(mean + 1e-6) * w.float()).to(x.dtype)


values = ("normal", "uniform", "cancel", "tiny")
for kernel in (right, eps_outside, half_squares):
    print(kernel.__name__)
    print(gonogo.verify(kernel, rmsnorm, dtypes=("float16",), distributions=values, strict=False))
    print()

# With a control of your own the limit is what that control's error justifies, instead of the worst case.
print(gonogo.verify(right, rmsnorm, controls=[right], dtypes=("float32",)))

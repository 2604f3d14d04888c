"""tanh in primitive ops."""

import torch

from gonogo.instrument.running_error import allow


def reference(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """tanh(x), and what forms by exp lose near 0.

    (1 − e)/(1 + e) and 2σ(2x) − 1 cancel there: in float32 they are up to 2u off at 0, and from 1 on no more than
    tanh itself may be.
    """
    return allow(torch.tanh(input), absolute=2 * (1 - input.abs()).clamp(min=0.0))

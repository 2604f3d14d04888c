"""softmax by NumPy, in float32 on the host."""

import numpy as np
from numpy.typing import NDArray

PAD_TO = 128


def softmax(input: NDArray[np.generic]) -> NDArray[np.generic]:  # noqa: A002
    """Max subtracted, float32 inside, cast back at the end."""
    x = input.astype(np.float32)
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True), dtype=input.dtype)


def softmax_llm_buggy(input: NDArray[np.generic]) -> NDArray[np.generic]:  # noqa: A002
    """Zero padding takes part in maximum and sum: every probability shrinks where H is no multiple of 128."""
    x = input.astype(np.float32)
    length = x.shape[-1]
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -length % PAD_TO)])
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray((e / e.sum(-1, keepdims=True))[..., :length], dtype=input.dtype)

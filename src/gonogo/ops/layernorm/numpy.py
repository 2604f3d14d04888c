"""Layer normalisation by NumPy, in float32 on the host."""

import numpy as np
from numpy.typing import NDArray

EPS = np.float32(1e-5)


def layernorm(input: NDArray[np.generic]) -> NDArray[np.generic]:  # noqa: A002
    """Two passes, population variance, float32 inside, cast back at the end."""
    x = input.astype(np.float32)
    centred: NDArray[np.float32] = x - x.mean(-1, keepdims=True)
    deviation: NDArray[np.float32] = np.sqrt((centred * centred).mean(-1, keepdims=True) + EPS)
    return (centred / deviation).astype(input.dtype)

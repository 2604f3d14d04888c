"""Matrix product by NumPy, in float32 on the host."""

import numpy as np
from numpy.typing import NDArray


def matmul(a: NDArray[np.generic], b: NDArray[np.generic]) -> NDArray[np.generic]:
    """float32 inside, cast back at the end."""
    product: NDArray[np.float32] = np.matmul(a.astype(np.float32), b.astype(np.float32))
    return product.astype(a.dtype)

import numpy as np


def leaves_a_hole_in_numpy(x):
    out = np.empty_like(x)
    out[1:] = x[1:] * 2
    return out


def strides_back_in_numpy(x):
    return (x[::-1] * 2)[::-1]

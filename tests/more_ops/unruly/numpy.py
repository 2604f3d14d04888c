import numpy as np

np.seterr(all="raise")


def has_numpy_raise(x):
    """Leaves NumPy raising."""
    np.seterr(all="raise")
    return x / 2


def needs_numpy(x):
    """Wrong where another kernel's switches are in force."""
    assert np.geterr()["over"] == "warn"
    return x / 2

import torch

torch.set_default_dtype(torch.float64)


def halves(x):
    return x / 2


def flushes(x):
    """Leaves subnormals flushed."""
    torch.set_flush_denormal(True)
    return x / 2


def counts_in_float64(x):
    """Leaves another default dtype."""
    torch.set_default_dtype(torch.float64)
    return x / 2


def needs_defaults(x):
    """Wrong where another kernel's switches are in force."""
    assert torch.tensor(1.0).dtype is torch.float32
    assert float(torch.tensor(5e-324, dtype=torch.float64) * 1) > 0
    return x / 2

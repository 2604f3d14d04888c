def calm_torch(x, w):
    return (x.float() @ w.float()).to(x.dtype)


def calm_sum(x, w):
    return (x.float() * w.float()).sum(-1).to(x.dtype)


def calm_drops_last(x, w):
    """The last column is left out: shows where there is more than one."""
    return (x[:, :-1].float() @ w[:-1].float()).to(x.dtype)

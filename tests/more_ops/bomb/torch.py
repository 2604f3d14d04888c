import os


def copies(x):
    return x.clone()


def leaves_a_bomb(x):
    """Right, and the next case ends its worker."""
    os.environ["BOMB"] = "1"
    return x.clone()

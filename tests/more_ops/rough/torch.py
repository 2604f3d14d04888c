import os


def rough_plain(x):
    return x * 2


def rough_torch(x):
    os.abort()


def rough_half(x):
    return x * 2


def rough_after_torch(x):
    return x + x


def rough_after_half(x):
    return x + x


def rough_last(x):
    return x + x

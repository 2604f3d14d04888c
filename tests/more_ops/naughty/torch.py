import ctypes
import itertools
import os
import re
import sys

import torch

_calls = itertools.count()
_hoard = []
_buffers = {}


def doubles(x):
    return x * 2


def doubles_too(x):
    return x + x


def segfaults(x):
    return ctypes.string_at(0)


def hangs_in_python(x):
    while True:
        pass


def hangs_in_c(x):
    return re.match(r"(a+)+$", "a" * 60 + "b")  # never lets the interpreter go


def raises(x):
    raise ArithmeticError("two and two are five\nsecond line")


def exits(x):
    sys.exit(0)


def exits_at_once(x):
    os._exit(0)


def eats_memory(x):
    while True:
        _hoard.append(bytearray(os.urandom(1)) * (64 * 2**20))


def asks_for_too_much(x):
    return bytearray(2**60)


def returns_other_shape(x):
    return (x * 2).reshape(-1)


def returns_other_dtype(x):
    return (x * 2).double()


def returns_its_input(x):
    return x.view(x.shape)


def returns_none(x):
    return None


def returns_text(x):
    return "done"


def returns_sparse(x):
    return (x * 2).to_sparse()


def returns_meta(x):
    return (x * 2).to("meta")


def doubles_in_place(x):
    return x.mul_(2)


def writes_into_its_input(x):
    out = x * 2
    x.zero_()
    return out


def leaves_a_hole(x):
    out = torch.empty_like(x)
    out[1:] = x[1:] * 2
    return out


def never_the_same(x):
    return x * 2 + next(_calls)


def returns_one_buffer(x):
    """Other values each time, always in the same memory."""
    out = _buffers.setdefault(x.shape, torch.empty_like(x))
    return torch.add(x * 2, next(_calls), out=out)


def makes_nan(x):
    out = x * 2
    out[0, 0] = float("nan")
    return out


def prints_megabytes(x):
    print("noise " * 500_000)  # noqa: T201
    os.write(2, b"noise " * 500_000)
    return x * 2


def calls_itself_control(x):
    """Off by one unit in the last place, everywhere."""
    return x * 2 * (1 + torch.finfo(x.dtype).eps)

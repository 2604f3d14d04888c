"""A kernel file that attacks, deceives or is merely odd, and the decision and outcome that it must get.

Every one is a softmax over the last axis, or pretends to be. RIGHT is what a correct one returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import dedent

RIGHT = "torch.softmax(x.float(), -1).to(x.dtype)"
HEAD = """\
import builtins, ctypes, functools, gc, json, os, random, resource, signal, socket, stat, sys
import threading, time, types
import numpy as np
import torch
def find_sockets():
    found = []
    for number in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode): found.append(number)
        except OSError: pass
    return found
def pack(body): return len(body).to_bytes(4, "little") + body
def tell_all(content):
    for number in find_sockets(): os.write(number, content)
def call_system(name, *args):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args) < 0: raise OSError(ctypes.get_errno(), name)
"""


@dataclass(frozen=True)
class File:
    """A source, and what must become of it."""

    name: str
    decision: str
    """`go`, `no-go`, or `error` where there is no kernel to judge."""
    outcome: str | None
    """An outcome that some case must have; None where readings decide."""
    source: str
    cases: int = 2
    beside: Mapping[str, str] = field(default_factory=dict)
    """Files in the same folder, by name."""
    needs: str | None = None
    """A wall without which it gets another verdict."""


def make_file(
    name: str,
    decision: str,
    outcome: str | None,
    source: str,
    *,
    cases: int = 2,
    beside: Mapping[str, str] | None = None,
    needs: str | None = None,
    head: str = HEAD,
) -> File:
    """A file with what most of them import; of those that hang one case is enough."""
    text = head + dedent(source).replace("RIGHT", RIGHT)
    return File(name, decision, outcome, text, cases, beside or {}, needs)

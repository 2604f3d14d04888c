"""Words a user gives → what they stand for: ops, contracts, dtypes; a near word is suggested for one unknown."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gonogo.errors import InputError, UnknownOp, UnknownWord, suggest
from gonogo.ops import Op, get_op, op_names
from gonogo.schema import Contract

CONTRACTS = {
    "float32": Contract(),
    "float16": Contract(accumulate="float16"),
    "bfloat16": Contract(accumulate="bfloat16"),
    "tf32": Contract(products="tf32"),
    "fast-math": Contract(fast_math=True),
    "atomics": Contract(atomics=True),
}
"""What a kernel may promise, by the word for it."""


def find_op(op: str | Op) -> Op:
    """The op of that name; an op at hand is taken as it is."""
    if isinstance(op, Op):
        return op
    if not isinstance(op, str):
        raise InputError(f"op is {type(op).__name__}; give a name of gonogo ops, or a gonogo.Op(...)")
    if op not in op_names():
        raise UnknownOp(op, op_names(), near=suggest(op, op_names()))
    return get_op(op)


def find_contract(given: Contract | str | None) -> Contract:
    """The contract a word stands for; float32 if there is none."""
    if isinstance(given, Contract):
        return given
    if given is not None and given not in CONTRACTS:
        raise UnknownWord("contract", given, tuple(CONTRACTS))
    return CONTRACTS[given or "float32"]


def name_contract(contract: Contract) -> str | None:
    """The word for a contract, where there is one."""
    return next((word for word, known in CONTRACTS.items() if known == contract), None)


def find_words(what: str, given: str | Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Words, each once, all of them known; one may stand alone."""
    words = tuple(dict.fromkeys([given] if isinstance(given, str) else given))
    for word in words:
        if word not in known:
            raise UnknownWord(what, word, tuple(known))
    if not words:
        raise InputError(f"no {what}: at least 1 is needed; known: {', '.join(known)}")
    return words

"""Words a user gives → what they stand for: ops, contracts, dtypes; a near word is suggested for one unknown."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from gonogo.errors import BackendMissing, InputError, UnknownOp, UnknownWord, suggest
from gonogo.ops import DTYPES, Op, get_op, op_names
from gonogo.schema import Contract

CONTRACTS = {
    "float32": Contract(),
    "float64": Contract(accumulate="float64"),
    "float16": Contract(accumulate="float16"),
    "bfloat16": Contract(accumulate="bfloat16"),
    "tf32": Contract(products="tf32"),
    "fast-math": Contract(fast_math=True),
    "atomics": Contract(atomics=True),
    "backward": Contract(backward=True),
    "strassen": Contract(products="strassen"),
    "fp8": Contract(products="fp8"),
}
"""What a kernel may promise, by the word for it."""
OTHER_NAMES = {
    "half": "float16", "fp16": "float16", "f16": "float16", "bf16": "bfloat16",
    "float": "float32", "fp32": "float32", "f32": "float32",
}  # fmt: skip


def find_op(op: str | Op) -> Op:
    """The op of that name; an op at hand is taken as it is."""
    if isinstance(op, Op):
        return op
    if not isinstance(op, str):
        raise InputError(f"op is {type(op).__name__}; give a name of gonogo ops, or a gonogo.Op(...)")
    if op not in op_names():
        raise UnknownOp(op, op_names(), near=suggest(op, op_names()))
    return get_op(op)


def need_torch(what: str) -> None:
    """Refuse what cannot be done without torch, before anything else is wrong with it."""
    if importlib.util.find_spec("torch") is None:
        raise BackendMissing("torch", what)


def find_contract(given: Contract | str | None) -> Contract:
    """The contract a word stands for, also as reports and lock files write it; float32 if there is none."""
    if isinstance(given, Contract):
        return given
    word = "float32" if given is None else given
    if not isinstance(word, str):
        raise InputError(
            f"contract is {type(word).__name__}; give one of {', '.join(CONTRACTS)}, or a gonogo.Contract"
        )
    word = OTHER_NAMES.get(word, word)
    if word in CONTRACTS:
        return CONTRACTS[word]
    try:
        return Contract.parse(word)
    except InputError:
        raise UnknownWord("contract", word, tuple(CONTRACTS)) from None


def name_contract(contract: Contract) -> str:
    """The word for a contract; else all it says, which find_contract takes too."""
    return next((word for word, known in CONTRACTS.items() if known == contract), contract.describe())


def find_dtypes(given: Any) -> tuple[str, ...]:
    """Dtypes by name, each once; torch's own, and names by which others go, are taken too."""
    several = [given] if isinstance(given, str) or not isinstance(given, Iterable) else given
    names = [str(dtype).removeprefix("torch.") for dtype in several]
    return find_words("dtype", [OTHER_NAMES.get(name, name) for name in names], DTYPES)


def find_words(what: str, given: str | Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Words, each once, all of them known; one may stand alone."""
    words = tuple(dict.fromkeys([given] if isinstance(given, str) else given))
    for word in words:
        if word not in known:
            raise UnknownWord(what, word, tuple(known))
    if not words:
        raise InputError(f"no {what}: at least 1 is needed; known: {', '.join(known)}")
    return words

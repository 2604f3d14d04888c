"""Words for what a kernel promises → contracts, and back."""

from __future__ import annotations

from gonogo.errors import InputError, UnknownWord
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
    "eager-bfloat16": Contract(stored="bfloat16"),
    "eager-float16": Contract(stored="float16"),
}
"""What a kernel may promise, by the word for it."""
OTHER_NAMES = {
    "half": "float16", "fp16": "float16", "f16": "float16", "bf16": "bfloat16",
    "float": "float32", "fp32": "float32", "f32": "float32",
}  # fmt: skip


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

"""Contracts by the words people use, and what is said of one that is none."""

from __future__ import annotations

import pytest

from gonogo.errors import UnknownFormat, UnknownWord
from gonogo.schema import Contract
from gonogo.words import CONTRACTS, find_contract, name_contract


@pytest.mark.parametrize("word", CONTRACTS)
def test_every_word_comes_back(word: str) -> None:
    assert name_contract(find_contract(word)) == word


def test_float64_is_among_the_known() -> None:
    assert find_contract("float64") == Contract(accumulate="float64")
    with pytest.raises(UnknownWord, match="known: float32, float64, float16, "):
        find_contract("q")


@pytest.mark.parametrize("field", ["accumulate", "intermediate"])
def test_an_unknown_format_is_told_by_its_field(field: str) -> None:
    with pytest.raises(
        UnknownFormat, match=f"^contract {field} has unknown floating-point format 'float12'; known: "
    ):
        Contract(**{field: "float12"})  # type: ignore[arg-type]

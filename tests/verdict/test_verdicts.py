"""What verdicts say to people and to programs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import pytest
from make_record import make_record

from gonogo.schema import ULP_SATURATED, Element
from gonogo.verdict.judge import judge
from gonogo.verdict.verdicts import CaseVerdict, Verification, tell_element

RECORD = make_record()


def make_verification(element: Element | None, reading: float = 9.0, **given: Any) -> Verification:
    one = CaseVerdict("softmax:f16:1x1x8:c:uniform:1", {"B": 1, "S": 1, "H": 8}, judge("ok", reading, 4.0), RECORD)
    return Verification("softmax", "float32", "somewhere", (one,), worst=element, **given)


@pytest.mark.parametrize(
    ("actual", "expected", "told"),
    [(math.nan, 1.0, (None, 1.0)), (-math.inf, 1.0, ("-inf", 1.0)), (1.0, math.nan, (1.0, None))],
)
def test_plain_data_is_strict_json(actual: float, expected: float, told: tuple[Any, Any]) -> None:
    element = Element((0, 3), expected, actual, ULP_SATURATED, math.inf)
    found = make_verification(element, math.inf)
    plain = found.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["worst"]["case"] == found.verdicts[0].case
    assert plain["worst"]["reading"] == plain["verdicts"][0]["reading"] == "inf"
    kept = plain["worst"]["element"]
    assert (kept["actual"], kept["expected"], kept["ulp"], kept["index"]) == (*told, None, [0, 3])
    assert "ULP" not in tell_element(element)


def test_a_distance_is_kept() -> None:
    element = Element((0,), 1.0, 1.5, 512, 9.0)
    assert make_verification(element).to_dict()["worst"]["element"] == asdict(element) | {"index": [0]}
    assert tell_element(element).endswith("512 ULPs apart")
    assert make_verification(None).to_dict()["worst"]["element"] is None
    go = Verification("softmax", "float32", "somewhere", (CaseVerdict("a", {}, judge("ok", 1.0, 4.0), RECORD),))
    assert go.to_dict()["worst"] is None


@pytest.mark.parametrize(("word", "told"), [("atomics", "an atomics"), ("tf32", "a tf32")])
def test_articles(word: str, told: str) -> None:
    assert f"within {told} contract; the one declared is float32" in repr(make_verification(None, holds_under=word))

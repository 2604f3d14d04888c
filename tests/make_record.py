"""A record by hand, for tests of what comes behind it."""

from __future__ import annotations

from typing import Any

from gonogo.records import append_records
from gonogo.records.places import parse_place
from gonogo.schema import Record

ENVIRONMENT = {"device": "cpu", "processor": "a processor", "torch": "2"}


def make_record(**given: Any) -> Record:
    """A control of softmax in float16 that did nothing yet, but for what is given."""
    facts: dict[str, Any] = {
        "number": 0, "case": "softmax:f16:1x1x8:c:uniform:1", "op": "softmax", "dtype": "float16", "shape": "1x1x8",
        "layout": "contiguous", "distribution": "uniform", "strategy": "default", "seed": 1, "reduced_length": 8,
        "kernel": "softmax_torch", "role": "control", "framework": "torch", "contract": "float32",
    }  # fmt: skip
    return Record(**facts | given)


def append_some(folder: str, first: int) -> int:
    """Ten records, two at a time; how many were new. Here, where a process that is to do so loads no torch."""
    records = [make_record(case=f"c{number}") for number in range(first, first + 10)]
    return sum(
        append_records(parse_place(folder), ENVIRONMENT, records[at : at + 2]).added for at in range(0, 10, 2)
    )

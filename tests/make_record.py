"""A record by hand, for tests of what comes behind it."""

from __future__ import annotations

from typing import Any

from gonogo.schema import Record


def make_record(**given: Any) -> Record:
    """A control of softmax in float16 that did nothing yet, but for what is given."""
    facts: dict[str, Any] = {
        "number": 0, "case": "softmax:f16:1x1x8:c:uniform:1", "op": "softmax", "dtype": "float16", "shape": "1x1x8",
        "layout": "contiguous", "distribution": "uniform", "strategy": "default", "seed": 1, "reduced_length": 8,
        "kernel": "softmax_torch", "role": "control", "framework": "torch", "contract": "float32",
    }  # fmt: skip
    return Record(**facts | given)

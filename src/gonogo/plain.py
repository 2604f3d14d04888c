"""Values → what strict JSON can hold: it has no NaN and no infinities."""

from __future__ import annotations

import math
from typing import Any


def to_plain(value: Any) -> Any:
    """NaN is null, an infinity the string "inf" or "-inf", a tuple a list."""
    if isinstance(value, dict):
        return {name: to_plain(content) for name, content in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(content) for content in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(float(value))
    return value

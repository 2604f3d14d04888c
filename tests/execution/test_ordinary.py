"""Outputs that are finite throughout → the counts and readings that a look at every element gives."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gonogo.execution.measurement import _find_odd, count_non_finite
from gonogo.execution.reference import Reference
from gonogo.policies.elementwise import find_errors
from gonogo.policies.readings import count_off, find_kindest, find_largest
from gonogo.schema import Contract

VALUES = st.sampled_from(
    [0.0, -0.0, 1.0, -1.5, 6e-8, 448.0, 65504.0, 65520.0, 3.4e38, 1e39, math.inf, -math.inf, math.nan]
)
PAIRS = st.lists(st.tuples(VALUES, VALUES), max_size=6)
DTYPES = ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("dtype", DTYPES)
@given(PAIRS)
def test_what_is_not_finite_is_counted(dtype: str, pairs: list[tuple[float, float]]) -> None:
    actual, expected = (torch.tensor([pair[k] for pair in pairs], dtype=torch.float64) for k in range(2))
    output = actual.to(getattr(torch, dtype))
    scale = torch.zeros_like(expected)
    reference = Reference(expected, scale, Contract(), lambda: scale, dtype=dtype)
    assert count_non_finite(output, reference, dtype) == int(_find_odd(output, reference, dtype).sum())


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6), st.sampled_from([0.0, 1e-3]))
def test_policies_read_what_they_read_of_any_array(pairs: list[tuple[float, float]], atol: float) -> None:
    actual, expected = (np.array([pair[k] for pair in pairs]) for k in range(2))
    errors = find_errors(actual, expected)
    assert errors.finite == bool(np.isfinite(actual).all() and np.isfinite(expected).all())
    with np.errstate(all="ignore"):
        for look in (lambda x: find_kindest(x, atol, 1e-2), lambda x: count_off(x, atol, 1e-2), find_largest):
            assert look(errors) == look(replace(errors, finite=False))

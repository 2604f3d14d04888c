"""Faulty kernels of the corpus, verified as a stranger's: each must be no-go where this machine can run it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.append(str(Path(__file__).parent.parent.parent / "benchmarks"))

from strangers import is_refused, list_faulty, verify_stranger

from gonogo.ops import DTYPES, Kernel
from gonogo.runners.device import find_device
from gonogo.user.planning import DEFAULT_CASES

INTERPRETED = (
    "log_softmax_pads_zero", "relu_skips_tail", "rmsnorm_stale_row", "softmax_triton_buggy", "sum_drops_last",
)  # fmt: skip
"""A handful of Triton's, quick to interpret."""
CHOSEN = [
    (op, kernel) for op, kernel in list_faulty() if kernel.framework != "triton" or kernel.name in INTERPRETED
]


def test_all_that_are_named_are_there() -> None:
    assert set(INTERPRETED) < {kernel.name for _, kernel in CHOSEN}


@pytest.mark.slow
@pytest.mark.parametrize(("op", "kernel"), CHOSEN, ids=[kernel.name for _, kernel in CHOSEN])
def test_a_faulty_kernel_is_no_go(op: str, kernel: Kernel) -> None:
    if kernel.framework == "triton":
        pytest.importorskip("triton")
    device = find_device("auto")
    usable = [dtype for dtype in DTYPES if dtype in kernel.dtypes and not is_refused(kernel, dtype, device)]
    cases = 12 if kernel.framework == "triton" and device == "cpu" else DEFAULT_CASES  # the interpreter is slow
    found = [verify_stranger(op, kernel, dtype, device=device, cases=cases) for dtype in usable]
    assert "no-go" in {finding.decision for finding in found}, found

"""A case and a tolerance → whether stand-ins for a kernel pass it, and how tight it is element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gonogo.audit.finding import ROUNDED, Audit
from gonogo.audit.tolerance import Tolerance
from gonogo.formats import get_format
from gonogo.policies import Twin
from gonogo.schema import Contract
from gonogo.verdict.judge import judge

if TYPE_CHECKING:
    import torch

    from gonogo.execution.bench import Bench


def probe_case(audit: Audit, tolerance: Tolerance, bench: Bench, twin: Twin | None) -> None:
    """Try every stand-in on one case."""
    import torch

    reference = bench.reference(Contract())
    expected, dtype = reference.expected, getattr(torch, audit.dtype)
    fmt = get_format(audit.dtype)
    if not expected.numel() or float(expected.abs().max()) >= float(fmt.overflow_threshold):
        return  # an infinity is right there, and far from a reference that is not rounded
    stand_ins = {
        "zeros": torch.zeros_like(expected),
        "constant": torch.ones_like(expected),
        "mean": torch.full_like(expected, float(expected.mean())),
    }
    first = bench.pristine.args[0]
    if first.shape == expected.shape:
        stand_ins["input"] = first.double()
    outputs = {name: values.to(dtype) for name, values in stand_ins.items()}
    wrong = {name: output for name, output in outputs.items() if _is_wrong(audit, bench, output)}
    passed = {name: _passes(tolerance.read(bench, output, expected, twin)) for name, output in wrong.items()}
    for name, passes in passed.items():
        audit.probes[name].cases += 1
        audit.probes[name].passed += passes
    audit.probed += bool(passed)
    audit.fooled += any(passed.values())
    exact = expected.numpy()
    rounded = torch.from_numpy(np.ascontiguousarray(fmt.round(exact))).to(dtype)
    audit.probes[ROUNDED].cases += 1
    audit.probes[ROUNDED].passed += _passes(tolerance.read(bench, rounded, expected, twin))
    magnitudes = np.abs(exact)
    allowed = tolerance.allow(bench, magnitudes, twin)
    if allowed is not None:
        typical = magnitudes >= fmt.smallest_normal
        audit.elements += int(typical.sum())
        audit.too_tight += int((typical & (allowed < fmt.ulp(exact) / 2)).sum())


def _is_wrong(audit: Audit, bench: Bench, output: torch.Tensor) -> bool:
    """Whether gonogo says no-go: a constant may be right, and the input may be its own ReLU."""
    from gonogo.execution.measurement import read_bounds

    measured = read_bounds(output, bench.reference(Contract()))
    limit = 1.0 if audit.limit is None else audit.limit
    return judge("ok", measured.bound, limit, deterministic=measured.deterministic).decision == "no-go"


def _passes(reading: float | None) -> bool:
    return reading is not None and reading <= 1

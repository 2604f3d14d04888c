"""A tolerance → what it is worth for an op and dtype: whether it is vacuous or too tight, and what it catches.

Probes that are plainly wrong (zeros, a constant, the input itself) must not pass it, and the exact result, rounded
correctly, must. How often correct kernels fail it, and which known faults do, is counted in records where these
decide it, and by running the op's own kernels on small cases on the CPU where they do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from gonogo.cases import FINITE, INTERPRETER, plan_case
from gonogo.errors import InputError, check_tolerance
from gonogo.evaluate import filter_columns
from gonogo.evaluate.groups import MANIFEST, Rows
from gonogo.evaluate.score import ALWAYS_SEEN, UNJUDGED, Score, score_policies
from gonogo.evaluate.table import Share, Table
from gonogo.formats import get_format
from gonogo.isolated import find_shipped_limit
from gonogo.judge import GO, NO_GO, judge
from gonogo.measure.gauges import gauge
from gonogo.measure.readings import read
from gonogo.ops import Op
from gonogo.policies import Policy, Twin, load_policies, read_policies
from gonogo.records import MEASURED, Columns, Row
from gonogo.schema import Contract

if TYPE_CHECKING:
    import torch

    from gonogo.campaign.bench import Bench

CASES = 24
"""Live cases of an op and dtype: each finite distribution four times."""
CASES_OF_MANY = 6
"""Where every op is audited: each finite distribution once."""
PROBES = ("zeros", "constant", "input")
ROUNDED = "rounded"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tolerance:
    """|y − r| ≤ atol + rtol·|r|, or a policy of the field."""

    atol: float = 0.0
    rtol: float = 0.0
    policy: Policy | None = None
    """Where there is one, the two numbers are not looked at."""

    @property
    def name(self) -> str:
        """For people."""
        return self.policy.name if self.policy else f"atol={self.atol:g} rtol={self.rtol:g}"

    @classmethod
    def make(cls, *, atol: float | None, rtol: float | None, policy: str | None) -> Tolerance:
        """Of one kind or the other, checked."""
        if policy is not None and (atol is not None or rtol is not None):
            raise InputError("give --policy, or --atol and --rtol, not both")
        if policy is not None:
            return cls(policy=_find_policy(policy))
        if atol is None or rtol is None:
            raise InputError("no tolerance: give --atol and --rtol (0 is a value), or --policy")
        check_tolerance("atol", atol, finite=True)
        check_tolerance("rtol", rtol, finite=True)
        return cls(atol, rtol)

    def read(self, bench: Bench, actual: torch.Tensor, expected: torch.Tensor, twin: Twin | None) -> float | None:
        """Worst error in units of what is tolerated; it passes up to 1. None where the policy says nothing."""
        if self.policy is None:
            return read(actual, expected, gauge=gauge("policy", atol=self.atol, rtol=self.rtol)).worst
        dtype = bench.job.case.dtype
        readings = read_policies(
            actual, expected, op=bench.op.name, dtype=dtype, reduced_length=bench.reduced_length, twin=twin
        )
        return readings[self.policy.name]

    def allow(self, bench: Bench, magnitudes: Floats, twin: Twin | None) -> Floats | None:
        """What every element may be off by; None where the policy does not say it by element."""
        if self.policy is None:
            return self.atol + self.rtol * magnitudes
        dtype = bench.job.case.dtype
        numbers = self.policy.find_numbers(bench.op.name, dtype)
        if numbers is None:
            return None
        match self.policy.rule:
            case "allclose":
                per_element = numbers.get("atol_per_reduced_element", 0.0) * bench.reduced_length
                return numbers.get("atol", 0.0) + per_element + numbers["rtol"] * magnitudes
            case "either":
                return np.maximum(numbers["atol"], numbers["rtol"] * magnitudes)
            case "roundoff":
                roundoff = get_format(dtype).unit_roundoff
                rtol = max(roundoff, numbers["accumulate_roundoff"] * bench.reduced_length)
                return rtol * (float(magnitudes.max(initial=0.0)) + magnitudes)
            case "twin_max" if twin is not None:
                return np.full_like(magnitudes, numbers["factor"] * twin.max_abs + numbers["floor"])
        return None


def _find_policy(name: str) -> Policy:
    known = {policy.name: policy for policy in load_policies()}
    if name not in known:
        near = get_close_matches(name, known)
        hint = f". Did you mean {' or '.join(near)}?" if near else f"; known: {', '.join(known)}"
        raise InputError(f"unknown policy {name!r}{hint}")
    return known[name]


@dataclass
class Probe:
    """How a stand-in for a kernel fared."""

    name: str
    cases: int = 0
    """Where gonogo says no-go; all, for the exact result rounded correctly."""
    passed: int = 0


@dataclass
class Audit:
    """What a tolerance is worth for one op and dtype."""

    op: str
    dtype: str
    tolerance: str
    probes: dict[str, Probe]
    probed: int = 0
    """Cases that a plainly wrong probe was tried on."""
    fooled: int = 0
    """Among them, those where one passes."""
    elements: int = 0
    """Elements looked at for how tight it is: finite, and normal in the format."""
    too_tight: int = 0
    """Among them, those that may be off by less than half a unit in the last place."""
    score: Score = field(default_factory=lambda: Score("", "", ""))
    counted_in: Literal["records", "live", "nothing"] = "nothing"
    limit: float | None = None
    """gonogo's, for kernels that accumulate in float32."""
    limit_from: str = ""
    silent: bool = False
    """Whether the policy says nothing of the op and dtype."""

    @property
    def vacuous(self) -> bool:
        """Whether something plainly wrong passes."""
        return self.fooled > 0

    @property
    def tight(self) -> bool:
        """Whether it asks for more than rounding the exact result gives."""
        rounded = self.probes[ROUNDED]
        return rounded.passed < rounded.cases or self.too_tight > 0

    @property
    def finding(self) -> str:
        """In a word or two."""
        if self.silent:
            return "says nothing"
        words = [f"vacuous {self.fooled}/{self.probed}"] if self.vacuous else []
        words += ["too tight"] if self.tight else []
        return ", ".join(words) or "no finding"

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        counts = self.score.to_dict()
        return {
            "op": self.op, "dtype": self.dtype, "tolerance": self.tolerance, "says_nothing": self.silent,
            "vacuous": self.vacuous, "too_tight": self.tight,
            "probed_cases": self.probed, "vacuous_cases": self.fooled,
            "probes": {name: {"cases": one.cases, "passed": one.passed} for name, one in self.probes.items()},
            "elements": self.elements, "elements_below_half_ulp": self.too_tight, "counted_in": self.counted_in,
            **{name: counts[name] for name in counts if name not in ("name", "gauge", "rule", "suspects")},
            "gonogo_limit": self.limit, "gonogo_limit_from": self.limit_from,
        }  # fmt: skip


def audit_tolerance(
    tolerance: Tolerance, ops: Sequence[Op], dtypes: Sequence[str], columns: Columns | None, *, cases: int = CASES
) -> Iterator[Audit]:
    """One audit per op and dtype. Without `columns` of records, kernels are run instead."""
    from gonogo.campaign import set_switches
    from gonogo.campaign.worker import configure_torch

    set_switches("cpu")
    configure_torch()
    for op in ops:
        for dtype in dtypes:
            audit = Audit(op.name, dtype, tolerance.name, {name: Probe(name) for name in (*PROBES, ROUNDED)})
            limit, audit.limit_from = find_shipped_limit(op.name, Contract())
            audit.limit = None if limit is None else limit.value
            audit.silent = tolerance.policy is not None and tolerance.policy.find_numbers(op.name, dtype) is None
            if not audit.silent:
                _probe_cases(audit, tolerance, op, cases, run_kernels=columns is None)
                if columns is not None:
                    _count_records(audit, tolerance, columns)
            yield audit


def decides(tolerance: Tolerance) -> bool:
    """Whether records decide it: they hold the largest error and every policy's reading, no |expected|."""
    return tolerance.policy is not None or tolerance.rtol == 0.0


def _count_records(audit: Audit, tolerance: Tolerance, columns: Columns) -> None:
    for name, wanted in (("op", audit.op), ("dtype", audit.dtype)):
        if not columns.equals(name, wanted).any():
            return
    rows = Rows(filter_columns(columns, op=audit.op, dtype=audit.dtype))
    audit.counted_in = "records"
    if tolerance.policy is not None:
        scores = {score.name: score for score in score_policies(rows)}
        audit.score = scores[tolerance.policy.name]
    else:
        audit.score = _score_atol(rows, tolerance.atol)


def _score_atol(rows: Rows, atol: float) -> Score:
    """As a policy is scored, by the largest error of a record."""
    seen, largest = rows.columns.equals("outcome", *ALWAYS_SEEN), rows.columns.readings["absolute"]

    def decide_block(block: slice) -> npt.NDArray[np.int8]:
        decisions = np.where(largest[block] > atol, np.int8(NO_GO), np.int8(GO))
        decisions[np.isnan(largest[block])] = UNJUDGED
        decisions[seen[block]] = NO_GO
        return decisions

    score = Score("", "", "")
    score.count(rows, rows.counted, decide_block)
    return score


def _probe_cases(audit: Audit, tolerance: Tolerance, op: Op, cases: int, *, run_kernels: bool) -> None:
    from gonogo.campaign.bench import Job, prepare

    names = tuple(kernel.name for kernel in op.kernels if audit.dtype in kernel.dtypes)
    for number in range(cases):
        case, strategy = plan_case(op, audit.dtype, number, 0, distributions=FINITE, limit=INTERPRETER)
        bench = prepare(Job(number, case, strategy, names, "cpu"))
        twin = _find_twin(bench)
        _probe(audit, tolerance, bench, twin)
        if run_kernels:
            _count_kernels(audit, tolerance, bench, twin)


def _find_twin(bench: Bench) -> Twin | None:
    """Error of the framework's own op, which some policies go by."""
    from gonogo.campaign.execute import run_kernel

    kernel = bench.op.kernel(f"{bench.op.name}_torch")
    run_kernel(bench, kernel)
    output = bench.outputs[kernel.name]
    if output is None:
        return None
    error = (output.double() - bench.reference(Contract()).expected).abs()
    if not error.numel() or not bool(error.isfinite().all()):
        return None
    return Twin(float(error.max()), float(error.square().mean().sqrt()))


def _probe(audit: Audit, tolerance: Tolerance, bench: Bench, twin: Twin | None) -> None:
    import torch

    reference = bench.reference(Contract())
    expected, dtype = reference.expected, getattr(torch, audit.dtype)
    fmt = get_format(audit.dtype)
    if not expected.numel() or float(expected.abs().max()) >= float(fmt.overflow_threshold):
        return  # an infinity is right there, and far from a reference that is not rounded
    stand_ins = {"zeros": torch.zeros_like(expected), "constant": torch.full_like(expected, float(expected.mean()))}
    if bench.pristine[0].shape == expected.shape:
        stand_ins["input"] = bench.pristine[0].double()
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
    reference = bench.reference(Contract())
    chosen = gauge("bound", accumulate=reference.contract.accumulate)
    bound, deterministic = (
        read(output, reference.expected, gauge=chosen, scale=scale).worst
        for scale in (reference.scale, reference.sequential_scale)
    )
    limit = 1.0 if audit.limit is None else audit.limit
    return judge("ok", bound, limit, deterministic=deterministic).decision == "no-go"


def _passes(reading: float | None) -> bool:
    return reading is not None and reading <= 1


def _count_kernels(audit: Audit, tolerance: Tolerance, bench: Bench, twin: Twin | None) -> None:
    """As records are counted, by running the op's kernels; the fault bins are those of gonogo.evaluate."""
    from gonogo.campaign.execute import order_kernels, run_kernel

    audit.counted_in = "live"
    expected = bench.reference(Contract()).expected
    for name in order_kernels(bench.op, audit.dtype):
        kernel = bench.op.kernel(name)
        with np.errstate(all="ignore"):  # Triton's interpreter computes by NumPy, and faults overflow
            row = run_kernel(bench, kernel)
        sound, output = row["outcome"] == "ok", bench.outputs[name]
        if row["outcome"] == "refused" or (sound and math.isinf(row["absolute"])):
            continue
        reading = None if output is None else tolerance.read(bench, output, expected, twin)
        flagged = row["outcome"] in ALWAYS_SEEN or (reading is not None and reading > 1)
        _add(audit.score, row, flagged, sound)


def _add(score: Score, row: Row, flagged: bool, sound: bool) -> None:
    if row["role"] == "control":
        if row["outcome"] in MEASURED:
            score.control_cases += 1
            score.false_positives += flagged
        return
    if sound and row.get("bits_equal") is None:
        return
    differs = not sound or not row["bits_equal"]
    manifest = differs and (not sound or row["signal"] >= MANIFEST)
    score.all += 1
    score.caught_all += flagged
    score.differing += differs
    score.caught_differing += differs and flagged
    score.manifest += manifest
    score.caught_manifest += manifest and flagged


def make_table(audits: Sequence[Audit], told: str) -> Table:
    """One line per op and dtype."""
    columns = (
        "op", "dtype", "finding", *(f"{name} passes" for name in PROBES), "below ½ ULP", "controls that fail",
        "at most (95 %)", "faults: all", "differing", "manifest", "gonogo's limit",
    )  # fmt: skip
    lines = []
    for one in audits:
        score = one.score
        upper = score.to_dict()["fp_upper95"] if score.control_cases else None
        lines.append((
            one.op, one.dtype, one.finding,
            *(_tell_probe(one.probes[name]) for name in PROBES),
            f"{100 * one.too_tight / one.elements:.1f} %" if one.elements else None,
            Share(score.false_positives, score.control_cases, 2),
            None if upper is None else f"{100 * upper:.2f} %",
            Share(score.caught_all, score.all), Share(score.caught_differing, score.differing),
            Share(score.caught_manifest, score.manifest),
            "none" if one.limit is None else f"{one.limit:.3g} bound",
        ))  # fmt: skip
    return Table(f"Tolerance {audits[0].tolerance}", columns, lines, told)


def _tell_probe(probe: Probe) -> str | None:
    return f"{probe.passed}/{probe.cases}" if probe.cases else None

"""A user's kernel, or one output of it → verdicts: the entry for people who have a kernel and want to know.

A kernel of an op gonogo knows is held to the limits that come with the package. For an op it does not know, the
error scale comes from the reference itself, and the limit is the deterministic bound, or made from given controls.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gonogo.cases import FINITE, INTERPRETER, NO_LIMIT, Case, parse_case, plan_case
from gonogo.errors import InputError, NoGo
from gonogo.explain import Trial, guess_pattern
from gonogo.judge import Verdict, judge
from gonogo.limits import Limit
from gonogo.lock import read_lock
from gonogo.ops import DTYPES, Input, Kernel, get_op
from gonogo.ops import Op as PlainOp
from gonogo.rules import rule
from gonogo.schema import Contract
from gonogo.shipped import shipped_lock

if TYPE_CHECKING:
    import torch

CANDIDATE = "candidate"
DEFAULT_CASES = 24
MAX_SHRINKS = 60


@dataclass(frozen=True, slots=True)
class OwnOp(PlainOp):
    """An op whose functions are at hand instead of in a folder."""

    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """`reference`, and kernels by name."""

    def load_reference(self) -> Callable[..., Any]:
        """As given, or the folder's."""
        return self.functions["reference"] if "reference" in self.functions else get_op(self.name).load_reference()

    def load_kernel(self, name: str) -> Callable[..., Any]:
        """As given, or the folder's."""
        return self.functions[name] if name in self.functions else get_op(self.name).load_kernel(name)


def Op(  # noqa: N802  reads as what it makes
    name: str,
    *,
    inputs: Mapping[str, str],
    output: str,
    sizes: Mapping[str, Sequence[int]],
    reference: Callable[..., Any],
    main: str | None = None,
    reduced: Sequence[str] = (),
) -> OwnOp:
    """An op of your own: named axes, candidate sizes, and a reference in torch ops that can run in float64.

    `main` is the axis whose size matters most, by default the last of the first input.
    """
    first = next(iter(inputs.values()), "").split()
    if not first:
        raise InputError(f"op {name}: its first input needs axes, as in inputs={{'x': 'rows cols'}}")
    return OwnOp(
        name=name,
        inputs=tuple(Input(given, axes) for given, axes in inputs.items()),
        output=output,
        sizes={axis: tuple(choices) for axis, choices in sizes.items()},
        kernels=(Kernel(f"{name}_torch", "torch"),),
        main=main or first[-1],
        reduced=tuple(reduced),
        functions={"reference": reference, f"{name}_torch": reference},
    )


@dataclass(frozen=True)
class CaseVerdict:
    """What a kernel did on one case."""

    case: str
    sizes: dict[str, int]
    verdict: Verdict
    record: dict[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"case": self.case, "sizes": self.sizes, **asdict(self.verdict), "message": self.verdict.message}


@dataclass(frozen=True)
class Verification:
    """All verdicts on a kernel, and what they have in common."""

    op: str
    contract: str
    limit_from: str
    verdicts: tuple[CaseVerdict, ...]
    smallest: str | None = None
    """Id of the smallest failing case found."""
    worst: dict[str, Any] | None = None
    """The worst element of the worst failing case."""
    pattern: str | None = None
    holds_under: str | None = None
    """A weaker contract that every case is within, where there is one."""

    @property
    def failed(self) -> tuple[CaseVerdict, ...]:
        """Cases that are no-go."""
        return tuple(one for one in self.verdicts if one.verdict.decision == "no-go")

    @property
    def suspect(self) -> tuple[CaseVerdict, ...]:
        """Cases above the limit that the deterministic bound still explains."""
        return tuple(one for one in self.verdicts if one.verdict.decision == "suspect")

    @property
    def decision(self) -> str:
        """No-go if any case is; else suspect if any is."""
        return "no-go" if self.failed else "suspect" if self.suspect else "go"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "schema": 1, "op": self.op, "decision": self.decision, "contract": self.contract,
            "limit_from": self.limit_from, "cases": len(self.verdicts), "failed": len(self.failed),
            "suspect": len(self.suspect), "smallest": self.smallest, "worst": self.worst, "pattern": self.pattern,
            "holds_under": self.holds_under, "verdicts": [one.to_dict() for one in self.verdicts],
        }  # fmt: skip

    def __repr__(self) -> str:
        lines = [
            f"{self.op}: {self.decision}, {len(self.failed)} of {len(self.verdicts)} cases failed"
            + (f", {len(self.suspect)} suspect" if self.suspect else "")
            + f" (contract {self.contract}; limit: {self.limit_from})"
        ]
        if self.failed:
            first = max(self.failed, key=_badness)
            lines.append(f"  worst case  {first.case}: {first.verdict.message}")
            if self.worst:
                lines.append(
                    f"  element     {tuple(self.worst['index'])}: expected {self.worst['expected']!r}, "
                    f"actual {self.worst['actual']!r}, {self.worst['ulp']} ULPs apart"
                )
            if self.smallest:
                lines.append(f"  smallest    {self.smallest}")
                lines.append(f'  replay      gonogo.verify(kernel, op, only="{self.smallest}")')
            if self.pattern:
                lines.append(f"  pattern     {self.pattern}")
            if self.holds_under:
                lines.append(
                    f"  contract    within a {self.holds_under} contract; the one declared is {self.contract}"
                )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def _badness(one: CaseVerdict) -> float:
    reading = one.verdict.reading
    return math.inf if one.verdict.reason != "reading" or reading is None else reading


def verify(
    kernel: Callable[..., Any],
    op: str | OwnOp,
    *,
    dtypes: Sequence[str] = DTYPES,
    cases: int = DEFAULT_CASES,
    seed: int = 0,
    contract: Contract | None = None,
    controls: Sequence[Callable[..., Any]] = (),
    device: str = "auto",
    lock: str | None = None,
    limit: Limit | None = None,
    strict: bool = True,
    only: str | None = None,
) -> Verification:
    """Run a kernel on `cases` cases per dtype and judge each; raise NoGo where one is no-go, unless not `strict`.

    The kernel takes the op's inputs as torch tensors, in order, and returns its output: torch, NumPy or JAX.
    A `limit` at hand goes before whatever `controls` and `lock` say.
    `only` is the id of a single case, to replay it.
    """
    from gonogo.campaign import find_device, set_switches

    place = find_device(device)
    set_switches(place)
    promised = contract or Contract()
    own = with_candidate(op, kernel, promised, () if limit else controls)
    bench_limits = _Limits.take(limit) if limit else _Limits.find(own, promised, controls, lock)
    runner = _Runner(own, place, bench_limits)
    size = NO_LIMIT if place == "cuda" else INTERPRETER
    chosen = [parse_case(only, own)] if only else [
        plan_case(own, dtype, number, seed, distributions=FINITE, limit=size)[0]
        for dtype in dtypes for number in range(cases)
    ]  # fmt: skip
    found = tuple(runner.judge_case(case) for case in chosen)
    verification = Verification(own.name, promised.describe(), bench_limits.told, found)
    if verification.failed:
        verification = runner.explain(verification)
        if strict:
            raise NoGo(verification)
    return verification


def with_candidate(
    op: str | OwnOp, kernel: Callable[..., Any], contract: Contract, controls: Sequence[Callable[..., Any]]
) -> OwnOp:
    """The op with a kernel to be judged and controls to make its limit from, named `control_0` and so on."""
    plain = get_op(op) if isinstance(op, str) else op
    given = dict(plain.functions) if isinstance(plain, OwnOp) else {}
    extra = [Kernel(f"control_{place}", "torch", contract=contract) for place in range(len(controls))]
    candidate = Kernel(CANDIDATE, "torch", "faulty", contract=contract, calibrate_against=f"{plain.name}_torch")
    values = {item.name: getattr(plain, item.name) for item in fields(PlainOp)}
    values["kernels"] = (*plain.kernels, *extra, candidate)
    functions = given | {CANDIDATE: kernel} | {f"control_{i}": one for i, one in enumerate(controls)}
    return OwnOp(**values, functions=functions)


@dataclass(frozen=True)
class _Limits:
    """Where the limit of a verification is from."""

    value: float | None
    told: str
    calibrated_on: int = 0

    @classmethod
    def take(cls, limit: Limit) -> _Limits:
        told = f"{limit.rule}, {limit.cases:,} cases of {limit.kernel or 'correct kernels'}"
        return cls(limit.value, told, limit.cases)

    @classmethod
    def find(
        cls, op: OwnOp, contract: Contract, controls: Sequence[Callable[..., Any]], lock: str | None
    ) -> _Limits:
        if controls:
            plural = "" if len(controls) == 1 else "s"
            return cls(None, f"made from {len(controls)} control{plural} on the same cases")
        limits, provenance = read_lock(shipped_lock() if lock is None else Path(lock))
        for limit in limits:
            if (limit.op, limit.contract, limit.gauge) == (op.name, contract.describe(), "bound"):
                where = provenance.get("devices", "?")
                told = f"{limit.rule}, {limit.cases:,} cases of correct kernels on {where}"
                return cls(limit.value, told, limit.cases)
        return cls(None, "the deterministic bound: no limit was ever calibrated for this op and contract")


class _Runner:
    """Runs the candidate on cases and judges it."""

    def __init__(self, op: OwnOp, device: str, limits: _Limits) -> None:
        self.op, self.device, self.limits = op, device, limits
        self.candidate = op.kernel(CANDIDATE)
        self.controls = [kernel for kernel in op.kernels if kernel.name.startswith("control_")]

    def judge_case(self, case: Case) -> CaseVerdict:
        """Run and judge one case."""
        from gonogo.campaign.bench import Job, prepare
        from gonogo.campaign.execute import run_kernel

        bench = prepare(Job(0, case, "verify", (CANDIDATE,), self.device), op=self.op)
        limit, told = self.limits.value, self.limits.told
        if self.controls:
            readings = [run_kernel(bench, control).get("bound") for control in self.controls]
            known = np.array([reading for reading in readings if reading is not None], float)
            limit = rule("pooled").limit(known[np.isfinite(known)]) if known.size else None
        row = run_kernel(bench, self.candidate)
        deterministic = row.get("deterministic")
        gauge = "bound"
        if limit is None:  # nothing calibrated: the deterministic bound alone decides
            gauge, limit = "deterministic", 1.0
        verdict = judge(
            row["outcome"], row.get(gauge), limit, gauge=gauge, limit_from=told,
            deterministic=deterministic if gauge == "bound" else None,
        )  # fmt: skip
        if verdict.reason != "reading" and row.get("detail"):
            verdict = replace(verdict, outcome=f"{verdict.outcome}: {row['detail']}")
        return CaseVerdict(case.id, case.axis_sizes(self.op), verdict, row)

    def explain(self, verification: Verification) -> Verification:
        """Add the worst element, the smallest failing shape and the pattern."""
        worst = max(verification.failed, key=_badness)
        case = self._parse(worst)
        smallest = self._shrink(case)
        trials = [self._make_trial(one) for one in verification.verdicts]
        return replace(
            verification,
            worst=self._find_worst_element(case),
            smallest=smallest.id,
            pattern=guess_pattern(trials, self.op.main),
            holds_under=self._find_weaker_contract(verification),
        )

    def _parse(self, one: CaseVerdict) -> Case:
        row = one.record
        sizes = tuple(one.sizes[axis] for axis in self.op.axes)
        return Case(self.op.name, row["dtype"], sizes, row["layout"], row["distribution"], row["seed"])

    def _shrink(self, case: Case) -> Case:
        """Smaller and smaller sizes, axis by axis, as long as the case still fails."""
        tries = 0
        improved = True
        while improved and tries < MAX_SHRINKS:
            improved = False
            for axis in range(len(case.sizes)):
                for size in sorted({1, 2, 3, case.sizes[axis] // 2, case.sizes[axis] - 1}):
                    if not 1 <= size < case.sizes[axis]:
                        continue
                    smaller = replace(case, sizes=(*case.sizes[:axis], size, *case.sizes[axis + 1 :]))
                    tries += 1
                    if self.judge_case(smaller).verdict.decision == "no-go":
                        case, improved = smaller, True
                        break
        return case

    def _make_trial(self, one: CaseVerdict) -> Trial:
        at = one.record.get("bound_at")
        index = tuple(int(i) for i in at.split(",")) if at else None
        shape = tuple(one.sizes[axis] for axis in self.op.output.split())
        failed = one.verdict.decision == "no-go"
        reading = one.verdict.reading if one.verdict.reading is not None else math.inf
        row = one.record
        return Trial(one.sizes, row["layout"], row["distribution"], failed, reading, index, shape)

    def _find_worst_element(self, case: Case) -> dict[str, Any] | None:
        from gonogo.campaign.bench import Job, prepare
        from gonogo.campaign.execute import find_worst, run_kernel

        bench = prepare(Job(0, case, "verify", (CANDIDATE,), self.device), op=self.op)
        run_kernel(bench, self.candidate)
        elements = find_worst(bench, self.candidate, 1)
        return elements[0] if elements else None

    def _find_weaker_contract(self, verification: Verification) -> str | None:
        """tf32 or half accumulation that every failing case is within, by the deterministic bound."""
        for weaker in (Contract(products="tf32"), Contract(accumulate="float16"), Contract(accumulate="bfloat16")):
            op = replace_candidate(self.op, weaker)
            runner = _Runner(op, self.device, _Limits(None, ""))
            if all(
                runner.judge_case(self._parse(one)).verdict.decision == "go" for one in verification.failed[:12]
            ):
                return weaker.describe()
        return None


def replace_candidate(op: OwnOp, contract: Contract) -> OwnOp:
    """The same op with a candidate that promises something else."""
    kernels = tuple(replace(k, contract=contract) if k.name == CANDIDATE else k for k in op.kernels)
    return replace(op, kernels=kernels)


def check(
    actual: Any,
    op: str | OwnOp | None = None,
    *,
    inputs: Mapping[str, torch.Tensor] | None = None,
    expected: Any = None,
    contract: Contract | None = None,
    lock: str | None = None,
    limit: Limit | None = None,
) -> Verdict:
    """Judge one output at hand: by its op and inputs, or against an expected array where there are none.

    Against `expected` alone nothing is known of the op: the reading is in ULPs, and the limit one rounding.
    """
    from gonogo.measure.gauges import gauge
    from gonogo.measure.readings import read

    if expected is not None:
        reading = read(actual, expected, gauge="ulp").worst
        return judge("ok", reading, 1.0, gauge="ulp", limit_from="one unit in the last place: no op was named")
    if op is None or inputs is None:
        raise InputError("check needs op= and inputs=, or expected=")
    plain = get_op(op) if isinstance(op, str) else op
    missing = [given.name for given in plain.inputs if given.name not in inputs]
    if missing:
        names = ", ".join(given.name for given in plain.inputs)
        raise InputError(f"op {plain.name} takes the inputs {names}; missing: {', '.join(missing)}")
    from gonogo.campaign.measurement import make_reference

    promised = contract or Contract()
    given = [inputs[one.name] for one in plain.inputs]
    reference = make_reference(plain, given, promised, tuple(np.shape(actual)))
    if hasattr(actual, "is_cuda"):  # small references are kept in host memory
        actual = actual.to(reference.expected.device)
    own = with_candidate(plain.name if isinstance(op, str) else op, lambda: None, promised, ())
    limits = _Limits.take(limit) if limit else _Limits.find(own, promised, (), lock)
    scales = {"bound": reference.scale, "deterministic": reference.sequential_scale}
    chosen = gauge("bound", accumulate=promised.accumulate)
    readings = {
        name: read(actual, reference.expected, gauge=chosen, scale=scale).worst for name, scale in scales.items()
    }
    name = "bound" if limits.value is not None else "deterministic"
    return judge(
        "ok", readings[name], limits.value if limits.value is not None else 1.0, gauge=name, limit_from=limits.told,
        deterministic=readings["deterministic"] if name == "bound" else None,
    )  # fmt: skip

"""A problem and a solution of it → gonogo's verdict and the benchmark's own, side by side."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gonogo.errors import CaseTooLarge, GonogoError, InputError, ReferenceFailed
from gonogo.ops import ALONE
from gonogo.problems.finding import detect_format, find_problems
from gonogo.problems.problem import Options, Problem, Solution
from gonogo.problems.sizing import tell_scale
from gonogo.schema import Contract
from gonogo.user.isolated import FileVerification, check_file
from gonogo.verdict.verdicts import CaseVerdict
from gonogo.words import name_contract

if TYPE_CHECKING:
    from gonogo.campaign import Allowance, Progress
    from gonogo.runners.pool import Pool

DEFAULT_CASES = 3
"""Fresh ones, beside the benchmark's own."""
VARIED_CASES = 4
Decision = Literal["go", "no-go", "suspect", "refused"]


@dataclass(frozen=True)
class Terms:
    """How solutions are judged; each as `gonogo check` takes it."""

    contract: str | None = None
    cases: int = DEFAULT_CASES
    seed: int = 0
    lock: Path | None = None
    allowance: Allowance | None = None
    strict: bool = False
    vary: bool = False
    is_fresh: bool = False
    """Whether the seed was drawn, and an earlier verdict by another one is as good."""


@dataclass(frozen=True)
class Judged:
    """What is said of a solution."""

    problem: str
    format: str
    solution: str
    decision: Decision
    """gonogo's. `refused` where there is nothing to judge, and `why` says why."""
    why: str = ""
    contract: str | None = None
    fits: str | None = None
    """The contract that it is go under: the one it was judged by, or a weaker one that explains its errors."""
    own: bool | None = None
    """Whether it passes the benchmark's own check; None where that was not run."""
    rule: str = ""
    outside: Decision | None = None
    """gonogo's decision on other values and sizes than the benchmark draws, where it was asked for."""
    outside_why: str = ""
    notes: tuple[str, ...] = ()
    parts: tuple[FileVerification, ...] = ()
    """The verifications behind it, one for each shape."""
    workloads: tuple[tuple[Mapping[str, Any], CaseVerdict], ...] = ()
    """Of a benchmark that tells its trials apart: what it says of each, and the verdict on it."""

    @property
    def comparison(self) -> str:
        """What the benchmark's own check is, held against gonogo's verdict."""
        if self.own is None or self.decision == "refused":
            return "–"
        passes = self.decision != "no-go"
        return "agree" if passes == self.own else "too strict" if passes else "too loose"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        plain = {
            name: getattr(self, name)
            for name in (
                "problem", "format", "solution", "decision", "why", "contract", "fits", "own", "rule", "outside",
                "outside_why",
            )
        }  # fmt: skip
        parts = [part.to_dict() for part in self.parts]
        return plain | {"comparison": self.comparison, "notes": list(self.notes), "verifications": parts}


def judge_solution(
    path: Path,
    target: str,
    options: Options,
    terms: Terms,
    *,
    pool: Pool | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Judged:
    """Judge a solution of the problem in a file or folder: on the benchmark's own inputs, and on fresh ones."""
    options = _choose(path, target, options)
    if options.reference is not None and not hasattr(detect_format(path), "TAKES_REFERENCE"):
        raise InputError(f"--reference is for problems whose own calls a vendor's library, and {path} is none")
    problems = find_problems(path, options)
    found = [_check(path, problem, target, options, terms, problem.seeds, pool, report) for problem in problems]
    judged = _sum_up(problems, found, target)
    if not terms.vary or judged.decision == "no-go":
        return judged
    return _vary(judged, path, target, options, terms, pool)


def _choose(path: Path, target: str, options: Options) -> Options:
    """Options that say which of a file's problems a solution is of, where a format has several in one."""
    choose = getattr(detect_format(path), "choose", None)
    return options if choose is None else choose(path, target, options)


def _check(
    path: Path,
    problem: Problem,
    target: str,
    options: Options,
    terms: Terms,
    seeds: Sequence[int],
    pool: Pool | None,
    report: Callable[[Progress], None] | None = None,
) -> FileVerification:
    with ALONE:
        solution = problem.read_solution(target)
    try:
        checked = check_file(
            solution.kernel, _hand_outputs(problem, solution), contract=terms.contract or problem.contract,
            cases=terms.cases, seed=terms.seed, device=options.device, lock=terms.lock, allowance=terms.allowance,
            suspects="fail" if terms.strict else "rerun", report=report, pool=pool, own_seeds=seeds,
        )  # fmt: skip
    except CaseTooLarge as error:
        raise InputError(f"{problem.name}: {error}. Of this problem {tell_scale(path, options)}") from error
    finally:
        solution.close()
    if checked.verification.replay is None:
        return checked
    replay = tell_command(path, target, options, terms)
    return replace(checked, verification=replace(checked.verification, replay=replay))


def tell_command(path: Path, target: str, options: Options, terms: Terms) -> str:
    """The command that draws the same cases again."""
    words = ["gonogo", "check", target, "--problem", str(path), "--seed", str(terms.seed)]
    said = {
        "--dtype": options.dtype, "--scale": None if options.scale == 1 else f"{options.scale:g}",
        "--reference": options.reference, "--contract": terms.contract, "--lock": terms.lock,
        "--cases": None if terms.cases == DEFAULT_CASES else terms.cases,
    }  # fmt: skip
    words += [str(word) for option in said.items() if option[1] is not None for word in option]
    return shlex.join([*words, *(["--vary"] if options.vary else [])])


def _hand_outputs(problem: Problem, solution: Solution) -> Any:
    return replace(problem.op, out="last") if solution.hands_outputs else problem.op


def _sum_up(problems: Sequence[Problem], found: Sequence[FileVerification], target: str) -> Judged:
    """One verdict of all shapes: that of the worst."""
    order = ("no-go", "suspect", "go")
    worst = min(found, key=lambda file: order.index(file.verification.decision))
    verification, problem = worst.verification, problems[0]
    decision: Any = verification.decision
    own = [file.passes_own for file in found if file.passes_own is not None]
    promised = name_contract(Contract.parse(verification.contract))
    fits = promised if decision != "no-go" else verification.holds_under
    notes = [*problem.notes, *verification.notes]
    return Judged(
        problem.name, problem.format, Path(target).name, decision, tell_failure(worst), promised, fits,
        all(own) if own else None, problem.rule, notes=tuple(dict.fromkeys(notes)), parts=tuple(found),
        workloads=tuple(_pair_workloads(problem, found[0])),
    )  # fmt: skip


def _pair_workloads(problem: Problem, found: FileVerification) -> Iterator[tuple[Mapping[str, Any], CaseVerdict]]:
    """Those of the benchmark's own trials that have a verdict."""
    by_seed = {int(case.case.rpartition(":")[2]): case for case in found.verification.verdicts}
    for seed, workload in zip(problem.seeds, problem.workloads, strict=False):
        if seed in by_seed:
            yield workload, by_seed[seed]


def tell_failure(file: FileVerification) -> str:
    """Why a solution is no-go, in a line."""
    worst = file.worst
    if worst is None:
        return ""
    verdict = worst.verdict
    if not verdict.is_by_reading or verdict.reading is None:
        return f"{verdict.outcome}"
    return f"reads {verdict.reading:.4g}, limit {verdict.limit:.4g}"


def _vary(judged: Judged, path: Path, target: str, options: Options, terms: Terms, pool: Pool | None) -> Judged:
    """The same with what becomes of other values and sizes: the problem need not promise to work there."""
    varied = replace(options, vary=True)
    terms = replace(terms, cases=VARIED_CASES)
    try:
        problems = find_problems(path, varied)
        found = [_check(path, problem, target, varied, terms, (), pool) for problem in problems]
    except (ReferenceFailed, InputError) as error:
        return replace(judged, outside="refused", outside_why=f"the problem does not take them: {error}")
    outside = _sum_up(problems, found, target)
    return replace(judged, outside=outside.decision, outside_why=outside.why)


def refuse(path: Path, target: str, error: GonogoError | OSError, facts: Mapping[str, str] | None = None) -> Judged:
    """What is said of a solution that could not be judged."""
    known = {"problem": path.stem, "format": ""} | dict(facts or {})
    return Judged(known["problem"], known["format"], Path(target).name, "refused", str(error).partition("\n")[0])

"""A benchmark's problem, without solutions → what its own check lets pass, and what torch's own kernel reads."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gonogo.errors import GonogoError
from gonogo.ops import AtHand, Made
from gonogo.problems.finding import find_problems
from gonogo.problems.problem import Options, Problem
from gonogo.problems.sizing import is_too_large, tell_scale
from gonogo.runners.environment import name_machine

if TYPE_CHECKING:
    import torch

    from gonogo.execution.bench import Bench

JUDGED, REFUSED = "judged", "refused"
STAND_INS = ("zeros", "a constant", "the mean", "the input")
WEAKER = ("atomics", "tf32", "fast-math", "float16", "bfloat16")
LOOKED_AT = 12
"""Weights that are changed, one after the other, to see whether the output depends on them."""
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class Audit:
    """What was found of one problem."""

    problem: str
    format: str = ""
    state: str = REFUSED
    why: str = ""
    dtype: str = ""
    rule: str = ""
    decision: str = ""
    """gonogo's, of torch's own kernel."""
    contract: str = ""
    """The one that torch's own kernel is go under."""
    reading: float | None = None
    limit: float | None = None
    is_sampled: bool = False
    passes_wide: bool | None = None
    """Whether torch's own kernel passes the benchmark's tolerance against float64."""
    vacuous: tuple[str, ...] = ()
    """Stand-ins that pass the benchmark's own check."""
    constant: bool = False
    """Whether all of the output is one value."""
    ignored: tuple[str, ...] = ()
    """Inputs and weights that the output does not depend on."""
    mutants: int = 0
    own_passed: tuple[str, ...] = ()
    """Mutants that pass the benchmark's own check."""
    gonogo_passed: tuple[str, ...] = ()
    """Mutants that are go here."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    machine: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


class Late(Exception):
    """Out of time."""


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raise Late inside after so long, where signals can be had."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise Late(f"it took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def audit_problem(
    path: Path, options: Options, timeout_s: float = 120.0, *, mutates: bool = True, alone: bool = True
) -> Audit:
    """Audit one problem, here; whatever goes wrong is told in a line. `alone`: all memory is there for it."""
    import torch

    from gonogo.execution.precision import configure_torch

    configure_torch()
    begun, name = time.monotonic(), name_audited(path)
    try:
        with limit_time(timeout_s), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem = find_problems(path, options)[0]
            audit = _audit(problem, options, mutates=mutates)
    except Exception as error:  # noqa: BLE001  whatever a problem does
        why = _tell(error) if isinstance(error, GonogoError) else f"{type(error).__name__}: {_tell(error)}"
        at = f"{OUT_OF_MEMORY} at {options.scale:g} of its size: " if is_too_large(error) else ""
        audit = Audit(name, why=f"{at}{why}")
    if options.device == "cuda":
        torch.cuda.empty_cache()
    if alone and OUT_OF_MEMORY in audit.why:
        with suppress(Late), limit_time(timeout_s):
            audit = replace(audit, why=f"{audit.why}. Of this problem {tell_scale(path, options)}")
    machine = f"{name_machine(options.device)}, torch {torch.__version__}"
    audit = replace(audit, why=audit.why.replace(f"{path.resolve().parent}/", ""))  # a page is read elsewhere
    return replace(audit, seconds=round(time.monotonic() - begun, 1), machine=machine)


def name_audited(path: Path) -> str:
    """What an audit is kept under: the file, behind its level."""
    level = f"{path.parent.name}/" if path.parent.name.startswith("level") else ""
    return f"{level}{path.stem if path.is_file() else path.name}"


def _tell(error: BaseException) -> str:
    return str(error).partition("\n")[0][:240]


def _audit(problem: Problem, options: Options, *, mutates: bool) -> Audit:
    import torch

    from gonogo.cases import DRAWN, EVERYWHERE, Case
    from gonogo.execution.bench import prepare
    from gonogo.execution.job import OWN, Job
    from gonogo.limits.shipped import choose_limit
    from gonogo.runners.device import keep_switches
    from gonogo.user.kernels import make_candidate
    from gonogo.words import find_contract

    op, dtype = problem.op, problem.op.dtypes[0]
    case = Case(op.name, dtype, (), EVERYWHERE[0], DRAWN, problem.seeds[0])
    eager = _make_eager(op.load_reference())
    candidate = make_candidate(op, AtHand(eager), find_contract(problem.contract))
    strictest = find_contract("float64" if dtype == "float64" else "float32")
    settled = choose_limit(op, strictest).value
    with keep_switches(options.device), torch.no_grad():
        bench = prepare(Job(0, case, OWN, op, (candidate,), options.device, bounds_only=True, settled=settled))
        found = Audit(problem.name, problem.format, JUDGED, "", dtype, problem.rule, notes=problem.notes)
        found = _judge_eager(found, bench, candidate, problem)
        outputs = bench.outputs.get(candidate.name)
        if outputs is None:
            return found
        found = replace(found, passes_wide=_passes_wide(problem, bench, found.contract, outputs))
        check = op.own_check.load() if op.own_check is not None else None
        if check is not None:
            found = replace(found, vacuous=tuple(_list_vacuous(check, bench, outputs)))
        single = next(iter(outputs.values()))
        found = replace(
            found, constant=_is_constant(single), ignored=tuple(_list_ignored(eager, bench, problem, outputs))
        )
        if not mutates:
            return found
        try:
            return _judge_mutants(found, bench, candidate, eager, check, outputs)
        except (torch.OutOfMemoryError, MemoryError):  # one scale more than the verdict takes
            return replace(found, notes=(*found.notes, "out of memory as mutants were judged: there are none"))


def _make_eager(reference: Callable[..., Any]) -> Callable[..., Any]:
    """The reference as torch's own kernels run it, in the problem's dtype; a copy of it may share what it calls."""
    import torch

    def eager(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return reference(*args, **kwargs)

    return eager if isinstance(reference, torch.nn.Module) else reference


def _judge_eager(found: Audit, bench: Bench, candidate: Any, problem: Problem) -> Audit:
    """Find the contract that torch's own kernel is go under: the strictest, the one promised, or a weaker one.

    Where there is none, what is told is what it is under the one promised: it never promised the strictest.
    """
    from gonogo.execution.execute import run_kernel
    from gonogo.limits.shipped import choose_limit
    from gonogo.verdict.verdicts import is_blind, judge_record
    from gonogo.words import find_contract, name_contract

    strictest = "float64" if found.dtype == "float64" else "float32"
    promised = problem.contract or strictest
    words = list(dict.fromkeys([strictest, promised, *WEAKER]))
    told: Audit | None = None
    suspect: Audit | None = None
    for word in words:
        contract = find_contract(word)
        limit = choose_limit(bench.op, contract)
        record = run_kernel(bench, replace(candidate, contract=contract))
        verdict = judge_record(record, bench.op, limit).verdict
        blind = is_blind(record, limit)
        judged = replace(
            found, decision="blind" if blind else verdict.decision, contract=name_contract(contract),
            reading=record.read(limit.gauge), limit=limit.value,
            is_sampled=any(leaf.is_sampled for leaf in record.leaves),
            why="" if verdict.decision == "go" else str(verdict.outcome if not verdict.is_by_reading else ""),
        )  # fmt: skip
        if record.outcome == "out-of-memory":
            raise MemoryError(str(record.detail))
        if "Late: " in (record.detail or ""):  # it came while the kernel ran, and was taken for its fault
            raise Late(str(record.detail).rpartition("Late: ")[2])
        if record.outcome == "refused":
            judged = replace(judged, state=REFUSED, decision="", why=str(record.detail))
        if judged.decision == "go":
            return judged
        told = judged if word == promised else told or judged
        suspect = suspect or (judged if judged.decision == "suspect" else None)
        if suspect is not None and words.index(word) >= words.index(promised):
            return suspect
        if record.outcome not in ("ok", "not-repeatable", "refused"):
            return told
        bench.by_contract.pop(contract, None)
    assert told is not None
    return told


def _passes_wide(problem: Problem, bench: Bench, contract: str, outputs: Mapping[str, Any]) -> bool | None:
    """Whether torch's own kernel passes the benchmark's tolerance against float64; None where it has none."""
    from gonogo.problems.values import split_both
    from gonogo.words import find_contract

    source = problem.op.own_check
    make = getattr(import_module(source.module), "tolerates", None) if isinstance(source, Made) else None
    if make is None:
        return None
    judged = [leaf for leaf in bench.references(find_contract(contract)) if leaf.path in outputs]
    return all(
        make(output.double(), expected.to(output.device), problem.op.dtypes[0])
        for leaf in judged
        if not leaf.is_discrete
        for output, expected in split_both(outputs[leaf.path], leaf.expected)
    )


def _list_vacuous(check: Callable[..., bool], bench: Bench, outputs: Mapping[str, Any]) -> Iterator[str]:
    """Stand-ins that the benchmark's own check passes."""
    import torch

    inputs = [x for _, x in bench.pristine.tensors]
    for name in STAND_INS:
        stands = {path: _stand_in(name, x, inputs) for path, x in outputs.items()}
        made = {path: x for path, x in stands.items() if x is not None}
        if len(made) < len(stands) or all(torch.equal(x, outputs[path]) for path, x in made.items()):
            continue
        if _passes(check, bench, made):
            yield name


def _passes(check: Callable[..., bool], bench: Bench, leaves: Mapping[str, Any]) -> bool:
    import torch

    try:
        return bool(check(bench.pristine, leaves))
    except (torch.OutOfMemoryError, MemoryError):  # says nothing of what was checked
        raise
    except Exception:  # noqa: BLE001  the benchmark's own code
        return False


def _stand_in(name: str, output: torch.Tensor, inputs: Sequence[torch.Tensor]) -> torch.Tensor | None:
    import torch

    if name == "the input":
        return next((x.to(output.dtype) for x in inputs if x.shape == output.shape), None)
    if not output.is_floating_point():
        return torch.zeros_like(output) if name == "zeros" else None
    if name == "zeros":
        return torch.zeros_like(output)
    return torch.full_like(output, 1.0 if name == "a constant" else float(output.mean(dtype=torch.float64)))


def _is_constant(output: torch.Tensor) -> bool:
    return output.numel() > 1 and bool((output == output.reshape(-1)[0]).all())


def _list_ignored(
    eager: Callable[..., Any], bench: Bench, problem: Problem, outputs: Mapping[str, Any]
) -> Iterator[str]:
    """Inputs, and weights of a module, of which another value changes no bit of the output."""
    import torch

    from gonogo.guest.nests import list_leaves

    def changes(args: tuple[Any, ...], kwargs: Any) -> bool:
        again = [x for _, x in list_leaves(eager(*args, **kwargs)) if isinstance(x, torch.Tensor)]
        return not all(_are_same(x, y) for x, y in zip(again, outputs.values(), strict=False))

    for name, tensor in bench.pristine.tensors:
        if tensor.is_floating_point() and tensor.numel() and tensor.dtype.itemsize > 1:
            changed = bench.pristine.map(partial(_change, name))
            if not changes(changed.args, changed.kwargs):
                yield name
    reference = problem.op.load_reference()
    if not isinstance(reference, torch.nn.Module):
        return
    for name, weight in list(reference.named_parameters())[:LOOKED_AT]:
        kept = weight.detach().clone()
        weight.data.copy_(_disturb(kept))
        unchanged = not changes(bench.pristine.args, bench.pristine.kwargs)
        weight.data.copy_(kept)
        if unchanged:
            yield name


def _change(name: str, path: str, x: torch.Tensor) -> torch.Tensor:
    return _disturb(x) if path == name else x.clone()


def _disturb(x: torch.Tensor) -> torch.Tensor:
    """Other values, about as large."""
    import torch

    return (x * 1.5).add_(float(x.abs().mean(dtype=torch.float64)) * 0.25 + 0.125)


def _are_same(x: torch.Tensor, y: torch.Tensor) -> bool:
    import torch

    return x.shape == y.shape and torch.equal(x.nan_to_num(), y.to(x.device, x.dtype).nan_to_num())


def _judge_mutants(
    found: Audit, bench: Bench, candidate: Any, eager: Callable[..., Any], check: Any, outputs: Mapping[str, Any]
) -> Audit:
    """How many mutants of the reference pass the benchmark's check, and gonogo's."""
    import torch

    from gonogo.execution.execute import run_kernel
    from gonogo.limits.shipped import choose_limit
    from gonogo.problems.mutants import list_mutants
    from gonogo.verdict.verdicts import judge_record
    from gonogo.words import find_contract

    if found.decision not in ("go", "suspect"):
        return found
    contract = find_contract(found.contract)
    limit = choose_limit(bench.op, contract)
    own: list[str] = []
    ours: list[str] = []
    count = 0
    for number, mutant in enumerate(list_mutants(eager, bench.pristine.args, bench.pristine.kwargs)):
        kernel = replace(
            candidate, name=f"mutant_{number}", contract=contract, source=AtHand(mutant.apply(eager))
        )  # fmt: skip
        record = run_kernel(bench, kernel)
        made = bench.outputs.pop(kernel.name, None)
        bench.judged.pop(kernel.name, None)
        bench.opened.pop(kernel.name, None)
        if made is not None and all(
            torch.equal(x.to(outputs[path].device), outputs[path]) for path, x in made.items()
        ):
            continue  # the fault does not show on these inputs
        count += 1
        if made is not None and check is not None and _passes(check, bench, made):
            own.append(str(mutant))
        if judge_record(record, bench.op, limit).verdict.decision != "no-go":
            ours.append(str(mutant))
    return replace(found, mutants=count, own_passed=tuple(own), gonogo_passed=tuple(ours))

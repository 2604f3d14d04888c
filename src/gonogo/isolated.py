"""A user's kernel file → verdicts, made in worker processes: it may hang, crash or eat memory without harm.

The file is read, never imported, on this side. A small folder of ops is written around it, with one op that has the
known op's inputs, sizes and reference, and the file's function as its only faulty kernel; a campaign runs that.
"""

from __future__ import annotations

import ast
import contextlib
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gonogo import ops as ops_package
from gonogo.cases import FINITE
from gonogo.errors import InputError, UnknownOp
from gonogo.explain import Trial, guess_pattern
from gonogo.judge import Verdict, judge
from gonogo.limits import Limit
from gonogo.lock import read_lock
from gonogo.ops import DTYPES, Op, get_op, op_names
from gonogo.records import Row, read_run
from gonogo.schema import Contract
from gonogo.shipped import shipped_lock
from gonogo.verification import CANDIDATE, DEFAULT_CASES, CaseVerdict, Verification

if TYPE_CHECKING:
    from gonogo.campaign import Limits, Progress

CONTRACTS = {
    "float32": Contract(),
    "float16": Contract(accumulate="float16"),
    "bfloat16": Contract(accumulate="bfloat16"),
    "tf32": Contract(products="tf32"),
    "fast-math": Contract(fast_math=True),
    "atomics": Contract(atomics=True),
}
"""What a kernel may promise, by the word for it on the command line."""
MAX_TIMEOUTS = 3
"""Time-outs after which the rest is left undone: a kernel that hangs, hangs on most cases."""


@dataclass(frozen=True)
class KernelFile:
    """A function in a file, found without running the file."""

    path: Path
    function: str
    uses_triton: bool


@dataclass(frozen=True)
class FileVerification:
    """Verdicts on a kernel file, and what became of its cases."""

    kernel: KernelFile
    verification: Verification
    outcomes: dict[str, int]
    planned: int
    """Cases; fewer have an outcome where it was stopped."""
    refused: str | None = None
    """Why some cases were not run, where they were not."""

    @property
    def worst(self) -> CaseVerdict | None:
        """The failed case that is furthest off; one without a reading before any with one."""
        return max(self.verification.failed, key=_badness, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        worst = self.worst
        found = self.verification.to_dict()
        verdicts = found.pop("verdicts")
        return found | {
            "file": str(self.kernel.path), "function": self.kernel.function, "planned": self.planned,
            "outcomes": self.outcomes, "refused": self.refused,
            "worst": None if worst is None else worst.to_dict(), "verdicts": verdicts,
        }  # fmt: skip


def _badness(one: CaseVerdict) -> float:
    reading = one.verdict.reading
    return math.inf if one.verdict.reason != "reading" or reading is None else reading


def find_contract(name: str) -> Contract:
    """The contract a word stands for."""
    if name not in CONTRACTS:
        raise InputError(f"unknown contract {name!r}; known: {', '.join(CONTRACTS)}")
    return CONTRACTS[name]


def find_op(name: str) -> Op:
    """The op of that name; near names are suggested."""
    if name not in op_names():
        near = _suggest(name, op_names())
        raise InputError(f"unknown op {name!r}{near} All: gonogo ops") if near else UnknownOp(name, op_names())
    return get_op(name)


def _suggest(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known)
    return f". Did you mean {' or '.join(near)}?" if near else ""


def find_kernel(target: str, op: str) -> KernelFile:
    """`FILE` or `FILE:FUNC` → the function. By default the only public one, or the one named like the op."""
    path, function = Path(target), ""
    if not path.exists() and ":" in target:
        before, _, function = target.rpartition(":")
        path = Path(before)
    try:
        tree = ast.parse(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        where = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise InputError(f"{path}{where} is no Python: {error.args[0]}") from None
    if function:
        _check_function(tree, path, function)
    else:
        function = _choose_function(tree, path, op)
    return KernelFile(path.resolve(), function, _imports_triton(tree))


def _check_function(tree: ast.Module, path: Path, function: str) -> None:
    known = list(_list_names(tree))
    if function not in known:
        public = _list_public(tree)
        near = _suggest(function, known)
        there = f" Its functions: {', '.join(public)}" if public and not near else ""
        raise InputError(f"{path} has no function {function!r}{near or '.'}{there}")


def _choose_function(tree: ast.Module, path: Path, op: str) -> str:
    public = _list_public(tree)
    if op in public or len(public) == 1:
        return op if op in public else public[0]
    if not public:
        raise InputError(f"{path} defines no public function. Name one of another kind: {path}:FUNC")
    raise InputError(
        f"{path} has {len(public)} functions, none of them named {op}: {', '.join(public)}. "
        f"Name one: {path}:{public[0]}"
    )


def _list_public(tree: ast.Module) -> list[str]:
    """Functions that can be called: those under a jit decorator are launched by others."""
    return [
        node.name for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        and not any(ast.unparse(one).partition("(")[0].endswith(("jit", "autotune", "heuristics"))
                    for one in node.decorator_list)
    ]  # fmt: skip


def _list_names(tree: ast.Module) -> Iterator[str]:
    """All that the file may bind at its top level."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]


def _imports_triton(tree: ast.Module) -> bool:
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    return any(name.partition(".")[0] == "triton" for name in names)


def find_shipped_limit(op: str, contract: Contract) -> tuple[Limit | None, str]:
    """The limit that comes with the package, and where it is from."""
    limits, provenance = read_lock(shipped_lock())
    for limit in limits:
        if (limit.op, limit.contract, limit.gauge) == (op, contract.describe(), "bound"):
            where = provenance.get("devices", "?")
            return limit, f"{limit.rule}, {limit.cases:,} cases of correct kernels on {where}"
    return None, "the deterministic bound: no limit was ever calibrated for this op and contract"


def check_file(
    kernel: KernelFile,
    op: str,
    *,
    contract: Contract | None = None,
    dtypes: Sequence[str] = DTYPES,
    cases: int = DEFAULT_CASES,
    seed: int = 0,
    device: str = "auto",
    limits: Limits | None = None,
    keep: Path | None = None,
    report: Callable[[Progress], None] | None = None,
) -> FileVerification:
    """Run a kernel file on `cases` cases per dtype, isolated, and judge each by the shipped limits.

    With `keep`, the folder of ops and the records stay in there, for a closer look.
    """
    from gonogo.campaign import Plan, find_device, run_campaign

    promised, known, place = contract or Contract(), find_op(op), find_device(device)
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise InputError(f"{keep} is not an empty folder: choose another to keep the records in")
    with contextlib.ExitStack() as stack:
        if keep is None:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gonogo-check-")))
        else:
            home = keep.resolve()
        name = f"checked_{op}"
        write_op(home / "ops", name, kernel, known, promised)
        stack.callback(_forget, home / "ops", name)
        plan = Plan(
            ops=(name,), dtypes=tuple(dtypes), cases=cases, seed=seed, device=place, distributions=FINITE,
            ops_folders=(str(home / "ops"),),
        )  # fmt: skip
        with contextlib.suppress(_Stopped):
            run_campaign(plan, home / "run", limits=limits, report=_stop_on_timeouts(report))
        rows = [row for row in read_run(home / "run").to_pylist() if row["kernel"] == CANDIDATE]
        return _judge_rows(rows, kernel, get_op(name), op, promised, plan.size)


class _Stopped(Exception):
    """Enough was seen."""


def _stop_on_timeouts(report: Callable[[Progress], None] | None) -> Callable[[Progress], None]:
    def note(progress: Progress) -> None:
        if report is not None:
            report(progress)
        if progress.outcomes.get("timed-out", 0) >= MAX_TIMEOUTS:
            raise _Stopped

    return note


def write_op(folder: Path, name: str, kernel: KernelFile, op: Op, contract: Contract) -> None:
    """A folder of ops with one op: the known one's data and reference, its torch control, and the candidate."""
    home = folder / name
    home.mkdir(parents=True)
    framework = "triton" if kernel.uses_triton else "torch"
    files = {
        "__init__.py": f"""
            from dataclasses import replace
            from gonogo.ops import Kernel, get_op
            from gonogo.schema import Contract

            KNOWN = get_op({op.name!r})
            CONTROL = replace(KNOWN.kernel({f"{op.name}_torch"!r}), name={f"{name}_torch"!r})
            CANDIDATE = Kernel(
                {CANDIDATE!r}, {framework!r}, "faulty", contract={contract!r}, calibrate_against=CONTROL.name
            )
            OP = replace(KNOWN, name={name!r}, kernels=(CONTROL, CANDIDATE))
        """,
        "reference.py": f"from gonogo.ops.{op.name}.reference import reference",
        "torch.py": f"from gonogo.ops.{op.name}.torch import {op.name}_torch as {name}_torch\n",
    }
    load = f"""
            import sys
            from importlib.util import module_from_spec, spec_from_file_location

            def __getattr__(name):
                # Not at import: what the file does while it loads is the candidate's doing, not the control's.
                if name != {CANDIDATE!r}:
                    raise AttributeError(name)
                sys.path.append({str(kernel.path.parent)!r})
                spec = spec_from_file_location("checked_kernel", {str(kernel.path)!r})
                module = sys.modules["checked_kernel"] = module_from_spec(spec)
                try:
                    spec.loader.exec_module(module)
                    globals()[name] = module.{kernel.function}
                except AttributeError as error:  # would look as if there were no candidate
                    raise ImportError(f"AttributeError: {{error}}") from error
                return globals()[name]
    """
    files[f"{framework}.py"] = files.get(f"{framework}.py", "") + load
    for file, text in files.items():
        lines = [line.removeprefix(" " * 12).rstrip() for line in text.splitlines()]
        (home / file).write_text("\n".join(lines).strip() + "\n", encoding="utf-8")


def _forget(folder: Path, name: str) -> None:
    """Let the next check of the op begin anew: the folder is off the path and nothing of it stays imported."""
    path = str(folder.resolve())
    if path in ops_package.__path__:
        ops_package.__path__.remove(path)
    full = f"{ops_package.__name__}.{name}"
    for module in [key for key in sys.modules if key == full or key.startswith(f"{full}.")]:
        del sys.modules[module]
    if hasattr(ops_package, name):
        delattr(ops_package, name)
    get_op.cache_clear()


def _judge_rows(
    rows: Sequence[Row], kernel: KernelFile, op: Op, known: str, contract: Contract, planned: int
) -> FileVerification:
    run = [row for row in rows if row["outcome"] != "refused"]
    refused = next((row["detail"] for row in rows if row["outcome"] == "refused"), None)
    if not run:
        raise InputError(f"nothing was run: {refused or 'no case came back'}. Choose other --dtypes or --device")
    limit, told = find_shipped_limit(known, contract)
    verdicts = tuple(_judge_row(row, op, limit, told) for row in run)
    found = Verification(known, contract.describe(), told, verdicts)
    found = replace(found, pattern=guess_pattern([_make_trial(one, op) for one in verdicts], op.main))
    outcomes = Counter(row["outcome"] for row in rows)
    return FileVerification(kernel, found, dict(sorted(outcomes.items())), planned, refused)


def _judge_row(row: Row, op: Op, limit: Limit | None, told: str) -> CaseVerdict:
    gauge = "deterministic" if limit is None else "bound"
    verdict: Verdict = judge(
        row["outcome"], row.get(gauge), 1.0 if limit is None else limit.value, gauge=gauge, limit_from=told,
        deterministic=None if limit is None else row.get("deterministic"),
    )  # fmt: skip
    if verdict.reason != "reading" and row.get("detail"):
        verdict = replace(verdict, outcome=f"{verdict.outcome}: {row['detail']}")
    sizes = dict(zip(op.axes, map(int, row["shape"].split("x")), strict=True))
    return CaseVerdict(row["case"], sizes, verdict, row)


def _make_trial(one: CaseVerdict, op: Op) -> Trial:
    at = one.record.get("bound_at")
    reading = one.verdict.reading
    return Trial(
        one.sizes, one.record["layout"], one.record["distribution"], one.verdict.decision == "no-go",
        math.inf if reading is None else reading, tuple(int(i) for i in at.split(",")) if at else None,
        tuple(one.sizes[axis] for axis in op.output.split()),
    )  # fmt: skip

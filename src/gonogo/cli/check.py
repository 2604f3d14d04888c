"""gonogo check: a kernel file → go or no-go, by the limits that come with the package."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from gonogo.cases import parse_case
from gonogo.cli._completion import complete_device, complete_dtypes, complete_op
from gonogo.cli._output import echo, print_json
from gonogo.cli._parse import (
    FILE,
    PLACE,
    Interrupted,
    need_backend,
    prepare_file,
    show_examples,
    words_option,
    write_to,
)
from gonogo.cli._progress import Reporter, report_records
from gonogo.cli._tables import fill, find_room
from gonogo.errors import InputError
from gonogo.guest.walls import ALL
from gonogo.ops import DTYPES
from gonogo.runners.ahead import start_ahead
from gonogo.user.kernel_file import find_kernel
from gonogo.user.library_op import check_registration, find_library_op, is_library_op
from gonogo.user.op_file import ask_gradients, find_op_file
from gonogo.words import find_contract, find_dtypes, find_op

if TYPE_CHECKING:
    from gonogo.records.places import Place
    from gonogo.user.isolated import FileVerification
    from gonogo.verdict.judge import Verdict

SHOWN_FAILURES = 5
NAME_WIDTH = 14
"""Of what stands before a line's text."""


@click.command(
    short_help="Judge a kernel file, isolated: go or no-go.",
    epilog=show_examples(
        "gonogo check kernel.py:my_softmax --op softmax --dtype float16",
        "gonogo check kernel.py:my_norm --op-file ops.py:NORM",
        "gonogo check solution.py --problem KernelBench/level1/1_Square_matrix_multiplication_.py --scale 0.25",
        "gonogo check solutions/ --problem KernelBench/ --workers 8 --out verdicts.jsonl",
        "gonogo check kernel.py --op softmax --only softmax:f16:1x1x3:c:uniform:4",
    ),
)
@click.argument("target", metavar="FILE[:FUNC]")
@click.option("--op", metavar="OP", shell_complete=complete_op, help="The op it implements: one of gonogo ops.")
@click.option(
    "--op-file", metavar="OPFILE[:NAME]",
    help="An op of your own instead: a gonogo.Op, or a reference beside draw(seed, dtype). The file is run.",
)  # fmt: skip
@click.option(
    "--problem", type=FILE, metavar="PATH",
    help="A benchmark's problem instead, as it is: a file or folder. FILE is its solution; or a folder of them.",
)  # fmt: skip
@click.option("--grads", is_flag=True, help="Of an op of your own: the gradients of its arguments, too.")
@click.option("--scale", type=float, default=1.0, help="Of a problem: what its sizes are multiplied by.")
@click.option("--vary", is_flag=True, help="Of a problem: other values and sizes than it draws, too.")
@click.option(
    "--reference",
    metavar="FILE:FUNC",
    help="Of a torch.library op, NAMESPACE::OP: its reference beside draw(seed, dtype). Of a problem: a twin.",
)
@click.option(
    "--workers", type=click.IntRange(1), help="For many solutions: processes that judge. One per core by default."
)
@click.option("--out", type=FILE, help="For many solutions: keep verdicts here, and go on from them.")
@click.option("--page", type=FILE, help="For many solutions: write what is found here, as Markdown.")
@click.option("--show", is_flag=True, help="For many solutions: run nothing, and show what --out has.")
@click.option("--trace", type=FILE, help="Of a problem: add the verdict to this JSONL of evaluations.")
@words_option(
    "--dtype", "--dtypes", "dtypes", metavar="DTYPE", shell_complete=complete_dtypes,
    help="Only these; all that the op takes by default. Repeated, or with commas.",
)  # fmt: skip
@click.option("--cases", type=int, help="Cases per dtype: 24; of a problem 3, beside its own.")
@click.option(
    "--seed", type=int, metavar="SEED",
    help="Of the cases. By default a fresh one, which is told: no file can prepare for it; 0 where $CI is set.",
)  # fmt: skip
@click.option(
    "--contract",
    help="What it promises: float32 (the default), float64, float16, bfloat16, tf32, fast-math or atomics.",
)
@click.option(
    "--device", default="auto", show_default=True, shell_complete=complete_device, help="auto, cpu or cuda."
)
@click.option("--lock", type=FILE, help="Judge by this lock file instead of the package's.")
@click.option("--timeout", "timeout_s", default=60.0, show_default=True, help="Seconds per case.")
@click.option("--memory-gb", default=8.0, show_default=True, help="Resident memory of a worker.")
@click.option("--strict", is_flag=True, help="No-go for a suspect case, too, instead of running it again.")
@click.option("--only", metavar="CASE", help="Run this one case: the replay of a failure.")
@click.option(
    "--record", type=PLACE, metavar="DIR",
    help="Add what is measured, and the op's torch control on the same cases, to this run directory.",
)  # fmt: skip
@click.option(
    "--report", type=FILE, metavar="FILE",
    help="Write a page of the verdicts, as HTML: where in the output the error lies.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print every verdict as JSON.")
def check(
    target: str,
    op: str | None,
    op_file: str | None,
    problem: Path | None,
    grads: bool,
    scale: float,
    vary: bool,
    reference: str | None,
    workers: int | None,
    out: Path | None,
    page: Path | None,
    show: bool,
    trace: Path | None,
    dtypes: tuple[str, ...],
    cases: int | None,
    seed: int | None,
    contract: str | None,
    device: str,
    lock: Path | None,
    timeout_s: float,
    memory_gb: float,
    strict: bool,
    only: str | None,
    record: Place | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Run the kernel FUNC of FILE on many cases, isolated, and judge it. Exit code 1 for no-go.

    It takes the op's arguments, tensors of torch, and returns its output: torch or NumPy. FUNC may be left out
    where the file has one public function, or one named like the op. gonogo.verify does the same in your own
    process; gonogo.check, in Python, judges one output at hand.

    A suspect case, which reads above its limit and may still be rounding, is run again on three fresh seeds: no-go
    if it is above there too.
    """
    if sum(given is not None for given in (op, op_file, problem)) > 1:
        raise click.UsageError(
            "--op names an op of gonogo's, --op-file one of your own and --problem a benchmark's: give one of them"
        )
    find_contract(contract)
    if problem is not None:
        _check_problem(problem, target, locals())
    if op is None and op_file is None and reference is not None:
        op_file = reference
    if op is None and op_file is None:
        raise click.UsageError(
            "name the op that it implements: --op OP, or one of your own by --op-file FILE:NAME; or --problem PATH"
        )
    known = find_op_file(op_file) if op_file is not None else find_op(str(op))
    if grads:
        known = ask_gradients(known)
    if only and dtypes and parse_case(only, known).dtype not in find_dtypes(dtypes):
        raise InputError(f"--only {only} is not among --dtype {','.join(dtypes)}: leave --dtype out")
    registered: Mapping[str, str] = {}
    if op_file is not None and is_library_op(target):
        kernel = find_library_op(target, op_file)
        registered = check_registration(target, known, op_file, 0)
    else:
        kernel = find_kernel(target, known.name)
    if report is not None:
        prepare_file(report)
    start_ahead(device, triton="triton" in kernel.text)
    with need_backend("gonogo check"):
        from gonogo.campaign import Allowance
        from gonogo.user.isolated import check_file
        from gonogo.user.planning import DEFAULT_CASES, choose_seed
    try:
        with Reporter() as reporter:
            file_verification = check_file(
                kernel, known, contract=contract, dtypes=dtypes or DTYPES,
                cases=DEFAULT_CASES if cases is None else cases,
                seed=choose_seed() if seed is None else seed, device=device,
                lock=lock, allowance=Allowance(timeout_s, memory_gb * 2**30),
                suspects="fail" if strict else "rerun", only=only, record=record,
                report=partial(report_records, reporter),
            )  # fmt: skip
    except KeyboardInterrupt:  # not by click, whose exit code is that of a no-go
        raise Interrupted("interrupted: no verdict") from None
    if report is not None:
        from gonogo.report.verdicts import describe, write_verdicts

        name = f"{kernel.path.name}:{kernel.function}"
        with write_to(report):
            write_verdicts(report, [describe(file_verification.verification, name)])
        echo(f"a page of it is in {report}", aside=True)
    if as_json:
        print_json(file_verification.to_dict() | ({"opcheck": dict(registered)} if registered else {}))
    else:
        _print(file_verification)
        for name, found in registered.items():
            _print_line(f"  {'opcheck':<11} {name}: {found}")
    sys.exit(1 if file_verification.verification.decision == "no-go" else 0)


def _check_problem(problem: Path, target: str, said: dict[str, Any]) -> NoReturn:
    """Judge a solution of a benchmark's problem, or many."""
    start_ahead(said["device"], triton=True)
    with need_backend("gonogo check --problem"):
        from gonogo.campaign import Allowance
        from gonogo.cli.solutions import check_solution, check_solutions
        from gonogo.problems.judging import DEFAULT_CASES, Terms
        from gonogo.problems.problem import Options
        from gonogo.runners.device import count_workers, find_device
        from gonogo.user.planning import choose_seed
    if said["report"]:
        raise click.UsageError("--report goes with --op and --op-file; of solutions, gonogo report --solutions OUT")
    if said["only"] or said["record"]:
        raise click.UsageError("--only and --record go with --op and --op-file; of a problem, --out keeps verdicts")
    if len(said["dtypes"]) > 1:
        raise click.UsageError("a problem is judged in one dtype: give one, or none for its own")
    device = find_device(said["device"])
    dtype = find_dtypes(said["dtypes"])[0] if said["dtypes"] else None
    options = Options(device, dtype, said["scale"], reference=said["reference"])
    terms = Terms(
        said["contract"], DEFAULT_CASES if said["cases"] is None else said["cases"],
        choose_seed() if said["seed"] is None else said["seed"],
        said["lock"], Allowance(said["timeout_s"], said["memory_gb"] * 2**30), said["strict"], said["vary"],
        said["seed"] is None,
    )  # fmt: skip
    path = Path(target)
    if path.is_dir() or path.suffix == ".jsonl":
        if said["trace"]:
            raise click.UsageError("--trace goes with one solution; --out keeps the verdicts of many")
        check_solutions(
            problem, path, options, terms, workers=said["workers"] or count_workers(device), out=said["out"],
            page=said["page"], runs=not said["show"], as_json=said["as_json"],
        )  # fmt: skip
    if said["out"] or said["page"] or said["show"]:
        raise click.UsageError(f"--out, --page and --show go with many solutions: a folder or a .jsonl, not {path}")
    check_solution(problem, target, options, terms, trace=said["trace"], as_json=said["as_json"])
    raise AssertionError  # both have ended it


def _print(file_verification: FileVerification) -> None:
    from gonogo.verdict.verdicts import list_worst, tell_verification

    verification, kernel = file_verification.verification, file_verification.kernel
    count, failed = len(verification.verdicts), len(verification.failed)
    lines = [
        ("cases", f"{failed} of {count} cases failed"
         + (f", {len(verification.suspect)} suspect" if verification.suspect else "")
         + f"; contract {verification.contract}"),
        ("limit", _tell_limit(file_verification)),
        ("outcomes", ", ".join(f"{number} {name}" for name, number in file_verification.outcomes.items())),
    ]  # fmt: skip
    lines.append(("stopped", file_verification.stopped or ""))
    lines.append(("isolated", _tell_walls(file_verification.walls)))
    others = list_worst(verification.failed)[1:]
    also = [("also", f"{failure.case}: {_tell(failure.verdict)}") for failure in others[: SHOWN_FAILURES - 1]]
    if len(others) >= SHOWN_FAILURES:
        also.append(("", f"and {len(others) - SHOWN_FAILURES + 1} more; all of them: --json"))
    echo(f"{kernel.told or f'{kernel.path.name}:{kernel.function}'} as {verification.op}: {verification.decision}")
    _print_lines(lines)
    for line in tell_verification(verification):
        _print_line(line, command=verification.replay)
    _print_lines(also)


def _print_lines(lines: list[tuple[str, str]]) -> None:
    for name, text in lines:
        if text:
            _print_line(f"  {name:<11} {text}")


def _print_line(line: str, command: str | None = None) -> None:
    """A name and a text; where the terminal has no room for it, in lines below each other."""
    room, name, text = find_room(), line[:NAME_WIDTH], line[NAME_WIDTH:]
    if room is None or len(line) <= room:
        echo(line)
    elif text == command:
        echo("\n".join(_break_command(command, name, room)))
    else:
        echo(fill(text, start=name, indent=" " * NAME_WIDTH))


def _break_command(command: str, name: str, room: int) -> Iterator[str]:
    """A command in lines that can be pasted: broken between its words, as a shell takes it."""
    line = name
    for word in map(shlex.quote, shlex.split(command)):
        if len(line) + len(word) + len(" \\") > room and line.strip() and line != name:
            yield f"{line}\\"
            line = " " * (NAME_WIDTH + 2)
        line += f"{word} "
    yield line.rstrip()


def _tell(verdict: Verdict) -> str:
    if not verdict.is_by_reading or verdict.reading is None:
        return verdict.outcome
    return f"reads {verdict.reading:.4g}, limit {verdict.limit:.4g}"


def _tell_walls(in_force: tuple[str, ...]) -> str:
    """Which walls were in force; by name where one was missing."""
    missing = [wall for wall in ALL if wall not in in_force]
    if not in_force or not missing:
        return "all walls in force" if in_force else ""
    return f"{', '.join(in_force)}; without {', '.join(missing)}"


def _tell_limit(file_verification: FileVerification) -> str:
    verdict = file_verification.verification.verdicts[0].verdict
    return f"{verdict.limit:.4g} {verdict.gauge} ({verdict.limit_from})"

"""gonogo audit: a tolerance → whether it is any good, by op and dtype."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from gonogo.cli._completion import complete_dtypes, complete_ops, complete_policy
from gonogo.cli._output import SCHEMA, echo, print_json
from gonogo.cli._parse import FILE, PLACE, need_backend, show_examples, words_option
from gonogo.cli._progress import Reporter
from gonogo.cli._tables import View, check_columns, print_tables, table_options
from gonogo.errors import InputError
from gonogo.ops import DTYPES, find_ops
from gonogo.words import find_dtypes, find_op, find_words

if TYPE_CHECKING:
    from gonogo.records import Columns
    from gonogo.records.places import Place

DEFAULT_RECORDS = Path("records")
ON_GPU = 4
"""Processes that share a GPU: more of them wait for its memory."""


@click.command(
    short_help="Is a tolerance any good? Vacuous, too tight, what it catches.",
    epilog=show_examples(
        "gonogo audit --op softmax --dtype float16 --policy kernelbench",
        "gonogo audit --op relu,softmax --atol float16=1e-3,float32=1e-5 --rtol 1e-3",
        "gonogo audit --policy mine.toml --markdown",
        "gonogo audit --benchmark KernelBench/level1 --scale 0.25 --out audits.jsonl",
    ),
)
@words_option(
    "--op", "--ops", "ops", metavar="OP", help="Only these; all by default. Repeated, or with commas.",
    shell_complete=complete_ops,
)  # fmt: skip
@words_option(
    "--dtype", "--dtypes", "dtypes", metavar="DTYPE", help="Only these; all by default, in the same way.",
    shell_complete=complete_dtypes,
)  # fmt: skip
@words_option("--atol", metavar="NUMBER", help="Absolute tolerance, 0 if only --rtol is given; or DTYPE=NUMBER,…")
@words_option("--rtol", metavar="NUMBER", help="Relative tolerance, 0 if only --atol is given; or DTYPE=NUMBER,…")
@click.option(
    "--policy", metavar="NAME", shell_complete=complete_policy,
    help="A policy of the field, as in: kernelbench; or one of your own: FILE.toml[:NAME].",
)  # fmt: skip
@click.option(
    "--records", type=PLACE,
    help="Runs to count in; by default the folder `records` here, and where there is none kernels are run.",
)  # fmt: skip
@click.option(
    "--benchmark", type=FILE, metavar="DIR",
    help="Audit a benchmark's problems instead: a checkout, or one problem. See gonogo check --problem.",
)  # fmt: skip
@click.option("--device", default="auto", show_default=True, help="Of a benchmark: auto, cpu or cuda.")
@click.option("--scale", type=float, default=1.0, help="Of a benchmark: what sizes are multiplied by.")
@click.option(
    "--workers", type=click.IntRange(1), help="Of a benchmark: processes. One per core by default, 4 on a GPU."
)
@click.option(
    "--timeout", "timeout_s", default=120.0, show_default=True, help="Of a benchmark: seconds per problem."
)
@click.option("--out", type=FILE, help="Of a benchmark: keep audits here, and go on from them.")
@click.option("--page", type=FILE, help="Of a benchmark: write what is found here, as Markdown.")
@click.option(
    "--mutants/--no-mutants", "mutates", default=True, help="Of a benchmark: run faults of references, too."
)
@click.option("--show", is_flag=True, help="Of a benchmark: run nothing, and show what --out has.")
@click.option("--live", is_flag=True, help="Run the op's kernels now, on the CPU, instead of counting in records.")
@click.option(
    "--cases",
    type=click.IntRange(1),
    default=24,
    show_default=True,
    help="Small cases per op and dtype to probe on.",
)
@words_option(
    "--fail-on", metavar="FINDING", help="Exit code 1 for any of vacuous, too-tight, false-positives, says-nothing."
)
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def audit(
    ops: tuple[str, ...],
    dtypes: tuple[str, ...],
    atol: tuple[str, ...],
    rtol: tuple[str, ...],
    policy: str | None,
    records: Place | None,
    benchmark: Path | None,
    device: str,
    scale: float,
    workers: int | None,
    timeout_s: float,
    out: Path | None,
    mutates: bool,
    show: bool,
    page: Path | None,
    live: bool,
    cases: int,
    fail_on: tuple[str, ...],
    view: View,
    as_json: bool,
) -> None:
    """Is a tolerance any good? What plainly wrong outputs pass it, whether correct ones fail, what it catches."""
    if benchmark is not None:
        _audit_benchmark(benchmark, locals())
    from gonogo.audit import COLUMNS, FINDINGS, Tolerance, audit_tolerance, make_table
    from gonogo.records import find_runs

    tolerance = Tolerance.make(
        atol=_parse_numbers("--atol", atol), rtol=_parse_numbers("--rtol", rtol), policy=policy
    )
    chosen_dtypes = find_dtypes(dtypes or DTYPES)
    chosen_ops = [find_op(op) for op in ops] or find_ops()
    if fail_on:
        find_words("finding", fail_on, FINDINGS)
    check_columns(COLUMNS, view.columns)  # now, not after all cases
    if live and records is not None:
        raise InputError("--live runs kernels, and --records counts in runs: leave one of them out")
    find_runs([] if records is None else [records])
    with need_backend("gonogo audit"):
        import torch  # noqa: F401  for the references; better said now than halfway
    columns = None if live else _load(records)
    with Reporter("cases") as reporter:
        audits = list(
            audit_tolerance(
                tolerance, chosen_ops, chosen_dtypes, columns, cases=cases, report=reporter.report
            )
        )  # fmt: skip
    counted = _tell_counted(columns, cases)
    if as_json:
        print_json({
            "schema": SCHEMA, "tolerance": tolerance.name, "cases": cases, "counted_in": counted,
            "audits": [result.to_dict() for result in audits],
        })  # fmt: skip
    else:
        told = f"Controls and faults counted in {counted}." if view.columns else _tell_columns(counted, cases)
        print_tables([make_table(audits, told)], view)
    failing = [(result, word) for result in audits for word in fail_on if word in result.findings]
    for result, word in failing:
        echo(f"--fail-on {word}: {result.op} {result.dtype}", aside=True)
    sys.exit(1 if failing else 0)


def _audit_benchmark(benchmark: Path, said: dict[str, Any]) -> NoReturn:
    """Audit problems; a tolerance is theirs."""
    if any(said[word] for word in ("ops", "atol", "rtol", "policy", "records", "live", "fail_on")):
        raise click.UsageError("a benchmark brings its own ops and tolerances: leave out what is said of others")
    if said["show"] and said["out"] is None:
        raise click.UsageError("--show shows what --out has: name that file")
    with need_backend("gonogo audit --benchmark"):
        from gonogo.cli.benchmarks import audit_problems
        from gonogo.problems.problem import Options
        from gonogo.runners.device import count_workers, find_device
    device = find_device(said["device"])
    dtype = find_dtypes(said["dtypes"])[0] if said["dtypes"] else None
    options = Options(device, dtype, said["scale"], drawn_on=device)
    workers = said["workers"] or (count_workers(device) if device == "cpu" else ON_GPU)
    words = [f"--dtype {dtype}"] if dtype else []
    words += [f"--scale {options.scale:g}"] if options.scale != 1 else []
    audit_problems(
        benchmark, options, workers=workers, timeout_s=said["timeout_s"], mutates=said["mutates"],
        runs=not said["show"],
        out=said["out"], page=said["page"],
        command=" ".join(["gonogo audit --benchmark", benchmark.name, *words]), view=said["view"],
        as_json=said["as_json"],
    )  # fmt: skip
    raise AssertionError  # it has ended the command


def _tell_columns(counted: str, cases: int) -> str:
    return (
        f"Controls and faults counted in {counted}. Probes: {cases} cases per dtype; of zeros, a constant (1), "
        "the mean of the expected output and the input itself, only cases where gonogo says no-go. Vacuous: one "
        "of them passes. Below ½ ULP: share of elements that may be off by less than rounding alone. Faults: "
        "identical to the control's bits; sub-rounding, off by what two roundings may be; manifest, by more. "
        "Not decided: records whose readings do not tell, for they hold no expected values. Counted in: live "
        "where too many are not decided, and kernels were run instead. Says nothing: it has no numbers for the op "
        "and dtype. gonogo's limit is for contract float32."
    )


def _parse_numbers(option: str, texts: tuple[str, ...]) -> float | dict[str, float] | None:
    """One number for all dtypes, or one by dtype; None where nothing was given."""
    numbers: dict[str, float] = {}
    for text in texts:
        word, equals, number = text.rpartition("=")
        dtype = find_dtypes(word)[0] if equals else "all"
        try:
            value = float(number)
        except ValueError:
            raise InputError(f"{option} {text!r} is neither a number nor DTYPE=NUMBER") from None
        if dtype in numbers:
            raise InputError(f"{option} is given twice for {'all dtypes' if dtype == 'all' else dtype}")
        numbers[dtype] = value
    return numbers["all"] if list(numbers) == ["all"] else numbers or None


def _load(records: Place | None) -> Columns | None:
    """Records to count in; None where there are none, and kernels must be run."""
    from gonogo.audit import NEEDED
    from gonogo.records import load_columns

    if records is None and not DEFAULT_RECORDS.is_dir():
        echo(f"no folder {DEFAULT_RECORDS} here: running the ops' own kernels on the CPU instead", aside=True)
        return None
    return load_columns([records or DEFAULT_RECORDS], wanted=NEEDED)


def _tell_counted(columns: Columns | None, cases: int) -> str:
    if columns is None:
        return f"{cases} small cases per dtype, run now on the CPU, where Triton's interpreter runs no bfloat16"
    return f"{len(columns):,} records of {', '.join(columns.runs)}"

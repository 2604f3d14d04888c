"""gonogo calibrate: records → gonogo.lock."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gonogo.cli._completion import complete_gauge, complete_ops, complete_rule
from gonogo.cli._output import SCHEMA, echo, note_all, print_json
from gonogo.cli._parse import FILE, PLACE, check_recorded, prepare_file, show_examples, words_option, write_to
from gonogo.cli._tables import View, print_tables, table_options
from gonogo.errors import InputError
from gonogo.limits.changes import (
    KINDS,
    Change,
    LockMerge,
    count_changes,
    diff_limits,
    merge_limits,
    order_by_kind,
    tell_change,
)
from gonogo.limits.lock import Provenance, list_devices, note_devices, read_lock, write_lock
from gonogo.table import Table
from gonogo.words import find_words

if TYPE_CHECKING:
    from gonogo.evaluate.score import Method
    from gonogo.evaluate.sketched import OpenSketch
    from gonogo.limits import Limit
    from gonogo.records import StreamedRuns
    from gonogo.records.places import Place


@click.command(
    short_help="Make limits from runs, and merge them into a lock file.",
    epilog=show_examples(
        "gonogo calibrate records -o gonogo.lock",
        "gonogo calibrate records --diff gonogo.lock --fail-on loosened",
    ),
)
@click.argument("runs", nargs=-1, required=True, type=PLACE)
@click.option(
    "--gauge",
    default="bound",
    show_default=True,
    help="absolute, magnitude, ulp, bound or deterministic.",
    shell_complete=complete_gauge,
)
@click.option(
    "--rule",
    "rule_name",
    default="pooled",
    show_default=True,
    help="How readings become a limit.",
    shell_complete=complete_rule,
)
@click.option("--parameter", "-p", multiple=True, help="Of the rule, as in: -p margin=2. Repeatable.")
@words_option(
    "--op", "--ops", "ops", metavar="OP", help="Only these; all by default. Repeated, or with commas.",
    shell_complete=complete_ops,
)  # fmt: skip
@click.option(
    "-o", "--out", type=FILE, default=Path("gonogo.lock"), show_default=True,
    help="Lock file to write, or to merge into.",
)  # fmt: skip
@click.option("--replace", is_flag=True, help="Lose limits of --out that these runs do not make anew.")
@click.option("--diff", "old", type=FILE, help="Say what would change in this lock file; write nothing.")
@words_option(
    "--fail-on", metavar="CHANGE",
    help="Exit code 1 where a limit is new, tightened, loosened, from fewer cases (fewer), or gone.",
)  # fmt: skip
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def calibrate(
    runs: tuple[Place, ...],
    gauge: str,
    rule_name: str,
    parameter: tuple[str, ...],
    ops: tuple[str, ...],
    out: Path,
    replace: bool,
    old: Path | None,
    fail_on: tuple[str, ...],
    view: View,
    as_json: bool,
) -> None:
    """Make limits from the controls of RUNS (run directories, folders of them, s3://…, or sketches).

    They are merged into the lock file: limits that RUNS say nothing of stay as they are, and every change is named.
    """
    from gonogo.evaluate.score import Method
    from gonogo.evaluate.sketched import open_sketches
    from gonogo.limits import GAUGES
    from gonogo.limits.rules import rule, rule_names
    from gonogo.records import find_distinct_runs, open_runs

    context = click.get_current_context()
    if old is not None and context.get_parameter_source("out") is ParameterSource.COMMANDLINE:
        raise InputError("--diff writes nothing, so -o has no use beside it. Leave one of them out")
    if old is None and view != View():
        raise InputError("--columns, --wide, --markdown and --csv are for the table of --diff")
    find_words("gauge", gauge, GAUGES)
    find_words("rule", rule_name, rule_names())
    if fail_on:
        find_words("change", fail_on, KINDS)
    method = Method("", gauge, rule(rule_name, **_parse_parameters(parameter)))
    sketched = open_sketches(runs)
    if sketched is None:
        find_distinct_runs(runs)  # says what is none, or counts twice, before a folder is made
    if old is None:
        prepare_file(out)
    standing, provenance = _read(old or out, replace=replace) if old or out.exists() else ([], {})
    # The largest absolute error tells where a format overflows.
    source: StreamedRuns | OpenSketch
    if sketched is None:
        source = open_runs(runs, wanted={"absolute", gauge})
        note_all(source.incomplete)
    else:
        source = sketched
    made = _make_limits(source, method, ops)
    if old is not None:
        after = made.limits if replace else merge_limits(standing, made.limits).limits
        changes = diff_limits(standing, after)
        either = len(after) + sum(change.after is None for change in changes)
        _print_changes(changes, either, old, view, as_json)
    else:
        merge = _merge(standing, made.limits, out, replace=replace)
        facts = _make_provenance(merge, provenance, source, out)
        with write_to(out):
            write_lock(out, merge.limits, facts)
        changes = diff_limits(standing, merge.limits)
        _print_written(merge, changes, made, out, len(source), method, as_json)
    sys.exit(1 if any(change.kind in fail_on for change in changes) else 0)


@dataclass(frozen=True)
class _Made:
    """The limits of some runs."""

    limits: list[Limit]
    left_out: int
    """Limits that would let errors pass that are no rounding."""


def _make_limits(source: StreamedRuns | OpenSketch, method: Method, ops: tuple[str, ...]) -> _Made:
    from gonogo.evaluate.score import calibrate_with_universal
    from gonogo.evaluate.sketched import OpenSketch

    made = source.calibrate(method) if isinstance(source, OpenSketch) else calibrate_with_universal(source, method)
    check_recorded("op", ops, source.names["op"])  # all are known by now
    made = [limit for limit in made if not ops or limit.op in ops]
    for limit in made:
        if limit.is_vacuous:
            echo(_tell_vacuous(limit), aside=True)
    limits = [limit for limit in made if not limit.is_vacuous]
    if not limits:
        raise InputError(
            "no group of controls has enough sound records for this rule. Run more cases with: gonogo run"
        )
    return _Made(limits, len(made) - len(limits))


def _read(path: Path, *, replace: bool) -> tuple[list[Limit], Provenance]:
    """A lock file; one that cannot be read can still be replaced."""
    remedy = "mend it, or make it anew with: gonogo calibrate RUNS --replace"
    try:
        return read_lock(path, remedy=remedy)
    except InputError:
        if replace:
            return [], {}
        raise


def _merge(standing: list[Limit], fresh: list[Limit], out: Path, *, replace: bool) -> LockMerge:
    """Fresh limits among those of the lock file; refused where some would be lost that nobody asked to lose."""
    if replace:
        return LockMerge(fresh, fresh, kept=[], clashing=[])
    merge = merge_limits(standing, fresh)
    if merge.clashing:
        listed = ", ".join(sorted({f"{limit.op} ({limit.contract})" for limit in merge.clashing}))
        raise InputError(
            f"{out} already has limits of another kind for {listed}: one for all kernels where these are for one "
            "each, or the other way round, and verdicts need one. Nothing was written. Lose those in the file: "
            "--replace. Keep both: -o ANOTHER.lock"
        )
    return merge


def _make_provenance(
    merge: LockMerge, provenance: Provenance, source: StreamedRuns | OpenSketch, out: Path
) -> Provenance:
    """Of this calibration; of earlier ones what their limits that are kept still need."""
    from gonogo._version import __version__

    devices = dict(zip(source.runs, source.devices, strict=True))
    for limit in merge.kept:
        machines = ", ".join(list_devices(limit, provenance))
        for run in {*limit.runs} & {*devices}:
            if devices[run] not in machines:
                raise InputError(
                    f"{out} keeps limits from another run named {run}, on {machines}; this is on {devices[run]}. "
                    "Nothing was written. Rename the run directory, or lose those limits: --replace"
                )
    facts = note_devices(merge.limits, provenance if merge.kept else {}, devices)
    facts |= {"gonogo": __version__, "runs": ", ".join(source.runs), "records": len(source)}
    if merge.kept:  # how many records these are from is not known any more
        del facts["records"]
        facts["runs"] = ", ".join(dict.fromkeys(run for limit in merge.limits for run in limit.runs))
    return facts


def _print_written(
    merge: LockMerge, changes: list[Change], made: _Made, out: Path, records: int, method: Method, as_json: bool
) -> None:
    rule_name = method.rule.name
    if as_json:
        print_json({
            "schema": SCHEMA, "lock": str(out), "limits": len(merge.taken),
            "universal": sum(limit.is_universal for limit in merge.taken), "left_out": made.left_out,
            "records": records, "gauge": method.gauge, "rule": rule_name, "kept": len(merge.kept),
            "changes": _list_changes(changes),
        })  # fmt: skip
        return
    echo(f"{_tell_made(merge.taken, method.gauge, rule_name)} in {out}: {count_changes(changes, merge.limits)}")
    for change in order_by_kind(changes):
        echo(tell_change(change))
    for limit in made.limits:
        if limit not in merge.taken:
            echo(f"not taken: the limit for all ops of contract {limit.contract}, from {limit.kernel}: that of the "
                 "file is from others, too")  # fmt: skip
    kept = len(merge.kept)
    if kept:
        plural = "" if kept == 1 else "s"
        echo(f"kept {kept} limit{plural} that these runs do not make anew; to lose them: --replace")


def _tell_made(limits: list[Limit], gauge: str, rule_name: str) -> str:
    """How many limits of which kind: those of the rule, and universal ones beside them."""
    asked_for = [limit for limit in limits if limit.rule == rule_name]
    beside = len(limits) - len(asked_for)
    plural = "" if len(asked_for) == 1 else "s"
    universal = f" and {beside} for all ops of a contract" if beside else ""
    return f"{len(asked_for)} limit{plural} ({gauge} × {rule_name}){universal}"


def _tell_vacuous(limit: Limit) -> str:
    return (
        f"left out: {limit.op}, contract {limit.contract}. A limit of {limit.value:.4g} would let errors pass that "
        f"are no rounding: a control in {', '.join(limit.runs)} is wrong on some case"
    )


def _print_changes(changes: list[Change], either: int, lock: Path, view: View, as_json: bool) -> None:
    if as_json:
        counts = {kind: sum(change.kind == kind for change in changes) for kind in KINDS}
        print_json({
            "schema": SCHEMA, "lock": str(lock), "limits": either, "counts": counts,
            "changes": _list_changes(changes),
        })  # fmt: skip
        return
    lines = [(c.op, c.contract, c.kernel, c.dtype, c.before, c.after, c.kind) for c in changes]
    title = f"{len(lines)} of {either} limits changed"
    columns = ("op", "contract", "kernel", "dtype", "before", "after", "change")
    print_tables([Table(title, columns, lines, essential=("op", "contract", "before", "after", "change"))], view)


def _list_changes(changes: list[Change]) -> list[dict[str, object]]:
    return [asdict(change) | {"change": change.kind} for change in changes]


def _parse_parameters(texts: tuple[str, ...]) -> dict[str, float]:
    parameters = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            parameters[name] = float(value)
        except ValueError:
            raise InputError(f"parameter {text!r} is not of the form name=number") from None
    return parameters

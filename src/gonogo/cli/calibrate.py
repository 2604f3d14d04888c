"""gonogo calibrate: records → gonogo.lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gonogo.cli._completion import complete_gauge, complete_ops, complete_rule
from gonogo.cli._parse import check_recorded, prepare_file, show_examples, split_words, write_to
from gonogo.cli._tables import print_json, print_tables
from gonogo.errors import InputError
from gonogo.words import find_words

if TYPE_CHECKING:
    from gonogo.limits import Limit


@click.command(
    epilog=show_examples("gonogo calibrate records -o gonogo.lock", "gonogo calibrate records --diff gonogo.lock")
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
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
@click.option("--ops", default="", help="Comma-separated; all by default.", shell_complete=complete_ops)
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("gonogo.lock"), show_default=True)
@click.option("--diff", "old", type=click.Path(path_type=Path), help="Compare with this lock file; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def calibrate(
    runs: tuple[Path, ...],
    gauge: str,
    rule_name: str,
    parameter: tuple[str, ...],
    ops: str,
    out: Path,
    old: Path | None,
    as_json: bool,
) -> None:
    """Make limits from the controls of RUNS (run directories, or folders of them)."""
    from gonogo._version import __version__
    from gonogo.evaluate.groups import Rows
    from gonogo.evaluate.score import Method, calibrate_with_universal
    from gonogo.limits import GAUGES
    from gonogo.limits.lock import read_lock, write_lock
    from gonogo.limits.rules import rule, rule_names
    from gonogo.records import find_distinct_runs, load_columns

    if old is not None and click.get_current_context().get_parameter_source("out") is ParameterSource.COMMANDLINE:
        raise InputError("--diff writes nothing, so -o has no use beside it. Leave one of them out")
    find_words("gauge", gauge, GAUGES)
    find_words("rule", rule_name, rule_names())
    method = Method("", gauge, rule(rule_name, **_parse_parameters(parameter)))
    find_distinct_runs(runs)  # says what is none, or counts twice, before a folder is made
    before = None if old is None else read_lock(old)[0]
    if before is None:
        prepare_file(out)
    columns = load_columns(runs, wanted={"absolute", gauge})  # the one tells where a format overflows
    wanted = set(split_words(ops))
    check_recorded("op", sorted(wanted), columns.names["op"])
    made = [limit for limit in calibrate_with_universal(Rows(columns), method) if not wanted or limit.op in wanted]
    limits = [limit for limit in made if not limit.is_vacuous]
    for limit in made:
        if limit.is_vacuous:
            click.echo(_tell_vacuous(limit), err=True)
    if not limits:
        raise InputError(
            "no group of controls has enough sound records for this rule. Run more cases with: gonogo run"
        )
    if before is not None:
        _print_changes([limit for limit in before if not wanted or limit.op in wanted], limits, as_json)
        return
    provenance: dict[str, str | int] = {
        "gonogo": __version__,
        "devices": ", ".join(sorted(set(columns.devices))),
        "runs": ", ".join(columns.runs),
        "records": len(columns),
    }
    with write_to(out):
        write_lock(out, limits, provenance)
    if as_json:
        print_json({
            "lock": str(out), "limits": len(limits), "universal": sum(limit.is_universal for limit in limits),
            "left_out": len(made) - len(limits), "records": len(columns), "gauge": gauge, "rule": rule_name
        })  # fmt: skip
    else:
        click.echo(f"{_tell_written(limits, gauge, rule_name)} in {out}")


def _tell_written(limits: list[Limit], gauge: str, rule_name: str) -> str:
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


def _print_changes(before: list[Limit], after: list[Limit], as_json: bool) -> None:
    from gonogo.evaluate.table import Table
    from gonogo.limits.lock import diff_limits

    changes = diff_limits(before, after)
    lines = [(c.op, c.contract, c.kernel, c.dtype, c.before, c.after, c.kind) for c in changes]
    names = ("op", "contract", "kernel", "dtype", "before", "after", "change")
    if as_json:
        print_json([dict(zip(names, line, strict=True)) for line in lines])
    else:
        either = len(after) + sum(change.after is None for change in changes)
        print_tables([Table(f"{len(lines)} of {either} limits changed", names, lines)])


def _parse_parameters(texts: tuple[str, ...]) -> dict[str, float]:
    parameters = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            parameters[name] = float(value)
        except ValueError:
            raise InputError(f"parameter {text!r} is not of the form name=number") from None
    return parameters

"""gonogo audit: a tolerance → whether it is any good, by op and dtype."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gonogo.cli._completion import complete_dtype, complete_op, complete_policy
from gonogo.cli._parse import need_backend, show_examples
from gonogo.cli._tables import print_json, print_tables
from gonogo.errors import InputError
from gonogo.ops import DTYPES, find_ops
from gonogo.words import find_dtypes, find_op

if TYPE_CHECKING:
    from gonogo.audit import Tolerance
    from gonogo.records import Columns

DEFAULT_RECORDS = Path("records")
GET_RECORDS = (
    "Make some with: gonogo run --out DIR, or get the project's own from its repository; then --records DIR"
)


@click.command(
    epilog=show_examples(
        "gonogo audit --op softmax --dtype float16 --policy kernelbench --records records",
        "gonogo audit --op relu --atol 1e-3 --rtol 1e-3 --json",
    )
)
@click.option("--op", default="", help="Only this op; all by default.", shell_complete=complete_op)
@click.option("--dtype", default="", help="Only this dtype; all by default.", shell_complete=complete_dtype)
@click.option("--atol", type=float, help="Absolute tolerance.")
@click.option("--rtol", type=float, help="Relative tolerance.")
@click.option("--policy", help="A policy of the field, as in: kernelbench.", shell_complete=complete_policy)
@click.option(
    "--records", type=click.Path(path_type=Path), help="Runs to count in; the folder `records` here by default."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def audit(
    op: str,
    dtype: str,
    atol: float | None,
    rtol: float | None,
    policy: str | None,
    records: Path | None,
    as_json: bool,
) -> None:
    """Is a tolerance any good? What plainly wrong outputs pass it, whether correct ones fail, what it catches."""
    from gonogo.audit import CASES, CASES_OF_MANY, Tolerance, audit_tolerance, make_table
    from gonogo.records import find_runs

    tolerance = Tolerance.make(atol=atol, rtol=rtol, policy=policy)
    dtypes = find_dtypes(dtype or DTYPES)
    ops = [find_op(op)] if op else find_ops()
    find_runs([] if records is None else [records])
    with need_backend("gonogo audit"):
        import torch  # noqa: F401  for the references; better said now than halfway
    columns = _load(tolerance, records)
    cases = CASES if op else CASES_OF_MANY
    if columns is None and not op:
        click.echo(f"running the kernels of {len(ops)} ops, which takes minutes; one is quick: --op OP", err=True)
    audits = list(audit_tolerance(tolerance, ops, dtypes, columns, cases=cases))
    if columns is None:
        counted = (
            f"{cases} small cases per dtype, run now on the CPU: records hold no |expected|, so they cannot decide "
            "a tolerance with rtol above 0. Triton's interpreter runs no bfloat16"
        )
    else:
        counted = f"{len(columns):,} records of {', '.join(columns.runs)}"
    if as_json:
        print_json({
            "schema": 1, "tolerance": tolerance.name, "cases": cases, "counted_in": counted,
            "audits": [result.to_dict() for result in audits],
        })  # fmt: skip
        return
    note = (
        f"Controls and faults counted in {counted}. Probes: {cases} cases per dtype; of zeros, a constant (1), "
        "the mean of the expected output and the input itself, only cases where gonogo says no-go. Vacuous: one "
        "of them passes. Below ½ ULP: share of elements that may be off by less than rounding alone. Faults: "
        "identical to the control's bits; sub-rounding, off by what two roundings may be; manifest, by more. "
        "gonogo's limit is for contract float32."
    )
    print_tables([make_table(audits, note)])


def _load(tolerance: Tolerance, records: Path | None) -> Columns | None:
    """Records where they decide; None where kernels must be run."""
    from gonogo.audit import decides
    from gonogo.records import load_columns

    if not decides(tolerance):
        return None
    if records is None and not DEFAULT_RECORDS.is_dir():
        raise InputError(f"no records: there is no folder {DEFAULT_RECORDS} here. {GET_RECORDS}")
    wanted = {"absolute", "deterministic", "v_abft", "signal", "bits_equal", "exceeds"}
    return load_columns([records or DEFAULT_RECORDS], wanted=wanted)

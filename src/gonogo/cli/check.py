"""gonogo check: a kernel file → go or no-go, by the limits that come with the package."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gonogo.cli.run import Reporter
from gonogo.cli.show import _to_plain
from gonogo.errors import BackendMissing
from gonogo.ops import DTYPES

if TYPE_CHECKING:
    from gonogo.isolated import FileVerification
    from gonogo.judge import Verdict

SHOWN_FAILURES = 5


@click.command(epilog="Example: gonogo check kernel.py:my_softmax --op softmax --dtypes float16")
@click.argument("target", metavar="FILE[:FUNC]")
@click.option("--op", required=True, help="The op it implements: one of gonogo ops.")
@click.option("--dtypes", default=",".join(DTYPES), show_default=True, help="Comma-separated.")
@click.option("--cases", default=24, show_default=True, help="Cases per dtype.")
@click.option("--seed", default=0, show_default=True, help="Another seed is another set of cases.")
@click.option(
    "--contract",
    default="float32",
    show_default=True,
    help="What it promises: float32, float16, bfloat16, tf32, fast-math or atomics.",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
@click.option("--timeout", "timeout_s", default=60.0, show_default=True, help="Seconds per case.")
@click.option("--memory-gb", default=8.0, show_default=True, help="Resident memory of a worker.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep records and op here, for gonogo show.")
@click.option("--json", "as_json", is_flag=True, help="Print every verdict as JSON.")
def check(
    target: str,
    op: str,
    dtypes: str,
    cases: int,
    seed: int,
    contract: str,
    device: str,
    timeout_s: float,
    memory_gb: float,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Run the kernel FUNC of FILE on many cases, isolated, and judge it. Exit code 1 for no-go.

    It takes the op's inputs as torch tensors, in order, and returns its output: torch or NumPy. FUNC may be left
    out where the file has one public function, or one named like the op.
    """
    try:
        from gonogo.campaign import Limits
        from gonogo.isolated import check_file, find_contract, find_kernel, find_op
    except ModuleNotFoundError as error:
        raise BackendMissing(str(error.name), "gonogo check") from None
    find_op(op)
    promised = find_contract(contract)
    kernel = find_kernel(target, op)
    with Reporter(sys.stderr.isatty()) as reporter:
        found = check_file(
            kernel, op, contract=promised, dtypes=[word.strip() for word in dtypes.split(",") if word.strip()],
            cases=cases, seed=seed, device=device, limits=Limits(timeout_s, memory_gb * 2**30), keep=keep,
            report=reporter.report,
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps(_to_plain(found.to_dict()), indent=1, allow_nan=False))
    else:
        _print(found, keep)
    sys.exit(1 if found.verification.decision == "no-go" else 0)


def _print(found: FileVerification, keep: Path | None) -> None:
    verification, kernel = found.verification, found.kernel
    count, failed = len(verification.verdicts), len(verification.failed)
    click.echo(f"{kernel.path.name}:{kernel.function} as {verification.op}: {verification.decision}")
    click.echo(
        f"  {failed} of {count} cases failed"
        + (f", {len(verification.suspect)} suspect" if verification.suspect else "")
        + f"; contract {verification.contract}"
    )
    click.echo(f"  limit     {_tell_limit(found)}")
    click.echo("  outcomes  " + ", ".join(f"{count} {name}" for name, count in found.outcomes.items()))
    if found.refused:
        click.echo(f"  refused   {found.refused}")
    done = sum(found.outcomes.values())
    if done < found.planned:
        click.echo(f"  stopped   after {done} of {found.planned} cases: it timed out too often")
    worst = found.worst
    if worst is None:
        return
    at = worst.record.get("bound_at")
    where = f", worst at ({at.replace(',', ', ')})" if at and worst.verdict.reason == "reading" else ""
    click.echo(f"  worst     {worst.case}: {_tell(worst.verdict)}{where}")
    others = [one for one in verification.failed if one is not worst][: SHOWN_FAILURES - 1]
    for one in others:
        click.echo(f"            {one.case}: {_tell(one.verdict)}")
    if failed > 1 + len(others):
        click.echo(f"            and {failed - 1 - len(others)} more; all of them: --json")
    if verification.pattern:
        click.echo(f"  pattern   {verification.pattern}")
    if keep is None:
        click.echo("  To look at a case element by element, run this again with --keep DIR")
    else:
        click.echo(f"  Look: gonogo show {worst.case} candidate --ops-path {keep / 'ops'}")


def _tell(verdict: Verdict) -> str:
    if verdict.reason != "reading" or verdict.reading is None:
        return verdict.outcome
    return f"reads {verdict.reading:.4g}, limit {verdict.limit:.4g}"


def _tell_limit(found: FileVerification) -> str:
    verdict = found.verification.verdicts[0].verdict
    return f"{verdict.limit:.4g} {verdict.gauge} ({verdict.limit_from})"

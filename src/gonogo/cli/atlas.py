"""gonogo atlas: torch's own ops → how accurate each is, and which have no error scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gonogo.atlas import DTYPES, PASSES
from gonogo.cli._output import SCHEMA, echo, print_json
from gonogo.cli._parse import need_backend, show_examples, words_option, write_to
from gonogo.cli._progress import Reporter
from gonogo.cli._tables import View, print_tables, table_options
from gonogo.table import Table
from gonogo.words import find_words

if TYPE_CHECKING:
    from gonogo.atlas import Finding

COLUMNS = (
    "op",
    "pass",
    "dtype",
    "state",
    "deterministic",
    "bound",
    "ULPs",
    "S / error",
    "by",
    "why, or worst sample",
)
SHOWN = 60
"""Of the highest readings on a page."""
ATTENTION = 1000.0
"""From here on a scale says little: it is so many times what is ever off."""


@click.command(
    short_help="Measure torch's own ops against their error scales.",
    epilog=show_examples(
        "gonogo atlas softmax nn.functional.gelu", "gonogo atlas --dtype float32 --pass forward --markdown"
    ),
)
@click.argument("names", nargs=-1)
@words_option("--dtype", "dtypes", metavar="DTYPE", help="Only these. Repeated, or with commas.")
@words_option("--pass", "passes", metavar="PASS", help="forward, gradient or, by default, both.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--samples", default=10, show_default=True, type=click.IntRange(1), help="Per op, dtype and pass.")
@click.option("--all", "shows_all", is_flag=True, help="Also those without anything to look at.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write what is found here, as a Markdown page.")
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print all findings as JSON.")
def atlas(
    names: tuple[str, ...],
    dtypes: tuple[str, ...],
    passes: tuple[str, ...],
    device: str,
    samples: int,
    shows_all: bool,
    out: Path | None,
    view: View,
    as_json: bool,
) -> None:
    """Run torch's ops (NAMES, all by default) on the inputs that torch tests them with, and read their errors.

    `deterministic` above 1 is more than rounding explains; `bound` is in what correct kernels read, and limits are
    near 3. `S / error` says how generous a scale is. Ops are as torch's tests name them.
    """
    chosen = (
        find_words("dtype", dtypes or DTYPES, (*DTYPES, "float64")),
        find_words("pass", passes or PASSES, PASSES),
    )
    with need_backend("gonogo atlas"):
        from gonogo.atlas import make_atlas
        from gonogo.runners.device import find_device
    with Reporter("ops") as reporter:
        findings = make_atlas(
            names, dtypes=chosen[0], passes=chosen[1], device=find_device(device), samples=samples,
            report=reporter.report,
        )  # fmt: skip
    tables = [summarise(findings), _list(findings, shows_all=shows_all or bool(names))]
    if out is not None:
        with write_to(out):
            out.write_text(_make_page(findings, device), encoding="utf-8")
    if as_json:
        print_json({"schema": SCHEMA, "findings": [finding.to_dict() for finding in findings]})
        return
    print_tables(tables, view)
    if out is not None:
        echo(f"a page of it is in {out}", aside=True)


def summarise(findings: Sequence[Finding]) -> Table:
    """How many are scaled, by pass and dtype."""
    rows = []
    for kind, dtype in dict.fromkeys((finding.kind, finding.dtype) for finding in findings):
        group = [finding for finding in findings if (finding.kind, finding.dtype) == (kind, dtype)]
        counted = [finding for finding in group if finding.state != "left out"]
        scaled = [finding for finding in counted if finding.state == "scaled"]
        ratios = sorted(finding.tightness for finding in scaled if finding.tightness is not None)
        rows.append((
            kind, dtype, len(counted), len(scaled), f"{len(scaled) / max(len(counted), 1):.1%}",
            sum(finding.state == "partly" for finding in counted), sum(not f.is_sound for f in counted),
            ratios[len(ratios) // 2] if ratios else None, sum(ratio > ATTENTION for ratio in ratios),
            len(group) - len(counted),
        ))  # fmt: skip
    columns = (
        "pass", "dtype", "ops", "scaled", "share", "in part", "beyond deterministic", "median S / error",
        "S / error > 1,000", "left out",
    )  # fmt: skip
    note = "Left out: random, sparse, uninitialised, or without a floating output. Shares are of all others."
    return Table("ops of torch with an error scale", columns, rows, note, columns[:5])


def _make_page(findings: Sequence[Finding], device: str) -> str:
    """What is found, as a page: counts, what has no scale, and the highest readings."""
    from gonogo.verdict.setting import describe_setting

    setting = describe_setting(device, device, None, [])
    scaled = sorted((one for one in findings if one.samples), key=lambda one: -(one.ulp or 0.0))
    tables = (
        summarise(findings),
        _list(findings, shows_all=False),
        replace(_list(scaled[:SHOWN], shows_all=True), title=f"the {SHOWN} that are off by most ULPs"),
    )
    head = f"# torch, op by op\n\nBy `gonogo atlas -o`, on {setting}.\n\n"
    return head + "\n".join(table.to_markdown() for table in tables)


def _list(findings: Sequence[Finding], *, shows_all: bool) -> Table:
    """Those that deserve attention first."""
    ranked = sorted(findings, key=_rank)
    rows = [
        (
            finding.op, finding.kind, finding.dtype, finding.state, finding.deterministic, finding.bound,
            finding.ulp, finding.tightness, finding.contract if finding.samples else "",
            finding.reason or finding.worst,
        )
        for finding in ranked
        if shows_all or _deserves(finding)
    ]  # fmt: skip
    title = "all of them" if shows_all else "what deserves attention"
    return Table(title, COLUMNS, rows, essential=("op", "pass", "dtype", "state", "deterministic", "bound"))


def _deserves(finding: Finding) -> bool:
    wide = finding.tightness is not None and finding.tightness > ATTENTION
    return finding.state in ("partly", "refused") or not finding.is_sound or wide


def _rank(finding: Finding) -> tuple[int, float, str]:
    order = ("scaled", "partly", "refused", "left out").index(finding.state)
    reading = -(finding.deterministic or 0.0)
    return (order if finding.is_sound else -1, reading, finding.op)

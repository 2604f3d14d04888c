"""gonogo atlas: torch's own ops → how accurate each is, and which have no error scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gonogo.atlas import DTYPES, PASSES
from gonogo.cli._output import SCHEMA, echo, print_json
from gonogo.cli._parse import FILE, PLACE, need_backend, show_examples, words_option, write_to
from gonogo.cli._progress import Reporter
from gonogo.cli._tables import View, print_tables, table_options
from gonogo.words import find_words

if TYPE_CHECKING:
    from gonogo.records.places import Place
    from gonogo.schema import Record


@click.command(
    short_help="Measure torch's own ops against their error scales.",
    epilog=show_examples(
        "gonogo atlas softmax nn.functional.gelu",
        "gonogo atlas --dtype float32 --pass forward --workers 4 --record runs/atlas",
        "gonogo atlas --from runs/atlas -o atlas.md",
    ),
)
@click.argument("names", nargs=-1)
@words_option("--dtype", "dtypes", metavar="DTYPE", help="Only these. Repeated, or with commas.")
@words_option("--pass", "passes", metavar="PASS", help="forward, gradient or, by default, both.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--samples", default=10, show_default=True, type=click.IntRange(1), help="Per op, dtype and pass.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Processes.")
@click.option("--record", "folder", type=PLACE, help="Add records to this run directory.")
@click.option("--from", "folders", multiple=True, type=PLACE, help="Measure nothing; take these records.")
@click.option("--all", "shows_all", is_flag=True, help="Also those without anything to look at.")
@click.option("-o", "--out", type=FILE, help="Write what is found here, as a Markdown page.")
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print all findings as JSON.")
def atlas(
    names: tuple[str, ...],
    dtypes: tuple[str, ...],
    passes: tuple[str, ...],
    device: str,
    samples: int,
    workers: int,
    folder: Place | None,
    folders: tuple[Place, ...],
    shows_all: bool,
    out: Path | None,
    view: View,
    as_json: bool,
) -> None:
    """Run torch's ops (NAMES, all by default) on the inputs that torch tests them with, and read their errors.

    `deterministic` above 1 is more than rounding explains; `bound` is in what correct kernels read, and limits are
    near 3. `S / error` says how generous a scale is. Ops are as torch's tests name them.
    """
    from gonogo.atlas.page import list_all, list_attention, make_page, summarise

    chosen = (
        find_words("dtype", dtypes or DTYPES, (*DTYPES, "float64")),
        find_words("pass", passes or PASSES, PASSES),
    )
    if folders and (folder is not None or names):
        raise click.UsageError("--from takes records as they are: neither NAMES nor --record go with it")
    if folders:
        sources = _load(folders)
    else:
        with need_backend("gonogo atlas"):
            sources = [_measure(names, chosen, device, samples, workers, folder)]
    findings = [
        finding
        for records, machine in sources
        for finding in _sum_up(records, machine)
        if finding.dtype in chosen[0] and finding.kind in chosen[1]
    ]
    if out is not None:
        with write_to(out):
            out.write_text(make_page(findings, [machine for _, machine in sources]), encoding="utf-8")
    if as_json:
        print_json({"schema": SCHEMA, "findings": [finding.to_dict() for finding in findings]})
        return
    listed = list_all(findings) if shows_all or names else list_attention(findings)
    print_tables([summarise(findings), listed], view)
    if out is not None:
        echo(f"a page of it is in {out}", aside=True)


def _sum_up(records: Sequence[Record], machine: dict[str, Any]) -> list[Any]:
    from gonogo.atlas import sum_up
    from gonogo.schema import name_device

    return sum_up(records, name_device(machine))


def _load(folders: Sequence[Place]) -> list[tuple[list[Record], dict[str, Any]]]:
    from gonogo.atlas import load_atlas

    return [load_atlas(folder) for folder in folders]


def _measure(
    names: Sequence[str],
    chosen: tuple[Sequence[str], Sequence[str]],
    device: str,
    samples: int,
    workers: int,
    folder: Place | None,
) -> tuple[list[Record], dict[str, Any]]:
    """Records, and the machine they were made on; added to a run directory if there is one."""
    from gonogo.atlas import make_atlas
    from gonogo.runners.device import find_device
    from gonogo.runners.environment import describe_environment

    device = find_device(device)
    machine = describe_environment(device)
    if folder is not None:
        from gonogo.records import append_records, check_appendable

        check_appendable(folder, machine)
    with Reporter("ops") as reporter:
        records = make_atlas(
            names, dtypes=chosen[0], passes=chosen[1], device=device, samples=samples, workers=workers,
            report=reporter.report,
        )  # fmt: skip
    if folder is not None:
        echo(str(append_records(folder, machine, records)), aside=True)
    return records, machine

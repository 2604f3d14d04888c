"""Findings → tables and a page: what deserves attention first, and the causes that are known of it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from gonogo.atlas import name_machine
from gonogo.atlas.finding import Finding, find_universal
from gonogo.table import Table

COLUMNS = (
    "op", "pass", "dtype", "device", "state", "deterministic", "bound", "ULPs", "S / error", "by",
    "why, or worst sample",
)  # fmt: skip
ESSENTIAL = ("op", "pass", "dtype", "state", "deterministic", "bound")
WORST = 10
"""Ops that are explained: all that read more than rounding explains, and those that come nearest to that."""
ATTENTION = 1000.0
"""From here on a scale says little: it is so many times what is ever off."""


def summarise(findings: Sequence[Finding]) -> Table:
    """How many are scaled, by device, pass and dtype."""
    rows = []
    for device, kind, dtype in dict.fromkeys((one.device, one.kind, one.dtype) for one in findings):
        group = [one for one in findings if (one.device, one.kind, one.dtype) == (device, kind, dtype)]
        counted = [one for one in group if one.state != "left out"]
        scaled = [one for one in counted if one.state == "scaled"]
        ratios = sorted(one.tightness for one in scaled if one.tightness is not None)
        rows.append((
            device, kind, dtype, len(counted), len(scaled), f"{len(scaled) / max(len(counted), 1):.1%}",
            sum(one.state == "partly" for one in counted), sum(not one.is_sound for one in counted),
            sum((one.bound or 0.0) > find_universal(one.contract) for one in counted),
            ratios[len(ratios) // 2] if ratios else None, sum(ratio > ATTENTION for ratio in ratios),
            len(group) - len(counted),
        ))  # fmt: skip
    columns = (
        "device", "pass", "dtype", "ops", "scaled", "share", "in part", "beyond deterministic",
        "above the universal limit", "median S / error", "S / error > 1,000", "left out",
    )  # fmt: skip
    note = "Left out: random, sparse, uninitialised, or without a floating output. Shares are of all others."
    return Table("ops of torch with an error scale", columns, rows, note, columns[1:6])


def list_all(findings: Sequence[Finding]) -> Table:
    """Every one, those that deserve attention first."""
    return _make_table("all of them", sorted(findings, key=_rank))


def list_attention(findings: Sequence[Finding]) -> Table:
    """Those that deserve attention."""
    return _make_table("what deserves attention", sorted(filter(_deserves, findings), key=_rank))


def make_page(findings: Sequence[Finding], machines: Sequence[dict[str, Any]]) -> str:
    """Counts, what torch is worst at and why, where a scale says little, and what has none."""
    named = "; ".join(map(name_machine, machines))
    beyond = [one for one in findings if not one.is_sound]
    wide = [one for one in findings if one.is_sound and (one.tightness or 0.0) > ATTENTION]
    tables = [
        summarise(findings),
        _explain("more than rounding explains", "`deterministic` is above 1.", beyond),
        _explain("what comes nearest to it", "One row of each op, by what `bound` reads.", find_nearest(findings)),
        _make_table("scales that say little", sorted(wide, key=lambda one: -(one.tightness or 0.0))),
        _list_reasons(findings),
    ]
    head = f"# torch, op by op\n\nBy `gonogo atlas --from … -o`, of records made on {named}.\n\n"
    return head + "\n".join(table.to_markdown() for table in tables)


def find_nearest(findings: Sequence[Finding]) -> list[Finding]:
    """Of ops that rounding explains, those that read highest: with the others as many as are explained."""
    beyond = {one.op for one in findings if not one.is_sound}
    sound = [one for one in findings if one.samples and one.is_sound and one.op not in beyond]
    worst = {one.op: one for one in sorted(sound, key=lambda one: one.bound or 0.0)}
    return sorted(worst.values(), key=lambda one: -(one.bound or 0.0))[: max(WORST - len(beyond), 0)]


def _make_table(title: str, findings: Iterable[Finding]) -> Table:
    rows = [
        (
            one.op, one.kind, one.dtype, one.device, one.state, one.deterministic, one.bound, one.ulp,
            one.tightness, one.contract if one.samples else "", one.reason or one.worst,
        )
        for one in findings
    ]  # fmt: skip
    return Table(title, COLUMNS, rows, essential=ESSENTIAL)


def _explain(title: str, note: str, findings: Sequence[Finding]) -> Table:
    """Readings, and the causes that are known."""
    columns = ("op", "pass", "dtype", "device", "deterministic", "bound", "ULPs", "by", "worst sample", "cause")
    rows = [
        (
            one.op, one.kind, one.dtype, one.device, one.deterministic, one.bound, one.ulp, one.contract, one.worst,
            find_cause(one),
        )
        for one in sorted(findings, key=lambda one: (-(one.bound or 0.0), one.op))
    ]  # fmt: skip
    return Table(title, columns, rows, note, columns[:6])


def _list_reasons(findings: Sequence[Finding]) -> Table:
    """What has no scale, for all or some of its samples, one row for each op and reason."""
    grouped: dict[tuple[str, str, str], list[Finding]] = {}
    for one in findings:
        if one.state in ("partly", "refused"):
            grouped.setdefault((one.op, one.kind, one.reason), []).append(one)
    rows = [
        (op, kind, _join(group, lambda one: one.dtype), _join(group, lambda one: one.device),
         _join(group, lambda one: "some" if one.state == "partly" else "all"), reason)
        for (op, kind, reason), group in sorted(grouped.items())
    ]  # fmt: skip
    columns = ("op", "pass", "dtypes", "devices", "samples", "why")
    return Table("without a scale, for all or some samples", columns, rows)


def _join(group: Sequence[Finding], tell: Callable[[Finding], str]) -> str:
    return ", ".join(dict.fromkeys(map(tell, group)))


def find_cause(finding: Finding) -> str:
    """What is known of why torch reads that high; nothing for most."""
    for cause in _load_causes():
        if all(getattr(finding, name) == cause[name] for name in ("op", "kind", "dtype") if name in cause):
            return str(cause["cause"])
    return "–"


@cache
def _load_causes() -> list[dict[str, str]]:
    causes: list[dict[str, str]] = tomllib.loads((files(__package__) / "causes.toml").read_text("utf-8"))["causes"]
    return causes


def _deserves(finding: Finding) -> bool:
    wide = finding.tightness is not None and finding.tightness > ATTENTION
    return finding.state in ("partly", "refused") or not finding.is_sound or wide


def _rank(finding: Finding) -> tuple[int, float, str]:
    order = ("scaled", "partly", "refused", "left out").index(finding.state)
    reading = -(finding.deterministic or 0.0)
    return (order if finding.is_sound else -1, reading, finding.op)

"""A verification → what a page shows of it: the verdicts, and where in the worst output the error lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gonogo.plain import to_plain
from gonogo.report.page import make_page
from gonogo.verdict.verdicts import Verification, list_facts

FACTS = (
    "case", "sizes", "distribution", "layout", "decision", "reading", "limit", "share", "message", "error",
)  # fmt: skip
TOLD = ("op", "decision", "contract", "limit_from", "cases", "failed", "suspect", "pattern")


def describe(verification: Verification, name: str) -> dict[str, Any]:
    """Plain data, small enough to travel with the report of a test."""
    told = verification.to_dict()
    cases = [{fact: case[fact] for fact in FACTS} for case in told["verdicts"]]
    worst = verification.worst_case
    plain: dict[str, Any] = to_plain({
        "name": name, **{fact: told[fact] for fact in TOLD}, "verdicts": cases,
        "lines": list_facts(verification),
        "worst": None if worst is None
        else {"case": worst.case, "limit": worst.verdict.limit, "gauge": worst.verdict.gauge},
        "map": None if verification.error_map is None else asdict(verification.error_map),
    })  # fmt: skip
    return plain


def write_verdicts(path: Path, verdicts: Sequence[dict[str, Any]], failed_without: Sequence[str] = ()) -> None:
    """Write the page of some kernels, those that fail first; and which tests failed before there was a verdict."""
    order = {"no-go": 0, "failed": 0, "suspect": 1}
    ordered = sorted(verdicts, key=lambda verdict: order.get(verdict["decision"], 2))
    failed = sum(verdict["failed"] > 0 for verdict in ordered)
    told = f"{len(ordered)} verdict{'' if len(ordered) == 1 else 's'}, {failed} with cases that fail"
    if failed_without:
        told += f"; failed without a verdict: {', '.join(failed_without)}"
    path.write_text(make_page({"subtitle": told, "verdicts": ordered}, "gonogo verdicts"), encoding="utf-8")

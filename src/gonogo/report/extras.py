"""Verdicts on solutions, and records of torch's ops → what a page shows of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gonogo.atlas import load_atlas, sum_up
from gonogo.errors import InputError
from gonogo.problems.batch import read_kept
from gonogo.problems.summaries import count_models, tell_counts
from gonogo.schema import name_device

if TYPE_CHECKING:
    from gonogo.records.places import Place

MOST = 1_500
"""Solutions that are listed."""
NEEDED = ("problem", "solution", "decision", "own", "comparison", "why")
LONGEST = 300
"""Letters of a reason."""


def collect_solutions(paths: Sequence[Path]) -> dict[str, Any]:
    """Files that `gonogo check --problem --out` has kept: counts by model, and the solutions."""
    answers = [answer for path in paths for answer in _read(path)]
    differ = [answer for answer in answers if answer["comparison"] not in ("agree", "–")]
    others = [answer for answer in answers if answer["comparison"] in ("agree", "–")]
    listed = [*differ, *others][:MOST]
    return {
        "told": tell_counts(answers), "count": len(answers), "models": count_models(answers),
        "solutions": [
            {name: answer.get(name) for name in (*NEEDED, "fits")} | {"why": str(answer["why"])[:LONGEST]}
            for answer in listed
        ],
    }  # fmt: skip


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise InputError(f"there is no file {path}. Make one: gonogo check SOLUTIONS --problem PATH --out {path}")
    answers = [answer for answer in read_kept(path).values() if all(name in answer for name in NEEDED)]
    if not answers:
        raise InputError(f"{path} has no verdicts on solutions, as gonogo check --problem PATH --out keeps them")
    return answers


def collect_atlas(folders: Sequence[Place]) -> dict[str, Any]:
    """Records that `gonogo atlas --record` has made: what was found of each op."""
    findings = []
    for folder in folders:
        records, environment = load_atlas(folder)
        findings += sum_up(records, name_device(environment))
    counted = [finding for finding in findings if finding.state != "left out"]
    scaled = sum(finding.state == "scaled" for finding in counted)
    beyond = sum(not finding.is_sound for finding in counted)
    told = (
        f"{len(counted):,} ops of torch's, each dtype, device and pass apart: {scaled:,} have an error scale for "
        f"all samples, and {beyond} read more than rounding explains."
    )
    names = {
        name: list(dict.fromkeys(str(getattr(finding, name)) for finding in findings))
        for name in ("op", "kind", "dtype", "device", "state", "reason")
    }
    codes = {name: {word: at for at, word in enumerate(words)} for name, words in names.items()}
    rows = [
        [*(known[str(getattr(finding, name))] for name, known in codes.items()),
         *(_round(getattr(finding, name)) for name in ("deterministic", "bound"))]
        for finding in findings
    ]  # fmt: skip
    return {"told": told, "columns": [*names, "deterministic", "bound"], "names": names, "rows": rows}


def _round(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(f"{value:.3g}")

"""Verdicts on many solutions → tables, counts in a sentence, a page."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from gonogo.table import Table

DECISIONS = ("go", "suspect", "no-go", "refused")
SHOWN = {"problem": "problem", "solution": "solution", "gonogo": "decision", "contract that fits": "fits",
         "own check": "own", "own check is": "comparison", "outside": "outside", "why": "why"}  # fmt: skip

Answer = dict[str, Any]
"""A verdict as a line of --out has it."""


def tell_counts(answers: list[Answer]) -> str:
    """How many of each verdict, and where the benchmark's own differs."""
    counts = Counter(answer["decision"] for answer in answers)
    loose = Counter(answer["comparison"] for answer in answers)
    told = [f"{counts[word]} {word}" for word in DECISIONS if counts[word]]
    told += [f"own check {word}: {loose[word]}" for word in ("too loose", "too strict") if loose[word]]
    return f"{len(answers)} solutions: {', '.join(told)}"


def find_model(name: str) -> str:
    """Who made a solution, by its name: MODEL:NUMBER in a .jsonl, MODEL/FILE in a folder.

    >>> find_model("gpt-4o:14"), find_model("o1/level1/2.py"), find_model("2.py")
    ('gpt-4o', 'o1', '')
    """
    return name.rpartition(":")[0] or (name.partition("/")[0] if "/" in name else "")


def make_tables(answers: list[Answer]) -> list[Table]:
    """One row for each solution; and one for each model, where there are several."""
    rows = [tuple(_show(answer.get(key)) for key in SHOWN.values()) for answer in answers]
    return [Table("solutions", tuple(SHOWN), rows), *_make_model_tables(answers)]


def _show(value: Any) -> Any:
    known = {None: "–", "": "–", True: "passes", False: "fails"}
    return known.get(value, value)


def count_models(answers: list[Answer]) -> list[dict[str, Any]]:
    """Verdicts of each model, in the order that they come: gonogo's, and where the benchmark's own differs."""
    by_model: dict[str, list[Answer]] = {}
    for answer in answers:
        by_model.setdefault(find_model(answer["solution"]), []).append(answer)
    models = []
    for model, made in by_model.items():
        counts = Counter(answer["decision"] for answer in made)
        loose = Counter(answer["comparison"] for answer in made)
        models.append(
            {"model": model, "solutions": len(made)} | {decision: counts[decision] for decision in DECISIONS}
            | {"own": sum(answer["own"] is True for answer in made), "loose": loose["too loose"],
               "strict": loose["too strict"]}
        )  # fmt: skip
    return models


def _make_model_tables(answers: list[Answer]) -> list[Table]:
    models = count_models(answers)
    rows = [(model["model"] or "–", *list(model.values())[1:]) for model in models]
    columns = ("model", "solutions", *DECISIONS, "own check passes", "own too loose", "own too strict")
    note = "Refused: it could not be run, or its problem not be judged."
    return [Table("by model", columns, rows, note)] if len(rows) > 1 else []


def write_page(path: Path, answers: list[Answer], benchmark: str) -> None:
    """Counts, by model where there are several, and every solution of which the two verdicts differ."""
    differ = [answer for answer in answers if answer["comparison"] in ("too loose", "too strict")]
    tables = _make_model_tables(answers)
    if differ:
        tables.append(replace(make_tables(differ)[0], title="where the verdicts differ"))
    head = f"# Solutions of {benchmark}\n\n{tell_counts(answers)}.\n\n"
    path.write_text(head + "\n".join(table.to_markdown() for table in tables), encoding="utf-8")

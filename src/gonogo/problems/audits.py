"""A checkout of a benchmark → audits of all its problems, in processes of their own; resumable."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gonogo.errors import InputError
from gonogo.problems.auditing import OUT_OF_MEMORY, REFUSED, Audit, audit_problem, name_audited
from gonogo.problems.batch import list_problems
from gonogo.problems.problem import Options


def audit_benchmark(
    path: Path,
    options: Options,
    *,
    workers: int,
    timeout_s: float,
    mutates: bool = True,
    runs: bool = True,
    kept: Path | None = None,
    report: Callable[[int, int, int], None] = lambda done, total, made: None,
) -> list[Audit]:
    """Audits of all problems of a checkout; those that `kept` has are not made again, and others if it `runs`.

    What runs out of memory beside others is run again alone.
    """
    problems = list(list_problems(path).values())
    asked = f"{options.dtype or 'own dtype'}, scale {options.scale:g}, {options.device}"
    done = {} if kept is None else _read_kept(kept, asked if runs else None)
    left = [each for each in problems if name_audited(each) not in done] if runs else []
    made = 0

    def keep(problem: Path, audit: Audit) -> None:
        nonlocal made
        done[name_audited(problem)] = audit
        made += 1
        if kept is not None:
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": name_audited(problem), "asked": asked} | audit.to_dict()) + "\n")
        report(len(done), len(problems), made)

    audit = partial(audit_problem, options=options, timeout_s=timeout_s, mutates=mutates)
    for problem in _run_all(left, partial(audit, alone=workers == 1), workers, keep):
        for _ in _run_all([problem], audit, 1, keep):
            keep(problem, Audit(name_audited(problem), why=f"{OUT_OF_MEMORY}, or its process ended"))
    return [done[name_audited(each)] for each in problems if name_audited(each) in done]


def _run_all(
    problems: Sequence[Path], audit: Callable[[Path], Audit], workers: int, keep: Callable[[Path, Audit], None]
) -> list[Path]:
    """Audit problems in processes; those to be tried again, alone."""
    if not problems:
        return []
    again = []
    with ProcessPoolExecutor(min(workers, len(problems)), mp_context=get_context("spawn")) as pool:
        running = {pool.submit(audit, each): each for each in problems}
        try:
            for future in as_completed(running):
                problem = running.pop(future)
                found = future.result()
                if workers > 1 and found.state == REFUSED and OUT_OF_MEMORY in found.why:
                    again.append(problem)
                else:
                    keep(problem, found)
        except BrokenProcessPool:
            again += [problem, *running.values()]
        except BaseException:  # nobody waits for what is under way
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list((pool._processes or {}).values()):
                process.kill()
            raise
    return again


def _read_kept(path: Path, asked: str | None) -> dict[str, Audit]:
    """Audits of an earlier run, of those that were asked for the same; None: all of them."""
    if not path.exists():
        return {}
    found = {}
    for line in path.read_text("utf-8").splitlines():
        try:
            told: dict[str, Any] = json.loads(line)
            key = told.pop("key")
            if told.pop("asked", None) != asked and asked is not None:
                continue
            fields: Any = {name: tuple(x) if isinstance(x, list) else x for name, x in told.items()}
            found[key] = Audit(**fields)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def check_out(path: Path | None) -> None:
    """Refuse a file to keep audits in that is something else."""
    if path is not None and path.is_dir():
        raise InputError(f"{path} is a folder: name a file to keep audits in")

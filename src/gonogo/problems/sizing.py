"""A problem that does not fit into memory → the largest part of its size that does."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from gonogo.cases.room import is_out_of_memory
from gonogo.errors import CaseTooLarge, InputError
from gonogo.ops import ALONE
from gonogo.problems.finding import find_problems
from gonogo.problems.problem import Options

HALVINGS = 6


def tell_scale(path: Path, options: Options) -> str:
    """What to do about it, in words."""
    scale = find_scale(path, options)
    if scale is None:
        return "no --scale was found at which it runs and fits"
    return f"--scale {scale:g} fits"


def find_scale(path: Path, options: Options) -> float | None:
    """Of a half, a quarter … of its size the first at which its reference runs here; None where there is none."""
    for halvings in range(1, HALVINGS + 1):
        smaller = replace(options, scale=options.scale / 2**halvings)
        try:
            _run_reference(path, smaller)
        except InputError:  # it does not survive it, which may be for memory, too
            continue
        except Exception as error:  # noqa: BLE001  whatever a problem does
            if not is_too_large(error):
                return None
        else:
            return smaller.scale
    return None


def _run_reference(path: Path, options: Options) -> None:
    """Draw a case and run the reference with its error scale, as a verdict needs it."""
    import torch

    from gonogo.cases import DRAWN, EVERYWHERE, Case
    from gonogo.execution.bench import prepare
    from gonogo.execution.job import OWN, Job
    from gonogo.runners.device import keep_switches

    problem = find_problems(path, options)[0]
    op = problem.op
    case = Case(op.name, op.dtypes[0], (), EVERYWHERE[0], DRAWN, problem.seeds[0])
    with ALONE, keep_switches(options.device), torch.no_grad():  # a reference may draw, as dropout does
        prepare(Job(0, case, OWN, op, op.kernels, options.device, bounds_only=True, settled=math.inf))
    if options.device == "cuda":
        torch.cuda.empty_cache()


def is_too_large(error: BaseException) -> bool:
    """Whether there was no memory, whoever says so."""
    if isinstance(error, CaseTooLarge) or is_out_of_memory(error):
        return True
    return error.__cause__ is not None and is_too_large(error.__cause__)

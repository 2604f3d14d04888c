"""Correct controls under the limits that come with the package → how often gonogo cries wolf, and on which cases.

Nine checks in ten go through gonogo.verify, one through gonogo.check with inputs and output at hand: the ways that
users take. Every op, dtype and finite distribution has its turn; Triton's controls are run on a GPU only.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from measure import describe_machine
from strangers import load_stranger

import gonogo
from gonogo.cases import ON_CPU, ON_GPU, USUAL, make_inputs, plan_cases
from gonogo.errors import NothingJudged
from gonogo.execution.precision import configure_torch
from gonogo.limits.intervals import upper_bound
from gonogo.ops import DTYPES, Kernel, find_ops, get_op
from gonogo.runners.device import find_device, set_switches

ROUTES = ("verify", "check")
DECISIONS = ("go", "suspect", "no-go")
ONE_IN = 10
"""So many checks go through gonogo.check."""


@dataclass(frozen=True)
class Unit:
    """A control in a dtype, and the seed of its cases."""

    op: str
    kernel: Kernel
    dtype: str
    seed: int


@dataclass(frozen=True)
class Finding:
    """One check of a correct control."""

    route: str
    decision: str
    distribution: str
    told: str
    """Kernel, case and message."""


def list_units(device: str, seed: int) -> list[Unit]:
    """Every control that the device can run, in every dtype; each with cases of its own."""
    found = [
        (op.name, kernel, dtype)
        for op in find_ops() for kernel in op.kernels for dtype in kernel.dtypes
        if kernel.role == "control" and (device == "cuda" or kernel.framework != "triton")
    ]  # fmt: skip
    return [Unit(op, kernel, dtype, seed + place) for place, (op, kernel, dtype) in enumerate(found)]


def check_unit(unit: Unit, *, cases: int, device: str) -> list[Finding]:
    """All checks of a control in a dtype."""
    torch.set_num_threads(1)  # there is a process per core
    set_switches(device)  # before Triton decorates anything
    configure_torch()  # by default torch's own products and convolutions break the promise of float32 on a GPU
    at_hand = math.ceil(cases / ONE_IN)
    found = list(_verify(unit, cases - at_hand, device))
    try:
        found += _check(unit, range(cases - at_hand, cases), device)
    except RuntimeError as error:  # a GPU that is lost stays so
        found.append(
            Finding("check", "no-go", "", f"{unit.kernel.name} in {unit.dtype}: {error}".partition("\n")[0])
        )
    return found


def _verify(unit: Unit, cases: int, device: str) -> Iterator[Finding]:
    found = gonogo.verify(
        load_stranger(unit.op, unit.kernel), unit.op, dtypes=[unit.dtype], cases=cases, seed=unit.seed,
        contract=unit.kernel.contract_for(unit.dtype), device=device, strict=False,
    )  # fmt: skip
    for one in found.verdicts:
        told = f"{unit.kernel.name} on {one.case}: {one.verdict.message}"
        yield Finding("verify", one.verdict.decision, one.case.split(":")[4], told)


def _check(unit: Unit, numbers: range, device: str) -> Iterator[Finding]:
    op, kernel = get_op(unit.op), load_stranger(unit.op, unit.kernel)
    size = ON_GPU if device == "cuda" else ON_CPU
    planned = plan_cases(op, unit.dtype, numbers.stop, unit.seed, distributions=USUAL, limit=size)
    for case, _ in planned[numbers.start :]:
        inputs = make_inputs(case, device, op)
        named = {given.name: tensor for given, tensor in zip(op.inputs, inputs, strict=True)}
        contract = unit.kernel.contract_for(unit.dtype)
        try:
            verdict = gonogo.check(kernel(*inputs), op=unit.op, inputs=named, contract=contract)
        except NothingJudged:  # overflow on the way to every element: verify leaves such a case out, too
            continue
        told = f"{unit.kernel.name} on {case.id}: {verdict.message}"
        yield Finding("check", verdict.decision, case.distribution, told)


def format_report(found: list[Finding]) -> list[str]:
    """Decisions by route, the exact upper bound, and every no-go."""
    lines = [
        f"| route | checks | {' | '.join(DECISIONS)} | no-go at most (95 %) |",
        f"|---|---:|{'---:|' * len(DECISIONS)}---:|",
    ]
    by_route = {f"`gonogo.{route}`": [one for one in found if one.route == route] for route in ROUTES}
    for name, some in (by_route | {"both": found}).items():
        counts = Counter(one.decision for one in some)
        bound = upper_bound(counts["no-go"], len(some))
        cells = " | ".join(f"{counts[decision]:,}" for decision in DECISIONS)
        lines.append(f"| {name} | {len(some):,} | {cells} | {100 * bound:.3f} % |")
    spread = Counter(one.distribution for one in found)
    told = ", ".join(f"{name} {count:,}" for name, count in sorted(spread.items()))
    lines += ["", f"By distribution: {told}."]
    for decision in ("no-go", "suspect"):
        some = [one for one in found if one.decision == decision]
        if some:
            lines += ["", f"{decision}:", "", *(f"- {one.told}" for one in some)]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checks", type=int, default=10_000, help="in all; rounded up to as many for each control")
    parser.add_argument("--seed", type=int, help="of the first control's cases; drawn at random by default")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    device = find_device(chosen.device)
    seed = secrets.randbits(32) if chosen.seed is None else chosen.seed
    units = list_units(device, seed)
    cases = math.ceil(chosen.checks / len(units))
    work = partial(check_unit, cases=cases, device=device)
    started = time.perf_counter()
    # Spawned, for a process that has touched a GPU cannot be forked; and what one unit does to it is its own.
    context, alone = multiprocessing.get_context("spawn"), 1 if device == "cuda" else None
    with ProcessPoolExecutor(chosen.workers, mp_context=context, max_tasks_per_child=alone) as pool:
        found = [one for findings in pool.map(work, units) for one in findings]
    seconds = time.perf_counter() - started
    controls = len({(unit.op, unit.kernel.name) for unit in units})
    options = f"--checks {chosen.checks} --seed {seed} --device {device}"
    lines = [
        "# False alarms: correct controls, checked again and again",
        "",
        f"Machine: {describe_machine()}.",
        f"Made by: `python benchmarks/false_alarms.py {options}`, in {seconds:.0f} s: {len(found) / seconds:.0f} "
        f"checks/s in {chosen.workers} processes.",
        "",
        f"{controls} controls of {len({unit.op for unit in units})} ops in {', '.join(DTYPES)}, each under the "
        "limit that comes with the package for its op and contract.",
        "",
        *format_report(found),
        "",
        f"Left out: {cases * len(units) - len(found)} cases with nothing to judge: the reference is NaN "
        "everywhere, a narrow format may overflow on the way to every element, or the scale allows more than the "
        "values.",
    ]
    print("\n".join(lines))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Every faulty kernel of the corpus, given to gonogo.verify as a stranger's → what it says of each, by dtype.

verify is told the op and what the kernel's control promises, and nothing else: not that the kernel is faulty, nor
what is wrong with it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import torch

import gonogo
from gonogo.errors import GonogoError
from gonogo.execution.execute import REFUSED_BY_INTERPRETER
from gonogo.execution.precision import configure_torch
from gonogo.ops import DTYPES, Kernel, find_ops, get_op
from gonogo.runners.device import find_device, set_switches
from gonogo.user.verification import DEFAULT_CASES


@dataclass(frozen=True)
class Finding:
    """What verify said of a kernel in one dtype."""

    op: str
    kernel: str
    dtype: str
    cases: int
    failed: int
    decision: str
    """Go, suspect, no-go, refused, or error where verify raised."""
    reasons: tuple[str, ...] = ()
    """Why the failed cases are no-go; what went wrong, for an error."""


def list_faulty(ops: tuple[str, ...] = ()) -> list[tuple[str, Kernel]]:
    """Op and kernel, for every faulty kernel of the corpus, and of no other folder that was added."""
    corpus = Path(gonogo.ops.__file__).parent
    known = [op for op in find_ops(ops) if (corpus / op.name).is_dir()]
    return [(op.name, kernel) for op in known for kernel in op.kernels if kernel.role == "faulty"]


def is_refused(kernel: Kernel, dtype: str, device: str) -> bool:
    """Whether this machine cannot run it, as a campaign decides."""
    interpreted = kernel.framework == "triton" and device == "cpu"
    return interpreted and dtype in REFUSED_BY_INTERPRETER


def load_stranger(op: str, kernel: Kernel) -> Callable[..., Any]:
    """The kernel as a user would hand it in: a function of torch tensors."""
    function = get_op(op).load_kernel(kernel.name)
    if kernel.framework != "numpy":
        return function
    return lambda *inputs: function(*map(_to_numpy, inputs))


def _to_numpy(tensor: torch.Tensor) -> Any:
    host = tensor.cpu()
    if host.dtype is torch.bfloat16:  # NumPy has none of its own
        return host.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return host.numpy()


def verify_stranger(
    op: str, kernel: Kernel, dtype: str, *, device: str, cases: int = DEFAULT_CASES, seed: int = 0
) -> Finding:
    """One kernel in one dtype."""
    if is_refused(kernel, dtype, device):
        return Finding(op, kernel.name, dtype, 0, 0, "refused")
    set_switches(device)  # before Triton decorates anything
    control = get_op(op).kernel(str(kernel.calibrate_against))
    found = gonogo.verify(
        load_stranger(op, kernel), op, dtypes=[dtype], cases=cases, seed=seed, device=device,
        contract=control.contract_for(dtype), strict=False,
    )  # fmt: skip
    reasons = sorted({one.verdict.reason for one in found.failed})
    return Finding(op, kernel.name, dtype, len(found.verdicts), len(found.failed), found.decision, tuple(reasons))


def verify_unit(unit: tuple[str, Kernel, str], *, device: str, cases: int, seed: int) -> Finding:
    """In a process of the pool. An error of verify itself is a finding too, and no reason to stop."""
    configure_torch()
    warnings.simplefilter("ignore")  # Triton's interpreter computes by NumPy, and faults overflow
    try:
        return verify_stranger(*unit, device=device, cases=cases, seed=seed)
    except GonogoError as error:
        op, kernel, dtype = unit
        return Finding(op, kernel.name, dtype, cases, 0, "error", (str(error),))


def verify_strangers(
    strangers: list[tuple[str, Kernel]], *, device: str, cases: int, seed: int, workers: int
) -> list[list[Finding]]:
    """Findings kernel by kernel, in the order given."""
    units = [(op, kernel, dtype) for op, kernel in strangers for dtype in DTYPES if dtype in kernel.dtypes]
    work = partial(verify_unit, device=device, cases=cases, seed=seed)
    found: dict[tuple[str, str], list[Finding]] = {}
    # Spawned, for a process that has touched a GPU cannot be forked.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for finding in pool.map(work, units):
            found.setdefault((finding.op, finding.kernel), []).append(finding)
            print(f"{finding.kernel} {finding.dtype}: {finding.decision}", file=sys.stderr)
    return list(found.values())


def format_report(found: list[list[Finding]]) -> list[str]:
    """A line per kernel, then how many are caught, then those that are not."""
    lines = [f"| kernel | {' | '.join(DTYPES)} | why |", f"|---|{'---:|' * len(DTYPES)}---|"]
    for findings in found:
        by_dtype = {finding.dtype: finding for finding in findings}
        reasons = sorted({reason for finding in findings for reason in finding.reasons})
        cells = [_format_cell(by_dtype.get(dtype)) for dtype in DTYPES]
        lines.append(f"| {findings[0].kernel} | {' | '.join(cells)} | {', '.join(reasons)} |")
    run = [findings for findings in found if any(one.cases for one in findings)]
    missed = [findings for findings in run if all(one.decision != "no-go" for one in findings)]
    lines += ["", f"{len(run) - len(missed)} of {len(run)} faulty kernels are no-go in at least one dtype."]
    if len(run) < len(found):
        lines.append(f"{len(found) - len(run)} more cannot be run on this device.")
    if missed:
        lines += ["", "Not caught:", ""]
        lines += [f"- {one[0].kernel}: {get_op(one[0].op).describe_kernel(one[0].kernel)}" for one in missed]
    return lines


def _format_cell(finding: Finding | None) -> str:
    if finding is None:
        return ""
    if finding.decision in ("refused", "error"):
        return finding.decision
    return f"{finding.failed}/{finding.cases} {finding.decision}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--cases", type=int, default=DEFAULT_CASES, help="per kernel and dtype")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ops", nargs="*", default=(), help="all by default")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    from measure import describe_machine  # not on top: tests import this file

    device, started = find_device(chosen.device), time.perf_counter()
    strangers = list_faulty(tuple(chosen.ops))
    found = verify_strangers(strangers, device=device, cases=chosen.cases, seed=chosen.seed, workers=chosen.workers)
    options = f"--device {device} --cases {chosen.cases} --seed {chosen.seed}"
    lines = [
        "# Faulty kernels, verified as a stranger's",
        "",
        f"Machine: {describe_machine()}.",
        f"Made by: `python benchmarks/strangers.py {options}`, in {time.perf_counter() - started:.0f} s.",
        "",
        f"Failed of {chosen.cases} cases, and the decision of `gonogo.verify`, under the limits that come with the",
        "package and the contract of the kernel's control.",
        "",
        *format_report(found),
    ]
    print("\n".join(lines))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""A softmax, verified → seconds: from Python, and from the start of `gonogo check` to its verdict.

On the CPU torch's own softmax; on a GPU the Triton one of the corpus. The file given to `gonogo check` has the
Triton one on both; on the CPU it is interpreted.
"""

from __future__ import annotations

import argparse
import inspect
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measure import describe_machine

import gonogo
from gonogo.ops import DTYPES, get_op, softmax
from gonogo.ops._launch import count_warps
from gonogo.runners.device import find_device, set_switches

CASES = {"cpu": 100, "cuda": 1_000}
MUST_S = {"cpu": 20, "cuda": 30}
"""For as many cases as CASES has."""
MUST_RATE = {"cpu": "", "cuda": "≥ 500 cases/s"}
MUST_CHECK_S = 60
TRITON_FILE = Path(softmax.__file__).with_name("triton.py")


def load_softmax(device: str) -> tuple[str, Callable[..., Any]]:
    """Name and function."""
    if device == "cpu":
        return "torch.softmax", lambda x: torch.softmax(x, -1)
    set_switches(device)  # before Triton decorates anything
    return "softmax_triton", get_op("softmax").load_kernel("softmax_triton")


def time_verify(kernel: Callable[..., Any], device: str, cases: int, seed: int) -> tuple[float, str, float]:
    """Seconds of one verify over all dtypes, what it says, and cases a second."""
    started = time.perf_counter()
    found = gonogo.verify(kernel, "softmax", cases=cases, seed=seed, device=device, strict=False)
    seconds = time.perf_counter() - started
    return seconds, found.decision, len(found.verdicts) / seconds


def time_check(device: str, folder: Path) -> tuple[float, str]:
    """Seconds of `gonogo check` of a file, the interpreter's start included, and what it says."""
    file = folder / "softmax.py"  # with all that it needs, for a kernel that is judged sees nothing of gonogo
    needed = f"from {count_warps.__module__} import {count_warps.__name__}\n"
    text = TRITON_FILE.read_text()
    assert needed in text
    file.write_text(text.replace(needed, inspect.getsource(count_warps)))
    command = [sys.executable, "-m", "gonogo", "check", f"{file}:softmax_triton", "--op", "softmax"]
    started = time.perf_counter()
    done = subprocess.run([*command, "--device", device], stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode == 2:
        raise SystemExit(done.stdout)
    return seconds, {0: "go", 1: "no-go"}[done.returncode]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--cases", type=int, help="per dtype; 100 on the CPU and 1,000 on a GPU by default")
    parser.add_argument("--no-check", action="store_true", help="leave gonogo check out")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    device = find_device(chosen.device)
    cases = chosen.cases or CASES[device]
    name, kernel = load_softmax(device)
    # The first call pays for what Python imports and Triton compiles, into an empty cache; the second for cases
    # that are drawn and traced, as a first kernel's are; the third has cases that are kept, as a second kernel's.
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        first, fresh, kept = (time_verify(kernel, device, cases, seed) for seed in (0, 1, 1))
        checked = time_check(device, Path(cache)) if not chosen.no_check else None
    must = f"≤ {MUST_S[device]} s" if cases >= CASES[device] else ""
    without = " --no-check" if chosen.no_check else ""
    what = f"`gonogo.verify` of {name}, {cases:,} cases × {len(DTYPES)} dtypes"
    lines = [
        "# From a kernel to its verdict",
        "",
        f"Machine: {describe_machine()}.",
        f"Made by: `python benchmarks/verify.py --device {device} --cases {cases}{without}`.",
        "",
        "| work | says | time | cases/s | must hold |",
        "|---|---|---:|---:|---|",
        f"| {what} | {first[1]} | {first[0]:.1f} s | {first[2]:.0f} | {must} |",
        f"| cases of another seed | {fresh[1]} | {fresh[0]:.1f} s | {fresh[2]:.0f} | {must} |",
        f"| the same cases again, as for a second kernel | {kept[1]} | {kept[0]:.1f} s | {kept[2]:.0f} "
        f"| {MUST_RATE[device]} |",
    ]
    if checked is not None:
        lines.append(
            f"| `gonogo check` of a Triton softmax's file, from its start | {checked[1]} | {checked[0]:.1f} s | "
            f"| ≤ {MUST_CHECK_S} s |"
        )
    print("\n".join(lines))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

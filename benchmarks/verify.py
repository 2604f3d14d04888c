"""A softmax, verified → seconds: from Python, and from the start of `gonogo check` to its verdict.

On the CPU torch's own softmax; on a GPU the Triton one of the corpus. The file given to `gonogo check` has the
Triton one on both; on the CPU it is interpreted.
"""

from __future__ import annotations

import argparse
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
from gonogo.runners.device import find_device, set_switches

CASES = {"cpu": 100, "cuda": 1_000}
MUST_S = {"cpu": 20, "cuda": 30}
MUST_CHECK_S = 60
TRITON_FILE = Path(softmax.__file__).with_name("triton.py")


def load_softmax(device: str) -> tuple[str, Callable[..., Any]]:
    """Name and function."""
    if device == "cpu":
        return "torch.softmax", lambda x: torch.softmax(x, -1)
    set_switches(device)  # before Triton decorates anything
    return "softmax_triton", get_op("softmax").load_kernel("softmax_triton")


def time_verify(kernel: Callable[..., Any], device: str, cases: int) -> tuple[float, str]:
    """Seconds of one verify over all dtypes, and what it says."""
    started = time.perf_counter()
    found = gonogo.verify(kernel, "softmax", cases=cases, device=device, strict=False)
    return time.perf_counter() - started, found.decision


def time_check(device: str) -> tuple[float, str]:
    """Seconds of `gonogo check` of a file, the interpreter's start included, and what it says."""
    command = [sys.executable, "-m", "gonogo", "check", f"{TRITON_FILE}:softmax_triton", "--op", "softmax"]
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
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    device = find_device(chosen.device)
    cases = chosen.cases or CASES[device]
    name, kernel = load_softmax(device)
    # The first call pays for what Python imports and Triton compiles, into an empty cache; the second is what a
    # second kernel costs.
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        first, second = (time_verify(kernel, device, cases) for _ in range(2))
        checked = time_check(device)
    what = f"`gonogo.verify` of {name}, {cases:,} cases × {len(DTYPES)} dtypes"
    lines = [
        "# From a kernel to its verdict",
        "",
        f"Machine: {describe_machine()}.",
        f"Made by: `python benchmarks/verify.py --device {device} --cases {cases}`.",
        "",
        "| work | says | time | must hold |",
        "|---|---|---:|---|",
        f"| {what} | {first[1]} | {first[0]:.1f} s | ≤ {MUST_S[device]} s |",
        f"| the same again | {second[1]} | {second[0]:.1f} s | ≤ {MUST_S[device]} s |",
        f"| `gonogo check` of a Triton softmax's file, from its start | {checked[1]} | {checked[0]:.1f} s "
        f"| ≤ {MUST_CHECK_S} s |",
    ]
    print("\n".join(lines))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

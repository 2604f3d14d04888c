"""A campaign over the whole corpus → its rate, its time and the memory of all its processes.

On a machine with a GPU: the default sizes on the GPU. Elsewhere: `gonogo run --quick` with Triton's interpreter.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from measure import describe_machine


def measure_tree_mb(root: int) -> float:
    """Memory of a process and all below it, shared pages counted once."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    total = 0.0
    for pid in parents:
        above = pid
        while above not in (root, 0, 1) and above in parents:
            above = parents[above]
        if above == root:
            try:
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            total += next((int(line.split()[1]) for line in rollup if line.startswith("Pss:")), 0) / 1024
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=170, help="per op and dtype, on a GPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="keep the run in this folder")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    cuda = torch.cuda.is_available()
    options = ["--cases", str(chosen.cases), "--faulty-every", "4", "--device", "cuda"] if cuda else ["--quick"]
    options += ["--seed", str(chosen.seed)] if chosen.seed else []
    peak = 0.0
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gonogo", "run", *options, "--json"]
        command += ["--out", str(chosen.out or f"{folder}/run")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        while process.poll() is None:
            peak = max(peak, measure_tree_mb(process.pid))
            time.sleep(0.5)
        assert process.stdout is not None
        told = json.loads(process.stdout.read())
    must = ("≥ 500/s", "") if cuda else ("≤ 120 s", "≤ 2,048 MB")
    lines = [
        "# gonogo run over the whole corpus",
        "",
        f"Machine: {describe_machine()}.",
        f"Made by: `python benchmarks/campaign.py`, which runs `gonogo run {' '.join(options)}`.",
        "",
        "| | | must hold |",
        "|---|---:|---|",
        f"| records | {told['records']:,} | |",
        f"| time | {told['seconds']:.0f} s ({told['records_per_second']:.0f} records/s) | {must[0]} |",
        f"| memory of all processes at most | {peak:,.0f} MB | {must[1]} |",
    ]
    print("\n".join(lines))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

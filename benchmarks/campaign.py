"""A campaign over the whole corpus → its rate, its time, how busy the machine is, and the memory of all processes.

On a machine with a GPU: the default sizes on the GPU. Elsewhere: `gonogo run --quick` with Triton's interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from measure import describe_machine


def list_tree(root: int) -> list[int]:
    """A process and all below it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    tree = []
    for pid in parents:
        above = pid
        while above not in (root, 0, 1) and above in parents:
            above = parents[above]
        if above == root:
            tree.append(pid)
    return tree


def measure_mb(pids: list[int]) -> float:
    """Memory of processes, shared pages counted once."""
    total = 0.0
    for pid in pids:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in rollup if line.startswith("Pss:")), 0) / 1024
    return total


def measure_cpu_s(pid: int) -> float:
    """Seconds that a process has computed so far; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watch:
    """What the processes of a campaign take, looked at every so often."""

    def __init__(self, process: subprocess.Popen[bytes], cuda: bool) -> None:
        self.process = process
        self.peak_mb = 0.0
        self.cpu_s: dict[int, float] = {}
        query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
        self._gpu = subprocess.Popen(query, stdout=subprocess.PIPE, text=True) if cuda else None

    def wait(self) -> None:
        """Until the campaign has ended. Memory is looked at seldom: to look takes time of a process."""
        turn = 0
        while self.process.poll() is None:
            tree = list_tree(self.process.pid)
            self.cpu_s |= {pid: measure_cpu_s(pid) for pid in tree}
            if turn % 8 == 0:
                self.peak_mb = max(self.peak_mb, measure_mb(tree))
            turn += 1
            time.sleep(0.25)

    @property
    def own_s(self) -> float:
        """Seconds that the campaign itself has computed, without its workers."""
        return self.cpu_s.get(self.process.pid, 0.0)

    def read_gpu(self) -> float:
        """Percent of time in which the GPU had a kernel, as NVML tells it, in the mean; start and end left out."""
        assert self._gpu is not None
        self._gpu.terminate()
        told = [float(line) for line in self._gpu.communicate()[0].split() if line.replace(".", "").isdigit()]
        busy = [at for at, percent in enumerate(told) if percent > 0]
        return statistics.fmean(told[busy[0] : busy[-1] + 1]) if busy else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=170, help="per op and dtype, on a GPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, help="processes; the campaign's own choice by default")
    parser.add_argument("--out", type=Path, help="keep the run in this folder")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    cuda = torch.cuda.is_available()
    options = ["--cases", str(chosen.cases), "--faulty-every", "4", "--device", "cuda"] if cuda else ["--quick"]
    options += ["--seed", str(chosen.seed)] if chosen.seed else []
    options += ["--workers", str(chosen.workers)] if chosen.workers else []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gonogo", "run", *options, "--json"]
        command += ["--out", str(chosen.out or f"{folder}/run")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        watch = Watch(process, cuda)
        watch.wait()
        assert process.stdout is not None
        told = json.loads(process.stdout.read())
    must = ("≥ 1,000/s", "") if cuda else ("≤ 120 s", "≤ 2,048 MB")
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
        f"| cores at work, of {os.cpu_count()} | {sum(watch.cpu_s.values()) / told['seconds']:.1f} | |",
        f"| of these the campaign itself, which hands out and writes | {watch.own_s / told['seconds']:.2f} | |",
        f"| memory of all processes at most | {watch.peak_mb:,.0f} MB | {must[1]} |",
    ]
    if cuda:
        lines.append(
            f"| time in which the GPU had a kernel, as NVML tells it | {watch.read_gpu():.0f} % | ≥ 50 % |"
        )
    print("\n".join(lines))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

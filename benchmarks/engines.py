"""One plan by the local engine and by Ray, on the same cores → what Ray costs once it has started.

Ray's cluster has two nodes on this machine, with half of its cores each. Both engines run in turn, several times:
medians count. A rate is of all records behind the first, so that starting workers is told apart. The processor's
time of all processes is told beside it: it is much the same where others use the machine, too. All records of both
are compared, times aside.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import describe_machine

from gonogo.campaign import Plan, Progress, run_campaign
from gonogo.guest.stem import list_family
from gonogo.ops import op_names
from gonogo.records import read_run
from gonogo.runners.engines import Engine, open_engine

MUST = 0.25
"""What Ray may cost at most."""
LOOK_S = 0.25
"""How often processes are looked at: of one that ends, what it used since then is missed."""


@dataclass(frozen=True)
class Run:
    """What one campaign took."""

    start_s: float
    """Until its first case was recorded."""
    rate: float
    """Records a second behind that."""
    cpu_s: float
    """Of all processes behind that, while workers are ended too."""


class Processor:
    """The processor's time of this process and all that it has started, ended ones as they were last seen."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], float] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.read_s()
            time.sleep(LOOK_S)

    def read_s(self) -> float:
        with self._lock:
            for process in list_family(os.getpid()):
                with suppress(OSError):  # it is gone
                    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                    ticks = int(fields[11]) + int(fields[12])
                    self._seen[process, fields[19]] = ticks / os.sysconf("SC_CLK_TCK")
            return sum(self._seen.values())


def time_campaign(plan: Plan, folder: Path, engine: Engine, workers: int, processor: Processor) -> Run:
    seen: list[tuple[float, int]] = []

    used = 0.0

    def report(progress: Progress) -> None:
        nonlocal used
        seen.append((time.perf_counter(), progress.rows))
        used = used or processor.read_s()

    started = time.perf_counter()
    run_campaign(plan, folder, engine=engine, workers=workers, report=report)
    (first, before), (last, after) = seen[0], seen[-1]
    return Run(first - started, (after - before) / (last - first), processor.read_s() - used)


@contextmanager
def start_cluster(cores: int, folder: str) -> Iterator[float]:
    """A Ray cluster of two nodes that this process is connected to; the seconds that took."""
    only_here = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_TMPDIR": folder}
    # Nodes of a run must have the same commit: whoever works on gonogo meanwhile does not end it.
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "GONOGO_COMMIT": "benchmarked"} | only_here
    import ray
    from ray.cluster_utils import Cluster

    started = time.perf_counter()
    options: dict[str, Any] = {"object_store_memory": 2**27}
    cluster = Cluster(initialize_head=True, head_node_args=options | {"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=cores // 2, **options)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield time.perf_counter() - started
    finally:
        ray.shutdown()
        cluster.shutdown()


def read_rows(folder: Path) -> list[dict[str, Any]]:
    rows = read_run(folder).drop_columns(["time_us"]).to_pylist()
    return sorted(rows, key=lambda row: (row["number"], row["kernel"]))


def count_differing(first: Path, second: Path) -> int:
    """Records that are not the same in both; NaN is the same as NaN."""
    ours, theirs = read_rows(first), read_rows(second)
    assert len(ours) == len(theirs)
    return sum(repr(one) != repr(other) for one, other in zip(ours, theirs, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=4, help="per op and dtype")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    cores = max((os.cpu_count() or 2) // 2 * 2, 2)
    plan = Plan(op_names(), cases=chosen.cases)
    runs: dict[str, list[Run]] = {"local": [], "ray": []}
    differing, processor = 0, Processor()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        start_cluster(cores, folder) as cluster_s,
    ):
        for repeat in range(chosen.repeats):
            for name, seen in runs.items():
                seen.append(
                    time_campaign(plan, Path(folder, f"{name}{repeat}"), open_engine(name), cores, processor)
                )
                print(f"{name}: {seen[-1]}", flush=True)
            differing += count_differing(Path(folder, f"local{repeat}"), Path(folder, f"ray{repeat}"))
    rates = {name: statistics.median(run.rate for run in seen) for name, seen in runs.items()}
    starts = {name: statistics.median(run.start_s for run in seen) for name, seen in runs.items()}
    used = {name: statistics.median(run.cpu_s for run in seen) for name, seen in runs.items()}
    cost, cpu_cost = rates["local"] / rates["ray"] - 1, used["ray"] / used["local"] - 1
    lines = [
        "# Engines",
        "",
        f"Machine: {describe_machine()}.",
        f"Made by: `python benchmarks/engines.py --cases {chosen.cases} --repeats {chosen.repeats}`: "
        f"{plan.count_rows():,} records of all ops, by {cores} workers; with Ray on two nodes of this machine, "
        "half of them on each. Medians of runs in turn.",
        "",
        "| engine | records/s once started | each run | until the first case | processor's time once started |",
        "|---|---:|---|---:|---:|",
    ]
    for name, seen in runs.items():
        each = ", ".join(f"{run.rate:.1f}" for run in seen)
        lines.append(f"| {name} | {rates[name]:.1f} | {each} | {starts[name]:.1f} s | {used[name]:.1f} s |")
    lines += [
        "",
        f"Once started Ray takes {cost:+.1%} of the local engine's time beside it, at most {MUST:.0%} must hold; "
        f"of the processor's time {cpu_cost:+.1%}. "
        f"The cluster of two nodes took {cluster_s:.1f} s to start, once. Records that differ: {differing}.",
    ]
    print("\n".join(lines))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

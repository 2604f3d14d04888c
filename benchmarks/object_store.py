"""The same made-up run on disk and in SeaweedFS on loopback → what reading it costs from either, in turns.

Both are read from memory, for the system keeps what it has read: what differs is the store, its server and its
client, which share the cores with what decodes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from evaluate import write_run
from measure import describe_machine

from gonogo.records import load_columns
from gonogo.records.columns import EVERYTHING
from gonogo.records.places import Place, S3Place

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from stores import BUCKET, KEY, SECRET, Seaweed

MUST = 2.0
"""Times the disk, at most."""
WANTED = {"text and bound readings": ("bound",), "all that evaluate can load": EVERYTHING}


@dataclass(frozen=True)
class Cost:
    """Of reading a run once."""

    wall_s: float
    cpu_s: float
    """Of this process and of the server's."""


def time_load(place: Place, wanted: tuple[str, ...], server: Seaweed) -> Cost:
    start, cpu = time.perf_counter(), time.process_time() + server.count_cpu_s()
    load_columns([place], wanted=wanted)
    return Cost(time.perf_counter() - start, time.process_time() + server.count_cpu_s() - cpu)


def compare(
    places: tuple[Path, S3Place], wanted: tuple[str, ...], server: Seaweed, rounds: int
) -> tuple[Cost, Cost]:
    """From disk and from the store: medians of rounds that take turns, after one that is not counted."""
    taken = [tuple(time_load(place, wanted, server) for place in places) for _ in range(rounds + 1)][1:]
    disk, store = (
        Cost(median(cost.wall_s for cost in costs), median(cost.cpu_s for cost in costs))
        for costs in zip(*taken, strict=True)
    )
    return disk, store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2 * 10**6)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder, served = Path(scratch) / "run", Path(scratch) / "seaweed"
        write_run(folder, chosen.rows, seed=0)
        served.mkdir()
        server = Seaweed(served)
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]
        os.environ |= {
            "AWS_ENDPOINT_URL": server.endpoint, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET
        }  # fmt: skip
        try:
            server.start()
            run = S3Place(BUCKET, "run")
            files = [path for path in folder.iterdir() if not path.name.startswith(".")]
            for path in files:
                (run / path.name).write(path)
            size_mb = sum(path.stat().st_size for path in files) / 1e6
            load = os.getloadavg()[0]
            measured = {
                what: compare((folder, run), wanted, server, chosen.rounds) for what, wanted in WANTED.items()
            }
        finally:
            server.kill()
    lines = [
        f"# Reading a run of {chosen.rows:,} records from an object store",
        "",
        f"Machine: {describe_machine()}.",
        f"Made by: `python benchmarks/object_store.py`; {size_mb:,.0f} MB, SeaweedFS on loopback, on these cores.",
        f"Medians of {chosen.rounds} rounds, from disk and from the store in turns; load average {load:.1f}.",
        "Processor time is of reader and server together; other work on the machine changes it less.",
        "",
        "| what is read | from disk | from the store | ratio | must hold | processor time | ratio |",
        "|---|---:|---:|---:|---|---:|---:|",
        *(
            f"| {what} | {disk.wall_s:.2f} s | {store.wall_s:.2f} s | {store.wall_s / disk.wall_s:.2f} × "
            f"| ≤ {MUST:g} × | {disk.cpu_s:.2f} s, {store.cpu_s:.2f} s | {store.cpu_s / disk.cpu_s:.2f} × |"
            for what, (disk, store) in measured.items()
        ),
    ]
    print("\n".join(lines))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

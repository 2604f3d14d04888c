"""A small campaign, limits made from its controls, a lock file, and what changed since the last one."""

import tempfile
from pathlib import Path

from gonogo.campaign import Plan, run_campaign
from gonogo.evaluate import evaluate
from gonogo.evaluate.score import calibrate, default_methods
from gonogo.limits.lock import diff_limits, read_lock, write_lock
from gonogo.records import load_columns

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        runs = [Path(folder) / f"seed-{seed}" for seed in (1, 2)]
        for seed, run in enumerate(runs, start=1):
            print(run_campaign(Plan(("relu", "mean"), cases=4, seed=seed), run))
        columns = load_columns(runs)
        gonogo_default = default_methods()[0]
        limits = calibrate(columns, gonogo_default)
        lock = Path(folder) / "gonogo.lock"
        write_lock(lock, limits, {"devices": columns.devices[0], "records": len(columns)})
        print(lock.read_text())
        ours = evaluate(columns, "run").scores[0]
        manifest = ours.bins["manifest"]
        print(f"held out: {ours.false_positives} of {ours.control_cases} controls flagged, "
              f"{manifest.flagged} of {manifest.cases} manifest faults, {manifest.no_go} as no-go")  # fmt: skip
        print("changed:", diff_limits(read_lock(lock)[0], limits))

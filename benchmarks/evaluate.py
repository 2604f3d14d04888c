"""Made-up records, a million to a hundred million → time and memory of calibrate, evaluate and report on them.

The records are laid out as campaigns lay them out: runs of a million, closed, with their columns, every kernel of
every op on its cases. A hundred million take 15 GB of disk, and two cores some minutes to make.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from measure import describe_machine

from gonogo.cases import EXACT, FINITE, LAYOUTS, NON_FINITE, ON_GPU, Planned, plan_cases
from gonogo.cases.plan import CASES_PER_SEED
from gonogo.formats import get_format
from gonogo.limits import Limit
from gonogo.limits.lock import read_lock
from gonogo.ops import DTYPES, Op, find_ops
from gonogo.policies import load_policies
from gonogo.records import MEASURED, make_schema
from gonogo.records.closing import FILE_ROWS, GROUP_ROWS, close_run
from gonogo.records.description import write_description
from gonogo.records.parts import choose_encoding
from gonogo.schema import policy_column

FAULTY_EVERY = 4
RUNS = 4
"""The records are spread over; by default limits are made without the run that they are tried on."""
DISTRIBUTIONS = (*FINITE, *NON_FINITE)
CASES = 64
"""Cases of each op and dtype that shapes are taken from, again and again; only seeds go on."""
OUTCOMES = {"ok": 0.95, "non-finite": 0.045, "unwritten": 0.002, "not-repeatable": 0.001, "raised": 0.002}
"""How often, for faulty kernels; about as on a GPU."""
ODD_CONTROLS = 0.05
"""How often controls are non-finite, where inputs are."""
RUN_ROWS = 10**6
MUST_S, MUST_MB = {"calibrate": 10, "evaluate": 60, "report": math.inf}, 2000
COMMANDS = {
    "calibrate": ["--replace", "-o", "{}/limits"],
    "evaluate": ["--json"],
    "report": ["-o", "{}/report.html"],
    "sketch": ["-o", "{}/all.sketch"],
}
LAUNCH = """
import json, os, subprocess, sys, time
start = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(json.dumps([time.perf_counter() - start, used.ru_maxrss / 1024, os.waitstatus_to_exitcode(status)]))
"""
"""From a process of its own: a child's peak is never below that of the process it was started from."""

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Layout:
    """Every kernel of every op and dtype in turn, controls first: the rows of one case of each."""

    kernels: pa.Table
    """Columns that are the kernel's, one row per op, dtype and kernel."""
    cases: pa.Table
    """Columns that are the case's, `CASES` rows per op and dtype."""
    first: Ints
    """Of each op and dtype: its first row in `kernels`,"""
    controls: Ints
    """how many rows are controls,"""
    all_kernels: Ints
    """and how many there are."""

    @property
    def rows_per_turn(self) -> float:
        """Of a turn through all ops and dtypes, on average."""
        return float((self.controls + (self.all_kernels - self.controls) / FAULTY_EVERY).sum())


def make_layout() -> Layout:
    kernels: list[dict[str, Any]] = []
    cases: list[dict[str, Any]] = []
    first, controls = [], []
    for op in find_ops():
        for dtype in DTYPES:
            first.append(len(kernels))
            kernels += describe_kernels(op, dtype)
            controls.append(sum(row["role"] == "control" for row in kernels[first[-1] :]))
            planned = plan_cases(op, dtype, CASES, 0, distributions=DISTRIBUTIONS, limit=ON_GPU)
            cases += [describe_case(op, one) for one in planned]
    return Layout(
        pa.Table.from_pylist(kernels), pa.Table.from_pylist(cases), np.array(first), np.array(controls),
        np.diff([*first, len(kernels)]),
    )  # fmt: skip


def describe_kernels(op: Op, dtype: str) -> list[dict[str, Any]]:
    usable = sorted((k for k in op.kernels if dtype in k.dtypes), key=lambda kernel: kernel.role != "control")
    policies = {policy.name: policy.find_numbers(op.name, dtype) for policy in load_policies()}
    return [
        {
            "op": op.name,
            "dtype": dtype,
            "kernel": kernel.name,
            "role": kernel.role,
            "framework": kernel.framework,
            "contract": kernel.contract_for(dtype).describe(),
            "calibrate_against": kernel.calibrate_against,
            "compared_with": kernel.calibrate_against or (usable[0].name if kernel is not usable[0] else None),
            "current_atol": kernel.current.get(dtype),
            "unit": get_format(dtype).unit_roundoff,
        }
        | {policy_column(name): numbers is not None for name, numbers in policies.items()}
        for kernel in usable
    ]


def describe_case(op: Op, planned: Planned) -> dict[str, Any]:
    case, strategy = planned
    sizes = case.axis_sizes(op)
    return {
        "start": case.id.rsplit(":", 3)[0],
        "shape": "x".join(map(str, case.sizes)),
        "strategy": strategy,
        "reduced_length": math.prod(sizes[axis] for axis in op.reduced),
        "count": math.prod(case.shape_of(op, op.output)),
        "sums_of_products": op.sums_of_products,
    }


def make_part(layout: Layout, turn: int, turns: int, seed: int, rng: np.random.Generator) -> pa.Table:
    """Records of some turns through all ops and dtypes, in the run of a seed."""
    cells = len(layout.first)
    numbers = np.arange(turn * cells, (turn + turns) * cells)
    cell = numbers % cells
    with_faulty = rng.integers(FAULTY_EVERY, size=len(numbers)) == 0
    rows = np.where(with_faulty, layout.all_kernels[cell], layout.controls[cell])
    ends = np.cumsum(rows)
    which = np.repeat(layout.first[cell] - (ends - rows), rows) + np.arange(ends[-1])
    kernels = layout.kernels.take(pa.array(which))
    cases = make_cases(layout, numbers, seed, rng).take(pa.array(np.repeat(np.arange(len(numbers)), rows)))
    columns = {name: table[name] for table in (kernels, cases) for name in table.column_names}
    columns |= make_measured(columns, rng)
    schema = make_schema()
    absent = {field.name: pa.nulls(len(which), field.type) for field in schema if field.name not in columns}
    return pa.table([(columns | absent)[field.name].cast(field.type) for field in schema], schema=schema)


def make_cases(layout: Layout, numbers: Ints, seed: int, rng: np.random.Generator) -> pa.Table:
    cells = len(layout.first)
    turns = numbers // cells
    drawn = layout.cases.take(pa.array(numbers % cells * CASES + rng.integers(CASES, size=len(numbers))))
    distribution = pa.array(DISTRIBUTIONS).take(pa.array((numbers + turns) % len(DISTRIBUTIONS)))
    exact = pc.and_(drawn["sums_of_products"], pa.array(rng.random(len(numbers)) < 1 / (len(DISTRIBUTIONS) + 1)))
    distribution = pc.if_else(exact, EXACT, distribution)
    form = np.where(rng.random(len(numbers)) < 0.6, 0, rng.integers(len(LAYOUTS), size=len(numbers)))
    code = pa.array([name[0] for name in LAYOUTS]).take(pa.array(form))
    seeds = pa.array(seed * CASES_PER_SEED + turns)
    columns = {name: drawn[name] for name in ("shape", "strategy", "reduced_length", "count")} | {
        "number": pa.array(numbers),
        "case": pc.binary_join_element_wise(drawn["start"], code, distribution, seeds.cast("string"), ":"),
        "layout": pa.array(LAYOUTS).take(pa.array(form)),
        "distribution": distribution,
        "seed": seeds,
    }
    return pa.table(columns)


def make_measured(columns: dict[str, Any], rng: np.random.Generator) -> dict[str, pa.Array]:
    """Log-normal readings or none at all; half of the faulty rows are off by up to four decades."""
    n = len(columns["kernel"])
    faulty = columns["role"].to_numpy() == "faulty"
    shown = faulty & (rng.random(n) < 0.5)
    names = list(OUTCOMES)
    outcome = np.where(faulty, rng.choice(len(names), size=n, p=list(OUTCOMES.values())), 0)
    odd = np.isin(columns["distribution"].to_numpy(), NON_FINITE) & (rng.random(n) < ODD_CONTROLS)
    outcome[odd & ~faulty] = names.index("non-finite")
    absent = ~np.isin(names, MEASURED)[outcome]
    wild = outcome == names.index("non-finite")
    off = np.where(shown, 10 ** rng.uniform(0, 4, n), 1.0)
    unit = columns["unit"].to_numpy()

    def draw(middle: float | Reals, spread: float = 0.7) -> Reals:
        noise: Reals = np.exp(spread * rng.standard_normal(n, np.float32)).astype(np.float64)
        return noise * middle

    def keep(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] = absent) -> pa.Array:
        return pa.array(values, mask=missing)

    rounding_only = ~shown & (rng.random(n) < 0.5)
    bound = np.where(rounding_only, 0.0, draw(0.2 * off))
    max_abs = np.where(wild, np.inf, draw(off * unit, 1.5))
    ulp = draw(0.5 * off)
    real = {
        "max_abs": max_abs,
        "mean_abs": max_abs * 0.1,
        "p50_abs": max_abs * draw(0.05, 0.2),
        "p90_abs": max_abs * 0.3,
        "p99_abs": max_abs * 0.7,
        "max_rel": max_abs * draw(30),
        "mean_rel": max_abs * 0.2,
        "mean_ulp": np.where(wild, np.inf, ulp * 0.2),
        "absolute": max_abs,
        "magnitude": np.where(wild, np.inf, draw(0.3 * off)),
        "ulp": np.where(wild, np.inf, ulp),
        "bound": np.where(wild, np.inf, bound),
        "bias": np.where(wild, np.inf, draw(0.1 * off) * rng.choice([-1.0, 1.0], n)),
        "deterministic": np.where(wild, np.inf, bound * 0.6),
        "rmse": max_abs * draw(0.15, 0.2),
    }
    measured = {name: keep(values) for name, values in real.items()}
    matmul = columns["op"].to_numpy() == "matmul"
    measured["v_abft"] = keep(np.where(wild, np.inf, draw(0.1 * off)), absent | ~matmul)
    policies = load_policies()
    for policy, strictness in zip(policies, np.geomspace(1e-3, 0.3, len(policies)), strict=True):
        name = policy_column(policy.name)
        measured[name] = keep(max_abs / unit * strictness, absent | ~columns[name].to_numpy())
    atol = columns["current_atol"].to_numpy()
    elements = columns["count"].to_numpy()
    most = np.where(wild, np.uint64(2**64 - 1), np.minimum(ulp, 2.0**40).astype(np.uint64))
    unlike = ~np.char.startswith(columns["framework"].to_numpy().astype("U6"), "torch")
    alone = columns["compared_with"].is_null().to_numpy()
    same = ~shown & (rng.random(n) < 0.6)
    return measured | {
        "count": keep(elements),
        "num_exceeding": keep(np.where(max_abs > atol, np.maximum(elements // 50, 1), 0)),
        "max_ulp": keep(most),
        "bound_at": keep(columns["number"].to_numpy().astype("U8").astype(object)),
        "outcome": pa.array(names).take(pa.array(outcome)),
        "detail": pa.array(["RuntimeError: out of resources"]).take(pa.array(np.zeros(n, int), mask=~absent)),
        "bits_equal": keep(same, absent | alone),
        "signal": keep(np.where(same, 0.0, draw(0.3 * off)), absent | alone),
        "time_us": pa.array(draw(np.where(unlike, 90.0, 60.0))),
    }


def write_run(folder: Path, rows: int, *, seed: int) -> None:
    """A closed run of so many records."""
    layout, rng, schema = make_layout(), np.random.default_rng(seed), make_schema()
    turns = math.ceil(GROUP_ROWS / layout.rows_per_turn)
    environment = {"device": "cuda", "gpu": "made up", "compute_capability": "0.0"}
    plan = {"ops": [op.name for op in find_ops()], "dtypes": list(DTYPES), "seed": seed, "device": "cuda",
            "cases": math.ceil(rows / layout.rows_per_turn), "faulty_every": FAULTY_EVERY}  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    write_description(folder, {"environment": environment, "plan": plan})
    # As a campaign writes them, but for the effort spent on making them small: reading costs the same.
    encoding = choose_encoding(schema) | {"compression_level": 1}
    written = turn = 0
    while written < rows:
        path = folder / f"part-{turn // turns:05d}.parquet"
        with pq.ParquetWriter(path, schema, **encoding) as writer:
            here = min(FILE_ROWS, rows - written)
            while here > 0:
                table = make_part(layout, turn, turns, seed, rng).slice(0, min(GROUP_ROWS, here))
                writer.write_table(table, row_group_size=GROUP_ROWS)
                written, here, turn = written + table.num_rows, here - table.num_rows, turn + turns
    close_run(folder)


def write_runs(folder: Path, rows: int) -> int:
    """Runs of a million records or, of fewer, four; how many."""
    runs = max(RUNS, rows // RUN_ROWS)
    shares = [rows * (seed + 1) // runs - rows * seed // runs for seed in range(runs)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            pool.submit(write_run, folder / f"run-{seed}", share, seed=seed)
            for seed, share in enumerate(shares)
            if not (folder / f"run-{seed}").exists()
        ]
        for done, job in enumerate(jobs, 1):
            job.result()
            print(f"\rmade {done} of {len(jobs)} runs", end="", file=sys.stderr)
    print(file=sys.stderr)
    return runs


def time_command(arguments: list[str]) -> tuple[float, float]:
    """(seconds, peak MB) of a gonogo command and the processes it waits for."""
    command = [sys.executable, "-m", "gonogo", *arguments]
    launched = subprocess.run([sys.executable, "-c", LAUNCH, *command], check=True, stdout=subprocess.PIPE)
    seconds, peak_mb, status = json.loads(launched.stdout)
    if status:
        raise SystemExit(f"gonogo {' '.join(arguments)} ended with status {status}")
    return seconds, peak_mb


def compare_sketch(folder: Path, scratch: Path) -> tuple[str, ...]:
    """What a sketch of some runs gives beside the runs themselves: its size, limits, and rates held out."""

    def call(*words: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "gonogo", *words, "--json"]
        found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        return found

    def calibrate(source: Path, rule: str, gauge: str) -> dict[Any, Limit]:
        lock = scratch / f"{rule}.lock"
        call("calibrate", str(source), "--rule", rule, "--gauge", gauge, "--replace", "-o", str(lock))
        return {(limit.op, limit.contract, limit.kernel, limit.dtype): limit for limit in read_lock(lock)[0]}

    sketch = scratch / "all.sketch"
    off = []
    for rule, gauge in (("pooled", "bound"), ("paper", "absolute")):
        exact, near = calibrate(folder, rule, gauge), calibrate(sketch, rule, gauge)
        assert exact.keys() == near.keys()
        off.append(max(abs(near[key].value / exact[key].value - 1) for key in exact if exact[key].value))
    rates = [
        {
            score["name"]: (score["fp_rate"], score["recall_manifest"])
            for score in call("evaluate", str(at))["policies"]
        }
        for at in (folder, sketch)
    ]
    apart = max(abs(rates[0][name][at] - rates[1][name][at]) for name in ("gonogo", "paper") for at in (0, 1))
    same = all(rates[0][name] == rates[1][name] for name in rates[0] if name not in ("gonogo", "paper"))
    size_mb = f"{sketch.stat().st_size / 1e6:.1f} MB"
    return size_mb, f"{off[0]:.2%}", f"{off[1]:.2%}", f"{100 * apart:.4f}", "the same" if same else "others"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--keep", type=Path, help="make the records in this folder, and take those that are there")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    lines = [
        "# calibrate, evaluate and report over many records",
        "",
        f"Machine: {describe_machine()}.",
        "Made by: `python benchmarks/evaluate.py`, which makes the records up. All policies and methods are judged",
        "under one hold-out, by run. Must hold over 10^8 records: calibrate in 10 s, evaluate in 60 s; 2 GB each.",
        "",
        "| records | runs | command | time | memory at most |",
        "|---:|---:|---|---:|---:|",
    ]
    print("\n".join(lines))
    compared: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for rows in chosen.rows:
            folder = (chosen.keep or Path(scratch)) / f"{rows}"
            runs = write_runs(folder, rows)
            for name, options in COMMANDS.items():
                seconds, peak_mb = time_command([name, str(folder), *(o.format(scratch) for o in options)])
                must_s = MUST_S.get(name) if rows == 10**8 else None
                over = " (past the limit)" if must_s and (seconds > must_s or peak_mb > MUST_MB) else ""
                lines.append(f"| {rows:,} | {runs} | `gonogo {name}` | {seconds:.1f} s{over} | {peak_mb:,.0f} MB |")
                print(lines[-1], flush=True)
            compared.append((f"{rows:,}", *compare_sketch(folder, Path(scratch))))
            if chosen.keep is None:
                shutil.rmtree(folder)
    lines += [
        "",
        "A sketch beside the records that it is of: how far its limits are off at most; rates of false positives",
        "and of manifest faults flagged, by gonogo and the paper's rule, held out by folds of runs instead of by",
        "run; what policies flag.",
        "",
        "| records | sketch | limits by `pooled` | by `paper` | rates apart, points | policies |",
        "|---:|---:|---:|---:|---:|---|",
        *(f"| {' | '.join(line)} |" for line in compared),
    ]
    print("\n".join(lines[-len(compared) - 7 :]))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Rows in blocks against all rows at once, whatever the blocks; sketches against exact counts."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from made_records import make_row, write_run

from gonogo.cli import cli
from gonogo.errors import InputError
from gonogo.evaluate import evaluate
from gonogo.evaluate.drift import find_drift, gather_for_drift
from gonogo.evaluate.folds import HOLDOUTS, find_medians
from gonogo.evaluate.policies import NEEDED, list_policies
from gonogo.evaluate.readings import Kind, Readings, SortedGroup, gather
from gonogo.evaluate.score import Method, calibrate, default_methods, list_needed, tally_rows
from gonogo.evaluate.sketch import KEYS, Sketch, find_steps, find_upper_end
from gonogo.evaluate.sketched import OpenSketch
from gonogo.evaluate.strata import FOLDS, Strata
from gonogo.limits.lock import read_lock
from gonogo.limits.rules import rule, rule_names
from gonogo.records import RunDirectory, load_columns, open_runs
from gonogo.records import columns as record_columns

RECORDS = Path(__file__).parents[2] / "records"
RUNS = [RECORDS / "cpu-11", RECORDS / "cpu-12"]


@pytest.mark.parametrize("holdout", HOLDOUTS[:-1])
def test_blocks_give_what_all_rows_at_once_give(holdout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 700 rows, by two threads: cells, strata and names come in another order each time."""
    whole = evaluate(load_columns(RUNS), holdout, every_method=True)
    monkeypatch.setattr(record_columns, "BLOCK_ROWS", 700)
    assert evaluate(open_runs(RUNS), holdout, every_method=True).to_dict() == whole.to_dict()
    assert evaluate(load_columns(RUNS), holdout, every_method=True).to_dict() == whole.to_dict()


@pytest.mark.parametrize("name", rule_names())
def test_limits_are_those_of_all_rows_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = Method("", "bound", rule(name))
    whole = calibrate(load_columns(RUNS), method)
    monkeypatch.setattr(record_columns, "BLOCK_ROWS", 500)
    monkeypatch.setattr("gonogo.evaluate.readings.IN_MEMORY_BYTES", 1)  # a file from the first block on
    assert calibrate(open_runs(RUNS), method) == whole
    assert whole or rule(name).needs > 100  # of one group there are fewer


readings_by_key = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0, 2.0, 1e30])), min_size=1)


@given(readings_by_key, st.lists(st.booleans(), min_size=4, max_size=4))
def test_ranks_of_what_a_fold_leaves(rows: list[tuple[int, float]], keys: list[bool]) -> None:
    """Against sorting what is left, for every rank and every value."""
    readings, kept = Readings(keeps_all=True), np.array(keys)
    for at in range(0, len(rows), 3):
        some = rows[at : at + 3]
        readings.add(
            np.zeros(len(some), np.int32), np.array([key for key, _ in some], np.int16),
            np.array([value for _, value in some], np.float32),
        )  # fmt: skip
    readings.resize(1, 4)
    group = readings.group(np.array([0]))
    left = sorted(float(np.float32(value)) for key, value in rows if keys[key])
    of_keys = group.of_keys(kept)
    assert (of_keys.count, of_keys.largest) == (len(left), max(left, default=0.0))
    assert [of_keys.pick(rank) for rank in range(len(left))] == left
    for value in (0.0, 0.7, 1.0 - 2**-40, 1.0, 1.0 + 2**-40, 1e31, 1e300):
        assert of_keys.count_above(value) == sum(other > value for other in left)
    assert isinstance(group, SortedGroup)
    assert group.take(kept).tolist() == left


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40))
@settings(max_examples=20, deadline=None)
def test_medians_of_sizes(sizes: list[int]) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        run = write_run(Path(folder) / "run", [make_row("softmax_triton", count=size) for size in sizes])
        assert find_medians(open_runs([run])) == {"softmax": np.median(sizes)}


def test_a_vacuous_limit_judges_nothing(tmp_path: Path) -> None:
    """One control reads 1e9 in two runs: its own limit would excuse it, and that of all ops does not."""
    for name in ("a", "b"):
        rows = [make_row("softmax_triton", bound=0.5), make_row("softmax_torch", bound=1e9, deterministic=9.0)]
        others = [make_row(f"{op}_torch", op=op, bound=1.0) for op in ("relu", "matmul")]
        write_run(tmp_path / name, [*rows, *others])
    ours = evaluate(open_runs([tmp_path]), "run").scores[0]
    assert (ours.false_positives, ours.control_cases, ours.unjudged) == (2, 8, 0)


def test_a_filter_is_for_all_passes(tmp_path: Path) -> None:
    source = open_runs(RUNS)
    source.survey()
    source.keep_only(op=("softmax",), dtype=("float16",))
    chosen = load_columns(RUNS)
    mask = chosen.equals("op", "softmax") & chosen.equals("dtype", "float16")
    assert len(source) == mask.sum() > 0
    assert evaluate(source, "run").to_dict() == evaluate(chosen.select(mask), "run").to_dict()


def test_memory_of_readings_does_not_hold_rows() -> None:
    """A rule that looks at the largest reading keeps counts and maxima alone."""
    few = gather(open_runs(RUNS), {Kind("bound"): False}).readings[Kind("bound")]
    assert few.counts.shape == few.largest.shape
    assert few._file is None


@given(st.floats(0, float(np.finfo(np.float32).max), width=32))
def test_steps_round_up_by_less_than_two_to_minus_seven(reading: float) -> None:
    (step,) = find_steps(np.array([reading], np.float32), np.array([True]))
    end = find_upper_end(int(step))
    assert reading <= end
    assert end <= reading * (1 + 2**-7) or reading < 2.0**-126 * (1 + 2**-7)


def test_a_sketch_of_all_is_that_of_its_parts_and_near_exact(tmp_path: Path) -> None:
    whole, parts = Sketch.make(open_runs(RUNS)), [Sketch.make(open_runs([run])) for run in RUNS]
    parts[0].write(tmp_path / "one.sketch")
    merged = Sketch.merge([Sketch.read(tmp_path / "one.sketch"), parts[1]])
    assert merged.left_out == whole.left_out
    first, second = (
        sorted(map(tuple, (row.values() for row in sketch.table.select([*KEYS, "rows"]).to_pylist())))
        for sketch in (whole, merged)
    )
    assert first == second
    opened = OpenSketch(merged)
    for method in default_methods():
        exact, near = calibrate(open_runs(RUNS), method), opened.calibrate(method)
        assert len(exact) == len([limit for limit in near if not limit.is_universal]) > 20
        for ours, theirs in zip((limit for limit in near if not limit.is_universal), exact, strict=True):
            assert (ours.op, ours.contract, ours.kernel, ours.dtype) == (
                theirs.op, theirs.contract, theirs.kernel, theirs.dtype
            )  # fmt: skip
            assert (ours.cases, ours.worst) == (theirs.cases, theirs.worst)
            assert theirs.value <= ours.value <= theirs.value * (1 + 2**-7)
            assert ours.value == theirs.value or not method.rule.looks_at_largest
    needed = list_needed(default_methods(), "run")
    held_out, exactly = opened.evaluate(), evaluate(open_runs(RUNS, wanted=needed), "run")
    for ours, theirs in zip(held_out.scores, exactly.scores, strict=True):
        assert ours.control_cases == theirs.control_cases
        if theirs.gauge == "policy":
            assert ours.to_dict() == theirs.to_dict()
        else:
            assert abs(ours.false_positives - theirs.false_positives) <= 0.01 * theirs.control_cases


def test_sketches_on_the_command_line(tmp_path: Path) -> None:
    def call(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, list(words))
        told = str(done.exception) if isinstance(done.exception, InputError) else done.output
        return done.exit_code, told

    for run in RUNS:
        assert call("sketch", str(run), "-o", f"{tmp_path}/{run.name}.sketch")[0] == 0
    files = [f"{tmp_path}/{run.name}.sketch" for run in RUNS]
    assert call("calibrate", *files, "-o", f"{tmp_path}/a.lock")[0] == 0
    assert call("calibrate", *map(str, RUNS), "-o", f"{tmp_path}/b.lock")[0] == 0
    assert read_lock(tmp_path / "a.lock") == read_lock(tmp_path / "b.lock")
    assert "suspect and no-go are not told apart" in " ".join(call("evaluate", *files)[1].split())
    for words, told in (
        (("evaluate", files[0]), "so none can be held out. Add sketches of other runs"),
        (("evaluate", *files, "--sweep"), "as a whole: leave out --holdout"),
        (("calibrate", files[0], str(RUNS[1])), "Make one of both: gonogo sketch"),
        (("calibrate", *files, "--gauge", "ulp"), "a sketch has readings in bound, absolute, and none in ulp"),
        (("sketch", files[0], files[0], "-o", f"{tmp_path}/x.sketch"), "is given twice"),
        (("sketch", files[0], str(RUNS[0]), "-o", f"{tmp_path}/x.sketch"), "is in two of these sketches"),
        (("sketch", files[0], "-o", f"{tmp_path}/x.txt"), "ends with .sketch"),
        (("calibrate", f"{tmp_path}/none.sketch"), "there is no sketch"),
        (("calibrate", f"{tmp_path}/bad.sketch"), "is not a sketch"),
    ):
        (tmp_path / "bad.sketch").write_bytes(b"PAR1 or so")
        code, said = call(*words)
        assert code != 0, words
        assert told in said, (words, said)


def read_sketch_beside(tmp_path: Path, runs: dict[str, list[dict[str, Any]]]) -> tuple[Any, Any]:
    """What an evaluation by run and one of a sketch find, of runs that are in folds of their own."""
    taken: set[int] = set()
    for name, rows in runs.items():
        for attempt in count():  # folds follow from what run.json says
            run = write_run(tmp_path / f"{name}{attempt}", rows, gpu=f"{name}{attempt}")
            fold = int(open_runs([run]).identities[0], 16) % FOLDS
            if fold not in taken:
                taken.add(fold)
                break
            shutil.rmtree(run)
    source = open_runs([tmp_path], wanted=list_needed(default_methods(), "run"))
    return evaluate(source, "run"), OpenSketch(Sketch.make(source)).evaluate()


def test_a_sketch_judges_runs_without_controls_and_none_without_limits(tmp_path: Path) -> None:
    controls = [make_row("softmax_triton", bound=1.0, max_abs=1.0, current_atol=0.1) for _ in range(4)]
    faulty = [make_row("softmax_triton_buggy", "faulty", bound=9.0) for _ in range(7)]
    crash = [make_row("softmax_triton_buggy", "faulty", outcome="crashed", bits_equal=None, bound=None)]
    others = [make_row("softmax_triton", bound=1.0, max_abs=1.0, current_atol=0.1) for _ in range(4)]
    exact, near = read_sketch_beside(tmp_path, {"a": controls, "b": others, "c2": [*faulty, *crash]})
    for ours, theirs in zip(near.scores, exact.scores, strict=True):
        assert ours.to_dict() == theirs.to_dict(), ours.name
    assert (exact.scores[0].bins["all"].no_go, exact.scores[1].bins["all"].cases) == (8, 0)


def test_a_percentile_of_zeros_is_zero_in_a_sketch(tmp_path: Path) -> None:
    rows = [make_row("softmax_triton", max_abs=0.0) for _ in range(96)]
    rows += [make_row("softmax_triton", max_abs=0.01) for _ in range(4)]
    sketch = OpenSketch(Sketch.make(open_runs([write_run(tmp_path / "run", rows)])))
    (limit,) = sketch.calibrate(default_methods()[1])
    assert (limit.value, limit.worst, limit.exceeding) == (0.0, pytest.approx(0.01), 4)


def test_runs_of_one_name_are_two_and_a_copy_is_none(tmp_path: Path) -> None:
    for folder in ("16", "17"):
        write_run(tmp_path / folder / "h200-0", [make_row("softmax_triton")])
    shutil.copytree(tmp_path / "16" / "h200-0", tmp_path / "copy")
    one, two, copy = (
        Sketch.make(open_runs([tmp_path / name])) for name in ("16/h200-0", "17/h200-0", "copy")
    )  # fmt: skip
    assert (Sketch.merge([one, two]).records, len(Sketch.merge([one, two]).runs)) == (2, 2)
    with pytest.raises(InputError, match="run h200-0 is in two of these sketches"):
        Sketch.merge([one, copy])


def test_drift_to_infinity_does_not_hold(tmp_path: Path) -> None:
    method = default_methods()[0]
    sides = []
    for name, bounds in (("before", [0.5] * 10), ("after", [0.5] * 10 + [np.inf] * 10)):
        run = write_run(tmp_path / name, [make_row("softmax_triton", bound=bound) for bound in bounds])
        sides.append(gather_for_drift(open_runs([run]), method))
    (drift,) = find_drift(sides[0], sides[1], method)
    assert (drift.after.cases, drift.after.largest, drift.above, drift.holds) == (20, np.inf, 10, False)


def test_more_names_than_codes_are_refused(tmp_path: Path) -> None:
    rows = [make_row(f"kernel_{number}") for number in range(33_000)]
    run = write_run(tmp_path / "run", rows)
    for read in (load_columns, lambda paths: evaluate(open_runs(paths), "none")):
        with pytest.raises(InputError, match="and 32,767 can be told apart"):
            read([run])


def test_outputs_of_billions_of_elements_have_a_median(tmp_path: Path) -> None:
    rows = [make_row("matmul_torch", op="matmul", count=3 * 10**9), make_row("relu_torch", op="relu", count=5)]
    assert find_medians(open_runs([write_run(tmp_path / "run", rows)])) == {"matmul": 3e9, "relu": 5.0}


def test_a_run_that_is_closed_while_it_is_read_is_told(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run", {"plan": {}, "environment": {}}, part_rows=1)
    for _ in range(12):
        directory.append_rows([make_row("softmax_triton")])
    source = open_runs([tmp_path / "run"])
    assert sum(source.map_blocks(len)) == 12
    directory.close()
    with pytest.raises(InputError, match="was added to or closed while it was read: start again"):
        list(source.map_blocks(len))


def test_many_distributions_are_told_apart(tmp_path: Path) -> None:
    rows = [make_row("softmax_triton", distribution=f"d{number}") for number in range(200)]
    source = open_runs([write_run(tmp_path / "run", rows)])
    strata = Strata(("cell", "bin", "distribution"))
    counts = tally_rows(source, strata, policies=list_policies(), needed=NEEDED)[0]
    assert (counts.control_cases, counts.bins["all"].cases, len(strata)) == (200, 0, 200)

"""Rows in blocks against all rows at once, whatever the blocks; sketches against exact counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from made_records import make_row, write_run

from gonogo.cli import cli
from gonogo.errors import InputError
from gonogo.evaluate import evaluate
from gonogo.evaluate.folds import HOLDOUTS, find_medians
from gonogo.evaluate.readings import Kind, Readings, SortedGroup, gather
from gonogo.evaluate.score import Method, calibrate, default_methods, list_needed
from gonogo.evaluate.sketch import KEYS, OpenSketch, Sketch, find_steps, find_upper_end
from gonogo.limits.lock import read_lock
from gonogo.limits.rules import rule, rule_names
from gonogo.records import columns as record_columns
from gonogo.records import load_columns, open_runs

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
    for value in (0.0, 0.7, 1.0, 1e31):
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
        (("evaluate", files[0]), "needs runs in two of 16"),
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

"""Universal limits: one for all ops of a contract, made from planted readings whose limits are known."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from made_records import make_row, write_run

from gonogo.cli import cli
from gonogo.errors import InputError
from gonogo.evaluate import evaluate
from gonogo.evaluate.readings import Kind, gather
from gonogo.evaluate.score import Method, calibrate, calibrate_with_universal
from gonogo.limits import EVERY_OP, Limit
from gonogo.limits.lock import read_lock
from gonogo.limits.rules import rule
from gonogo.records import Columns, load_columns

POOLED = Method("", "bound", rule("pooled"))
UNIVERSAL = Method("", "bound", rule("universal"))


def make_control(op: str, bound: float, **columns: Any) -> dict[str, Any]:
    return make_row(f"{op}_torch", op=op, bound=bound, **columns)


def read_rows(folder: Path, rows: list[dict[str, Any]]) -> Columns:
    return load_columns([write_run(folder / "run", rows)])


def test_one_limit_for_all_ops_of_a_contract(tmp_path: Path) -> None:
    """Float32: 3 × the 4.0 of matmul, of three ops and five readings; bfloat16: the floor; float16 has one op."""
    rows = read_rows(tmp_path, [
        make_control("softmax", 0.5), make_control("softmax", 1.5, dtype="float32"), make_control("softmax", 0.0),
        make_control("matmul", 4.0), make_control("relu", 0.0),
        make_control("softmax", 0.1, contract="bfloat16"), make_control("relu", 0.2, contract="bfloat16"),
        make_control("softmax", 9.0, contract="float16"),
        make_row("matmul_buggy", "faulty", op="matmul", bound=1e4),
    ])  # fmt: skip
    limits = {limit.contract: limit for limit in calibrate(rows, UNIVERSAL)}
    assert limits.keys() == {"float32", "bfloat16"}
    made = limits["float32"]
    assert (made.op, made.kernel, made.dtype, made.value, made.cases) == (EVERY_OP, "3 ops", None, 12.0, 5)
    assert (made.exceeding, made.fp_upper95, made.runs) == (0, pytest.approx(1 - 0.05 ** (1 / 5)), ("run",))
    assert (limits["bfloat16"].value, limits["bfloat16"].kernel) == (2.0, "2 ops")


def test_a_wrong_control_loosens_no_other_op(tmp_path: Path) -> None:
    """A float16 rmsnorm that is off by all of its scale would give a limit that zeros pass."""
    rows = read_rows(tmp_path, [
        make_control("rmsnorm", 2.0**11, contract="float16"), make_control("softmax", 1.0, contract="float16"),
        make_control("relu", 3.0, contract="float16"),
    ])  # fmt: skip
    (limit,) = calibrate(rows, UNIVERSAL)
    assert (limit.value, limit.kernel, limit.cases) == (9.0, "2 ops", 2)


@settings(max_examples=20, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["softmax", "relu", "matmul"]),
        st.lists(st.floats(0, 300, width=32), min_size=1, max_size=3),
        min_size=1,
    )
)
def test_it_is_the_largest_limit_of_an_op(readings: dict[str, list[float]]) -> None:
    """By the margin of its own, among those that are not vacuous, and only where there are two."""
    with TemporaryDirectory() as folder:
        rows = read_rows(Path(folder), [
            make_control(op, bound, contract="float16") for op, bounds in readings.items() for bound in bounds
        ])  # fmt: skip
    # A limit of more than a tenth over the unit roundoff lets anything pass.
    usable = {op: bounds for op, bounds in readings.items() if max(2.0, 3.0 * max(bounds)) * 2.0**-11 <= 0.1}
    universal = calibrate(rows, UNIVERSAL)
    if len(usable) < 2:
        assert universal == []
    else:
        largest = max(max(bounds) for bounds in usable.values())
        assert [limit.value for limit in universal] == [max(2.0, 3.0 * largest)]
        assert universal[0].cases == sum(len(bounds) for bounds in usable.values())
        assert not universal[0].is_vacuous


@pytest.mark.parametrize(
    ("words", "message", "ops"),
    [
        ([], "2 limits (bound × pooled) and 1 for all ops of a contract", [EVERY_OP, "relu", "softmax"]),
        (["--ops", "relu"], "1 limit (bound × pooled)", ["relu"]),
        (["--rule", "universal", "-p", "margin=5"], "1 limit (bound × universal)", [EVERY_OP]),
        (["--gauge", "ulp"], "2 limits (ulp × pooled)", ["relu", "softmax"]),
    ],
)
def test_calibrate_writes_it_beside_the_others(
    words: list[str], message: str, ops: list[str], tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", [make_control("softmax", 1.0), make_control("relu", 0.0)])
    lock = tmp_path / "gonogo.lock"
    done = CliRunner().invoke(cli, ["calibrate", str(run), "-o", str(lock), *words], catch_exceptions=False)
    head, *changes = done.stdout.splitlines()
    assert head == f"{message} in {lock}: {len(changes)} new"
    assert all(line.startswith("  new  ") for line in changes)
    limits = read_lock(lock)[0]
    assert [limit.op for limit in limits] == ops
    assert limits[0].value == {"": 3.0, "relu": 2.0, "margin=5": 5.0, "ulp": 2.0}[words[-1] if words else ""]


def test_no_universal_limit_beside_other_rules(tmp_path: Path) -> None:
    rows = read_rows(tmp_path, [make_control("softmax", 1.0), make_control("relu", 0.0)])
    paper: list[Limit] = calibrate_with_universal(rows, Method("", "absolute", rule("paper")))
    assert {limit.op for limit in paper} == {"softmax", "relu"}


def test_holding_out_an_op_uses_the_others_alone(tmp_path: Path) -> None:
    """Without matmul, which reads 4, the limit is 3; without one of the others it is 12."""
    rows = [
        make_control("softmax", 1.0), make_control("relu", 0.5), make_control("matmul", 4.0, deterministic=2.0),
        make_control("matmul", 0.5, contract="float16"), make_row("softmax_buggy", "faulty", bound=11.0),
        make_row("matmul_buggy", "faulty", op="matmul", bound=11.0),
        make_row("softmax_unwritten", "faulty", outcome="unwritten", bound=None),
    ]  # fmt: skip
    columns = load_columns([write_run(tmp_path / "run", rows)])
    scores = {score.name: score for score in evaluate(columns, "op").scores}
    ours, paper = scores["gonogo"].to_dict(), scores["paper"].to_dict()
    assert (ours["gauge"], ours["rule"]) == ("bound", "universal")
    assert (ours["false_positives"], ours["control_cases"], ours["unjudged"]) == (1, 3, 1)
    assert (ours["caught_manifest"], ours["manifest"]) == (2, 3)
    # The paper's rule has no reading of the op that is left out, and says nothing even of what failed outright.
    assert (paper["control_cases"], paper["all"], paper["unjudged"]) == (0, 0, 7)
    folds = gather(columns, {Kind("bound"): False}, "op").folds
    assert [fold.name for fold in folds] == ["softmax", "relu", "matmul"]
    assert not any((fold.calibrate & fold.judge).any() for fold in folds)


def test_holding_out_the_only_op_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [make_control("softmax", 1.0)])
    with pytest.raises(InputError, match=r"^hold-out op needs records of two ops or more; these are of one$"):
        evaluate(load_columns([folder]), "op")

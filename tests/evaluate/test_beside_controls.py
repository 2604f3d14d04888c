"""Faults beside the worst control on the same case: planted errors, and against the plain definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import make_row, write_run

from gonogo.evaluate import evaluate
from gonogo.evaluate.beside_controls import CaseErrors
from gonogo.evaluate.score import default_methods, list_needed
from gonogo.records import Columns, load_columns

UNIT = 2.0**-9


def make_fault(number: int, **columns: Any) -> dict[str, Any]:
    """Of bound 9: no-go, where limits are 2."""
    return make_row("softmax_triton_buggy", "faulty", number=number, bound=9.0, **columns)


def test_planted_errors_land_in_their_bins(tmp_path: Path) -> None:
    """Case 0 has controls off by 1 and 2 units, case 1 by none, case 2 has no control; the other run differs."""
    controls = [
        make_row("softmax_torch", number=0, max_abs=UNIT), make_row("softmax_triton", number=0, max_abs=2 * UNIT),
        make_row("softmax_triton", number=1, max_abs=0.0), make_row("softmax_triton", number=3, max_abs=UNIT),
    ]  # fmt: skip
    at_the_edge = [make_fault(0, max_abs=4 * UNIT), make_fault(1, max_abs=UNIT, ulp=1.0)]
    no_control = [make_fault(2, max_abs=1.0)]
    evident = [
        make_fault(0, max_abs=5 * UNIT),
        make_fault(0, max_abs=20 * UNIT),
        make_fault(1, max_abs=1.0, ulp=1.1),
    ]
    gross = [make_fault(0, max_abs=21 * UNIT), make_fault(1, max_abs=UNIT, ulp=5.1)]
    unsound = [make_fault(2, outcome="unwritten"), make_fault(3, outcome="crashed", bits_equal=None)]
    same_bits = [make_fault(0, max_abs=1.0, bits_equal=True, signal=0.0)]
    write_run(tmp_path / "a", [*controls, *at_the_edge, *no_control, *evident, *gross, *unsound, *same_bits])
    write_run(tmp_path / "b", [make_row("softmax_triton", number=0, max_abs=1.0)])
    evaluation = evaluate(load_columns([tmp_path]), "none")
    ours = evaluation.scores[0]
    assert (ours.bins["all"].cases, ours.bins["differing"].cases) == (11, 10)
    assert (ours.bins["evident"].cases, ours.bins["gross"].cases) == (7, 4)
    assert ours.to_dict()["recall_no_go_gross"] == 1.0
    table = evaluation.to_recall_table()
    assert table.columns[-4:] == ("evident flagged", "evident no-go", "gross flagged", "gross no-go")
    assert "10 differing, 10 manifest, 7 evident, 4 gross." in table.note
    assert ("gonogo", *["100.00 %"] * 8) in [tuple(map(str, row)) for row in table.rows]


def test_they_are_loaded_where_asked_for(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [make_row("softmax_triton"), make_fault(1)])
    for beside_controls in (False, True):
        wanted = list_needed(default_methods(), "none", beside_controls=beside_controls)
        columns = load_columns([folder], wanted=wanted)
        assert (len(columns.number) == 2, "ulp" in columns.readings) == (beside_controls, beside_controls)
        assert ("gross" in evaluate(columns, "none").scores[0].bins) is beside_controls


rows_of_cases = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 2), st.booleans(), st.sampled_from([0.0, 1.0, 3.0, 1e30]), st.floats(0, 9)
    ),
    max_size=12,
)


@given(rows_of_cases)
def test_oracle(rows: list[tuple[int, int, bool, float, float]]) -> None:
    """Run, number, whether a control, error and error in ULPs of each row."""
    table = np.array(rows, float).reshape(-1, 5)
    run, number, is_control, absolute, ulp = table.T
    columns = Columns(
        runs=["a", "b"], run=run.astype(np.int16), number=number.astype(np.int32),
        readings={"absolute": absolute.astype(np.float32), "ulp": ulp.astype(np.float32)},
    )  # fmt: skip
    errors = CaseErrors()
    errors.add(columns, is_control.astype(bool))
    ratios = errors.compare(columns, ~is_control.astype(bool))
    for (at_run, at, control, error, ulps), ratio in zip(rows, ratios, strict=True):
        beside = [other[3] for other in rows if other[:3] == (at_run, at, True)]
        if control or not beside:
            assert np.isnan(ratio)
        else:
            worst = max(beside)
            assert ratio == pytest.approx(error / worst if worst else ulps / 0.5, rel=1e-6)

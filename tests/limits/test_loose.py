"""A limit that was loosened by hand is named, and none that a rule made from records is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gonogo.evaluate.score import Method, calibrate_with_universal
from gonogo.limits import Limit
from gonogo.limits.lock import read_lock, write_lock
from gonogo.limits.loose import tell_loose
from gonogo.limits.rules import rule, rule_names
from gonogo.limits.shipped import find_limit, note_loose, shipped_lock
from gonogo.records import find_runs, load_columns
from gonogo.schema import Contract

RECORDS = Path(__file__).parent.parent.parent / "records"


@pytest.mark.parametrize("run", find_runs([RECORDS]), ids=lambda run: run.name)
def test_no_limit_that_a_rule_makes_is_named(run: Path, tmp_path: Path) -> None:
    rows, count = load_columns([run]), 0
    for name in rule_names():
        made = [limit for limit in calibrate_with_universal(rows, Method("", "bound", rule(name)))
                if not limit.is_vacuous]  # fmt: skip
        write_lock(tmp_path / "lock", made, {})
        for limit in read_lock(tmp_path / "lock")[0]:
            assert limit.worst is not None
            assert note_loose(limit) is None
            # Raised by hand: tenfold is far above whatever it was made from.
            raised = replace(limit, value=10 * max(limit.value, limit.worst) + 1)
            assert tell_loose(raised, None) == f"far above {limit.worst:.4g}, the most that its controls read"
            count += 1
    assert count > 100


def test_the_package_s_own_limits_keep_what_their_controls_read() -> None:
    limits, _ = read_lock(shipped_lock())
    assert all(limit.worst is not None and note_loose(limit) is None for limit in limits)


def test_what_is_said_of_a_loose_limit(tmp_path: Path) -> None:
    (own,) = [limit for limit in read_lock(shipped_lock())[0] if (limit.op, limit.contract) == ("relu", "float32")]
    assert (own.value, own.worst) == (2.0, 0.0)
    both = "far above 0, the most that its controls read, and the package's own, 2"
    loosened = replace(own, value=2000.0)
    assert note_loose(loosened) == both
    # A lock file from before it was kept; one of an op that the package has no limit for, by a rule it has not.
    assert note_loose(replace(loosened, worst=None)) == "far above the package's own, 2"
    other = Limit("mine", "float32", None, None, "bound", "luck", value=4.5, worst=1.0)
    assert note_loose(other) == "far above 1, the most that its controls read"
    assert note_loose(replace(other, value=4.0)) is None
    write_lock(tmp_path / "gonogo.lock", [loosened], {"devices": "NVIDIA H200"})
    assert find_limit("relu", Contract(), tmp_path / "gonogo.lock").told.endswith(f" on NVIDIA H200; it is {both}")
    assert "far above" not in find_limit("relu", Contract()).told

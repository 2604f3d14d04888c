"""Records made before a column was there: it reads as null, and nothing has to be made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from unseal import unseal

from gonogo.records import RunDirectory, load_columns, read_description, read_run

RUN = Path(__file__).parent.parent.parent / "records" / "cpu-11"
LACKING = ["v_abft", "signal", "policy_torch_testing"]


def test_a_column_that_a_run_lacks_is_null(tmp_path: Path) -> None:
    rows = read_run(RUN).to_pylist()[:80]
    for name in ("old", "new"):
        directory = RunDirectory(tmp_path / name, read_description(RUN) | {"seed": name})
        directory.append_rows([row | {"case": f"{row['case']}{name == 'old':d}"} for row in rows])
        directory.close()
    (part,) = (tmp_path / "old").glob("part-*.parquet")
    table = pq.read_table(part)
    part.unlink()
    unseal(tmp_path / "old")
    pq.write_table(table.drop_columns(LACKING), part.with_name("part-00000.parquet"))  # as they were called then

    old, new = (read_run(tmp_path / name) for name in ("old", "new"))
    assert old.schema == new.schema
    assert all(old[name].null_count == old.num_rows for name in LACKING)
    for name in set(old.schema.names) - {*LACKING, "case"}:
        assert old[name].to_pylist() == new[name].to_pylist(), name

    columns = load_columns([tmp_path / "old", tmp_path / "new"])
    made_before = columns.run == 0
    assert np.isnan(columns.signal[made_before]).all()
    assert np.isnan(columns.readings["v_abft"][made_before]).all()
    assert (columns.exceeds["torch_testing"][made_before] == -1).all()
    assert (columns.exceeds["torch_testing"][~made_before] >= 0).any()
    np.testing.assert_array_equal(columns.readings["bound"][made_before], columns.readings["bound"][~made_before])


@pytest.mark.parametrize(
    ("environment", "device"),
    [
        ({"gpu": "NVIDIA H200", "processor": "AMD EPYC"}, "NVIDIA H200"),
        ({"gpu": None, "processor": "AMD EPYC", "platform": "Linux x86_64", "device": "cpu"}, "AMD EPYC"),
        ({"processor": "", "platform": "Darwin arm64"}, "Darwin arm64"),
        ({}, "cpu"),
        (None, "cpu"),
    ],
)
def test_a_device_is_called_as_its_run_says(environment: Any, device: str, tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, read_description(RUN) | {"environment": environment})
    directory.append_rows(read_run(RUN).to_pylist()[:3])
    directory.close()
    assert load_columns([tmp_path], wanted=()).devices == [device]


def test_a_run_made_here_is_of_the_machine_that_verdicts_name(tmp_path: Path) -> None:
    """Else limits calibrated here would be told to be another machine's."""
    pytest.importorskip("torch")
    from gonogo.runners.environment import describe_environment, name_machine

    directory = RunDirectory(tmp_path, {"environment": describe_environment("cpu")})
    directory.append_rows(read_run(RUN).to_pylist()[:3])
    directory.close()
    assert load_columns([tmp_path], wanted=()).devices == [name_machine("cpu")]

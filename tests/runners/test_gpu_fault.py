"""A kernel that faults the GPU costs its worker and its own record, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.campaign import Plan, run_campaign
from gonogo.records import read_run


@pytest.mark.gpu
def test_gpu_fault(tmp_path: Path) -> None:
    more_ops = str(Path(__file__).parent.parent / "more_ops")
    plan = Plan(("gpu_fault",), ("float16", "float32"), cases=3, device="cuda", distributions=("normal",),
                ops_folders=(more_ops,))  # fmt: skip
    run_campaign(plan, tmp_path, workers=2)
    rows = read_run(tmp_path).to_pylist()
    assert len(rows) == 2 * 3 * 3
    for row in rows:
        assert row["outcome"] == ("crashed" if row["kernel"] == "writes_nowhere" else "ok"), row["detail"]
        assert row["kernel"] == "writes_nowhere" or row["max_abs"] == 0.0

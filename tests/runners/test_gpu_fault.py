"""A kernel that faults or holds the GPU costs workers and its own record, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.campaign import Allowance, Plan, run_campaign
from gonogo.records import read_description, read_run

MORE_OPS = str(Path(__file__).parent.parent / "more_ops")


@pytest.mark.gpu
@pytest.mark.parametrize("shares_gpu", [True, False])
@pytest.mark.parametrize(
    ("op", "outcomes"),
    [
        ("gpu_fault", {"copies": "ok", "writes_nowhere": "crashed", "copies_too": "ok"}),
        ("gpu_hang", {"copies": "ok", "never_ends": "timed-out", "copies_too": "ok"}),
    ],
)
def test_gpu_fault(tmp_path: Path, op: str, outcomes: dict[str, str], shares_gpu: bool) -> None:
    plan = Plan((op,), ("float16", "float32"), cases=3, device="cuda", distributions=("normal",),
                ops_folders=(MORE_OPS,))  # fmt: skip
    run_campaign(plan, tmp_path, workers=4, allowance=Allowance(timeout_s=15, shares_gpu=shares_gpu))
    if read_description(tmp_path)["environment"]["gpu_shared"] != shares_gpu:
        pytest.skip("this machine has no MPS")
    rows = read_run(tmp_path).to_pylist()
    assert len(rows) == 2 * 3 * 3
    for row in rows:
        assert row["outcome"] == outcomes[row["kernel"]], row["detail"]
        assert row["outcome"] != "ok" or row["max_abs"] == 0.0

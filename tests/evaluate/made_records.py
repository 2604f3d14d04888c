"""Records made by hand: run directories whose every count can be worked out on paper."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from gonogo.policies import load_policies
from gonogo.records import RunDirectory
from gonogo.schema import policy_column

_numbers = count()


def make_row(kernel: str, role: str = "control", **given: Any) -> dict[str, Any]:
    """A sound float16 softmax record reading 0.5, but for what is given."""
    number = next(_numbers)
    row = {
        "number": number, "case": f"softmax:f16:1x1x8:c:uniform:{number}", "op": "softmax", "dtype": "float16",
        "shape": "1x1x8", "layout": "contiguous", "distribution": "uniform", "strategy": "default", "seed": number,
        "reduced_length": 8, "kernel": kernel, "role": role, "framework": "triton", "contract": "float32",
        "calibrate_against": "softmax_triton" if role == "faulty" else None, "current_atol": 0.02, "outcome": "ok",
        "bits_equal": False if role == "faulty" else None, "signal": 100.0 if role == "faulty" else None,
        "count": 8, "max_abs": 0.001, "absolute": 0.001, "magnitude": 1.0, "ulp": 0.5, "bound": 0.5,
        "deterministic": 0.25,
    }  # fmt: skip
    row |= {policy_column(policy.name): 0.5 for policy in load_policies()}
    row |= given
    if "max_abs" in given:
        row["absolute"] = given["max_abs"]
    return row


def write_run(
    folder: Path, rows: list[dict[str, Any]], *, gpu: str | None = "NVIDIA H200", **description: Any
) -> Path:
    """A finished run with these rows."""
    directory = RunDirectory(folder, {"plan": {}, "environment": {"gpu": gpu}, **description})
    directory.append_rows(rows)
    directory.close()
    return folder

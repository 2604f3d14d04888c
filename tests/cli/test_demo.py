"""The command line: what it prints, what it returns, and how it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

import gonogo
from gonogo.cli import cli

pytest.importorskip("torch")


def test_demo_as_json() -> None:
    result = CliRunner().invoke(cli, ["demo", "--device", "cpu", "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["device"], found["shape"]) == ("cpu", [512, 1025])
    rows = {(row["kernel"], row["dtype"]): row for row in found["rows"]}
    dtypes = ("float16", "bfloat16", "float32")
    assert list(rows) == [(kernel, dtype) for dtype in dtypes for kernel in ("softmax", "softmax_short_sum")]
    for dtype in dtypes:
        right, wrong = rows["softmax", dtype], rows["softmax_short_sum", dtype]
        assert 0 < right["readings"]["bound"]["worst"] <= 1
        assert wrong["readings"]["bound"]["worst"] > 100
        # One column left out of the sum makes every output too large.
        assert wrong["readings"]["bound"]["bias"] > 1000 * abs(right["readings"]["bound"]["bias"])
        assert right["assert_close"]["worst"] <= 1
        for row in (right, wrong):
            assert list(row["stats"]) == list(gonogo.ErrorStats.__dataclass_fields__)
            assert row["stats"]["count"] == 512 * 1025
            assert row["stats"]["max_abs"] == row["readings"]["absolute"]["worst"]
    # The point of the demo: torch.testing's default tolerance lets the fault through in bfloat16.
    assert rows["softmax_short_sum", "bfloat16"]["assert_close"]["worst"] <= 1


def test_demo_as_tables() -> None:
    result = CliRunner().invoke(cli, ["demo", "--device", "cpu"], catch_exceptions=False)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    for kernel in ("softmax ", "softmax_short_sum "):
        for dtype in ("float16 ", "bfloat16 ", "float32 "):
            assert sum(kernel in line and f" {dtype}" in line for line in lines) == 2, (kernel, dtype)
    for heading in ("num_exceeding", "max_ulp", "bound at", "assert_close"):
        assert sum(heading in line for line in lines) >= 1, heading
    assert "…" not in result.stdout, "a column was cut"


@pytest.mark.slow
def test_refusal_is_one_line_and_exit_code_2() -> None:
    main = [sys.executable, "-W", "error", "-c", "from gonogo.cli import main; main()"]
    done = subprocess.run(
        [*main, "demo", "--device", "cuda"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "gonogo: --device cuda: torch sees no GPU. Run: gonogo demo --device cpu\n"


def test_bad_usage_is_exit_code_2() -> None:
    result = CliRunner().invoke(cli, ["demo", "--device", "abacus"])
    assert result.exit_code == 2
    assert "'abacus' is not one of 'auto', 'cpu', 'cuda'" in result.stderr


def test_group_help_and_version() -> None:
    for flag in ("-h", "--help"):
        result = CliRunner().invoke(cli, [flag], catch_exceptions=False)
        assert result.exit_code == 0
        assert all(f"  {name} " in result.stdout for name in cli.commands)
    result = CliRunner().invoke(cli, ["--version"], catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (0, f"gonogo, version {gonogo.__version__}\n")

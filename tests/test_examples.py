"""Every example runs as it stands, and says what it promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from warm import run_python

pytest.importorskip("torch")

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
SAID = {
    "1_check_a_kernel.py": ["softmax: go", "softmax: no-go", "fails only where H is no power of two"],
    "2_your_own_op.py": ["my_rmsnorm: go", "within a float16 contract; the one declared is float32", "1 control"],
    "3_calibrate_and_lock.py": ["format = 1", 'op = "relu"', "held out: 0 of", "changed: []"],
    "4_audit_a_tolerance.py": [
        "atol=0.1 rtol=0.1: vacuous",
        "atol=0 rtol=0.0001: too tight",
        "torch_testing: no finding",
    ],
    "5_any_kernel.py": [
        "quantize_kernel: go",
        "truncates: no-go: leaf 0 reads",
        "step_: go",
        "'grad.x', 'grad.gate'] go",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60
    ran = run_python(path, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    for words in SAID[path.name]:
        assert words in ran.stdout, ran.stdout

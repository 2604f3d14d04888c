"""Whatever a process has set: kernels start alike, references and measurements do not see it, and it comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from guest.switches import CHANGES, QUIET_CHANGES, held  # noqa: E402

import gonogo  # noqa: E402
from gonogo.campaign import Plan, run_campaign  # noqa: E402
from gonogo.guest import flags  # noqa: E402
from gonogo.records import read_run  # noqa: E402

MORE_OPS = str(Path(__file__).parent.parent / "more_ops")
TINY, DOUBLED, OFF = np.float32([1e-40, 1.0, 3.0]), np.float32([2e-40, 2.0, 6.0]), np.float64([2e-40, 1.1, 3.0])
TENSOR = torch.tensor(TINY)


def show_all() -> dict[str, str]:
    return {name: str(value).replace("ieee", "none") for name, value in flags.capture().items()}


def softmax(x):
    return torch.softmax(x.float(), -1).to(x.dtype)


def judge_some() -> list[object]:
    """What gonogo says of a few things, in every way that it can be asked."""
    verification = gonogo.verify(softmax, "softmax", cases=4, device="cpu", strict=False)
    expected, scale = gonogo.error_scale(lambda x: x * x, [TINY])
    return [
        verification.decision,
        gonogo.check(DOUBLED, reference=lambda x: x + x, inputs=[TINY]).reading,
        gonogo.check(OFF, expected=OFF).decision,
        gonogo.measure(TENSOR, OFF), gonogo.read(TENSOR, OFF, gauge="ulp"), expected.tolist(), scale.tolist(),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def plain() -> list[object]:
    return judge_some()


@pytest.mark.parametrize("change", [*CHANGES.values(), *QUIET_CHANGES.values()], ids=[*CHANGES, *QUIET_CHANGES])
def test_a_users_switches_change_no_verdict_and_stay(change: Callable[[], object], plain: list[object]) -> None:
    with flags.keep():
        change()
        before = show_all()
        judged = judge_some()
        assert show_all() == before
    held.clear()
    assert judged == plain


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_kernel_changes_is_told_and_undone(name: str) -> None:
    def kernel(x):
        output = softmax(x)
        CHANGES[name]()
        return output

    before = show_all()
    verification = gonogo.verify(kernel, "softmax", cases=2, device="cpu", strict=False)
    held.clear()
    assert show_all() == before
    assert {case.record.outcome for case in verification.verdicts} == {"state-changed"}
    assert " is " in verification.verdicts[0].record.detail


@pytest.mark.skipif("backends.cuda.matmul.fp32_precision" not in flags.SWITCHES, reason="torch has no such word")
def test_a_switch_that_torch_does_not_tell_is_put_back() -> None:
    """Once a newer word for it is set, torch refuses to tell the older one."""

    def kernel(x):
        torch.set_float32_matmul_precision("medium")
        return softmax(x)

    with flags.keep():
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        before = show_all()
        assert before["matmul precision"] == flags.MIXED
        gonogo.verify(kernel, "softmax", cases=1, device="cpu", strict=False)
        assert show_all() == before
        with flags.known():
            known = show_all()
            with flags.outside():
                torch.set_float32_matmul_precision("medium")
            assert show_all() == known


def test_a_kernel_runs_with_its_users_switches() -> None:
    seen = []

    def kernel(x):
        seen.append((torch.get_default_dtype(), np.geterr()["over"]))
        return softmax(x)

    with flags.keep():
        torch.set_default_dtype(torch.float64)
        np.seterr(all="raise")
        gonogo.verify(kernel, "softmax", cases=1, device="cpu")
    assert set(seen) == {(torch.float64, "raise")}


def test_kernels_of_a_campaign_do_not_meet_what_others_have_set(tmp_path: Path) -> None:
    plan = Plan(("unruly",), ("float32",), cases=3, distributions=("uniform",), ops_folders=(MORE_OPS,))
    run_campaign(plan, tmp_path, workers=1)
    for row in read_run(tmp_path).to_pylist():
        changes = row["kernel"] in ("flushes", "has_numpy_raise", "counts_in_float64")
        assert row["outcome"] == ("state-changed" if changes else "ok"), (row["kernel"], row["detail"])

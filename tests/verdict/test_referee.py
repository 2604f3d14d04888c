"""The one law on all roads: suspects are run again, blind cases are no go, and both are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from command import Ended  # noqa: E402
from command import gonogo as call_command  # noqa: E402

import gonogo  # noqa: E402
from gonogo.cases import make_inputs, parse_case  # noqa: E402
from gonogo.errors import NoGo, NothingJudged, UnknownWord  # noqa: E402
from gonogo.limits.lock import read_lock  # noqa: E402
from gonogo.limits.shipped import shipped_lock  # noqa: E402
from gonogo.verdict.judge import SUSPECT_UP_TO  # noqa: E402
from gonogo.verdict.referee import FRESH_SEEDS, MOST_SUSPECTS, draw_again  # noqa: E402

CASE = "sum:f32:2x7x1025:c:uniform:1"
KERNEL = """
import gonogo
import torch

def is_{case}(x):
    return x.shape[-1] == 1025 and float(x[0, 0, 0]) == {first!r}

# In a process of its own a kernel has no gonogo to ask: the scales of the cases that it meets there.
SCALES = {scales!r}

def add_error(x, times):
    expected = x.double().sum(-1)
    if hasattr(gonogo, "error_scale"):
        expected, scale = gonogo.error_scale(lambda x: x.sum(-1), [x.double()])
    else:
        scale = torch.tensor(SCALES.get(float(x[0, 0, 0]), 0.0), dtype=torch.float64)
    return (expected + times * 2**-24 * scale).to(x.dtype)

def once(x):
    return add_error(x, 2.1 if is_{case}(x) else 0)

def always(x):
    return add_error(x, 2.1)

def twice_the_limit(x):
    return add_error(x, 4.1)
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A file of kernels that read 2.1 bound, where the limit is 2 and the deterministic bound explains 100."""
    (limit,) = [limit for limit in read_lock(shipped_lock())[0] if (limit.op, limit.contract) == ("sum", "float32")]
    assert limit.value < 2.1 < SUSPECT_UP_TO * limit.value < 4.1
    first = float(make_inputs(parse_case(CASE))[0][0, 0, 0])
    path = tmp_path / "kernels.py"
    scales = {}
    for case in (parse_case(CASE), *(draw_again(parse_case(CASE), attempt) for attempt in range(FRESH_SEEDS))):
        (x,) = make_inputs(case)
        scales[float(x[0, 0, 0])] = gonogo.error_scale(lambda x: x.sum(-1), [x.double()])[1].tolist()
    path.write_text(KERNEL.format(case="planned", first=first, scales=scales), encoding="utf-8")
    return path


def load(path: Path, name: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(path.read_text(encoding="utf-8"), namespace)
    kernel: Callable[..., Any] = namespace[name]
    return kernel


def check(target: str, *words: object) -> Ended:
    return call_command("check", target, "--op", "sum", "--device", "cpu", "--only", CASE, *words)


def test_a_reading_that_does_not_repeat_passes_and_is_told(kernels: Path) -> None:
    found = gonogo.verify(load(kernels, "once"), "sum", only=CASE, device="cpu")
    (case,) = found.suspect
    assert (found.decision, len(case.verdict.again)) == ("suspect", FRESH_SEEDS)
    limit = "above the limit 2 (pooled, 1,598 cases of correct kernels on NVIDIA H200)"
    message = f"  suspect     {CASE}: suspect: reads 2.1 bound, {limit}; not again on 3 fresh seeds"
    assert message in repr(found)
    done = check(f"{kernels}:once", "--json")
    assert (done.returncode, json.loads(done.stdout)["decision"]) == (0, "suspect")
    assert json.loads(done.stdout)["verdicts"][0]["again"] == list(case.verdict.again)


def test_a_reading_that_repeats_is_no_go(kernels: Path) -> None:
    with pytest.raises(NoGo) as caught:
        gonogo.verify(load(kernels, "always"), "sum", only=CASE, device="cpu")
    (case,) = caught.value.verification.failed
    assert (case.verdict.reason, len(case.verdict.again)) == ("repeated", FRESH_SEEDS)
    assert case.verdict.again == pytest.approx([2.1] * FRESH_SEEDS, rel=1e-3)
    readings = ", ".join(f"{reading:.4g}" for reading in case.verdict.again)
    told = f"repeatedly above what any correct kernel read, with {readings} on 3 fresh seeds"
    assert told in str(caught.value)
    done = check(f"{kernels}:always")
    assert done.returncode == 1, done.stderr
    assert told in done.stdout
    line = next(line for line in done.stdout.splitlines() if line.startswith("  replay"))
    again = call_command(*line.split()[2:])
    assert again.returncode == 1, again.stdout


def test_strict_fails_on_any_suspect(kernels: Path) -> None:
    kernel = load(kernels, "once")
    with pytest.raises(NoGo) as caught:
        gonogo.verify(kernel, "sum", only=CASE, device="cpu", suspects="fail")
    assert caught.value.verification.failed[0].verdict.reason == "reading"
    assert str(caught.value.verification.replay).endswith(', device="cpu", suspects="fail")')
    done = check(f"{kernels}:once", "--strict")
    assert done.returncode == 1, done.stderr
    assert "fresh seed" not in done.stdout
    assert " --strict" in done.stdout
    with pytest.raises(UnknownWord, match="unknown choice of suspects 'pass'; known: rerun, fail"):
        gonogo.verify(kernel, "sum", only=CASE, device="cpu", suspects="pass")  # type: ignore[arg-type]


def test_far_above_the_limit_is_no_go_at_once(kernels: Path) -> None:
    found = gonogo.verify(load(kernels, "twice_the_limit"), "sum", only=CASE, device="cpu", strict=False)
    assert [(case.verdict.reason, case.verdict.again) for case in found.failed] == [("reading", ())]


def test_at_most_four_suspects_are_run_again(kernels: Path) -> None:
    found = gonogo.verify(
        load(kernels, "always"), "sum", dtypes="float32", distributions="uniform", device="cpu", strict=False
    )
    assert sum(bool(case.verdict.again) for case in found.verdicts) == MOST_SUSPECTS
    assert len(found.suspect) > 0


def test_fresh_seeds_are_of_the_same_kind_and_fixed() -> None:
    case = parse_case(CASE)
    fresh = [draw_again(case, attempt) for attempt in range(FRESH_SEEDS)]
    assert len({one.seed for one in [case, *fresh]}) == FRESH_SEEDS + 1
    assert all(one.id.rpartition(":")[0] == CASE.rpartition(":")[0] and one.seed < 2**62 for one in fresh)
    assert fresh == [draw_again(case, attempt) for attempt in range(FRESH_SEEDS)]


def test_one_output_cannot_be_run_again(kernels: Path) -> None:
    (x,) = make_inputs(parse_case(CASE))
    verdict = gonogo.check(load(kernels, "always")(x), "sum", inputs={"input": x})
    assert verdict.message.startswith("suspect: reads 2.1 bound, above the limit 2 (")


BLIND = "blind: the scale allows more than the value itself on more than half of the elements"
IN_BFLOAT16: dict[str, Any] = {"contract": "bfloat16", "dtypes": "bfloat16", "device": "cpu"}


def own_sum(rows: int, cols: int = 64) -> gonogo.Op:
    return gonogo.Op(
        "added", inputs={"x": "rows cols"}, output="rows", sizes={"rows": (rows,), "cols": (cols,)},
        reference=lambda x: x.sum(-1), only_listed=True,
    )  # fmt: skip


def exact_sum(x: Any) -> Any:
    return x.double().sum(-1).to(x.dtype)


def test_nothing_but_blind_cases_is_no_verdict() -> None:
    """Neighbours cancel, and the scale of a sum in bfloat16 is larger than what is left: zeros would pass, too."""
    for kernel in (exact_sum, lambda x: x.new_zeros(x.shape[0])):
        with pytest.raises(NothingJudged, match=f"op added: nothing was judged: {BLIND}"):
            gonogo.verify(kernel, own_sum(16), distributions="cancel", cases=2, **IN_BFLOAT16)
    x = torch.ones(16, 64).bfloat16()
    x[:, ::2] = -0.99
    assert gonogo.check(exact_sum(x), own_sum(16), inputs={"x": x}).decision == "go"
    with pytest.raises(NothingJudged, match=BLIND):
        gonogo.check(exact_sum(x), own_sum(16), inputs={"x": x}, contract="bfloat16")


def test_what_is_above_a_limit_that_wide_is_no_go() -> None:
    found = gonogo.verify(
        lambda x: x.new_full((16,), 1e9), own_sum(16), distributions="cancel", strict=False, cases=2, **IN_BFLOAT16
    )
    assert (found.decision, found.unjudged) == ("no-go", ())


def test_blind_cases_are_counted_beside_the_others() -> None:
    found = gonogo.verify(exact_sum, own_sum(16), distributions=("cancel", "offset"), cases=8, **IN_BFLOAT16)
    assert {case.record.distribution for case in found.verdicts} == {"offset"}
    assert [case.kind for case in found.unjudged] == ["blind"] * 4
    assert f"  note        4 of 8 cases are not judged: {BLIND}" in repr(found)


def test_another_case_takes_the_place_of_a_blind_one() -> None:
    """One row of normal values: whether its sum is lost in the scale depends on the seed."""
    found = gonogo.verify(exact_sum, own_sum(1, 1024), distributions="normal", cases=16, **IN_BFLOAT16)
    fresh = [case.case for case in found.verdicts if case.record.seed >= 16]
    assert len(fresh) >= 4
    assert len(found.verdicts) + len(found.unjudged) == 16
    again = gonogo.verify(exact_sum, own_sum(1, 1024), distributions="normal", cases=16, **IN_BFLOAT16)
    assert [case.case for case in again.verdicts] == [case.case for case in found.verdicts]
    with pytest.raises(NothingJudged, match=BLIND):  # a replay is of one case, and of no other
        gonogo.verify(exact_sum, own_sum(1, 1024), only=found.unjudged[0].case, **IN_BFLOAT16)

"""Inputs made ahead by threads, the same as made in turn; and a GPU that a kernel loses."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

import gonogo
from gonogo.cases import FINITE, INTERPRETER, Case, make_inputs, plan_cases
from gonogo.errors import InputError
from gonogo.ops import get_op
from gonogo.runners import in_process
from gonogo.runners.in_process import AHEAD, MAKERS, TURN_S, make_ahead, quick_turns

torch = pytest.importorskip("torch")


def plan(count: int) -> list[Case]:
    op = get_op("matmul")
    return [case for case, _ in plan_cases(op, "float16", count, 0, distributions=FINITE, limit=INTERPRETER)]


@pytest.mark.parametrize("count", [0, 1, AHEAD - 1, AHEAD, 3 * AHEAD])
def test_inputs_are_those_made_in_turn(count: int) -> None:
    cases, started = plan(count), []
    make = partial(make_inputs, device="cpu", op=get_op("matmul"))
    made = list(make_ahead(make, cases, lambda: started.append(threading.get_ident())))
    assert len(made) == count
    for inputs, case in zip(made, cases, strict=True):
        assert all(torch.equal(ahead, now) for ahead, now in zip(inputs, make_inputs(case), strict=True))
    assert len(set(started)) == len(started) <= MAKERS
    assert threading.get_ident() not in started


def test_order_does_not_depend_on_who_is_first() -> None:
    """The first case is made only once the last of those ahead is."""
    cases = plan(2 * AHEAD)
    last = threading.Event()

    def make(case: Case) -> str:
        if case is cases[0]:
            assert last.wait(60)
        if case is cases[AHEAD - 1]:
            last.set()
        return case.id

    assert list(make_ahead(make, cases)) == [case.id for case in cases]


def test_threads_take_turns_quickly_while_inputs_are_made() -> None:
    before, quick = sys.getswitchinterval(), pytest.approx(TURN_S, abs=2e-6)  # Python counts whole microseconds
    made = [make_ahead(lambda case: sys.getswitchinterval(), plan(4)) for _ in range(2)]
    assert [next(each) for each in made] == [quick, quick]
    made[0].close()  # the first to come leaves first
    assert sys.getswitchinterval() == quick
    assert list(made[1]) == [quick] * 3
    assert sys.getswitchinterval() == before
    sys.setswitchinterval(TURN_S / 4)
    try:
        with quick_turns():
            assert sys.getswitchinterval() == pytest.approx(TURN_S / 4, abs=2e-6)  # as quick as its user wants it
    finally:
        sys.setswitchinterval(before)


def test_an_error_that_is_kept_keeps_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    before, interval = set(threading.enumerate()), sys.getswitchinterval()
    monkeypatch.setattr(
        in_process.InProcess, "_make_calls",
        lambda self, cases: make_ahead(partial(in_process.make_call, device="cpu", op=self.op), cases),
    )  # fmt: skip
    monkeypatch.setattr(in_process.InProcess, "_try_job", lambda self, job, call: 1 / 0)
    with pytest.raises(ZeroDivisionError) as kept:
        gonogo.verify(lambda x: x, "softmax", cases=9, device="cpu")
    assert (kept.value.__traceback__ is not None, set(threading.enumerate())) == (True, before)
    assert sys.getswitchinterval() == interval


def test_leaving_early_ends_the_threads() -> None:
    cases, before, begun = plan(4 * AHEAD), set(threading.enumerate()), []
    left = threading.Event()

    def make(case: Case) -> str:
        begun.append(case)
        return case.id

    made = make_ahead(make, cases)
    assert next(made) == cases[0].id

    def leave() -> None:
        made.close()
        left.set()

    threading.Thread(target=leave, daemon=True).start()
    assert left.wait(60)
    assert {thread for thread in threading.enumerate() if "ThreadPool" in thread.name} <= before
    assert len(begun) <= AHEAD


def test_what_a_maker_raises_comes_out_in_its_turn() -> None:
    cases, before = plan(3 * AHEAD), set(threading.enumerate())

    def make(case: Case) -> str:
        if case is cases[AHEAD]:
            raise MemoryError("no room for it")
        return case.id

    made = make_ahead(make, cases)
    assert [next(made) for _ in range(AHEAD)] == [case.id for case in cases[:AHEAD]]
    with pytest.raises(MemoryError, match="no room for it"):
        next(made)
    assert {thread for thread in threading.enumerate() if "ThreadPool" in thread.name} <= before


class LostGpu(getattr(torch, "AcceleratorError", RuntimeError)):  # type: ignore[misc]
    """What torch raises of a context that is gone."""


def test_a_kernel_that_loses_the_gpu_is_no_go_and_nothing_runs_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(10**6))
    monkeypatch.setattr("gonogo.runners.device.lost_on", lost := [])
    monkeypatch.setattr("gonogo.runners.in_process.lost_on", lost)

    def fault(x: torch.Tensor) -> torch.Tensor:
        if next(calls) > 20:
            monkeypatch.setattr("gonogo.execution.outcome.is_gpu_lost", lambda device: True)
            # As on a GPU, nothing can be made any more.
            monkeypatch.setattr("gonogo.runners.in_process.make_inputs", None)
            raise LostGpu("CUDA error: an illegal memory access was encountered")
        return x.relu()

    found = gonogo.verify(fault, "relu", dtypes="float32", device="cpu", strict=False)
    (failed,) = found.failed
    assert (found.decision, failed.verdict.reason, found.smallest) == ("no-go", "crashed", failed.case)
    assert failed.case in str(found.notes)
    assert len(found.verdicts) + len(found.unjudged) == 24
    assert all("has lost the GPU to this process" in case.why for case in found.unjudged)
    for device in ("cuda", "auto"):  # so does whatever is asked next
        with pytest.raises(InputError, match=f"a kernel's fault on {failed.case} has lost the GPU to this process"):
            gonogo.verify(torch.relu, "relu", device=device)
    assert gonogo.verify(torch.relu, "relu", cases=1, device="cpu").decision == "go"


LOSE_THE_GPU = """
import sys, torch, gonogo
sys.path.insert(0, sys.argv[1])
from writes import writes_nowhere
from gonogo.errors import NoGo
try:
    gonogo.verify(writes_nowhere, "relu", dtypes="float32")
except NoGo as error:
    print(error)
"""


@pytest.mark.gpu
def test_a_gpu_that_is_lost(tmp_path: Path) -> None:
    fault = Path(__file__).parent.parent / "more_ops" / "gpu_fault" / "triton.py"
    (tmp_path / "writes.py").write_text(fault.read_text())
    (tmp_path / "lose.py").write_text(LOSE_THE_GPU)
    command = [sys.executable, str(tmp_path / "lose.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "no-go: crashed: " in done.stdout
    assert "has lost the GPU to this process" in done.stdout

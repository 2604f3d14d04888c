"""Cases that are kept for the next kernel: the same records, whatever a kernel before did to its inputs."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import gonogo
from gonogo.cases import Call, Case, find_guard, make_call, parse_case
from gonogo.errors import CaseTooLarge
from gonogo.execution import kept
from gonogo.execution.kept import Kept, Store, start_keeping
from gonogo.ops import Op, get_op
from gonogo.runners import in_process
from gonogo.schema import Contract
from gonogo.verdict.verdicts import Verification

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
FAR = "softmax:f16:3x5x17:f:normal:7"


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """Empty to begin with."""
    fresh = Store()
    monkeypatch.setattr(kept, "STORE", fresh)
    return fresh


def judge(kernel: Callable[..., Any], device: str, **options: Any) -> Verification:
    return gonogo.verify(kernel, "softmax", cases=12, device=device, strict=False, **options)


def take_rows(verification: Verification) -> list[str]:
    return [repr(asdict(replace(one.record, time_us=None))) for one in verification.verdicts]


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def overwrite(x: torch.Tensor) -> torch.Tensor:
    made = torch.softmax(x, -1)
    x.as_strided((x.untyped_storage().nbytes() // x.dtype.itemsize,), (1,), 0).fill_(
        1
    )  # with all that is around it
    return made


def too_little(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1) * 0.99


@pytest.mark.parametrize("device", DEVICES)
def test_records_of_a_second_kernel_are_those_of_a_first(
    device: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = {}
    for kernel in (softmax, overwrite, too_little):
        with monkeypatch.context() as patched:
            patched.setattr(kept, "STORE", Store())
            fresh[kernel] = judge(kernel, device)
    assert [fresh[one].decision for one in (softmax, overwrite, too_little)] == ["go", "no-go", "no-go"]
    for kernel in (softmax, overwrite, softmax, too_little, softmax):
        assert take_rows(judge(kernel, device)) == take_rows(fresh[kernel])
    case = fresh[softmax].verdicts[0].record.case
    assert store.find(get_op("softmax"), parse_case(case), device) is not None


def test_nothing_is_drawn_or_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    judge(softmax, "cpu")

    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr("gonogo.runners.in_process.make_call", refuse)
    monkeypatch.setattr("gonogo.execution.reference.trace_call", refuse)
    assert judge(softmax, "cpu").decision == "go"


def test_a_reference_at_hand_may_change_and_is_not_kept(store: Store) -> None:
    factor = [1.0]

    def reference(x: torch.Tensor) -> torch.Tensor:
        return x * factor[0]

    op = gonogo.Op("scaled", inputs={"x": "n"}, output="n", sizes={"n": (5, 70)}, reference=reference)
    for value in (1.0, 2.0):
        factor[0] = value
        assert gonogo.verify(lambda x, by=value: x * by, op, cases=3, device="cpu").decision == "go"
    assert not any(shelf.cases for shelf in store._shelves.values())


@pytest.mark.parametrize("layout", ["c", "t", "s", "p", "e", "o"])
def test_a_copy_has_the_bits_of_gaps_and_guards(layout: str) -> None:
    op, case = get_op("softmax"), parse_case(f"softmax:f16:3x5x17:{layout}:heavy:7")
    made = start_keeping(op, make_call(case, "cpu", op))
    assert made is not None
    copies = [made.copy_laid() for _ in range(2)]
    (first,), (second,) = (copied.args for copied in copies)
    (whole,) = make_call(case, "cpu", op).args
    assert (first.shape, first.stride(), first.storage_offset()) == (
        whole.shape, whole.stride(), whole.storage_offset()
    )  # fmt: skip
    assert first.untyped_storage().tolist() == whole.untyped_storage().tolist()
    assert find_guard(first) is not None
    first.fill_(1)
    assert second.untyped_storage().tolist() == whole.untyped_storage().tolist()


def test_a_kernel_does_not_reach_what_is_kept_of_a_far_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first gets what was drawn, which takes gigabytes; of that only the values are kept, and laid again."""
    monkeypatch.setattr("gonogo.cases.inputs.FAR_OFFSET", 2**12)
    op, case = get_op("swiglu"), parse_case("swiglu:f16:3x5x17:fo:heavy:7")
    call, whole = (make_call(case, "cpu", op) for _ in range(2))
    made = start_keeping(op, call)
    assert made is not None
    assert len(made.far) == 1
    assert made.count_bytes()["cpu"] < 2**12
    for _, x in call.tensors:
        x.fill_(1)
    for copied in (made.copy_laid(), made.copy_laid()):
        for (_, x), (_, drawn) in zip(copied.tensors, whole.tensors, strict=True):
            assert (x.stride(), x.storage_offset()) == (drawn.stride(), drawn.storage_offset())
            assert x.untyped_storage().tolist() == drawn.untyped_storage().tolist()
            x.fill_(1)


def keep(store: Store, op: str, seed: int, device: str = "cpu", length: int = 64) -> Kept:
    case = parse_case(f"{op}:f32:1x4x{length}:c:normal:{seed}")
    made = start_keeping(get_op(op), make_call(case, "cpu", get_op(op)))
    assert made is not None
    store.keep(get_op(op), case, device, made)
    return made


def list_kept(store: Store, op: str, seeds: range, length: int = 64) -> list[int]:
    cases = {seed: parse_case(f"{op}:f32:1x4x{length}:c:normal:{seed}") for seed in seeds}
    return [seed for seed, case in cases.items() if store.find(get_op(op), case, "cpu") is not None]


def test_room_is_bounded_and_goes_to_the_op_at_hand(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    size = (4 * 64 + 64) * 4
    monkeypatch.setattr(kept, "_find_room", lambda where: 3 * size)
    made = [keep(store, "softmax", seed) for seed in range(5)]
    assert made[0].count_bytes() == {"cpu": size}
    assert list_kept(store, "softmax", range(5)) == [0, 1, 2]
    keep(store, "softmax", 1)  # once more: it counts once
    assert list_kept(store, "softmax", range(5)) == [0, 1, 2]
    keep(store, "softmax", 9, length=640)  # more than there is room for: nothing goes for it
    assert list_kept(store, "softmax", range(5)) == [0, 1, 2]
    keep(store, "log_softmax", 0)
    assert list_kept(store, "log_softmax", range(2)) == [0]
    assert list_kept(store, "softmax", range(5)) == []


def test_what_comes_to_be_known_of_a_case_counts(store: Store) -> None:
    judge(softmax, "cpu")
    before = sum(shelf.held["cpu"] for shelf in store._shelves.values())
    judge(too_little, "cpu")  # above its limits, so that scales of long chains are asked for
    judge(softmax, "cpu", contract="float16")
    after = sum(shelf.held["cpu"] for shelf in store._shelves.values())
    counted = [size["cpu"] for shelf in store._shelves.values() for size in shelf.sizes.values()]
    assert after == sum(counted) > before


def test_an_op_of_the_same_name_is_another(store: Store) -> None:
    keep(store, "softmax", 0)
    other, case = replace(get_op("softmax")), parse_case("softmax:f32:1x4x64:c:normal:0")
    assert store.find(other, case, "cpu") is None
    assert store.find(get_op("softmax"), case, "cpu") is not None


def watch(store: Store) -> list[weakref.ref[Kept]]:
    return [weakref.ref(made) for shelf in store._shelves.values() for made in shelf.cases.values()]


def test_all_is_let_go_of_before_a_kernel_is_out_of_memory(store: Store) -> None:
    """And none of it is held by anybody while the kernel has its second try; its first error is no news then."""
    judge(softmax, "cpu")
    watched, alive = watch(store), []

    def needs_all(x: torch.Tensor) -> torch.Tensor:
        alive.append(sum(seen() is not None for seen in watched))
        if alive[-1] > 1 and len(alive) > 10:
            raise MemoryError("no room")
        return torch.softmax(x, -1) * (0.9 if len(alive) > 30 else 1)

    judged = judge(needs_all, "cpu")
    assert alive[0] == alive[10] == len(watched) >= 36
    assert set(alive[11:]) == {0}
    assert {case.verdict.reason for case in judged.failed} <= {"reading", "not-repeatable"}
    alive.clear()
    watched = watch(store)
    with pytest.raises(gonogo.NoGo) as caught:
        gonogo.verify(needs_all, "softmax", cases=12, device="cpu")
    assert not isinstance(caught.value.__cause__, MemoryError)


def test_a_kernel_that_takes_more_than_there_is_does_not_cost_every_case_its_keep(store: Store) -> None:
    calls = []

    def takes_all(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        raise MemoryError("no room")

    judged = judge(takes_all, "cpu")
    assert {case.verdict.reason for case in judged.failed} == {"out-of-memory"}
    assert len(judged.verdicts) < len(calls) < 2 * len(judged.verdicts)  # the first twice, and a few to say why
    assert len(watch(store)) >= 36


def test_all_is_let_go_of_before_a_case_is_too_large(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    judge(softmax, "cpu")
    draw, kept_then = in_process.make_call, []

    def draw_alone(case: Case, device: str, op: Op) -> Call:
        kept_then.append(len(watch(store)))
        if kept_then[-1] > 10:
            raise CaseTooLarge(case.id, 2e9, 1e9, device)
        return draw(case, device, op)

    monkeypatch.setattr(in_process, "make_call", draw_alone)
    assert judge(softmax, "cpu", seed=5).decision == "go"
    assert kept_then[0] == kept_then[1] >= 36  # ahead of its turn, and in its turn
    assert kept_then[2] == 0
    assert max(kept_then[3:]) == 11


def test_rows_far_apart_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gonogo.cases.inputs.FAR_OFFSET", 2**12)
    drawn, draw, lay = [], in_process.make_call, kept.lay_far

    def draw_once(case: Case, device: str, op: Op) -> Call:
        drawn.append(case.id)
        return draw(case, device, op)

    def write_and_raise(x: torch.Tensor) -> torch.Tensor:
        x.fill_(1)
        raise ValueError

    monkeypatch.setattr(in_process, "make_call", draw_once)
    for kernel, says in (
        (softmax, "go"), (overwrite, "no-go"), (softmax, "go"), (write_and_raise, "no-go"), (softmax, "go")
    ):  # fmt: skip
        far = gonogo.verify(kernel, "softmax", only=FAR, device="cpu", strict=False)
        assert far.decision == says
    assert drawn.count(FAR) == 1

    def run_out(values: torch.Tensor) -> torch.Tensor:
        monkeypatch.setattr(kept, "lay_far", lay)
        raise MemoryError

    monkeypatch.setattr(kept, "lay_far", run_out)
    assert gonogo.verify(softmax, "softmax", only=FAR, device="cpu").decision == "go"
    assert drawn.count(FAR) == 2  # it was let go of, and drawn again


def test_a_case_used_again_is_counted_once(store: Store) -> None:
    made = keep(store, "softmax", 0)
    op, case = get_op("softmax"), parse_case("softmax:f32:1x4x64:c:normal:0")
    held = dict(store._shelves[id(op)].held)
    store.keep(op, case, "cpu", made)
    assert dict(store._shelves[id(op)].held) == held == made.count_bytes()
    made.by_contract[Contract()] = (SimpleNamespace(expected=torch.zeros(100)),)  # type: ignore[assignment]
    store.keep(op, case, "cpu", made)
    assert dict(store._shelves[id(op)].held) == {"cpu": held["cpu"] + 400}


def test_of_an_op_that_is_not_kept_nothing_stays(store: Store) -> None:
    held = torch.zeros(10)
    own = gonogo.Op("own", inputs={"x": "n"}, output="n", sizes={"n": (5, 70)}, reference=lambda x: x + held[0])
    assert gonogo.verify(lambda x: x + 0.0, own, cases=2, device="cpu").decision == "go"
    assert not store._shelves


def test_of_a_case_that_loses_the_gpu_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then even to ask for memory fails."""
    calls = iter(range(10**6))
    lost: list[str] = []
    monkeypatch.setattr("gonogo.runners.device.lost_on", lost)
    monkeypatch.setattr("gonogo.runners.in_process.lost_on", lost)

    def refuse(where: str) -> float:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def fault(x: torch.Tensor) -> torch.Tensor:
        if next(calls) < 6:
            return torch.softmax(x, -1)
        monkeypatch.setattr("gonogo.execution.outcome.is_gpu_lost", lambda device: True)
        monkeypatch.setattr(kept, "_find_room", refuse)
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    judged = judge(fault, "cpu")
    assert judged.decision == "no-go"
    assert [case.verdict.reason for case in judged.failed] == ["crashed"]


def test_forgetting(store: Store) -> None:
    judge(softmax, "cpu")
    gonogo.forget_cases()
    assert not store._shelves
    gonogo.forget_cases()

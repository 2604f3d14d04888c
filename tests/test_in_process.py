"""Inputs made ahead by threads: the same as made in turn, in order, and nothing hangs or is lost."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from gonogo.cases import FINITE, INTERPRETER, Case, make_inputs, plan_cases
from gonogo.in_process import AHEAD, MAKERS, make_ahead
from gonogo.ops import get_op

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


def test_leaving_early_ends_the_threads() -> None:
    cases, before, begun = plan(4 * AHEAD), set(threading.enumerate()), []
    left = threading.Event()

    def make(case: Case) -> str:
        begun.append(case)
        return case.id

    made = make_ahead(make, cases)
    assert next(made) == cases[0].id

    def leave() -> None:
        made.close()  # type: ignore[attr-defined]
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

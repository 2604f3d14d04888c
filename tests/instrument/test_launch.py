"""Launches made again on other memory: by what a driver is given, for no GPU is at hand in most test runs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from gonogo.instrument.launch_triton import Compiled, Launch, Tape  # noqa: E402


class Driver:
    """Notes what it is to run."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, ...]] = []

    def run(self, *given: Any) -> None:
        self.given.append(given)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.setattr("gonogo.instrument.launch_triton._get_stream", lambda device: "stream")
    return Driver()


def make_tape(driver: Driver, memory: list[Any], *arguments: tuple[Any, ...]) -> Tape:
    compiled = Compiled(driver.run, "function", "metadata", (7, True), None)
    return Tape([Launch(compiled, 3 + at, args) for at, args in enumerate(arguments)], memory)


def test_views_move_with_what_they_are_of_and_all_else_stays(driver: Driver) -> None:
    first, out, kept = torch.zeros(8), torch.zeros(100, dtype=torch.int64), torch.zeros(4)
    tape = make_tape(
        driver, [first, out], (first, 5, kept, out[28:].view(torch.float64)), (out[99:], kept[1:], first.data_ptr())
    )
    others = [torch.zeros(8), torch.zeros(100, dtype=torch.int64)]
    tape.play(others)
    at, into = (x.data_ptr() for x in others)
    head = "stream", "function", "metadata", None, None, None
    assert driver.given == [
        (3, 1, 1, *head, at, 5, kept.data_ptr(), into + 28 * 8, 7, True),
        (4, 1, 1, *head, into + 99 * 8, kept.data_ptr() + 4, first.data_ptr(), 7, True),  # a number, not an address
    ]


@pytest.mark.parametrize("shift", [0, 1])
def test_arrays_that_shared_their_memory_may_lie_apart_the_next_time(shift: int, driver: Driver) -> None:
    whole = torch.zeros(9)
    actual, expected = whole[:8], whole[shift : 8 + shift]
    tape = make_tape(driver, [actual, expected], (actual, expected), (expected, actual))
    apart = [torch.ones(8), torch.ones(8)]
    tape.play(apart)
    first, second = (x.data_ptr() for x in apart)
    assert [given[9:11] for given in driver.given] == [(first, second), (second, first)]

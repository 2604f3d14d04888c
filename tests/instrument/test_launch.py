"""Launches made again on other memory: by what a driver is given, for most test runs have no GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from patterns import align_arrays, on_device, triton_path

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from gonogo.instrument import first_pass_triton, path_triton  # noqa: E402
from gonogo.instrument.launch_triton import Compiled, Launch, Tape  # noqa: E402
from gonogo.instrument.partials import Pair  # noqa: E402
from gonogo.instrument.stats import _find_places  # noqa: E402

N = 2**17


class Driver:
    """Notes what it is to run; what is launched for the first time it has not run."""

    def __init__(self) -> None:
        self.noted: list[tuple[Any, ...]] = []
        self.launches: list[Launch] = []

    def run(self, *told: Any) -> None:
        self.noted.append(told)

    def launch(self, kernel: Any, programs: int, *args: Any, **options: Any) -> Launch:
        names = kernel.arg_names[len(args) :]
        compiled = Compiled(self.run, kernel, "metadata", tuple(options[name] for name in names), kernel)
        self.launches.append(Launch(compiled, programs, args))
        return self.launches[-1]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr("gonogo.instrument.launch_triton._get_stream", lambda device: "stream")
    for module in (first_pass_triton, path_triton):
        monkeypatch.setattr(module, "launch", driver.launch)
    return driver


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
    assert driver.noted == [
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
    assert [noted[9:11] for noted in driver.noted] == [(first, second), (second, first)]


def test_tensors_that_stay_outlive_what_made_them(driver: Driver) -> None:
    memory, passing = torch.zeros(8), torch.full((1000,), 7.0)
    address, tape = passing.data_ptr(), make_tape(driver, [memory], (memory, passing))
    del passing
    others = [torch.zeros(1000) for _ in range(50)]
    tape.play([memory])
    assert address == driver.noted[0][10]
    assert address not in {x.data_ptr() for x in others}


@pytest.mark.parametrize(("dtype", "launches"), [(np.float16, 4), (np.float32, 6)], ids=["counted", "kept"])
def test_a_second_pass_is_launched_as_it_would_be_anew(
    dtype: type, launches: int, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in {"ROW": 2**9, "FEW_ROWS": 2**4, "TIED_ROW": 2**8, "TIED_ROWS": 2**5}.items():
        monkeypatch.setattr(first_pass_triton, name, size)
    ranks = _find_places(N)[1]
    arrays = [torch.from_numpy(np.ones((2, N + 8), dtype)) for _ in range(2)]
    first, second, shifted = ((x[:, at : at + N]) for x, at in ((arrays[0], 0), (arrays[1], 0), (arrays[1], 1)))
    with triton_path():
        assert first_pass_triton.begin_pass(align_pair(first), 1e-3, ranks) is not None
        assert len(driver.launches) == launches
        begun = first_pass_triton.begin_pass(align_pair(second), 1e-3, ranks)
        assert begun is not None
        assert len(driver.launches) == launches, "launched anew"
        pair = Pair(*(part for x in align_pair(second).operands for part in (x.bits, x.format)))
        for launched in first_pass_triton._launch_pass(pair, begun.plan, begun.out, begun.slots, has_atol=True):
            assert launched is not None
            numbers = [x if isinstance(x, int) else x.data_ptr() for x in launched.args]
            launched.compiled.start(launched.programs, numbers, "stream")
        assert driver.noted[:launches] == driver.noted[launches:]
        # On arrays that begin elsewhere in 16 bytes other code is compiled.
        assert first_pass_triton.begin_pass(align_pair(shifted), 1e-3, ranks) is not None
        assert len(driver.launches) == 3 * launches


def align_pair(pair: Any) -> Any:
    return on_device(align_arrays(*pair))

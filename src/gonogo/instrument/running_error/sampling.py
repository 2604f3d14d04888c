"""A deep reference whose bound says nothing → a scale from runs with every rounding drawn at random.

Each op hands on the worst that its arguments may be off by. Layers multiply that, and a norm of few values then
divides by what may be 0: of a deep network the running error is infinite, or as large as its values, though
roundings average out. So the reference runs again, and what each op rounds by itself is added to its result,
normal as the sum of many roundings is. How far outputs are spread is what correct kernels differ by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gonogo.instrument.running_error.companion import EXACT, Error, Tracked, widen_error
from gonogo.instrument.running_error.facts import find_tensors
from gonogo.instrument.running_error.mode import RunningErrorMode

RUNS = 12
FEW_RUNS = 4
DEVIATIONS = 4.4
"""What a scale has of them: the most among 10^5 elements. Rules say more than is rounded, as few runs say less."""
BOUND = 3.0
"""Deviations in what a rule says that an op rounds, as `summation.WORST` has it."""
SHARED = {RUNS: 0.1, FEW_RUNS: 0.3}
"""Of the mean square over all elements: a few runs may find an element's own deviation far too small."""
UNSTABLE = 0.05
"""Of an element, or of all in the mean: what roundings move as far as that is not a number to be judged."""
DEEP = 24
"""Ops that make a reference deep. In a shallow one an infinite bound has its cause next to it: a pole, a tie."""
FEW = 2
"""The same where every result is stored in half precision: by far the largest roundings, as good as random."""
LAYERS = 3
"""Products of matrices, or convolutions, each of which adds up what averages out: more make a reference deep, too,
where its bound is finite. Of attention, which has two, a bound says enough."""
LONG = 2000
"""Ops of a reference that takes its time, as recurrent layers of many steps: a few runs have to do."""
MOST = 0.5
"""Of the elements: where so many have no bound that says anything, it says nothing of an output."""
ENOUGH = 2**14
"""Elements that tell of all of an output."""
HELD_OUT = 3.0
"""What one of RUNS runs may read against a scale from the others, which normal errors stay below. Where one reads
more, runs do not show what is rare: a softmax has its peak elsewhere in one of them, and in the next kernel. Of
FEW_RUNS, what one reads against three others says nothing."""
VAGUE = 0.125
"""Of a value: a bound that allows more says nothing of it, for limits are some such bounds."""


class NoisyMode(RunningErrorMode):  # type: ignore[no-untyped-call]
    """Runs a reference with what each op rounds added to its result; nothing is carried on beside it."""

    noisy = True

    def begin(self, seed: int) -> None:
        """Draw from a stream of its own."""
        self._seed = seed
        self._streams: dict[torch.device, torch.Generator] = {}

    def load(self, value: Tensor, ulps: float) -> Any:
        """An input, disturbed by the error of loading it."""
        return self._disturb(super().load(value, ulps))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the op by its rule, and disturb what that makes; what needs none stays a constant."""
        made = super().__torch_dispatch__(func, types, args, kwargs)
        for leaf in find_tensors((made,)):
            self._disturb(leaf)
        return made

    def _store(self, made: Tensor) -> None:
        """Disturb what is stored by a rounding to the format that it is stored in."""
        if isinstance(made, Tracked) and not made.is_complex():
            made.value = self._draw(made.value, Error(None, self.stored_ulps))

    def _disturb(self, made: Tensor) -> Tensor:
        if isinstance(made, Tracked) and not made.error.exact:
            made.value, made.error = self._draw(made.value, made.error), EXACT
        return made

    def _draw(self, value: Tensor, error: Error) -> Tensor:
        """With as much noise as the error says; what may be anything stays as it is, the others tell enough."""
        if value.device not in self._streams:
            self._streams[value.device] = torch.Generator(value.device).manual_seed(self._seed)
        stream = self._streams[value.device]
        drawn = torch.randn(value.shape, dtype=torch.float64, device=value.device, generator=stream)
        if error.extra is None and not value.is_complex():
            whole, ulps = value, error.ulps  # a sign more or less is no matter, and a pass over memory is
        else:
            whole, ulps = widen_error(value, error), 1.0
        drawn.mul_(whole).nan_to_num_(0.0, 0.0, 0.0)
        return torch.add(value, drawn, alpha=ulps * self.unit / BOUND)


def needs_runs(mode: RunningErrorMode, leaves: Sequence[Any]) -> bool:
    """Whether runs can say what bounds do not, after a run that came to these leaves.

    Proofs stay proofs. A choice that goes another way once in a while, or a value past the range of a narrow
    format, is not seen in a few runs. What costs nothing is asked first.
    """
    is_wide = mode.contract.summation == "blocked" and mode.range == math.inf
    is_deep = mode.applied >= (DEEP if mode.contract.stored is None else FEW)
    if not is_wide or not mode.doubts.is_empty or not (is_deep or mode.products >= LAYERS):
        return False
    if not any(is_vague(leaf, mode.unit) for leaf in leaves):
        return False
    return is_deep or not any(leaf.scale is not None and bool(leaf.scale.isinf().any()) for leaf in leaves)


def is_blind(value: Tensor, scale: Tensor, unit: float) -> bool:
    """Whether of most elements that have a value the scale says nothing: it is infinite, or nearly the value."""
    finite = value.isfinite() & (value != 0)
    lost = ((scale * unit > VAGUE * value.abs()) & finite).sum()
    return bool(lost >= MOST * finite.sum()) and bool(lost > 0)


class Spread:
    """How far runs are from the expected value, element by element."""

    def __init__(self, expected: Tensor) -> None:
        self._expected = expected
        self._squares = torch.zeros_like(expected)
        self._largest = torch.zeros_like(expected)
        """Of the squares that were added up."""
        self._runs = 0

    def add(self, value: Tensor) -> None:
        """Take in one run."""
        square = (value - self._expected).square_()
        self._squares.add_(square)
        torch.maximum(self._largest, square, out=self._largest)
        self._runs += 1

    def find_scale(self, unit: float, floor: float) -> Tensor:
        """S of such an output; infinite where a run was not finite, 0 where there is nothing to be off from."""
        if not bool((self._squares.isfinite() & self._expected.isfinite()).any()):
            return torch.where(self._expected.isfinite(), math.inf, 0.0)
        wider = max(1.0, self._hold_out(floor * unit) / HELD_OUT) if self._runs >= RUNS else 1.0
        allowed, unstable = self._allow(self._squares / self._runs)
        scale = allowed.mul_(wider / unit).add_(floor)
        return torch.where(self._expected.isfinite(), scale.masked_fill_(unstable, math.inf), 0.0)

    def _allow(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """How far elements of such mean squares, which are written to, may be off, and which may be anything."""
        known = squares.isfinite() & self._expected.isfinite()
        size = self._expected[known].square().mean().sqrt()
        unstable = ~(squares.sqrt() <= UNSTABLE * torch.maximum(self._expected.abs(), size))
        shared = float(squares[known & ~unstable].mean()) if bool((known & ~unstable).any()) else 0.0
        part = SHARED[self._runs]
        return squares.mul_(1 - part).add_(part * shared).sqrt_().mul_(DEVIATIONS), unstable

    def _hold_out(self, least: float) -> float:
        """The most that a run reads against what all others allow: of each element, the one farthest off."""
        others = (self._squares - self._largest).clamp_(min=0.0).div_(self._runs - 1)
        allowed, unstable = self._allow(others)
        read = self._largest.sqrt().div_(allowed.add_(least))
        return float(read.masked_fill_(unstable, 0.0).nan_to_num_(0.0, 0.0, 0.0).max())


def is_vague(leaf: Any, unit: float) -> bool:
    """Whether a bound says nothing of most of a leaf; of a large one a part tells, at no cost."""
    if leaf.scale is None or not leaf.scale.numel():
        return False
    every = -(-leaf.scale.numel() // ENOUGH)
    value, scale = (x.reshape(-1)[::every] for x in (leaf.value, leaf.scale))
    return is_blind(value, scale, unit)


def sample_scales(
    run: Callable[[int], list[Any]], leaves: list[Any], mode: RunningErrorMode, floor: float
) -> list[Any]:
    """Leaves of which those that are blind have a scale from runs; `run` gives the leaves of one, by its number."""
    unit = mode.unit
    blind = {at for at, leaf in enumerate(leaves) if is_vague(leaf, unit)}
    spreads = {at: Spread(leaves[at].value) for at in blind}
    for number in range(RUNS if mode.applied < LONG else FEW_RUNS):
        made = run(number)
        for at, spread in spreads.items():
            spread.add(made[at])
    return [
        settle(leaf, spreads[at].find_scale(unit, floor)) if at in blind else leaf for at, leaf in enumerate(leaves)
    ]


def settle(leaf: Any, drawn: Tensor) -> Any:
    """A leaf with the scale that was drawn, where that is below its bound."""
    lower = drawn < leaf.scale
    if not bool(lower.any()):
        return leaf
    return replace(leaf, scale=torch.where(lower, drawn, leaf.scale), is_sampled=True)

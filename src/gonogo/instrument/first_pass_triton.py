"""Errors on a GPU → the first pass over them, of which the host waits for nothing but its end.

What selection does in turns with the host is done here on the GPU alone: sample, place brackets, scan, and find the
few kept values that hold the wanted ranks. Where the first guess is good that settles them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch

from gonogo.formats import FORMATS
from gonogo.guest.arithmetic import plain_arithmetic
from gonogo.instrument import path_triton
from gonogo.instrument.launch_triton import Launch, Tape, launch, on_device
from gonogo.instrument.launched_triton import (
    BINS,
    EXTREMES_AT,
    NO_VALUES,
    PICKS_AT,
    SCALARS_AT,
    SEEN_AT,
    VALUES_AT,
    Launched,
    Ready,
    Results,
    count_words,
)
from gonogo.instrument.operands import Aligned
from gonogo.instrument.partials import Bracket, Caught, Pair, is_short
from gonogo.instrument.path_triton import KIND, NO_INDEX, choose_walk, count_slots, enqueue_scan, make_scalars
from gonogo.instrument.selection import KEEP_ALL, sample_ranks
from gonogo.instrument.triton_kernels.select import bin_values_kernel, place_kernel, sample_rows_kernel

ROW = 2**12
"""Sampled errors that one program sorts."""
ROWS, FEW_ROWS = 2**8, 2**5
"""Rows of them where errors are to be kept: brackets then hold 0.9 % of all, 18 MiB at 2^28 elements, or 2.2 %."""
FEW_ARE_ENOUGH = 2**26
"""Errors up to which brackets of few rows hold no more than may be kept."""
TIED_ROW, TIED_ROWS = 2**10, 2**7
"""Such a row where errors are tied, and its rows, of which FEW_ROWS do where there are not as many errors.

A large sample tells the value of a rank even where that is near the value's last rank."""
MEDIAN_WORTH = 2 / math.pi
"""Of a sample's rows, as the median over them has more variance than the quantile of them all."""
SORTED_BY_WARP = 2**7
"""Sampled errors for each warp of a program."""
CAPACITY = 2**20
"""Errors a bracket may keep, 8 MiB; the three of the first pass may share three times that."""
READY = 1024
"""Values of wanted bins fetched per bracket along with everything else; a bin holds some 200."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a first pass over arrays of one kind needs, but for their memory: looked up once for each kind."""

    tied: bool
    row: int
    """Sampled errors that a program sorts."""
    rows: int
    """Of the sample, a program's work each."""
    spots: tuple[int, ...]
    """Between which ranks of a row of the sample each group of wanted ranks lies."""
    scalars: torch.Tensor
    """Tolerance, largest value and wanted ranks, as kernels read them."""
    ranks: torch.Tensor
    """Wanted ranks alone: a view, which takes the host time to make."""
    no_slots: torch.Tensor
    """Room for no errors."""
    block: int
    programs: int
    fetched: int
    """Words that come to the host."""
    words: int
    """Of all results, with the sample behind them."""
    slots: int
    """Room for errors that brackets keep."""
    tapes: dict[tuple[int, int], Tape] = field(default_factory=dict)
    """The launches of a pass, once they were made, by where in 16 bytes the two arrays begin."""

    def lay_out(self, out: torch.Tensor) -> Results:
        """A buffer of so many words, as the scan and its totals fill it."""
        return Results(self.block, self.programs, out, self.fetched)


@dataclass(frozen=True, slots=True)
class FirstPass:
    """A first pass that a GPU is at."""

    plan: Plan
    out: torch.Tensor
    slots: torch.Tensor

    def finish(self) -> Launched | None:
        """Wait for it; None where it must be redone."""
        scalars = self.out[SCALARS_AT:SEEN_AT].view(torch.float64)
        results, tied = self.plan.lay_out(self.out), self.plan.tied
        launched = Launched.fetch(results, self.slots, scalars, 1, count_high=tied, tied=tied)
        return None if launched.is_odd() or launched.has_overflowed() or launched.has_lost_sums() else launched


def begin_pass(aligned: Aligned, atol: float, ranks: Sequence[Sequence[int]]) -> FirstPass | None:
    """Launch the first pass, with everything decided on the GPU; None where the host must choose what to keep.

    The same as drawing a sample, placing brackets, scanning and selecting in turn, with one guess: two arrays of
    one short format have tied errors, which only need counting, others have not, and are kept. A wrong guess is a
    bracket that settles nothing.
    """
    count, (actual, expected) = aligned.count, aligned.operands[:2]
    if count <= KEEP_ALL or not aligned.contiguous:
        return None
    flat = aligned.flat()
    device = flat[0].device
    plan = _plan_pass(actual.format.name, expected.format.name, count, tuple(ranks), atol, device)
    if plan is None:
        return None
    out = torch.empty(plan.words, dtype=torch.int64, device=device)
    # Tied errors are counted, and none is kept.
    slots = plan.no_slots if plan.tied else torch.empty(plan.slots, dtype=torch.float64, device=device)
    memory = (*flat, out) if plan.tied else (*flat, out, slots)
    alignments = flat[0].data_ptr() & 15, flat[1].data_ptr() & 15
    tape = plan.tapes.get(alignments)
    with on_device(device):
        if tape is not None:
            tape.play(memory)
        else:
            pair = Pair(flat[0], actual.format, flat[1], expected.format)
            launches = _launch_pass(pair, plan, out, slots, has_atol=not math.isnan(atol))
            known = [launched for launched in launches if launched is not None]
            if len(known) == len(launches):
                plan.tapes[alignments] = Tape(known, memory)
    return FirstPass(plan, out, slots)


def _launch_pass(
    pair: Pair, plan: Plan, out: torch.Tensor, slots: torch.Tensor, *, has_atol: bool
) -> list[Launch | None]:
    """Sample the errors, place brackets, scan, and find the values around the ranks."""
    flat, count = (pair.actual, pair.expected), pair.actual.numel()
    words = out[count_words(plan.fetched, plan.programs) :].view(torch.int32)
    scalars = out[SCALARS_AT:SEEN_AT].view(torch.float64)
    cleared = (0, 0) if plan.tied else (out.numel() - words.numel() // 2, slots.numel())
    sampled = launch(
        sample_rows_kernel, plan.rows, *flat, count, words, out, cleared[0],
        plan.scalars if plan.tied else slots, cleared[1],
        KIND_A=KIND[pair.actual_format.name], KIND_E=KIND[pair.expected_format.name], ROW=plan.row,
        ROWS=plan.rows, num_warps=plan.row // SORTED_BY_WARP, enable_fp_fusion=False,
    )  # fmt: skip
    placed = launch(
        place_kernel, 3, words, *plan.spots, plan.scalars, scalars,
        ROW=plan.row, ROWS=plan.rows, num_warps=path_triton.WARPS,
    )  # fmt: skip
    scanned = enqueue_scan(
        pair, scalars, plan.lay_out(out), slots, 1, False, True, count_high=plan.tied, has_atol=has_atol,
        ranks=plan.ranks, tied=plan.tied,
    )  # fmt: skip
    if plan.tied:
        return [sampled, placed, *scanned]
    found = launch(
        bin_values_kernel, -(-slots.numel() // path_triton.VALUES_BLOCK), slots, slots.numel(), scalars,
        out[PICKS_AT:], out[SEEN_AT:], out[EXTREMES_AT:], out[VALUES_AT:].view(torch.float64), READY,
        BINS=BINS, BLOCK=path_triton.VALUES_BLOCK, num_warps=path_triton.WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return [sampled, placed, *scanned, found]


@lru_cache(maxsize=64)
@plain_arithmetic()
def _plan_pass(
    actual: str, expected: str, count: int, ranks: tuple[Sequence[int], ...], atol: float, device: torch.device
) -> Plan | None:
    """The plan for so many errors between two formats; None where brackets would hold too much, or be too few."""
    formats = FORMATS[actual], FORMATS[expected]
    tied = is_short(*formats)
    row = TIED_ROW if tied else ROW
    rows = FEW_ROWS if count <= FEW_ARE_ENOUGH else ROWS
    if tied and count >= TIED_ROW * TIED_ROWS:
        rows = TIED_ROWS
    spots = tuple(spot for group in ranks for spot in sample_ranks(group, count, row, rows * MEDIAN_WORTH))
    expect = int(1.25 * sum(count * (spots[i + 1] - spots[i]) / row for i in (0, 2, 4)))
    if count < rows * row or (expect > 3 * CAPACITY and not tied):
        return None
    scalars = make_scalars((atol, formats[0].largest, *(float(r) for g in ranks for r in (g[0], g[-1]))), device)
    block, programs = choose_walk(*formats, count, device)
    fetched = VALUES_AT + (0 if tied else 3 * READY)
    words = count_words(fetched, programs) + rows * row // 2  # two of the sample's to each of these
    return Plan(
        tied, row, rows, spots, scalars, scalars[2:], scalars[:0], block, programs, fetched, words,
        count_slots(expect, programs),
    )  # fmt: skip


def settle_at_once(launched: Launched, ranks: Sequence[Sequence[int]], count: int) -> dict[int, float] | None:
    """Errors at all ranks where what the first pass brought along has them; None where there is more to look for.

    By plain numbers, without what a search keeps of its brackets: the GPU waits meanwhile.
    """
    found: dict[int, float] = {}
    for k, (group, (low, high)) in enumerate(zip(ranks, _list_ends(launched), strict=True)):
        below, below_high = launched.count_below(k, low, high, count)
        if _has_guessed_wrong(launched, k) or not below <= group[0] <= group[-1] < below_high:
            return None
        if launched.tied:  # one value
            found |= dict.fromkeys(group, low)
            continue
        ready = _take_ready(launched, k)
        inside = [] if ready is None else [rank - below - ready[0] for rank in group]
        if ready is None or inside[0] < 0 or inside[-1] >= len(ready[1]):
            return None
        ordered = ready[1] if ready[1].strides == (0,) else np.sort(ready[1])  # all tied: nothing to sort
        found |= {rank: float(ordered[at]) for rank, at in zip(group, inside, strict=True)}
    return found


def _list_ends(launched: Launched) -> list[tuple[float, float]]:
    """Low and high of each bracket."""
    at = SCALARS_AT + 2
    return [(launched.floats[k], launched.floats[k + 1]) for k in (at, at + 2, at + 4)]


def _has_guessed_wrong(launched: Launched, k: int) -> bool:
    """Whether bracket k is one value where errors were to be kept, or the other way round."""
    words = launched.words
    return (words[SCALARS_AT + 8 + k] == words[SCALARS_AT + 2 + 2 * k]) != launched.tied


def settle_unseen(launched: Launched, count: int) -> tuple[list[Bracket], list[Caught]]:
    """Brackets and what they caught, of a first pass that has not settled all; one that tells nothing is empty."""
    tied = launched.tied
    brackets = [Bracket(low, high, 1, 0 if tied else 1) for low, high in _list_ends(launched)]
    ready = [None if tied else _take_ready(launched, k) for k in range(3)]
    caught = launched.catch(count, brackets, ready)
    for k in range(3):
        if _has_guessed_wrong(launched, k):  # what the kernel counted is not what this bracket stands for
            brackets[k], caught[k] = Bracket(0.0, 0.0), Caught(0, 0, NO_VALUES)
    return brackets, caught


def _take_ready(launched: Launched, k: int) -> Ready | None:
    """What came along of the values around bracket k's ranks, if all of them did."""
    words = launched.words
    seen, below = words[SEEN_AT + k], words[PICKS_AT + 4 * k + 2]
    fetched = launched.fetched[VALUES_AT + k * READY :][: min(seen, READY)]
    if seen <= READY:
        return below, fetched.view(np.float64)
    least, largest = NO_INDEX - words[EXTREMES_AT + 2 * k + 1], words[EXTREMES_AT + 2 * k]
    if not least == largest == fetched.min() == fetched.max():
        return None
    return below, np.broadcast_to(fetched.view(np.float64)[0], seen)  # all of them tied

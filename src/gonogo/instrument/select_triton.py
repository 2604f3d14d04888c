"""Errors on a GPU → their exact order statistics, with the host waiting once where the first guess is good.

What selection does in turns with the host, the first pass does on the GPU alone: sample, place brackets, scan, and
find the few kept values that hold the wanted ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from gonogo.formats import FORMATS
from gonogo.instrument import path_triton
from gonogo.instrument.launch_triton import launch, on_device
from gonogo.instrument.launched_triton import (
    BINS,
    EXTREMES_AT,
    NO_VALUES,
    PICKS_AT,
    SCALARS_AT,
    SEEN_AT,
    VALUES_AT,
    DeviceValues,
    Launched,
    Ready,
    Results,
    count_words,
)
from gonogo.instrument.operands import Aligned
from gonogo.instrument.partials import Bracket, Caught, Pair, Scan, is_short
from gonogo.instrument.path_triton import (
    KIND,
    NO_INDEX,
    choose_walk,
    coarsen,
    enqueue_scan,
    make_scalars,
    make_slots,
)
from gonogo.instrument.selection import (
    KEEP_ALL,
    RunPass,
    find_ranks,
    sample_ranks,
    select_on_host,
    stratified_positions,
)
from gonogo.instrument.triton_kernels.select import (
    bin_values_kernel,
    place_kernel,
    sample_kernel,
    sample_rows_kernel,
)

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
SAMPLE = 2**19
"""Sampled errors where the host places brackets: these then hold about 0.8 % of all."""
THINNING = 16
"""Every so-manieth of the sorted sample goes to the host: brackets are some 2,000 sample ranks wide."""
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
    expect: int
    """Errors that brackets will hold."""
    scalars: torch.Tensor
    """Tolerance, largest value and wanted ranks, as kernels read them."""
    ranks: torch.Tensor
    """Wanted ranks alone: a view, which takes the host time to make."""
    block: int
    programs: int
    fetched: int
    """Words that come to the host."""


def find_errors_at(
    aligned: Aligned, atol: float, ranks: Sequence[Sequence[int]], run_pass: RunPass, passes: list[Scan]
) -> dict[int, float]:
    """Exact errors at 0-based ranks; the scans made for it are appended to `passes`."""
    launched = scan_unseen(aligned, atol, ranks) if aligned.contiguous and aligned.count > KEEP_ALL else None
    first = None
    if launched is not None:
        passes.append(launched.total(aligned.count))
        found = _settle_at_once(launched, ranks, aligned.count)
        if found is not None:
            return found
        first = settle_unseen(launched, aligned.count)
    return find_ranks(
        ranks,
        aligned.count,
        run_pass,
        lambda: draw_sample(aligned)[THINNING // 2 :: THINNING].cpu().numpy(),
        first=first,
        select_kept=select_kept,
        capacity=CAPACITY,
        sample_weight=THINNING,
        shrink=coarsen,
    )


def _settle_at_once(launched: Launched, ranks: Sequence[Sequence[int]], count: int) -> dict[int, float] | None:
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
    ends = launched.fetched[SCALARS_AT + 2 : SCALARS_AT + 8].view(np.float64).tolist()
    return [(ends[0], ends[1]), (ends[2], ends[3]), (ends[4], ends[5])]


def _has_guessed_wrong(launched: Launched, k: int) -> bool:
    """Whether bracket k is one value where errors were to be kept, or the other way round."""
    words = launched.words
    return (words[SCALARS_AT + 8 + k] == words[SCALARS_AT + 2 + 2 * k]) != launched.tied


def scan_unseen(aligned: Aligned, atol: float, ranks: Sequence[Sequence[int]]) -> Launched | None:
    """The first pass with everything decided on the GPU, so that the host waits once; None if it must be redone.

    The same as drawing a sample, placing brackets, scanning and selecting in turn, with one guess: two arrays of
    one short format have tied errors, which only need counting, others have not, and are kept. A wrong guess is a
    bracket that settles nothing.
    """
    count, (actual, expected) = aligned.count, aligned.operands[:2]
    flat = aligned.flat()
    device = flat[0].device
    plan = _plan_pass(actual.format.name, expected.format.name, count, tuple(ranks), atol, device)
    if plan is None:
        return None
    out = torch.empty(count_words(plan.fetched, plan.programs), dtype=torch.int64, device=device)
    results = Results(plan.block, plan.programs, out, plan.fetched)
    with on_device(device):
        words = torch.empty(plan.row * plan.rows, dtype=torch.int32, device=device)
        # Tied errors are counted, and none is kept: any array stands for the slots, and nothing is cleared.
        slots = plan.scalars if plan.tied else make_slots(plan.expect, plan.programs, device)
        cleared = (0, 0) if plan.tied else (out.numel(), slots.numel())
        launch(
            sample_rows_kernel, plan.rows, *flat, count, words, out, cleared[0], slots, cleared[1],
            KIND_A=KIND[actual.format.name], KIND_E=KIND[expected.format.name], ROW=plan.row, ROWS=plan.rows,
            num_warps=plan.row // SORTED_BY_WARP, enable_fp_fusion=False,
        )  # fmt: skip
        scalars = out[SCALARS_AT:SEEN_AT].view(torch.float64)  # while the GPU is at it
        kept = scalars[:0] if plan.tied else slots
        launch(
            place_kernel, 3, words, *plan.spots, plan.scalars, scalars,
            ROW=plan.row, ROWS=plan.rows, num_warps=path_triton.WARPS,
        )  # fmt: skip
        enqueue_scan(
            Pair(flat[0], actual.format, flat[1], expected.format),
            scalars,
            results,
            kept,
            1,
            False,
            True,
            count_high=plan.tied,
            has_atol=not math.isnan(atol),
            ranks=plan.ranks,
            tied=plan.tied,
        )
        if not plan.tied:
            launch(
                bin_values_kernel, -(-kept.numel() // path_triton.VALUES_BLOCK), kept, kept.numel(), scalars,
                out[PICKS_AT:], out[SEEN_AT:], out[EXTREMES_AT:], out[VALUES_AT:].view(torch.float64), READY,
                BINS=BINS, BLOCK=path_triton.VALUES_BLOCK, num_warps=path_triton.WARPS, enable_fp_fusion=False,
            )  # fmt: skip
    launched = Launched.fetch(results, kept, scalars, 1, count_high=plan.tied, tied=plan.tied)
    return None if launched.is_odd() or launched.has_overflowed() or launched.has_lost_sums() else launched


@lru_cache(maxsize=64)
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
    walk = choose_walk(*formats, count, device)
    return Plan(tied, row, rows, spots, expect, scalars, scalars[2:], *walk, VALUES_AT + (0 if tied else 3 * READY))


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


def draw_sample(aligned: Aligned) -> torch.Tensor:
    """Sorted errors at a stratified sample of positions, on the GPU."""
    size = min(SAMPLE, aligned.count)
    actual, expected = (x.bits for x in aligned.operands[:2])
    if not aligned.contiguous:
        positions = torch.from_numpy(stratified_positions(aligned.count, size)).to(actual.device)
        index = torch.unravel_index(positions, actual.shape)
        actual, expected = actual[index], expected[index]
    errors = torch.empty(size, dtype=torch.float64, device=actual.device)
    with on_device(actual.device):
        launch(
            sample_kernel, -(-size // path_triton.BLOCK), actual, expected, actual.numel(), errors, size,
            KIND_A=KIND[aligned.operands[0].format.name], KIND_E=KIND[aligned.operands[1].format.name],
            BLOCK=path_triton.BLOCK, num_warps=path_triton.WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    return errors.sort().values


def select_kept(requests: Sequence[tuple[Any, Sequence[int]]]) -> list[list[float]]:
    """Values at 0-based ranks of what brackets of one pass kept, fetching only the bins that hold them."""
    if not requests or not all(isinstance(values, DeviceValues) for values, _ in requests):
        return select_on_host([(np.asarray(values), ranks) for values, ranks in requests])
    if all(_is_ready(values, ranks) for values, ranks in requests):
        return select_on_host([(v.ready[1], [rank - v.ready[0] for rank in ranks]) for v, ranks in requests])
    picks = np.tile(np.array([1, 0, 0, 0]), (3, 1))  # first and last bin; none by default
    before, sizes = [0, 0, 0], [0, 0, 0]
    for values, ranks in requests:
        ends = np.cumsum(values.count_bins())
        picks[values.number, :2] = np.searchsorted(ends, [ranks[0], ranks[-1]], side="right")
        first, last = picks[values.number, :2]
        before[values.number] = int(ends[first - 1]) if first else 0
        sizes[values.number] = int(ends[last]) - before[values.number]
    slots, device, room = requests[0][0].slots, requests[0][0].slots.device, max(sizes)
    found = torch.empty((3, room), dtype=torch.float64, device=device)
    with on_device(device):
        launch(
            bin_values_kernel, -(-slots.numel() // path_triton.VALUES_BLOCK),
            slots, slots.numel(), requests[0][0].scalars, torch.from_numpy(picks).to(device),
            torch.zeros(3, dtype=torch.int64, device=device), torch.zeros(6, dtype=torch.int64, device=device),
            found, room,
            BINS=BINS, BLOCK=path_triton.VALUES_BLOCK, num_warps=path_triton.WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    fetched = found.cpu().numpy()
    return select_on_host([
        (fetched[v.number, : sizes[v.number]], [rank - before[v.number] for rank in ranks]) for v, ranks in requests
    ])  # fmt: skip


def _is_ready(values: DeviceValues, ranks: Sequence[int]) -> bool:
    """Whether the values at `ranks` are among those already fetched."""
    if values.ready is None:
        return False
    below, fetched = values.ready
    return below <= ranks[0] and ranks[-1] < below + len(fetched)

"""Errors on a GPU → their exact order statistics: by the first pass alone, or by selection with more of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gonogo.instrument import path_triton
from gonogo.instrument.first_pass_triton import CAPACITY, settle_at_once, settle_unseen
from gonogo.instrument.launch_triton import launch, on_device
from gonogo.instrument.launched_triton import BINS, DeviceValues, Launched
from gonogo.instrument.operands import Aligned
from gonogo.instrument.partials import Scan
from gonogo.instrument.path_triton import KIND, coarsen
from gonogo.instrument.selection import RunPass, find_ranks, select_on_host, stratified_positions
from gonogo.instrument.triton_kernels.select import bin_values_kernel, sample_kernel

SAMPLE = 2**19
"""Sampled errors where the host places brackets: these then hold about 0.8 % of all."""
THINNING = 16
"""Every so-manieth of the sorted sample goes to the host: brackets are some 2,000 sample ranks wide."""


def find_errors_at(
    aligned: Aligned,
    ranks: Sequence[Sequence[int]],
    run_pass: RunPass,
    passes: list[Scan],
    launched: Launched | None,
) -> dict[int, float]:
    """Exact errors at 0-based ranks, from a first pass and what more it takes; `passes` gets the scans."""
    first = None
    if launched is not None:
        passes.append(launched.total(aligned.count))
        found = settle_at_once(launched, ranks, aligned.count)
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

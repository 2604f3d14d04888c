"""An op of torch's and samples of its arguments → readings of torch's own kernel, or why it has no scale."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from gonogo.atlas.entries import Entry, Sample
from gonogo.atlas.finding import Finding, State
from gonogo.errors import BadReference, GonogoError, NoErrorRule
from gonogo.guest import flags
from gonogo.instrument.gauges import gauge
from gonogo.instrument.readings import read
from gonogo.instrument.running_error.facts import RANDOM_HINT
from gonogo.instrument.running_error.trace import Leaf, trace_call
from gonogo.schema import Contract

LIMIT = 3.0
"""What limits of correct kernels are near."""
COTANGENT = 0.75
"""What gradients are made with: the same in every dtype."""
BLIND = "no finite bound: half of its elements or more may be anything"


class LeftOut(Exception):
    """A sample with nothing to scale."""


@dataclass
class _Readings:
    """Of the samples of an op so far, by one contract."""

    bound: float = 0.0
    deterministic: float = 0.0
    ulp: float = 0.0
    worst: str = ""
    ratios: list[float] = field(default_factory=list)
    samples: int = 0

    @property
    def is_beyond(self) -> bool:
        """Whether rounding does not explain it."""
        return self.deterministic > 1 or self.bound > LIMIT


def survey(entry: Entry, dtype: str, device: str, *, gradient: bool, most: int) -> Finding | None:
    """Readings of an op in a dtype; None where torch has none, or nothing to draw for it."""
    own = "float64" if dtype == "float64" else "float32"
    contracts = {"float32" if own == "float32" else own: Contract(accumulate=own)}
    if dtype in ("bfloat16", "float16"):
        contracts[dtype] = Contract(accumulate=dtype)
    readings = {name: _Readings() for name in contracts}
    refused: list[str] = []
    left: list[str] = []
    try:
        samples = list(entry.draw(dtype, device, most, gradient=gradient))
    except Exception as error:  # noqa: BLE001  torch's own samples do not run everywhere
        return Finding(entry.name, dtype, device, _name(gradient), "left out", f"no samples here: {_tell(error)}")
    for sample in samples:
        try:
            _survey_sample(entry, sample, contracts, readings, gradient=gradient)
        except LeftOut as error:
            left.append(str(error))
        except (GonogoError, RuntimeError, NotImplementedError) as error:
            (left if RANDOM_HINT in str(error) else refused).append(_tell(error))
    if not samples:
        return None
    best = min(readings, key=lambda name: (readings[name].is_beyond, list(readings).index(name)))
    return _sum_up(entry, dtype, device, gradient, readings[best], best, refused, left)


def _sum_up(
    entry: Entry, dtype: str, device: str, gradient: bool, found: _Readings, contract: str, refused: Sequence[str],
    left: Sequence[str],
) -> Finding:  # fmt: skip
    facts = (entry.name, dtype, device, _name(gradient))
    if not found.samples and not refused:
        return Finding(*facts, "left out", left[0])
    if not found.samples:
        return Finding(*facts, "refused", refused[0])
    state: State = "partly" if refused else "scaled"
    return Finding(
        *facts, state, refused[0] if refused else "", found.samples, contract, found.bound, found.deterministic,
        found.ulp, statistics.median(found.ratios) if found.ratios else None, found.worst,
    )  # fmt: skip


def _name(gradient: bool) -> str:
    return "gradient" if gradient else "forward"


def _tell(error: Exception) -> str:
    problem = error.problem if isinstance(error, NoErrorRule | BadReference) else str(error)
    return f"{problem}".partition("\n")[0][:160]


def _survey_sample(
    entry: Entry, sample: Sample, contracts: dict[str, Contract], readings: dict[str, _Readings], *, gradient: bool
) -> None:
    function = _differentiate(sample) if gradient else sample.function
    made = _run_twice(entry, function, sample.tensors)
    for name, contract in contracts.items():
        loaded = contract.accumulate in ("float32", "float64")
        scaled = _trace(function, sample, contract, loaded=loaded)
        chained = _trace(
            function, sample, Contract(accumulate=contract.accumulate, summation="sequential"), loaded=loaded
        )
        _read(made, scaled, chained, contract, readings[name], sample)


def _trace(function: Callable[..., Any], sample: Sample, contract: Contract, *, loaded: bool) -> list[Leaf]:
    leaves = trace_call(function, tuple(x.clone() for x in sample.tensors), {}, contract, loaded=loaded)[1]
    return [leaf for leaf in leaves if leaf.scale is not None]


def _differentiate(sample: Sample) -> Callable[..., Any]:
    """The gradients of all that has one, by `torch.func.vjp`."""
    if not sample.differentiated:
        raise LeftOut("no gradient")

    def differentiate(*tensors: Tensor) -> Any:
        def forward(*chosen: Tensor) -> list[Tensor]:
            filled = list(tensors)
            for place, tensor in zip(sample.differentiated, chosen, strict=True):
                filled[place] = tensor
            return [leaf for leaf in _list_floating(sample.function(*filled)) if leaf.requires_grad]

        made, pull = torch.func.vjp(forward, *(tensors[place] for place in sample.differentiated))[:2]
        return pull([torch.full_like(leaf, COTANGENT) for leaf in made])

    return differentiate


def _list_floating(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def _run_twice(entry: Entry, function: Callable[..., Any], tensors: Sequence[Tensor]) -> list[Tensor]:
    """What torch gives; LeftOut where there is none to be judged, or another each time."""
    if not entry.is_initialised:
        raise LeftOut("its memory is not initialised")
    outputs = []
    with flags.known():
        for seed in (0, 1):
            torch.manual_seed(seed)
            try:
                outputs.append(function(*(x.clone() for x in tensors)))
            except Exception as error:  # noqa: BLE001  what torch itself cannot run here is not for a scale to explain
                raise LeftOut(f"torch cannot run it: {_tell(error)}") from None
    leaves = [leaf for leaf in tree_leaves(outputs[0]) if isinstance(leaf, Tensor)]
    if any(leaf.layout is not torch.strided for leaf in (*leaves, *tensors)):
        raise LeftOut("sparse")
    if any(leaf.is_complex() for leaf in leaves):
        raise LeftOut("a complex output: its parts are judged, by view_as_real")
    floating = _list_floating(outputs[0])
    if not floating:
        raise LeftOut("no floating output")
    for one, other in zip(floating, _list_floating(outputs[1]), strict=True):
        if one.shape != other.shape or not torch.equal(one.nan_to_num(), other.nan_to_num()):
            raise LeftOut("it draws random numbers")
    return floating


def _read(
    made: Sequence[Tensor], scaled: Sequence[Leaf], chained: Sequence[Leaf], contract: Contract, found: _Readings,
    sample: Sample,
) -> None:  # fmt: skip
    """Add the readings of one sample."""
    if not len(made) == len(scaled) == len(chained):
        raise BadReference(f"gave {len(scaled)} floating outputs where torch gives {len(made)}")
    by = gauge("bound", accumulate=contract.accumulate)
    for output, leaf, chain in zip(made, scaled, chained, strict=True):
        assert leaf.scale is not None
        finite = leaf.value.isfinite()
        if not bool(finite.any()):
            continue
        if float(leaf.scale[finite].isinf().double().mean()) >= 0.5:
            raise BadReference(BLIND)
        reading = read(output, leaf.value, gauge=by, scale=leaf.scale).worst
        if reading >= found.bound or not found.worst:
            found.worst = sample.describe()
        found.bound = max(found.bound, reading)
        found.deterministic = max(found.deterministic, read(output, chain.value, gauge=by, scale=chain.scale).worst)
        found.ulp = max(found.ulp, read(output, leaf.value, gauge="ulp").worst)
        if 0 < reading < math.inf:
            found.ratios.append(1 / reading)
    found.samples += 1

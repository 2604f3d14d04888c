"""An op of torch's and samples of its arguments → records of torch's own kernel, or why it has no scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from gonogo.atlas.entries import Entry, Sample
from gonogo.atlas.finding import GRADIENT, NOTHING, SAMPLES, name_op
from gonogo.errors import BadReference, CampaignFailed, NoErrorRule
from gonogo.guest import flags
from gonogo.instrument.gauges import gauge
from gonogo.instrument.readings import read
from gonogo.instrument.running_error.facts import RANDOM_HINT
from gonogo.instrument.running_error.trace import Leaf, trace_call
from gonogo.schema import Contract, Record

COTANGENT = 0.75
"""What gradients are made with: the same in every dtype."""
BLIND = "no finite bound: half of its elements or more may be anything"


class LeftOut(Exception):
    """A sample with nothing to scale."""


def survey(entry: Entry, dtype: str, device: str, *, kind: str, most: int) -> list[Record]:
    """Readings of an op in a dtype, sample by sample; none where torch has no such kernel, or no samples of it."""
    try:
        samples = list(entry.draw(dtype, device, most, gradient=kind == "gradient"))
    except Exception as error:  # noqa: BLE001  torch's own samples do not run everywhere
        return [_refuse(_begin(entry, dtype, kind, 0, ""), f"{NOTHING}no samples here: {_tell(error)}")]
    records = []
    for at, sample in enumerate(samples):
        blank = _begin(entry, dtype, kind, at, sample.describe())
        try:
            records += _survey_sample(entry, sample, blank)
        except LeftOut as error:
            records.append(_refuse(blank, f"{NOTHING}{error}"))
    return records


def _check_device(error: Exception, entry: Entry) -> None:
    """Stop where an op has taken the GPU's context with it: nothing that follows would be measured."""
    if "CUDA error" in str(error):
        raise CampaignFailed(f"{entry.name} has lost the GPU to this process: {_tell(error)}") from error


def _begin(entry: Entry, dtype: str, kind: str, at: int, shapes: str) -> Record:
    op = name_op(entry.name, kind)
    return Record(
        number=0, case=f"{op}:{dtype}:sample:{at}", op=op, dtype=dtype, shape=shapes, layout="-",
        distribution=SAMPLES, strategy="sample", seed=at, reduced_length=1, kernel="torch", role="control",
        framework="torch", contract="float64" if dtype == "float64" else "float32",
    )  # fmt: skip


def _refuse(blank: Record, detail: str) -> Record:
    return replace(blank, outcome="refused", detail=detail)


def _tell(error: Exception) -> str:
    problem = error.problem if isinstance(error, NoErrorRule | BadReference) else str(error)
    return f"{problem}".partition("\n")[0][:160]


def _survey_sample(entry: Entry, sample: Sample, blank: Record) -> list[Record]:
    """What torch's kernel reads on a sample: by float32 inside and, of half precision, by its own dtype."""
    function = _differentiate(sample) if blank.op.endswith(GRADIENT) else sample.function
    made = _run_twice(entry, function, sample.tensors)
    records = []
    for accumulate in dict.fromkeys((blank.contract, blank.dtype)):
        begun = replace(blank, contract=accumulate)
        try:
            records.append(_read_by(function, made, sample, begun))
        except Exception as error:  # noqa: BLE001  whatever one of torch's thousand samples does, others are read
            _check_device(error, entry)
            nothing = NOTHING if RANDOM_HINT in str(error) else ""
            records.append(_refuse(begun, f"{nothing}{_tell(error)}"))
    return records


def _read_by(function: Callable[..., Any], made: Sequence[Tensor], sample: Sample, blank: Record) -> Record:
    """What the kernel reads by one contract."""
    contract = Contract(accumulate=blank.contract)
    loaded = blank.contract in ("float32", "float64")
    scaled = _trace(function, sample, contract, loaded=loaded)
    chained = _trace(function, sample, replace(contract, summation="sequential"), loaded=loaded)
    return _read(made, scaled, chained, blank)


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
                _check_device(error, entry)
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


def _read(made: Sequence[Tensor], scaled: Sequence[Leaf], chained: Sequence[Leaf], blank: Record) -> Record:
    """The record of a sample: of each reading the largest over its outputs."""
    if not len(made) == len(scaled) == len(chained):
        raise BadReference(f"gave {len(scaled)} floating outputs where torch gives {len(made)}")
    by = gauge("bound", accumulate=blank.contract)
    bound = deterministic = ulp = 0.0
    for output, leaf, chain in zip(made, scaled, chained, strict=True):
        assert leaf.scale is not None
        finite = leaf.value.isfinite()
        if not bool(finite.any()):
            continue
        if float(leaf.scale[finite].isinf().double().mean()) >= 0.5:
            raise BadReference(BLIND)
        bound = max(bound, read(output, leaf.value, gauge=by, scale=leaf.scale).worst)
        deterministic = max(deterministic, read(output, chain.value, gauge=by, scale=chain.scale).worst)
        ulp = max(ulp, read(output, leaf.value, gauge="ulp").worst)
    return replace(blank, bound=bound, deterministic=deterministic, ulp=ulp)

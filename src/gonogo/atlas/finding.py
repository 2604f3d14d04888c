"""Records of an op of torch's, in one dtype, forward or backward → what came of it, in plain values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from gonogo.limits.limit import EVERY_OP
from gonogo.limits.shipped import find_limit
from gonogo.schema import Contract, Record

State = Literal["scaled", "partly", "refused", "left out"]

NOTHING = "nothing to scale: "
"""How the detail of a record begins whose sample is random, sparse, uninitialised, or has no floating output."""
SAMPLES = "torch's own"
"""What records have for the distribution of their values."""
PREFIX, GRADIENT = "torch.", ".gradient"
"""How records name an op: what it is called in torch's tests, between these."""


@dataclass(frozen=True)
class Finding:
    """What was found of an op; readings are the largest of all samples that have a scale."""

    op: str
    dtype: str
    device: str
    kind: str
    """`forward` or `gradient`."""
    state: State
    """`left out` where there is nothing to scale: random, sparse, uninitialised, or without a floating output."""
    reason: str = ""
    """Why some or all samples have no scale."""
    samples: int = 0
    """That have one."""
    contract: str = "float32"
    """What the readings are by: accumulation in float32, or in the op's own dtype where that explains them."""
    bound: float | None = None
    deterministic: float | None = None
    ulp: float | None = None
    tightness: float | None = None
    """Median over samples of u_c·S over the error, where that is least; None where torch was exact."""
    worst: str = ""
    """Shapes of the sample that reads highest."""

    @property
    def is_sound(self) -> bool:
        """Whether torch stays within what every sum as one long chain may lose."""
        return self.deterministic is None or self.deterministic <= 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


def name_op(entry: str, kind: str) -> str:
    """What records call a pass through an op.

    >>> name_op("softmax", "gradient")
    'torch.softmax.gradient'
    """
    return f"{PREFIX}{entry}{GRADIENT if kind == 'gradient' else ''}"


def sum_up(records: Iterable[Record], device: str) -> list[Finding]:
    """One finding for each op, pass and dtype, in the order of their records."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.op, record.dtype), []).append(record)
    return [_sum_up_group(op, dtype, device, group) for (op, dtype), group in groups.items()]


def _sum_up_group(op: str, dtype: str, device: str, records: Sequence[Record]) -> Finding:
    kind = "gradient" if op.endswith(GRADIENT) else "forward"
    facts = (op.removeprefix(PREFIX).removesuffix(GRADIENT), dtype, device, kind)
    # What float32 inside does not explain may have been computed in the op's own dtype: it is read by that, or not.
    explained = {record.case for record in records if record.bound is not None and not _is_beyond([record])}
    unread = [record for record in records if record.outcome == "refused" and record.case not in explained]
    details = [record.detail or "" for record in unread]
    left = {record.case for record in unread}
    records = [record for record in records if record.case not in left]
    refused = [detail for detail in details if not detail.startswith(NOTHING)]
    by_contract: dict[str, list[Record]] = {}
    for record in records:
        if record.bound is not None:
            by_contract.setdefault(record.contract, []).append(record)
    if not by_contract:
        if refused:
            return Finding(*facts, "refused", refused[0])
        return Finding(*facts, "left out", details[0].removeprefix(NOTHING))
    order = list(by_contract)
    best = min(order, key=lambda contract: (_is_beyond(by_contract[contract]), order.index(contract)))
    read = by_contract[best]
    ratios = [1 / record.bound for record in read if record.bound and record.bound < math.inf]
    worst = max(read, key=lambda record: record.bound or 0.0)
    return Finding(
        *facts, "partly" if refused else "scaled", refused[0] if refused else "", len(read), best,
        _find_largest(read, "bound"), _find_largest(read, "deterministic"), _find_largest(read, "ulp"),
        statistics.median(ratios) if ratios else None, worst.shape,
    )  # fmt: skip


def _find_largest(records: Sequence[Record], gauge: str) -> float:
    return max(record.read(gauge) or 0.0 for record in records)


def _is_beyond(records: Sequence[Record]) -> bool:
    """Whether rounding does not explain what they read."""
    limit = find_universal(records[0].contract)
    return _find_largest(records, "deterministic") > 1 or _find_largest(records, "bound") > limit


@cache
def find_universal(contract: str) -> float:
    """The limit that is shipped for all ops of a contract; infinite where there is none."""
    limit = find_limit(EVERY_OP, Contract.parse(contract)).limit
    return math.inf if limit is None else limit.value

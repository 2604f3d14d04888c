"""One op of torch's, in one dtype, forward or backward → what came of it, in plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["scaled", "partly", "refused", "left out"]


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
    """Median over outputs of u_c·S over the error, where that is least; None where torch was exact."""
    worst: str = ""
    """Shapes of the sample that reads highest."""

    @property
    def is_sound(self) -> bool:
        """Whether torch stays within what every sum as one long chain may lose."""
        return self.deterministic is None or self.deterministic <= 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

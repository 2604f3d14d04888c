"""Two numbers, or a policy of the field → readings of an output, and what each element may be off by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gonogo.errors import InputError, UnknownWord, check_tolerance
from gonogo.formats import get_format
from gonogo.instrument.gauges import gauge
from gonogo.instrument.readings import read
from gonogo.policies import Policy, Twin, load_policies, read_policies

if TYPE_CHECKING:
    import torch

    from gonogo.execution.bench import Bench

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tolerance:
    """|y − r| ≤ atol + rtol·|r|, or a policy of the field."""

    atol: float = 0.0
    rtol: float = 0.0
    policy: Policy | None = None
    """Where there is one, the two numbers are not looked at."""

    @property
    def name(self) -> str:
        """The tolerance as people read it."""
        return self.policy.name if self.policy else f"atol={self.atol:g} rtol={self.rtol:g}"

    @classmethod
    def make(cls, *, atol: float | None, rtol: float | None, policy: str | None) -> Tolerance:
        """A tolerance of one kind or the other, checked."""
        if policy is not None and (atol is not None or rtol is not None):
            raise InputError("give --policy, or --atol and --rtol, not both")
        if policy is not None:
            return cls(policy=find_policy(policy))
        if atol is None or rtol is None:
            raise InputError("no tolerance: give --atol and --rtol (0 is a value), or --policy")
        check_tolerance("atol", atol, finite=True)
        check_tolerance("rtol", rtol, finite=True)
        return cls(atol, rtol)

    def read(self, bench: Bench, actual: torch.Tensor, expected: torch.Tensor, twin: Twin | None) -> float | None:
        """Worst error in units of what is tolerated; it passes up to 1. None where the policy says nothing."""
        if self.policy is None:
            return read(actual, expected, gauge=gauge("policy", atol=self.atol, rtol=self.rtol)).worst
        dtype = bench.job.case.dtype
        readings = read_policies(
            actual, expected, op=bench.op.name, dtype=dtype, reduced_length=bench.reduced_length, twin=twin
        )
        return readings[self.policy.name]

    def allow(self, bench: Bench, magnitudes: Floats, twin: Twin | None) -> Floats | None:
        """What every element may be off by; None where the policy does not say it by element."""
        if self.policy is None:
            return self.atol + self.rtol * magnitudes
        dtype = bench.job.case.dtype
        numbers = self.policy.find_numbers(bench.op.name, dtype)
        if numbers is None:
            return None
        match self.policy.rule:
            case "allclose":
                per_element = numbers.get("atol_per_reduced_element", 0.0) * bench.reduced_length
                return numbers.get("atol", 0.0) + per_element + numbers["rtol"] * magnitudes
            case "either":
                return np.maximum(numbers["atol"], numbers["rtol"] * magnitudes)
            case "roundoff":
                roundoff = get_format(dtype).unit_roundoff
                rtol = max(roundoff, numbers["accumulate_roundoff"] * bench.reduced_length)
                return rtol * (float(magnitudes.max(initial=0.0)) + magnitudes)
            case "twin_max" if twin is not None:
                return np.full_like(magnitudes, numbers["factor"] * twin.max_abs + numbers["floor"])
        return None


def find_policy(name: str) -> Policy:
    """The policy of that name; near names are suggested."""
    known = {policy.name: policy for policy in load_policies()}
    if name not in known:
        raise UnknownWord("policy", name, tuple(known))
    return known[name]

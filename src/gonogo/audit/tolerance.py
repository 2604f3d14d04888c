"""Two numbers, or a policy → readings of an output, and what each element may be off by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gonogo.errors import InputError, UnknownWord
from gonogo.formats import get_format
from gonogo.policies import Policy, Twin, load_policies, make_policy, read_policy, read_policy_file

if TYPE_CHECKING:
    import torch

    from gonogo.execution.bench import Bench

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tolerance:
    """What is audited: a policy of the field, or of one's own."""

    policy: Policy

    @property
    def name(self) -> str:
        """The tolerance as people read it."""
        return self.policy.name

    @classmethod
    def make(
        cls,
        *,
        atol: float | Mapping[str, float] | None = None,
        rtol: float | Mapping[str, float] | None = None,
        policy: str | Policy | None = None,
    ) -> Tolerance:
        """|y − r| ≤ atol + rtol·|r|, each one number or one by dtype, 0 where it is not given; or a policy.

        A policy is one of the field, by its name, or FILE.toml, or FILE.toml:NAME where the file has several.
        """
        if policy is not None and (atol is not None or rtol is not None):
            raise InputError("give --policy, or --atol and --rtol, not both")
        if policy is not None:
            return cls(policy if isinstance(policy, Policy) else find_policy(policy))
        if atol is None and rtol is None:
            raise InputError("no tolerance: give --atol and --rtol, or one of them (the other is 0), or --policy")
        return cls(make_policy(f"atol={_tell(atol)} rtol={_tell(rtol)}", _by_dtype(atol), _by_dtype(rtol)))

    def read(self, bench: Bench, actual: torch.Tensor, expected: torch.Tensor, twin: Twin | None) -> float | None:
        """Worst error in units of what is tolerated; it passes up to 1. None where the policy says nothing."""
        return read_policy(
            self.policy, actual, expected, op=bench.op.name, dtype=bench.job.case.dtype,
            reduced_length=bench.reduced_length, twin=twin,
        )  # fmt: skip

    def allow(self, bench: Bench, magnitudes: Floats, twin: Twin | None) -> Floats | None:
        """What every element may be off by; None where the policy does not say it by element."""
        dtype = bench.job.case.dtype
        numbers = self.policy.find_numbers(bench.op.name, dtype)
        if numbers is None:
            return None
        match self.policy.rule:
            case "allclose":
                per_element = numbers.get("atol_per_reduced_element", 0.0) * bench.reduced_length
                return numbers.get("atol", 0.0) + per_element + numbers.get("rtol", 0.0) * magnitudes
            case "either":
                return np.maximum(numbers["atol"], numbers["rtol"] * magnitudes)
            case "roundoff":
                roundoff = get_format(dtype).unit_roundoff
                rtol = max(roundoff, numbers["accumulate_roundoff"] * bench.reduced_length)
                return rtol * (float(magnitudes.max(initial=0.0)) + magnitudes)
            case "twin_max" if twin is not None:
                return np.full_like(magnitudes, numbers["factor"] * twin.max_abs + numbers["floor"])
        return None


def _by_dtype(given: float | Mapping[str, float] | None) -> Mapping[str, float]:
    if given is None:
        return {}
    return given if isinstance(given, Mapping) else {"all": given}


def _tell(given: float | Mapping[str, float] | None) -> str:
    if isinstance(given, Mapping):
        return ",".join(f"{value:g}" if dtype == "all" else f"{dtype}={value:g}" for dtype, value in given.items())
    return f"{given or 0:g}"


def find_policy(name: str) -> Policy:
    """The policy of that name, or of a TOML file; near names are suggested."""
    known = {policy.name: policy for policy in load_policies()}
    if name in known:
        return known[name]
    path, _, within = name.rpartition(":") if not name.endswith(".toml") else (name, "", "")
    if path.endswith(".toml"):
        if not Path(path).exists():
            raise InputError(f"there is no file {path}. A policy is one of the field, or a TOML file of your own")
        return read_policy_file(Path(path), within)
    raise UnknownWord("policy", name, tuple(known))

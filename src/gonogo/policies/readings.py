"""An output, its reference and what is known of the op → the reading of every policy.

A reading is the worst error in units of what the policy allows: the policy passes exactly where it is at most 1.
No error reads 0 and, but under `share`, a non-finite disagreement reads +inf whatever is allowed.
"""

from __future__ import annotations

import math
from functools import cache, cached_property

import numpy as np

from gonogo.formats import get_format
from gonogo.instrument.gauges import gauge
from gonogo.instrument.readings import read
from gonogo.policies._policy import Numbers, Policy, Twin, load_policies
from gonogo.policies.elementwise import Errors, find_errors, largest, root_mean_square


def read_policies(
    actual: object, expected: object, *, op: str, dtype: str, reduced_length: int, twin: Twin | None
) -> dict[str, float | None]:
    """Name → reading of every policy; None where it says nothing of the op or dtype, or lacks its twin.

    `expected` is the float64 reference, `reduced_length` the number of terms in the op's sums (1 for none).

    >>> y, r = np.float16([1.0, 2.0]), np.array([1.0, 2.03])
    >>> readings = read_policies(y, r, op="relu", dtype="float16", reduced_length=1, twin=None)
    >>> readings["kernelbench"] <= 1, readings["torch_testing"] <= 1, readings["liger"]
    (True, False, None)
    """
    output = _Output(actual, expected, dtype, reduced_length, twin)
    return {policy.name: _read_policy(policy, policy.find_numbers(op, dtype), output) for policy in load_policies()}


def read_policy(
    policy: Policy, actual: object, expected: object, *, op: str, dtype: str, reduced_length: int, twin: Twin | None
) -> float | None:
    """The reading of one policy, which need not be of the field; None as of `read_policies`."""
    output = _Output(actual, expected, dtype, reduced_length, twin)
    return _read_policy(policy, policy.find_numbers(op, dtype), output)


class _Output:
    """One output with its reference; whatever several policies look at is computed once."""

    def __init__(
        self, actual: object, expected: object, dtype: str, reduced_length: int, twin: Twin | None
    ) -> None:
        self.output_roundoff = get_format(dtype).unit_roundoff
        self.reduced_length = reduced_length
        self.twin = twin
        self._actual, self._expected = actual, expected
        self.read_allclose = cache(self._read_allclose)

    @cached_property
    def errors(self) -> Errors:
        """Error of every element."""
        return find_errors(self._actual, self._expected)

    @cached_property
    def largest_reference(self) -> float:
        """Largest finite |r|."""
        magnitudes = self.errors.magnitudes
        return largest(self.errors.module.where(self.errors.module.isfinite(magnitudes), magnitudes, 0.0))

    def _read_allclose(self, atol: float, rtol: float) -> float:
        return read(self._actual, self._expected, gauge=gauge("policy", atol=atol, rtol=rtol)).worst


def _read_policy(policy: Policy, numbers: Numbers | None, output: _Output) -> float | None:
    if numbers is None:
        return None
    match policy.rule:
        case "allclose":
            return _read_allclose(numbers, output)
        case "roundoff":
            rtol = max(output.output_roundoff, numbers["accumulate_roundoff"] * output.reduced_length)
            return output.read_allclose(rtol * output.largest_reference, rtol)
        case "either":
            return read_either(output.errors, numbers["atol"], numbers["rtol"])
        case "share":
            return read_share(output.errors, numbers["atol"], numbers["rtol"], numbers["allowed_share"])
        case "twin_max" | "twin_rmse":
            return None if output.twin is None else _read_twin(policy.rule, numbers, output.errors, output.twin)


def _read_allclose(numbers: Numbers, output: _Output) -> float:
    atol = numbers.get("atol", 0.0) + numbers.get("atol_per_reduced_element", 0.0) * output.reduced_length
    return output.read_allclose(atol, numbers.get("rtol", 0.0))


@np.errstate(all="ignore")
def read_either(errors: Errors, atol: float, rtol: float) -> float:
    """Worst element, each read by the kinder of its absolute and relative error."""
    sizes, xp = errors.sizes, errors.module
    # 0/0 and inf/inf are the only NaNs, and there the size itself is the reading.
    kinder = xp.minimum(sizes / atol, sizes / errors.magnitudes / rtol)
    return largest(xp.where((sizes == 0) | xp.isinf(sizes), sizes, kinder))


def read_share(errors: Errors, atol: float, rtol: float, allowed_share: float) -> float:
    """Share of elements off by more than atol + rtol·|r|, over the share that may be."""
    sizes = errors.sizes
    off = (sizes > atol + rtol * errors.magnitudes) | errors.module.isinf(sizes)
    return _divide(int(off.sum()) / errors.count, allowed_share) if errors.count else 0.0


def _read_twin(rule: str, numbers: Numbers, errors: Errors, twin: Twin) -> float:
    if rule == "twin_max":
        return _divide(largest(errors.sizes), numbers["factor"] * twin.max_abs + numbers["floor"])
    return _divide(root_mean_square(errors.sizes), numbers["factor"] * twin.rmse + numbers["tol"] / 10)


def _divide(error: float, allowed: float) -> float:
    """An error in units of what is allowed; any is beyond nothing."""
    if error in (0.0, math.inf):
        return error
    return error / allowed if allowed else math.inf

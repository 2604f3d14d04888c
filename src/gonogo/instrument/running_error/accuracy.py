"""Function name and contract → how far a kernel's own implementation may be from the true function."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gonogo.formats import get_format
from gonogo.schema import Contract


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Error of f(x) for exact x: relative·|f(x)| + argument·|x·f′(x)| + absolute, in units of u_c."""

    relative: float
    argument: float = 0.0
    """Roundings of the argument: a range reduction or a pre-multiplication by log2(e)."""
    absolute: float = 0.0


TRANSCENDENTAL = 4.0
"""κ of a function not listed below: 2 ULP = 4u, the maximum CUDA's math library states for most of fp32."""

RELATIVE: dict[str, float] = {
    # Triton's `/` and sqrt are div.full.f32 and sqrt.approx.f32, 2u and 1 ULP (PTX ISA); torch's vectorised CPU
    # sqrt was measured 1.5u off.
    "div": 2.0,
    "sqrt": 2.0,
    "reciprocal": 2.0,
    # torch's gelu on the CPU, vectorised, takes an exp of 20 ULP into its erf; 11u off were measured, 2u elsewhere.
    "erf": 12.0,
    # rsqrt.approx.f32 is within 2^-22.9 (PTX ISA), 1/sqrt(x) within 2u.
    "rsqrt": 2.2,
    # 4 ULP in the table of CUDA's C++ programming guide, "Mathematical functions".
    "pow": 8.0,
    "tan": 8.0,
    "erfc": 8.0,
    # 3 ULP in the same table.
    "sinh": 6.0,
    "atanh": 6.0,
    "asinh": 6.0,
}

_ULP32 = 2.0**-23

FAST: dict[str, Accuracy] = {
    # As fractions, not in units of u_c: approximate units have fixed accuracy whatever the accumulator.
    # PTX ISA, tanh.approx.f32: maximum relative error 2^-11.
    "tanh": Accuracy(2.0**-11),
    # CUDA C++ programming guide, "Intrinsic functions": __expf 2 + ⌊|1.173·x|⌋ ULP, from x·log2(e) in fp32.
    "exp": Accuracy(2 * _ULP32, argument=1.173 * _ULP32),
    # Built by kernels from __expf.
    "sigmoid": Accuracy(4 * _ULP32, argument=1.173 * _ULP32),
    "expm1": Accuracy(2 * _ULP32, argument=1.173 * _ULP32, absolute=2 * _ULP32),
    # PTX ISA, ex2.approx.f32: 2 ULP over the full range.
    "exp2": Accuracy(2 * _ULP32),
    # CUDA guide: __logf 2^-21.41 absolute on [0.5, 2], 3 ULP elsewhere; __log2f 2^-22 and 2 ULP;
    # __log10f 2^-24 and 3 ULP.
    "log": Accuracy(3 * _ULP32, absolute=2.0**-21.41),
    "log1p": Accuracy(3 * _ULP32, absolute=2.0**-21.41),
    "log2": Accuracy(2 * _ULP32, absolute=2.0**-22),
    "log10": Accuracy(3 * _ULP32, absolute=2.0**-24),
    # PTX ISA, sin/cos.approx.f32: 2^-20.9 absolute in [−π, π]; outside, fp32 range reduction rounds x once.
    # No intrinsic; made of __expf and a polynomial by kernels that have one.
    "erf": Accuracy(2.0**-20),
    "sin": Accuracy(0.0, argument=2.0**-24, absolute=2.0**-20.9),
    "cos": Accuracy(0.0, argument=2.0**-24, absolute=2.0**-20.9),
    # PTX ISA: rcp.approx 1 ULP, sqrt.approx 2^-23, rsqrt.approx 2^-22.9; CUDA guide: __fdividef 2 ULP.
    "reciprocal": Accuracy(_ULP32),
    "sqrt": Accuracy(2.0**-23),
    "rsqrt": Accuracy(2.0**-22.9),
    "div": Accuracy(2 * _ULP32),
    # CUDA guide: __powf is exp2f(y·__log2f(x)); the error of y·log2(x) is added by the rule itself.
    "pow": Accuracy(4 * _ULP32),
}


UNDERFLOWING = frozenset({"exp", "exp2", "sigmoid", "erfc"})
"""Functions that reach the smallest values of the format, where a kernel's result may be flushed to zero."""


def underflow_floor(contract: Contract) -> float:
    """Say what underflow may add to a computed result, in units of u_c.

    Results below the smallest normal value may be flushed to zero (GPUs do so in float32 and bfloat16 where
    fast code is asked for); float16 and narrower formats keep gradual underflow.
    """
    fmt = get_format(contract.accumulate, role="contract accumulate")
    lost = fmt.smallest_subnormal if fmt.bits == 8 or fmt.name == "float16" else fmt.smallest_normal
    return lost / fmt.unit_roundoff


@lru_cache(maxsize=1024)
def get_accuracy(function: str, contract: Contract) -> Accuracy:
    """How well a kernel under `contract` computes `function`, in units of its u_c."""
    relative = RELATIVE.get(function, TRANSCENDENTAL)
    fast = FAST.get(function) if contract.fast_math else None
    floor = underflow_floor(contract) if function in UNDERFLOWING else 0.0
    if fast is None:
        return Accuracy(relative, absolute=floor)
    unit = get_format(contract.accumulate, role="contract accumulate").unit_roundoff
    return Accuracy(max(relative, fast.relative / unit), fast.argument / unit, fast.absolute / unit + floor)

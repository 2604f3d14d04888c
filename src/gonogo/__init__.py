"""gonogo: a go/no-go gauge for tensor kernels. Nothing heavy is imported before it is needed, NumPy included."""

# Modules whole, so that no name but gonogo's own is one of the package.
import importlib
import typing

from gonogo._version import __version__

if typing.TYPE_CHECKING:
    from gonogo import errors, formats
    from gonogo.client import Client
    from gonogo.errors import NoGo
    from gonogo.execution.kept import forget_cases
    from gonogo.formats import Format
    from gonogo.instrument.gauges import Gauge, gauge
    from gonogo.instrument.readings import read
    from gonogo.instrument.running_error import error_scale
    from gonogo.instrument.stats import measure
    from gonogo.ops import Index, Out
    from gonogo.schema import Contract, ErrorStats, Reading
    from gonogo.user.checking import check
    from gonogo.user.own_op import Arg, Op
    from gonogo.user.verification import verify
    from gonogo.verdict.verdicts import Verification

__all__ = [
    "Arg",
    "Client",
    "Contract",
    "ErrorStats",
    "Format",
    "Gauge",
    "Index",
    "NoGo",
    "Op",
    "Out",
    "Reading",
    "Verification",
    "__version__",
    "check",
    "error_scale",
    "errors",
    "forget_cases",
    "formats",
    "gauge",
    "measure",
    "read",
    "verify",
]

_HOMES = {
    "Arg": "user.own_op",
    "Client": "client",
    "Contract": "schema",
    "ErrorStats": "schema",
    "Format": "formats",
    "Gauge": "instrument.gauges",
    "Index": "ops",
    "NoGo": "errors",
    "Op": "user.own_op",
    "Out": "ops",
    "Reading": "schema",
    "Verification": "verdict.verdicts",
    "check": "user.checking",
    "error_scale": "instrument.running_error",
    "forget_cases": "execution.kept",
    "gauge": "instrument.gauges",
    "measure": "instrument.stats",
    "read": "instrument.readings",
    "verify": "user.verification",
}
"""Public names and the modules that have them."""


def __getattr__(name: str) -> typing.Any:
    if name in ("errors", "formats"):
        return importlib.import_module(f"gonogo.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'gonogo' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"gonogo.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

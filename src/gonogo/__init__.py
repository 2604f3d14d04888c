"""gonogo: a go/no-go gauge for tensor kernels. Nothing heavy is imported before it is needed, NumPy included."""

# Modules whole, so that no name but gonogo's own is one of the package.
import importlib
import sys
import types
import typing

from gonogo._version import __version__

if typing.TYPE_CHECKING:
    from gonogo import errors, formats
    from gonogo.checking import check
    from gonogo.errors import NoGo
    from gonogo.formats import Format
    from gonogo.measure.gauges import Gauge, gauge
    from gonogo.measure.readings import read
    from gonogo.measure.running_error import error_scale
    from gonogo.measure.stats import measure
    from gonogo.own_op import Op
    from gonogo.schema import Contract, ErrorStats, Reading
    from gonogo.verdicts import Verification
    from gonogo.verification import verify

__all__ = [
    "Contract",
    "ErrorStats",
    "Format",
    "Gauge",
    "NoGo",
    "Op",
    "Reading",
    "Verification",
    "__version__",
    "check",
    "error_scale",
    "errors",
    "formats",
    "gauge",
    "measure",
    "read",
    "verify",
]

_HOMES = {
    "Contract": "schema",
    "ErrorStats": "schema",
    "Format": "formats",
    "Gauge": "measure.gauges",
    "NoGo": "errors",
    "Op": "own_op",
    "Reading": "schema",
    "Verification": "verdicts",
    "check": "checking",
    "error_scale": "measure.running_error",
    "gauge": "measure.gauges",
    "measure": "measure.stats",
    "read": "measure.readings",
    "verify": "verification",
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


class _Package(types.ModuleType):
    """`measure` is both a function and the folder it lives in: as an attribute it is always the function."""

    def __setattr__(self, name: str, value: typing.Any) -> None:
        if name == "measure" and isinstance(value, types.ModuleType):
            return  # the import system binds a folder once it is imported
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

"""gonogo: a go/no-go gauge for tensor kernels. Neither torch nor triton is imported before it is needed."""

# `measure` is both this function and the folder it lives in; binding it here, after the folder's import,
# makes `gonogo.measure(...)` the function while `from gonogo.measure import stats` still finds the folder.
from gonogo import errors, formats
from gonogo._version import __version__
from gonogo.formats import Format
from gonogo.measure.gauges import Gauge, gauge
from gonogo.measure.readings import read
from gonogo.measure.running_error import error_scale
from gonogo.measure.stats import measure
from gonogo.schema import Contract, ErrorStats, Reading
from gonogo.verification import Op, Verification, check, verify

__all__ = [
    "Contract",
    "ErrorStats",
    "Format",
    "Gauge",
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

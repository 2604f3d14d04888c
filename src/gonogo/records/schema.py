"""The columns of a record: one kernel on one case."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from gonogo.errors import InputError
from gonogo.policies import load_policies
from gonogo.schema import policy_column

SCHEMA_VERSION = 1

OUTCOMES = (
    "ok",
    "raised",
    "crashed",
    "timed-out",
    "out-of-memory",
    "no-output",
    "wrong-structure",
    "wrong-shape",
    "wrong-dtype",
    "out-of-bounds",
    "aliased",
    "inputs-changed",
    "unwritten",
    "not-repeatable",
    "state-changed",
    "broken-protocol",
    "non-finite",
    "unequal",
    "refused",
)
"""What became of a kernel on a case; the first that holds, in this order, but for `ok`."""
MEASURED = (
    "ok", "out-of-bounds", "aliased", "inputs-changed", "unwritten", "not-repeatable", "non-finite", "unequal"
)  # fmt: skip
"""Outcomes with an output of the right shape and dtype, which is then measured all the same."""

KEY = ("case", "kernel", "contract")
"""What a row is known by: another one with the same is the same measurement, or a later one."""
REQUIRED = ("number", *KEY, "op", "dtype", "role", "outcome")
"""Columns that no row was ever without; others may be younger than a run."""

_TEXT, _REAL, _SHORT = pa.string(), pa.float64(), pa.float32()

CASE_COLUMNS = {
    "number": pa.int32(),  # place in the plan
    "case": _TEXT,
    "op": _TEXT,
    "dtype": _TEXT,
    "shape": _TEXT,  # sizes of the op's axes
    "layout": _TEXT,
    "distribution": _TEXT,
    "strategy": _TEXT,
    "seed": pa.int64(),
    "reduced_length": pa.int32(),
}
KERNEL_COLUMNS = {
    "kernel": _TEXT,
    "role": _TEXT,
    "framework": _TEXT,
    "contract": _TEXT,
    "calibrate_against": _TEXT,
    "current_atol": _REAL,
}
STATS_COLUMNS = {
    "count": pa.int64(),
    "num_exceeding": pa.int64(),  # of the current atol
    "max_abs": _REAL,
    "mean_abs": _REAL,
    "p50_abs": _REAL,
    "p90_abs": _REAL,
    "p99_abs": _REAL,
    "max_rel": _REAL,
    "mean_rel": _REAL,
    "max_ulp": pa.uint64(),
    "mean_ulp": _REAL,
}
READING_COLUMNS = {
    "absolute": _SHORT,
    "magnitude": _SHORT,
    "ulp": _SHORT,
    "bound": _SHORT,
    "leaf": _TEXT,  # path of the output leaf that the readings are of, where there are several
    "bound_at": _TEXT,  # index of the worst element
    "bias": _SHORT,  # of the bound gauge
    "deterministic": _SHORT,  # bound reading with every sum taken for one long chain
    "rmse": _SHORT,
    "v_abft": _SHORT,  # worst error over u_c·K/√2·rms(a row)·rms(b column), for matmul
}
OUTCOME_COLUMNS = {
    "outcome": _TEXT,
    "detail": _TEXT,
    "compared_with": _TEXT,  # the control whose output bits_equal and signal refer to
    "bits_equal": pa.bool_(),
    "signal": _SHORT,
    "time_us": _SHORT,
}


def make_schema() -> pa.Schema:
    """Arrow schema of a record, its version in the metadata."""
    policies = {policy_column(policy.name): _SHORT for policy in load_policies()}
    columns = CASE_COLUMNS | KERNEL_COLUMNS | OUTCOME_COLUMNS | STATS_COLUMNS | READING_COLUMNS | policies
    return pa.schema(list(columns.items()), metadata={"gonogo_schema": str(SCHEMA_VERSION)})


def check_version(found: Any, where: object) -> None:
    """Refuse records of another schema version."""
    if str(found) != str(SCHEMA_VERSION):
        raise InputError(
            f"{where} has record schema {found}, this gonogo reads {SCHEMA_VERSION}. "
            "Run it again with this version, or read it with the one that wrote it"
        )

"""The committed records in a database: what a page counts, by SQL."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq

RECORDS = Path(__file__).parents[2] / "records"
COLUMNS = ["op", "dtype", "kernel", "role", "distribution", "outcome", "bits_equal", "absolute"]
NON_FINITE = "'nan', 'nan_injected', 'masked', 'adversarial'"
FINITE = f"distribution NOT IN ({NON_FINITE}) AND NOT (outcome = 'ok' AND absolute > 1e308)"
CONTROLS = f"role = 'control' AND outcome IN ('ok', 'non-finite', 'unwritten', 'not-repeatable') AND {FINITE}"
FAULTY = f"role = 'faulty' AND outcome <> 'refused' AND {FINITE} AND (bits_equal IS NOT NULL OR outcome <> 'ok')"


@cache
def open_records() -> sqlite3.Connection:
    """All rows of the files, with the names of their runs."""
    base = sqlite3.connect(":memory:")
    base.execute(f"CREATE TABLE records ({', '.join(COLUMNS)}, run)")
    for part in sorted(RECORDS.glob("*/part-*.parquet")):
        rows = pq.read_table(part, columns=COLUMNS).to_pylist()
        values = [[*(row[name] for name in COLUMNS), part.parent.name] for row in rows]
        base.executemany(f"INSERT INTO records VALUES ({', '.join('?' * 9)})", values)
    return base


def count_by_sql(where: str) -> tuple[int, int]:
    """Results of controls and of faulty kernels among the committed records."""
    counted = [
        open_records().execute(f"SELECT count(*) FROM records WHERE ({which}) AND ({where})").fetchone()[0]
        for which in (CONTROLS, FAULTY)
    ]
    return counted[0], counted[1]

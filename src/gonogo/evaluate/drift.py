"""Two sets of runs → how the readings of controls moved, and whether the limits of the one hold on the other."""

from __future__ import annotations

import numpy as np

from gonogo.evaluate.groups import Rows
from gonogo.evaluate.score import Method, calibrate
from gonogo.evaluate.table import Share, Table


def make_drift(before: Rows, after: Rows, method: Method) -> Table:
    """One line per group that both have."""
    lines = []
    limits = {
        (limit.op, limit.contract, limit.kernel or "", limit.dtype or ""): limit
        for limit in calibrate(before, method)
    }
    sides = []
    for rows in (before, after):
        codes, names = rows.group(method.rule, method.gauge)
        readings = rows.columns.readings[method.gauge]
        sides.append({
            name: readings[rows.calibrating & (codes == group)] for group, name in enumerate(names)
        })  # fmt: skip
    for name, limit in sorted(limits.items()):
        old, new = sides[0][name], sides[1].get(name, np.empty(0, np.float32))
        if not new.size:
            continue
        above = int((new > limit.value).sum())
        lines.append((
            " ".join(part for part in name if part), len(old), len(new),
            float(np.median(old)), float(np.median(new)), float(old.max()), float(new.max()),
            limit.value, Share(above, len(new), 2),
            "holds" if above == 0 else "does not hold",
        ))  # fmt: skip
    columns = (
        "group", "cases before", "cases after", "median before", "median after", "largest before", "largest after",
        "limit before", "after above it", "verdict",
    )  # fmt: skip
    return Table(f"Drift of {method.gauge} readings", columns, lines)

"""A hold-out → folds: rows to calibrate on, rows to judge, never the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gonogo.errors import InputError
from gonogo.evaluate.groups import Mask, Rows

HOLDOUTS = ("none", "run", "implementation", "distribution", "shape", "op", "device")
"""`none` is in-sample: limits are judged on the rows they were made from, and look better than they are."""


@dataclass(frozen=True)
class Fold:
    """What is left out, and the rows on either side."""

    name: str
    calibrate: Mask
    judge: Mask
    leaks: bool = False
    """Whether the two sides may share rows: only in-sample."""

    def __post_init__(self) -> None:
        if not self.leaks and bool((self.calibrate & self.judge).any()):
            raise InputError(f"fold {self.name}: rows that are judged were calibrated on")


def make_folds(rows: Rows, holdout: str) -> Iterator[Fold]:
    """The folds of a hold-out."""
    columns = rows.columns
    everything = np.ones(len(columns), bool)
    if holdout not in HOLDOUTS:
        raise InputError(f"unknown hold-out {holdout!r}; known: {', '.join(HOLDOUTS)}")
    if holdout == "none":
        yield Fold("in-sample", rows.calibrating, everything, leaks=True)
    elif holdout == "run":
        if len(columns.runs) < 2:
            raise InputError("hold-out run needs two runs or more; this is one. Use --holdout none, or add a run")
        for number, name in enumerate(columns.runs):
            here = columns.run == number
            yield Fold(name, rows.calibrating & ~here, here)
    elif holdout == "implementation":
        source = rows.source
        for code in np.unique(source[rows.calibrating]):
            here = source == code
            yield Fold(columns.names["kernel"][code], rows.calibrating & ~here, here)
    elif holdout == "distribution":
        for code in np.unique(columns.codes["distribution"][rows.calibrating]):
            here = columns.codes["distribution"] == code
            yield Fold(columns.names["distribution"][code], rows.calibrating & ~here, here)
    elif holdout == "shape":
        # From the smaller half of an op's outputs to the larger: limits must grow with the op's own scale.
        large = np.zeros(len(columns), bool)
        for code in np.unique(columns.codes["op"]):
            of_op = columns.codes["op"] == code
            sizes = columns.size[of_op & rows.calibrating]
            if sizes.size:
                large |= of_op & (columns.size > np.median(sizes))
        yield Fold("larger shapes", rows.calibrating & ~large, large)
    elif holdout == "op":
        ops = np.unique(columns.codes["op"][rows.calibrating])
        if len(ops) < 2:
            raise InputError("hold-out op needs records of two ops or more; these are of one")
        for code in ops:
            here = columns.codes["op"] == code
            yield Fold(columns.names["op"][code], rows.calibrating & ~here, here)
    else:
        devices = np.array([sorted(set(columns.devices)).index(device) for device in columns.devices])
        if len(set(columns.devices)) < 2:
            raise InputError("hold-out device needs runs of two devices or more; these are of one")
        for number, name in enumerate(sorted(set(columns.devices))):
            here = devices[columns.run] == number
            yield Fold(name, rows.calibrating & ~here, here)

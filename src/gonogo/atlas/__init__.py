"""torch's own ops → how accurate each is, by dtype and device, and whether it has an error scale at all.

Ops and their inputs are those that torch tests itself with (OpInfo). What is found of one is a `Finding`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from gonogo.atlas.finding import Finding
from gonogo.errors import BackendMissing, InputError, suggest

__all__ = ["DTYPES", "PASSES", "Finding", "make_atlas"]

DTYPES = ("float32", "bfloat16", "float16")
"""By default. float64 can be asked for: its readings say little, for the reference is no better."""
PASSES = ("forward", "gradient")


def make_atlas(
    names: Sequence[str] = (),
    *,
    dtypes: Sequence[str] = DTYPES,
    passes: Sequence[str] = PASSES,
    device: str = "cpu",
    samples: int = 10,
    report: Callable[[int, int], None] | None = None,
) -> list[Finding]:
    """Measure torch's kernels of `names`, all that it has by default, on up to `samples` of its own inputs each."""
    try:
        from gonogo.atlas.entries import list_entries
    except ImportError as error:
        raise BackendMissing(str(error.name), "gonogo atlas", extra="atlas") from None
    from gonogo.atlas.survey import survey

    entries = list_entries()
    for name in names:
        if name not in entries:
            raise InputError(f"torch's tests have no op {name!r}{suggest(name, tuple(entries))}")
    wanted = [(name, dtype, kind) for name in names or entries for dtype in dtypes for kind in passes]
    findings = []
    for done, (name, dtype, kind) in enumerate(wanted):
        with warnings.catch_warnings():  # of deprecated ops, and samples on the edge of what is defined
            warnings.simplefilter("ignore")
            found = survey(entries[name], dtype, device, gradient=kind == "gradient", most=samples)
        if found is not None:
            findings.append(found)
        if report is not None:
            report(done + 1, len(wanted))
    return findings

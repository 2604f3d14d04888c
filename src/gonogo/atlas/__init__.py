"""torch's own ops → how accurate each is, by dtype and device, and whether it has an error scale at all.

Ops and their inputs are those that torch tests itself with (OpInfo). Each sample makes a record like any other;
what records say of an op is a `Finding`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from gonogo.atlas.finding import SAMPLES, Finding, sum_up
from gonogo.errors import BackendMissing, CampaignFailed, InputError, suggest
from gonogo.schema import Record, name_device

if TYPE_CHECKING:
    from gonogo.records.places import Place

__all__ = ["DTYPES", "PASSES", "Finding", "load_atlas", "make_atlas", "sum_up"]

DTYPES = ("float32", "bfloat16", "float16")
"""By default. float64 can be asked for: its readings say little, for the reference is no better."""
PASSES = ("forward", "gradient")
COLUMNS = (
    "number", "case", "op", "dtype", "shape", "layout", "distribution", "strategy", "seed", "reduced_length",
    "kernel", "role", "framework", "contract", "outcome", "detail", "bound", "deterministic", "ulp",
)  # fmt: skip
"""Of a record that findings are made from."""


def make_atlas(
    names: Sequence[str] = (),
    *,
    dtypes: Sequence[str] = DTYPES,
    passes: Sequence[str] = PASSES,
    device: str = "cpu",
    samples: int = 10,
    workers: int = 1,
    report: Callable[[int, int], None] | None = None,
) -> list[Record]:
    """Measure torch's kernels of `names`, all that it has by default, on up to `samples` of its own inputs each."""
    try:
        from gonogo.atlas.entries import list_entries
    except ImportError as error:
        raise BackendMissing(str(error.name), "gonogo atlas", extra="atlas") from None
    entries = list_entries()
    for name in names:
        if name not in entries:
            raise InputError(f"torch's tests have no op {name!r}{suggest(name, tuple(entries))}")
    wanted = list(names or entries)
    measure = partial(_survey_op, dtypes=dtypes, passes=passes, device=device, samples=samples)
    records: list[Record] = []
    for done, found in enumerate(_run(measure, wanted, workers)):
        records += found
        if report is not None:
            report(done + 1, len(wanted))
    return records


def _run(measure: Callable[[str], list[Record]], names: Sequence[str], workers: int) -> Iterable[list[Record]]:
    if workers == 1:
        yield from map(measure, names)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_use_one_thread) as pool:
        try:
            yield from pool.map(measure, names, chunksize=4)
        except BrokenProcessPool:
            raise CampaignFailed(
                "a process of the atlas has died, by an op of torch's: run it with --workers 1"
            ) from None


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _survey_op(
    name: str, *, dtypes: Sequence[str], passes: Sequence[str], device: str, samples: int
) -> list[Record]:  # fmt: skip
    from gonogo.atlas.entries import list_entries
    from gonogo.atlas.survey import survey

    entry = list_entries()[name]
    with warnings.catch_warnings():  # of deprecated ops, and samples on the edge of what is defined
        warnings.simplefilter("ignore")
        return [
            record
            for dtype in dtypes
            for kind in passes
            for record in survey(entry, dtype, device, kind=kind, most=samples)
        ]


def load_atlas(folder: Place) -> tuple[list[Record], dict[str, Any]]:
    """Records of an atlas, and the environment they were made in."""
    from gonogo.records import read_description, read_run

    rows = read_run(folder, COLUMNS).to_pylist()
    records = [Record(**row) for row in rows if row["distribution"] == SAMPLES]
    if not records:
        raise InputError(f"{folder} has no records of torch's ops. Make some: gonogo atlas --record {folder}")
    return records, read_description(folder).get("environment") or {}


def name_machine(environment: dict[str, Any]) -> str:
    """Processor or GPU, and the torch that ran there."""
    return f"{name_device(environment)}, torch {environment.get('torch')}, gonogo {environment.get('gonogo')}"

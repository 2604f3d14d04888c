"""Records of a verification → a run directory, as `gonogo calibrate` and `gonogo evaluate` read any other.

Controls are recorded as controls, by the contract each keeps. The kernel under test is a `candidate`: nothing is
calibrated from it, and it counts as no fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from gonogo.schema import Record
from gonogo.user.kernels import CANDIDATE

if TYPE_CHECKING:
    from gonogo.records import Appended
    from gonogo.records.places import Place


@dataclass(frozen=True)
class Recorder:
    """A run directory that records can be added to."""

    folder: Place
    environment: dict[str, Any]

    def append(self, records: Sequence[Record], label: str) -> Appended:
        """Add records, those of the candidate under `label`."""
        from gonogo.records import append_records

        labelled = [
            replace(record, kernel=f"{CANDIDATE}:{label}", calibrate_against=None)
            if record.role == CANDIDATE else record for record in records
        ]  # fmt: skip
        return append_records(self.folder, self.environment, labelled)


def open_record(folder: str | Place, device: str, *, isolated: bool) -> Recorder:
    """Refuse what cannot be added to, before anything runs."""
    from gonogo.execution.precision import FLAGS
    from gonogo.records import check_appendable
    from gonogo.records.places import parse_place
    from gonogo.runners.environment import describe_environment

    environment = describe_environment(device)
    if not isolated:  # workers set torch's switches, a user's process has its own
        environment["torch_flags"] = {path: _read_flag(path) for path in FLAGS}
    recorder = Recorder(parse_place(folder).absolute(), environment)
    check_appendable(recorder.folder, recorder.environment)
    return recorder


def _read_flag(path: str) -> Any:
    import torch

    return reduce(getattr, path.split(".")[1:], torch)

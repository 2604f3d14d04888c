"""A verification or a verdict of a test → plain data that travels with pytest's reports → lines on its limit.

Under xdist reports cross from process to process, so that a worker that dies takes no verdict with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from gonogo.verdict.judge import Verdict
    from gonogo.verdict.verdicts import Verification


@dataclass(frozen=True)
class Held:
    """The limit that outputs were held to, and what it is from."""

    source: Literal["lock", "package", "here"]
    """The project's lock file; the package; or this run, which measured it on as many cases as it judged."""
    cases: int = 0
    """Readings it was made from."""
    per_dtype: int | None = None
    """Cases of every dtype that it was measured on, where that is known."""
    devices: tuple[str, ...] = ()
    """Machines that it was measured on."""
    loose: str | None = None
    """What it is far above, where no rule would make it so."""

    def is_from(self, device: str, machine: str) -> bool:
        """Whether it was measured on a machine; runs on a CPU may name none."""
        told = {name for devices in self.devices for name in (devices, *devices.split(", "))}
        return machine in told or (device == "cpu" and "cpu" in told)


@dataclass(frozen=True)
class Judged:
    """One `verify` or `check` of a test."""

    op: str
    contract: str
    decision: str
    cases: int
    """That were judged."""
    not_judged: int = 0
    share: float | None = None
    """The largest reading over its limit; None where there was no reading."""
    held: Held | None = None
    """None where the limit is not measured: the deterministic bound, one ULP, or made from controls in the test."""
    device: str | None = None
    """`cpu` or `cuda`; None where that is not known."""
    machine: str | None = None
    setting: str | None = None
    """Machine, versions and seed in a line."""
    report: str = ""
    """Of what is not go, and did not pass as suspect: worst case, element, smallest case, pattern and replay."""
    error: str | None = None
    """What the kernel raised in the worst case, with its traceback."""
    suspect: str | None = None
    """Of what passed as suspect: the case furthest off, in a line."""
    notes: tuple[str, ...] = ()
    """Why some cases were not judged, where some were not."""
    page: dict[str, Any] | None = None
    """What a page shows of it, where one was asked for."""

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for a report."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Judged:
        """What `to_dict` gave, in another process."""
        held = fields["held"]
        origin = held and Held(**{**held, "devices": tuple(held["devices"])})
        return cls(**{**fields, "held": origin, "notes": tuple(fields["notes"])})


def describe_verification(verification: Verification, held: Held | None, suspect: str | None) -> Judged:
    """What a summary says of a kernel."""
    from gonogo.verdict.setting import INTERPRETED
    from gonogo.verdict.verdicts import tell_unjudged

    largest, worst, setting = verification.largest, verification.worst_case, verification.setting
    share = None if largest is None or largest.verdict.share is None else float(largest.verdict.share)
    if any(case.verdict.share is None for case in verification.failed):
        share = None  # what has no reading is further off than any that has one
    judged = Judged(
        verification.op, verification.contract, verification.decision, len(verification.verdicts),
        len(verification.unjudged), share, held, report=_report_failure(verification),
        error=worst.record.error if worst else None, suspect=suspect,
        notes=tell_unjudged(verification.verdicts, verification.unjudged) if verification.unjudged else (),
    )  # fmt: skip
    if setting is None:
        return judged
    told = f"{setting}; {INTERPRETED}" if setting.interpreted else str(setting)
    return replace(judged, device=setting.device, machine=setting.machine, setting=told)


def tell_suspect(verification: Verification) -> str | None:
    """Of what passed as suspect, the case furthest off; None where there is none, or some case failed."""
    furthest = max(verification.suspect, key=lambda case: case.badness, default=None)
    if furthest is None or verification.failed:
        return None
    count = f"{len(verification.suspect)} of {len(verification.verdicts)} cases"
    return f"{count}; {furthest.case}: {furthest.verdict.message}"


def describe_verdict(
    verdict: Verdict, op: str, contract: str, held: Held | None, suspect: str | None, where: tuple[str, str] | None
) -> Judged:
    """What a summary says of one output; `where` is the device and machine it is from, where these are known."""
    share = None if verdict.share is None else float(verdict.share)
    device, machine = where or (None, None)
    report = "" if verdict.decision == "go" or suspect else f"{op}: {verdict.message}"
    return Judged(
        op, contract, verdict.decision, 1, share=share, held=held, device=device, machine=machine, report=report,
        suspect=suspect,
    )  # fmt: skip


def _report_failure(verification: Verification) -> str:
    from gonogo.verdict.verdicts import tell_element

    worst = verification.worst_case
    if worst is None:
        return ""
    told = [
        ("worst case", f"{worst.case}: {worst.verdict.message}"),
        ("", worst.described),
        ("element", tell_element(verification.worst) if verification.worst else None),
        ("smallest", verification.smallest),
        ("pattern", verification.pattern),
        ("replay", verification.replay),
    ]
    counted = f"{len(verification.failed)} of {len(verification.verdicts)} cases failed"
    head = f"{verification.op}: no-go, {counted} (contract {verification.contract})"
    return "\n".join([head, *(f"  {name:<11} {text}" for name, text in told if text)])


def tell_limits(judged: Iterable[Judged], lock_option: str) -> list[str]:
    """Which limits are looser than a rule makes them, or from other cases or devices than were judged; a line each.

    `lock_option` is how pytest is told of the lock file, with a space before it.
    """
    fewer: dict[tuple[str, str], Judged] = {}
    elsewhere: dict[tuple[str, str], str] = {}
    loose: dict[tuple[str, str], str] = {}
    package: set[str] = set()
    for one in judged:
        key, held = (one.op, one.contract), one.held
        if held is None:
            continue
        if held.loose:
            loose[key] = f"{held.loose}. Measure it again: pytest --gonogo-update{lock_option}"
        if held.source == "lock" and held.cases < one.cases and (key not in fewer or fewer[key].cases < one.cases):
            fewer[key] = one
        if one.device and one.machine and held.devices and not held.is_from(one.device, one.machine):
            devices = " and ".join(held.devices)
            if held.source == "package":
                package.add(f"the package's limits are from {devices}; judged on {one.machine}")
            else:
                elsewhere[key] = f"the limit is from {devices}, judged on {one.machine}"
    lines: dict[tuple[str, str], list[str]] = {}
    told_fewer = {key: _tell_fewer(one, lock_option) for key, one in fewer.items()}
    for kind in (loose, told_fewer, elsewhere):
        for key, line in kind.items():
            lines.setdefault(key, []).append(line)
    named = [f"{key[0]}, contract {key[1]}: {line}" for key in sorted(lines) for line in lines[key]]
    return [*sorted(package), *named]


def _tell_fewer(judged: Judged, lock_option: str) -> str:
    """How many cases there were to a limit, and the command that takes enough."""
    held = judged.held
    assert held is not None
    made_from = f"{held.cases} case{'' if held.cases == 1 else 's'}"
    again = f"pytest --gonogo-update{lock_option}"
    if held.per_dtype and held.cases:
        # A control need not take every dtype, nor give a sound reading on every case.
        again += f" --gonogo-cases {math.ceil(judged.cases * held.per_dtype / held.cases)}"
    return f"the limit is from {made_from}, and {judged.cases} were judged by it. Measure it on as many: {again}"

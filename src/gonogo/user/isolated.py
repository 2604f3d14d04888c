"""A user's kernel file → verdicts, made in worker processes: it may hang, crash or eat memory without harm.

The file is read, never imported, on this side. Cases are the known op's: an id gives the same inputs here and in
`gonogo.verify`.
"""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gonogo.cases import USUAL, Planned, check_room, parse_case
from gonogo.errors import InputError, ReferenceFailed
from gonogo.execution.job import OWN
from gonogo.limits.shipped import choose_limit
from gonogo.ops import DTYPES, InFile, InText, Kernel, Made, OfOp, Op
from gonogo.schema import Contract, Record
from gonogo.user.arguments import check_draw
from gonogo.user.kernel_file import KernelFile
from gonogo.user.kernels import find_control, make_candidate
from gonogo.user.own_op import choose_contract
from gonogo.user.planning import (
    DEFAULT_CASES,
    FAR_NEEDS,
    Choice,
    choose_depth,
    choose_size_limit,
    plan_own,
    try_small,
)
from gonogo.user.recording import open_record
from gonogo.verdict.diagnosis import explain_failure
from gonogo.verdict.referee import Referee, Suspects, judge_candidate
from gonogo.verdict.setting import describe_setting
from gonogo.verdict.verdicts import CaseVerdict, Verification
from gonogo.words import find_contract, find_op, name_contract

if TYPE_CHECKING:
    from gonogo.campaign import Allowance, Progress
    from gonogo.execution.told import Told
    from gonogo.records.places import Place
    from gonogo.runners.pool import Pool

MOST_ON_GPU = 4
"""Workers, each with a guest: on an NVIDIA H200 72 cases take 15 s by two, 12 s by four and 13 s by eight."""


FAR, LEAST = 16.0, 1e-3
"""Times what torch's own kernel reads that are worth a note, and the least that is taken for its reading."""


@dataclass(frozen=True)
class FileVerification:
    """Verdicts on a kernel file, and what became of its cases."""

    kernel: KernelFile
    verification: Verification
    outcomes: dict[str, int]
    planned: int
    """Cases; fewer have an outcome where it was stopped."""
    refused: str | None = None
    """Why some cases are not judged, where they are not."""
    walls: tuple[str, ...] = ()
    """What stood between the kernel's process and the rest of the machine."""
    passes_own: bool | None = None
    """Whether it passes the check of the benchmark that the op is from, on all cases of that; None without any."""

    @property
    def worst(self) -> CaseVerdict | None:
        """The failed case that is furthest off; one without a reading before any with one."""
        return self.verification.worst_case

    @property
    def stopped(self) -> str | None:
        """Why cases are missing, where it was stopped before its end."""
        done = sum(self.outcomes.values())
        return None if done >= self.planned else f"after {done} of {self.planned} cases: it timed out too often"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        facts = self.verification.to_dict()
        verdicts = facts.pop("verdicts")
        return facts | {
            "file": str(self.kernel.path), "function": self.kernel.function, "planned": self.planned,
            "outcomes": self.outcomes, "refused": self.refused, "stopped": self.stopped,
            "walls": list(self.walls), "verdicts": verdicts,
        }  # fmt: skip


def check_file(
    kernel: KernelFile,
    op: str | Op,
    *,
    contract: Contract | str | None = None,
    dtypes: str | Sequence[str] = DTYPES,
    cases: int = DEFAULT_CASES,
    seed: int = 0,
    distributions: str | Sequence[str] = USUAL,
    device: str = "auto",
    lock: str | Path | None = None,
    allowance: Allowance | None = None,
    suspects: Suspects = "rerun",
    only: str | None = None,
    record: str | Place | None = None,
    report: Callable[[Progress], None] | None = None,
    pool: Pool | None = None,
    hidden: Sequence[str] = (),
    own_seeds: Sequence[int] = (),
) -> FileVerification:
    """Run a kernel file on `cases` cases per dtype, isolated, and judge each by a lock file, or the shipped limits.

    `suspects` are run again on fresh seeds or fail, as in gonogo.verify. `only` is the id of a single case, to
    replay it. `record` is a run directory to add the records to, with those of the op's torch control on the same
    cases. `pool` has workers that stay: by default they are made for this kernel, and end with it. `hidden` are
    files that the kernel must not read, besides those of gonogo, of the op and the lock. `own_seeds` are those of
    the benchmark that an op is from: its cases come before the `cases` of the seed.
    """
    from gonogo.campaign import Allowance
    from gonogo.runners.device import find_device, keep_switches

    known, where = find_op(op), find_device(device)
    keeps = find_contract(contract or choose_contract(known))
    chosen = choose_limit(known, keeps, lock=lock)
    choice = Choice(known, dtypes, cases, seed, distributions)
    candidate = make_candidate(known, InText(str(kernel.path), kernel.function, kernel.text, kernel.folders), keeps)
    target: list[Planned] = [(parse_case(only, known), "replay")] if only else []
    with contextlib.ExitStack() as stack:
        stack.enter_context(keep_switches(where))  # first, for they are recorded
        recorder = None if record is None else open_record(record, where, isolated=True)
        depth = choose_depth(chosen, recorded=record is not None)
        runner = stack.enter_context(
            _open_runner(
                known, where, allowance or Allowance(), pool, depth, (*hidden, *([lock] if lock else [])),
                triton="triton" in kernel.text,
            )
        )  # fmt: skip
        planned = target or [
            *plan_own(known, own_seeds),
            *choice.plan(choose_size_limit(where, try_small(choice, where, runner, candidate))),
        ]  # fmt: skip
        runner.begin_judging()
        check_draw(known, planned[0][0].seed, planned[0][0].dtype)
        control = [] if record is None or known.is_nest else [find_control(known)]
        if own_seeds:  # what torch itself reads there says how much of a bound is used
            control = list(known.kernels[:1])
        records = runner.run_all(planned, [*control, candidate], report)
        told = runner.pool.told
        referee = Referee(runner, candidate, chosen, suspects)
        verification = judge_candidate(referee, records, keeps, redraw=only is None)
        far = _tell_distance(records) if own_seeds and not verification.failed else ()
        verification = replace(verification, notes=(*verification.notes, *far, *_list_notes(told, verification)))
        setting = describe_setting(
            device, where, None if only else seed, [case.record for case in verification.verdicts]
        )
        verification = replace(verification, planned=len(planned), setting=setting)
        if recorder is not None:
            label = f"{kernel.path.stem}.{kernel.function}"
            verification = replace(verification, recorded=recorder.append(records, label))
        verification = explain_failure(verification, referee, keeps, planned=planned, lock=lock)
    if verification.failed:
        verification = replace(
            verification, replay=_tell_replay(kernel, verification, known, keeps, device, lock, allowance, suspects)
        )
    ours = [record for record in records if record.role == "candidate"]
    outcomes = Counter(record.outcome for record in ours)
    refused = next((record.detail for record in ours if record.outcome == "refused"), None)
    return FileVerification(
        kernel, verification, dict(sorted(outcomes.items())), len(planned), refused, told.walls or (),
        _find_own([record for record in ours if record.strategy == OWN]),
    )  # fmt: skip


def _find_own(records: Sequence[Record]) -> bool | None:
    """Whether a benchmark's own check passes: on all of its cases, of which it must have run."""
    ran = [record for record in records if record.passes_own is not None or record.outcome not in ("ok", "refused")]
    known = [record.passes_own for record in ran]
    return all(known) if known else None


def _tell_distance(records: Sequence[Record]) -> tuple[str, ...]:
    """Where a kernel is go and far less accurate than torch's own: the bound may be wider than a fault is large."""
    read = {"candidate": 0.0, "control": 0.0}
    for record in records:
        if record.role in read and record.bound is not None:
            read[record.role] = max(read[record.role], record.bound)
    ours, torchs = read["candidate"], max(read["control"], LEAST)
    if ours < FAR * torchs:
        return ()
    return (
        f"reads up to {ours:.3g}, which rounding may explain, and torch's own kernel up to {read['control']:.3g}: "
        f"it is {ours / torchs:.0f} times as far off, or more",
    )


def _list_notes(told: Told, verification: Verification) -> tuple[str, ...]:
    """What a file did that changes no verdict."""
    notes = [f"set at import: {switch}" for switch in told.at_import]
    if told.overwritten:
        notes.append(
            "a later call overwrites what an earlier one has returned: a caller that keeps it must copy it"
        )
    if not told.own and verification.decision == "go":
        notes.append("no kernel of its own ran: no Triton launch was seen, and no library but torch's and NumPy's")
    return tuple(notes)


def _tell_replay(
    kernel: KernelFile,
    verification: Verification,
    op: Op,
    contract: Contract,
    device: str,
    lock: str | Path | None,
    allowance: Allowance | None,
    suspects: Suspects,
) -> str:
    """The command that runs the smallest failing case again, by the same limit."""
    from gonogo.campaign import Allowance

    usual = Allowance()
    allowed = allowance or usual
    options = {
        "--contract": name_contract(contract) if contract != Contract() else None,
        "--device": device if device != "auto" else None,
        "--lock": lock,
        "--timeout": f"{allowed.timeout_s:g}" if allowed.timeout_s != usual.timeout_s else None,
        "--memory-gb": f"{allowed.memory_bytes / 2**30:g}" if allowed.memory_bytes != usual.memory_bytes else None,
    }
    words = ["gonogo", "check", kernel.target, *_tell_op(op)]
    words += ["--only", str(verification.smallest)]
    words += [str(word) for option in options.items() if option[1] is not None for word in option]
    words += ["--strict"] if suspects == "fail" else []
    return shlex.join(words)


def _tell_op(op: Op) -> list[str]:
    """The option that names an op."""
    if isinstance(op.reference, OfOp | InFile):
        asked = ["--grads"] if isinstance(op.reference, InFile) and op.grads else []
        return ["--op-file", f"{op.reference.path}:{op.reference.name}", *asked]
    return ["--op", op.name]


@dataclass
class Isolated:
    """Runs kernels of an op in workers."""

    op: Op
    device: str
    pool: Pool
    depth: Mapping[str, Any]
    """How much of an output is read."""
    judges: bool = False
    """Whether cases are judged by now: the one that only sizes are chosen by is not asked for again and again."""

    def run(self, planned: Sequence[Planned], kernels: Sequence[Kernel], *, worst: int = 0) -> list[list[Record]]:
        """Records of each case, kernel by kernel."""
        jobs = self._make_jobs(planned, kernels, worst)
        by_case: dict[str, list[Record]] = {}
        for records in self.pool.run(jobs):
            self._check_set_up(records)
            by_case[records[0].case] = records
        return [by_case[case.id] for case, _ in planned]

    def begin_judging(self) -> None:
        """Have cases judged by guests that have run nothing: what a case before them found is in no verdict."""
        self.judges = True
        if self.device == "cpu":  # where there is one
            self.pool.end_guests()

    def run_all(
        self, planned: Sequence[Planned], kernels: Sequence[Kernel], report: Callable[[Progress], None] | None
    ) -> list[Record]:
        """Records of all cases in order; fewer where the candidate timed out too often."""
        from gonogo.campaign import Progress
        from gonogo.runners.in_process import MAX_TIMEOUTS

        done: list[Record] = []
        outcomes: Counter[str] = Counter()
        for records in self.pool.run(self._make_jobs(planned, kernels)):
            self._check_set_up(records)
            done += records
            outcomes.update(record.outcome for record in records if record.role == "candidate")
            if report is not None:
                report(Progress(len(done), len(planned) * len(kernels), dict(outcomes)))
            if outcomes["timed-out"] >= MAX_TIMEOUTS:
                self.pool.restart()  # its workers are at cases that nobody waits for
                break
        return sorted(done, key=lambda record: record.number)

    def _make_jobs(self, planned: Sequence[Planned], kernels: Sequence[Kernel], worst: int = 0) -> Iterator[Any]:
        from gonogo.execution.job import Job

        for number, (case, strategy) in enumerate(planned):
            check_room(case, self.op, self.device, allowed=self.pool.allowance.memory_bytes)
            usable = tuple(kernel for kernel in kernels if case.dtype in kernel.dtypes)
            yield Job(
                number, case, strategy, self.op, usable, self.device,
                worst=worst, stats=True, asked_again=self.judges, **self.depth,
            )  # fmt: skip

    def _check_set_up(self, records: Sequence[Record]) -> None:
        """A worker that dies over the reference is no fault of the kernel."""
        record = records[0]
        if not record.set_up and record.outcome == "refused":
            raise InputError(str(record.detail))
        if not record.set_up:
            raise ReferenceFailed(
                self.op.name, record.case,
                InputError(f"{record.outcome}, {record.detail}. Allow it more by --timeout or --memory-gb"),
            )  # fmt: skip


@contextlib.contextmanager
def _open_runner(
    op: Op,
    device: str,
    allowance: Allowance,
    pool: Pool | None,
    depth: Mapping[str, Any],
    hidden: Sequence[str | Path],
    *,
    triton: bool,
) -> Iterator[Isolated]:
    """Workers, whose guests are gone afterwards; so are they, if they were not given."""
    from gonogo.runners.pool import Pool

    unseen = (*_list_hidden(op), *(str(Path(path).resolve()) for path in hidden))
    if pool is not None:
        try:
            pool.change_stranger(allowance, unseen)
            yield Isolated(op, device, pool, depth)
        except BaseException:
            pool.restart()  # they may be at work still
            raise
        pool.change_stranger(allowance, ())
        return
    own = Pool(_count_workers(device), allowance, guests_of=unseen, device=device, triton=triton)
    try:
        yield Isolated(op, device, own, depth)
    finally:
        own.close()


def _list_hidden(op: Op) -> tuple[str, ...]:
    """Files that a guest must not read: what its output is held against."""
    sources = (op.reference, op.draw)
    return tuple(dict.fromkeys(source.path for source in sources if isinstance(source, OfOp | InFile | Made)))


def _count_workers(device: str) -> int:
    """One per core; on a GPU few: contexts start one after the other, and each needs room for rows far apart."""
    from gonogo.runners.device import count_workers

    if device == "cpu":
        return count_workers(device)
    from torch.cuda import mem_get_info

    return max(1, min(MOST_ON_GPU, count_workers(device), mem_get_info()[0] // (FAR_NEEDS // 2)))

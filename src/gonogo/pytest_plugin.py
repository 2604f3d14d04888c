"""Tests that use the fixture `gonogo` → verdicts by the project's `gonogo.lock`; on request, the lock file itself.

Nothing that needs torch is imported before a test asks for the fixture. A test without a limit fails.
"""

from __future__ import annotations

import argparse
import inspect
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest

if TYPE_CHECKING:
    from gonogo.limits import Limit
    from gonogo.ops import Op
    from gonogo.schema import Contract
    from gonogo.user.suite import Suite
    from gonogo.verdict.judge import Verdict
    from gonogo.verdict.setting import Setting
    from gonogo.verdict.verdicts import Verification

T = TypeVar("T")
FIXTURE = "gonogo"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's options."""
    group = parser.getgroup("gonogo", "limits of tensor kernels (gonogo)")
    add = group.addoption
    add("--gonogo-lock", metavar="PATH", help="lock file with the limits; ROOTDIR/gonogo.lock by default")
    add("--gonogo-update", action="store_true", help="measure and write all limits the tests use")
    add("--gonogo-update-new", action="store_true", help="measure and write the limits that the lock file lacks")
    add("--gonogo-cases", metavar="N", type=_parse_count, default=24, help="cases per dtype; 24 by default")
    add("--gonogo-record", metavar="DIR", help="add what is measured, with controls, to this run directory")
    add("--gonogo-seed", metavar="S", type=_parse_seed, default=0, help="of the cases; a number, 0, or random")
    add("--gonogo-strict", action="store_true", help="fail on a suspect case, too, instead of running it again")
    parser.addini("gonogo_lock", "lock file with the limits, relative to ROOTDIR", default="gonogo.lock")


def _parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _parse_seed(text: str) -> int | str:
    if text != "random" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor 'random'")
    return text if text == "random" else int(text)


@dataclass
class _Run:
    """What one process knows of a run; under xdist the controller adds up what its workers know."""

    config: pytest.Config
    drawn_seed: bool
    suite: Suite | None = None
    """None as long as no test used the fixture."""
    suspects: set[str] = field(default_factory=set)
    """Tests that passed although not all was within the limit, and how."""
    collected: set[str] = field(default_factory=set)
    """Tests with the fixture, those deselected later included."""
    passed: set[str] = field(default_factory=set)
    partial: bool = False
    """Whether there may be tests that were not collected."""
    added: int = 0
    """Rows added to the run directory."""
    known: int = 0
    """Rows that it had already."""
    lines: list[str] = field(default_factory=list)
    """Of the summary."""

    def open_suite(self) -> Suite:
        """The limits of this run."""
        from gonogo.user.suite import Suite

        if self.suite is None:
            option, here = self.config.option, self.config.invocation_params.dir
            lock_path = option.gonogo_lock
            path = here / lock_path if lock_path else self.config.rootpath / self.config.getini("gonogo_lock")
            # Where there is no way from here to there: another drive.
            name = os.path.relpath(path, here) if path.anchor == here.anchor else str(path)
            lock_option = f" --gonogo-lock {lock_path}" if lock_path else ""
            update: Literal["all", "new"] | None = (
                "all" if option.gonogo_update else "new" if option.gonogo_update_new else None
            )
            self.suite = Suite(path, name, lock_option, update, option.gonogo_cases, option.gonogo_seed)
        return self.suite

    def to_dict(self) -> dict[str, Any]:
        """What a worker hands to the controller, in plain types."""
        return {
            "suite": self.suite and self.suite.to_dict(), "suspects": sorted(self.suspects),
            "collected": sorted(self.collected), "partial": self.partial, "added": self.added,
            "known": self.known,
        }  # fmt: skip

    def merge(self, worker_output: dict[str, Any]) -> None:
        """Take in what a worker hands over."""
        if worker_output["suite"]:
            self.open_suite().merge(worker_output["suite"])
        self.suspects |= set(worker_output["suspects"])
        self.collected |= set(worker_output["collected"])
        self.partial |= worker_output["partial"]
        self.added += worker_output["added"]
        self.known += worker_output["known"]

    @property
    def is_whole(self) -> bool:
        """Whether every test that could use a limit had its chance to."""
        by_path = self.config.args_source is pytest.Config.ArgsSource.ARGS
        return bool(self.collected) and self.collected <= self.passed and not (self.partial or by_path)


class Fixture:
    """What the fixture hands to a test."""

    def __init__(self, run: _Run, test: pytest.Item) -> None:
        self._run, self._test, self._suite = run, test, run.open_suite()

    def verify(
        self,
        kernel: Callable[..., Any],
        op: str | Op | None = None,
        *,
        contract: Contract | str | None = None,
        controls: Sequence[Callable[..., Any]] = (),
        device: str = "auto",
        strict: bool = True,
        **options: Any,
    ) -> Verification:
        """Do what gonogo.verify does, by the limit of the lock file; fails the test unless not `strict`.

        `controls` are what that limit is measured on, when pytest is asked to. An op that is told by its reference,
        or whose output is a nest, is held to the universal limit where the lock file has none of its own. The
        summary names a test that passes with a suspect case; under --gonogo-strict it fails.
        """
        __tracebackhide__ = True
        from gonogo.user.request import Request
        from gonogo.user.verification import answer, verify

        self._refuse_limits(options)
        usual = {"cases": self._suite.cases, "seed": self._suite.seed, "suspects": self._choose_suspects()}
        options = {**usual, **self._choose_record(kernel), **options}
        inspect.signature(verify).bind(kernel, op, **options)  # an unknown option is one of verify's
        request = Request(kernel, op, contract=contract, controls=controls, device=device, **options)
        limit = self._give_limit(*_call(lambda: (request.known, request.keeps)), controls, device)
        # The limit at hand here is in the file there.
        request = replace(request, limit=limit, limit_from=None if limit is None else self._suite.path)
        verification, _ = _call(answer, request)
        if verification.recorded is not None:
            self._run.added += verification.recorded.added
            self._run.known += verification.recorded.known
        more = {"not_judged": len(verification.unjudged)} | _list_setting(verification.setting)
        self._record(
            verification.op,
            verification.contract,
            verification.decision,
            [case.verdict for case in verification.verdicts],
            more,
        )
        if strict and verification.failed:
            counted = f"seed {options['seed']}, {options['cases']} cases per dtype"
            source = "the universal limit of the package" if limit is None else f"limit from {self._suite.name}"
            pytest.fail(f"{verification!r}\n  lock        {source}; {counted}")
        if strict and verification.suspect:
            furthest = max(verification.suspect, key=lambda case: case.badness)
            count = f"{len(verification.suspect)} of {len(verification.verdicts)} cases"
            self._run.suspects.add(f"{self._test.nodeid}: {count}; {furthest.case}: {furthest.verdict.message}")
        return verification

    def check(
        self,
        actual: Any,
        op: str | Op | None = None,
        *,
        contract: Contract | str | None = None,
        controls: Sequence[Callable[..., Any]] = (),
        strict: bool = True,
        **options: Any,
    ) -> Verdict:
        """Do what gonogo.check does, by the limit of the lock file; fails the test on a no-go unless not `strict`.

        One output cannot be had on other seeds: a suspect one passes, and the summary says so; under
        --gonogo-strict it fails.
        """
        __tracebackhide__ = True
        from gonogo.user.checking import check
        from gonogo.words import find_contract, find_op

        self._refuse_limits(options)
        limit, keeps = None, None
        if op is not None and options.get("expected") is None:
            keeps = _call(find_contract, contract)
            limit = self._give_limit(_call(find_op, op), keeps, controls, "auto")
        verdict = _call(check, actual, op, contract=keeps or contract, limit=limit, **options)
        name = "output" if op is None else op if isinstance(op, str) else op.name
        self._record(name, keeps.describe() if keeps else "none", verdict.decision, [verdict])
        failing = ("no-go",) if self._choose_suspects() == "rerun" else ("no-go", "suspect")
        if strict and verdict.decision in failing:
            pytest.fail(f"{name}: {verdict.message}" + (f"\n  limit from {self._suite.name}" if limit else ""))
        if strict and verdict.decision == "suspect":
            self._run.suspects.add(f"{self._test.nodeid}: {name} {verdict.message}")
        return verdict

    def _give_limit(
        self, op: Op, contract: Contract, controls: Sequence[Callable[..., Any]], device: str
    ) -> Limit | None:
        """The limit of the lock file; None where it has none, and the op needs none of its own."""
        __tracebackhide__ = True
        if op.is_nest:
            return _call(self._suite.find_limit, op, contract)
        return _call(self._suite.give_limit, op, contract, controls, device)

    def _refuse_limits(self, options: Mapping[str, Any]) -> None:
        """The limit is the lock file's; another would be left unused."""
        __tracebackhide__ = True
        for name in ("lock", "limit"):
            if name in options:
                problem = f"{name}= is not for the fixture, whose limits are in {self._suite.name}"
                pytest.fail(f"{problem}. Name another file by --gonogo-lock, or call gonogo.verify", pytrace=False)

    def _choose_suspects(self) -> str:
        return "fail" if self._run.config.option.gonogo_strict else "rerun"

    def _choose_record(self, kernel: Callable[..., Any]) -> dict[str, Any]:
        """Where to record a kernel, and by what name: two tests may well have a `<lambda>` each."""
        from gonogo.user.kernels import name_function

        config = self._run.config
        if not config.option.gonogo_record:
            return {}
        folder = config.invocation_params.dir / config.option.gonogo_record
        return {"record": folder, "name": f"{self._test.nodeid}/{name_function(kernel)}"}

    def _record(
        self,
        op: str,
        contract: str,
        decision: str,
        verdicts: Sequence[Verdict],
        more: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Properties of the test, for JUnit."""
        readings = [verdict.reading for verdict in verdicts if verdict.reading is not None]
        limits = [verdict.limit for verdict in verdicts if verdict.limit is not None]
        shares = [verdict.share for verdict in verdicts if verdict.share is not None]
        facts = {
            "op": op, "contract": contract, "decision": decision, "cases": len(verdicts),
            "worst_reading": max(readings, default="none"), "limit": max(limits, default="none"),
            "share_of_limit": max(shares, default="none"), **more,
        }  # fmt: skip
        # As record_property does, which warns of JUnit's strictest schema.
        self._test.user_properties += [(f"gonogo_{name}", value) for name, value in facts.items()]


def _list_setting(setting: Setting | None) -> dict[str, object]:
    """Machine, versions and seed, as properties of a test."""
    if setting is None:
        return {}
    versions = {"version" if name == "gonogo" else name: text for name, text in setting.versions.items()}
    seed = {} if setting.seed is None else {"seed": setting.seed}
    return {"device": setting.device, "machine": setting.machine, **versions, **seed}


def _call(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """What a function of gonogo returns; what it refuses fails the test in one line."""
    __tracebackhide__ = True
    from gonogo.errors import GonogoError, NoGo

    try:
        return function(*arguments, **options)
    except NoGo:
        raise
    except GonogoError as error:
        problem = str(error)
    pytest.fail(problem, pytrace=False)  # out here, or it would be told twice


RUN = pytest.StashKey[_Run]()


@pytest.fixture(name=FIXTURE)
def gonogo_gauge(request: pytest.FixtureRequest) -> Fixture:
    """`verify` and `check` of gonogo, by the limits of the project's lock file."""
    return Fixture(request.config.stash[RUN], request.node)


def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed where it is to be random; xdist's workers get it with the other options."""
    if config.option.gonogo_update and config.option.gonogo_update_new:
        raise pytest.UsageError(
            "--gonogo-update measures all limits and --gonogo-update-new only missing ones: give one of them"
        )
    drawn = config.option.gonogo_seed == "random"
    if drawn:
        config.option.gonogo_seed = random.randrange(1, 2**31)
    run = config.stash[RUN] = _Run(config, drawn)
    config.pluginmanager.register(_Hooks(run), "gonogo-run")


class _Hooks:
    """What has to know the run, and is told no config."""

    def __init__(self, run: _Run) -> None:
        self.run = run

    def pytest_report_header(self) -> str | None:
        return f"gonogo: --gonogo-seed {self.run.config.option.gonogo_seed}" if self.run.drawn_seed else None

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if FIXTURE in getattr(item, "fixturenames", ()):
            self.run.collected.add(item.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.run.partial |= not report.passed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.run.passed.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        worker_output = getattr(node, "workeroutput", {}).get(FIXTURE)
        if worker_output:
            self.run.merge(worker_output)
        else:  # a worker that died
            self.run.partial = True

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        run = self.run
        if hasattr(run.config, "workeroutput"):
            run.config.workeroutput[FIXTURE] = run.to_dict()
        elif run.suite is not None:
            from gonogo.errors import InputError

            try:
                run.lines += run.suite.write() if run.suite.fresh else []
                run.lines += run.suite.find_unused() if run.is_whole else []
            except (OSError, InputError) as error:
                run.lines.append(f"{run.suite.name} was not written: {error}")
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        recorded = []
        if self.run.added or self.run.known:
            already = f"; {self.run.known:,} were there already" if self.run.known else ""
            recorded = [f"{self.run.added:,} rows added to {self.run.config.option.gonogo_record}{already}"]
        lines = [
            *filter(None, [self.pytest_report_header()]),  # -q leaves it out at the top
            *self.run.lines,
            *recorded,
            *(f"suspect, but passed: {suspect}" for suspect in sorted(self.run.suspects)),
        ]
        if lines:
            terminalreporter.write_sep("=", "gonogo")
            for line in lines:
                terminalreporter.write_line(line)

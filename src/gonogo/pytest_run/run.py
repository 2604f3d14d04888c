"""Reports of tests with the fixture → what a run of pytest knows; at its end the lock file and the summaries.

Under xdist every worker has a run of its own. Verdicts come to the controller with the reports of tests; what else
a worker knows, when it ends.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from gonogo.pytest_run.judged import Judged, tell_limits
from gonogo.pytest_run.markdown import Result, tell_notes, write_page

if TYPE_CHECKING:
    from gonogo.user.suite import Suite

FIXTURE = "gonogo"
"""Name of the fixture, and of what this plugin adds to pytest's own objects."""
JUDGED = pytest.StashKey[list[Judged]]()
"""Of a test: what it has judged so far."""


@dataclass
class Run:
    """What one process knows of a run."""

    config: pytest.Config
    limits: Literal["lock", "shipped"]
    """Whose limits tests are held to."""
    drawn_seed: bool
    suite: Suite | None = None
    """None as long as no test used the fixture."""
    collected: set[str] = field(default_factory=set)
    """Tests with the fixture, those deselected later included."""
    passed: set[str] = field(default_factory=set)
    tests: dict[str, Result] = field(default_factory=dict)
    """By id, those that have begun, without the fixture too."""
    partial: bool = False
    """Whether there may be tests that were not collected."""
    added: int = 0
    """Rows added to the run directory."""
    known: int = 0
    """Rows that it had already."""
    lines: list[str] = field(default_factory=list)
    """On the lock file, and on what could not be written."""

    def open_suite(self) -> Suite:
        """The limits of this run."""
        from gonogo.user.suite import Suite

        if self.suite is None:
            option, here = self.config.option, self.config.invocation_params.dir
            lock_path = option.gonogo_lock
            path = here / lock_path if lock_path else self.config.rootpath / self.config.getini("gonogo_lock")
            # Where there is no way from here to there: another drive.
            name = os.path.relpath(path, here) if path.anchor == here.anchor else str(path)
            update: Literal["all", "new"] | None = (
                "all" if option.gonogo_update else "new" if option.gonogo_update_new else None
            )
            self.suite = Suite(path, name, self.lock_option, update, option.gonogo_cases, option.gonogo_seed)
        return self.suite

    @property
    def lock_option(self) -> str:
        """How pytest was told of the lock file, with a space before it; nothing where the project says."""
        lock_path = self.config.option.gonogo_lock
        return f" --gonogo-lock={lock_path}" if lock_path else ""  # apart, pytest may take it for a path of tests

    def to_dict(self) -> dict[str, Any]:
        """What a worker hands to the controller, in plain types."""
        return {
            "suite": self.suite and self.suite.to_dict(), "collected": sorted(self.collected),
            "partial": self.partial, "added": self.added, "known": self.known,
        }  # fmt: skip

    def merge(self, worker_output: Mapping[str, Any]) -> None:
        """Take in what a worker hands over."""
        if worker_output["suite"]:
            self.open_suite().merge(worker_output["suite"])
        self.collected |= set(worker_output["collected"])
        self.partial |= worker_output["partial"]
        self.added += worker_output["added"]
        self.known += worker_output["known"]

    def take_report(self, report: pytest.TestReport) -> None:
        """Note what a report says of its test; that of a test's set-up begins anew, for it may be run again."""
        before = Result("passed") if report.when == "setup" else self.tests.get(report.nodeid, Result("passed"))
        carried = [Judged.from_dict(fields) for fields in report.__dict__.get(FIXTURE, ())]
        judged = tuple(carried) if carried else before.judged
        outcome, said = before.outcome, before.said
        if report.failed:
            outcome, said = "failed", report.longreprtext
        elif report.skipped and outcome != "failed":
            outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            said = reason.removeprefix("Skipped: ")
        self.tests[report.nodeid] = Result(outcome, judged, said)
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    @property
    def is_whole(self) -> bool:
        """Whether every test that could use a limit had its chance to."""
        by_path = self.config.args_source is pytest.Config.ArgsSource.ARGS
        return bool(self.collected) and self.collected <= self.passed and not (self.partial or by_path)

    def list_tests(self) -> dict[str, Result]:
        """Tests with the fixture that have run, in the order of their ids: workers end in any."""
        return {name: test for name, test in sorted(self.tests.items()) if name in self.collected or test.judged}

    def tell_limits(self) -> list[str]:
        """Which limits are too loose, or not from the cases or the device that were judged."""
        return tell_limits([one for test in self.tests.values() for one in test.judged], self.lock_option)

    def settle_lock(self) -> bool:
        """Write fresh limits and look for unused ones; False where that failed."""
        from gonogo.errors import InputError

        if self.suite is None or self.limits == "shipped":
            return True
        try:
            self.lines += self.suite.write() if self.suite.fresh else []
            self.lines += self.suite.find_unused() if self.is_whole else []
        except (OSError, InputError) as error:
            self.lines.append(f"{self.suite.name} was not written: {error}")
            return False
        return True

    def write_summary(self) -> bool:
        """Write the page that was asked for; False where that failed."""
        name = self.config.option.gonogo_summary
        if name is None or self.config.option.collectonly:
            return True
        path = self.config.invocation_params.dir / name
        page = write_page(self.list_tests(), [*self.lines, *self.tell_limits()])
        step = os.environ.get("GITHUB_STEP_SUMMARY")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # A page of GitHub's is made by all commands of a step together.
            with path.open(
                "a" if step and Path(step).resolve() == path.resolve() else "w", encoding="utf-8"
            ) as file:
                file.write(page)
        except OSError as error:
            self.lines.append(f"{name} was not written: {error.strerror or error}")
            return False
        return True

    def write_report(self) -> bool:
        """Write the page of all verdicts that was asked for; False where that failed."""
        name = self.config.option.gonogo_report
        if name is None or self.config.option.collectonly:
            return True
        from gonogo.report.verdicts import write_verdicts

        path = self.config.invocation_params.dir / name
        pages = [one.page for test in self.list_tests().values() for one in test.judged if one.page is not None]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_verdicts(
                path, pages, [test for test, result in self.list_tests().items() if _fails_early(result)]
            )
        except OSError as error:
            self.lines.append(f"{name} was not written: {error.strerror or error}")
            return False
        self.lines.append(f"{len(pages)} verdicts are on the page {name}")
        return True


def _fails_early(result: Result) -> bool:
    """Whether a test failed, and not for a kernel: a page without it would look clean."""
    return result.outcome == "failed" and not result.is_no_go


class Hooks:
    """What pytest calls in the course of a run."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def pytest_report_header(self) -> str | None:
        """Which seed was drawn."""
        return f"gonogo: --gonogo-seed {self.run.config.option.gonogo_seed}" if self.run.drawn_seed else None

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Note a test with the fixture."""
        if FIXTURE in getattr(item, "fixturenames", ()):
            self.run.collected.add(item.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that could not be collected."""
        self.run.partial |= not report.passed

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Give a report what the test has judged; xfail is no excuse where that is nothing."""
        from gonogo.pytest_run.fixture import SetUpFailed

        report = yield
        if call.excinfo is not None and call.excinfo.errisinstance(SetUpFailed) and hasattr(report, "wasxfail"):
            del report.wasxfail
            report.outcome, report.longrepr = "failed", str(call.excinfo.value)
        judged = item.stash.get(JUDGED, [])
        if judged and report.when in ("setup", "call"):
            report.__dict__[FIXTURE] = [one.to_dict() for one in judged]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what became of a test."""
        self.run.take_report(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take in what a worker of xdist hands over."""
        worker_output = getattr(node, "workeroutput", {}).get(FIXTURE)
        if worker_output:
            self.run.merge(worker_output)
        else:  # a worker that died
            self.run.partial = True

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over what a worker knows; elsewhere write the lock file and the summary."""
        if hasattr(self.run.config, "workeroutput"):
            self.run.config.workeroutput[FIXTURE] = self.run.to_dict()
            return
        settled = self.run.settle_lock()
        written = [self.run.write_summary(), self.run.write_report()]
        if not (all(written) and settled) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was written, what limits are not as they should be, and what passed as suspect."""
        run, recorded = self.run, []
        if run.added or run.known:
            already = f"; {run.known:,} were there already" if run.known else ""
            recorded = [f"{run.added:,} rows added to {run.config.option.gonogo_record}{already}"]
        suspects = {
            f"{name}: {one.suspect}" for name, test in run.tests.items() for one in test.judged if one.suspect
        }
        lines = [
            *filter(None, [self.pytest_report_header()]),  # -q leaves it out at the top
            *run.lines,
            *recorded,
            *run.tell_limits(),
            *tell_notes(run.tests),
            *(f"suspect, but passed: {suspect}" for suspect in sorted(suspects)),
        ]
        if lines:
            terminalreporter.write_sep("=", "gonogo")
            for line in lines:
                terminalreporter.write_line(line)

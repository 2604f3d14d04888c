"""Tests that use the fixture `gonogo` → verdicts by the project's `gonogo.lock`, or by the package's limits.

Nothing that needs torch is imported before a test asks for the fixture. A test without a limit fails.
"""

from __future__ import annotations

import argparse
import random
from typing import Literal

import pytest

from gonogo.pytest_run.fixture import Fixture
from gonogo.pytest_run.run import FIXTURE, Hooks, Run

__all__ = ["Fixture", "gonogo_gauge", "pytest_addoption", "pytest_configure"]

RUN = pytest.StashKey[Run]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's options."""
    group = parser.getgroup("gonogo", "limits of tensor kernels (gonogo)")
    add = group.addoption
    add("--gonogo-lock", metavar="PATH", help="lock file with the limits; ROOTDIR/gonogo.lock by default")
    add(
        "--gonogo-limits", metavar="WHOSE", choices=("lock", "shipped"),
        help="lock: limits of the lock file, the default; shipped: those that come with gonogo",
    )  # fmt: skip
    add("--gonogo-update", action="store_true", help="measure and write all limits the tests use")
    add("--gonogo-update-new", action="store_true", help="measure and write the limits that the lock file lacks")
    add("--gonogo-cases", metavar="N", type=_parse_count, default=24, help="cases per dtype; 24 by default")
    add("--gonogo-record", metavar="DIR", help="add what is measured, with controls, to this run directory")
    add("--gonogo-seed", metavar="S", type=_parse_seed, default=0, help="of the cases; a number, 0, or random")
    add("--gonogo-strict", action="store_true", help="fail on a suspect case, too, instead of running it again")
    add(
        "--gonogo-isolate", action="store_true",
        help="run kernels in processes of their own, which may crash or hang; each must stand at the top of a file",
    )  # fmt: skip
    add(
        "--gonogo-summary", metavar="FILE", type=_parse_file,
        help="write a summary in Markdown; the file that GITHUB_STEP_SUMMARY names is added to",
    )  # fmt: skip
    add(
        "--gonogo-report", metavar="FILE", type=_parse_file,
        help="write a page of what gonogo.verify has judged, as HTML: where in an output the error lies",
    )  # fmt: skip
    parser.addini("gonogo_lock", "lock file with the limits, relative to ROOTDIR", default="gonogo.lock")
    parser.addini("gonogo_limits", "lock or shipped, as for --gonogo-limits", default="lock")


def _parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _parse_seed(text: str) -> int | str:
    if text != "random" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor 'random'")
    return text if text == "random" else int(text)


def _parse_file(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the name of the file is empty: is the variable set that it is from?")
    return text


def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed where it is to be random; xdist's workers get it with the other options."""
    if config.option.gonogo_update and config.option.gonogo_update_new:
        raise pytest.UsageError(
            "--gonogo-update measures all limits and --gonogo-update-new only missing ones: give one of them"
        )
    limits = _choose_limits(config)
    drawn = config.option.gonogo_seed == "random"
    if drawn:
        config.option.gonogo_seed = random.randrange(1, 2**31)
    run = config.stash[RUN] = Run(config, limits, drawn)
    config.pluginmanager.register(Hooks(run), "gonogo-run")


def _choose_limits(config: pytest.Config) -> Literal["lock", "shipped"]:
    """Whose limits; refused where other options are for a lock file."""
    option, setting = config.option, config.getini("gonogo_limits")
    if setting not in ("lock", "shipped"):
        raise pytest.UsageError(f"gonogo_limits is {setting!r} in pytest's settings; it is lock or shipped")
    if (option.gonogo_limits or setting) == "lock":
        return "lock"
    for name in ("--gonogo-update", "--gonogo-update-new", "--gonogo-lock"):
        if getattr(option, name.strip("-").replace("-", "_")):
            shipped, remedy = ("--gonogo-limits shipped", "give one of them")
            if not option.gonogo_limits:
                shipped, remedy = ("gonogo_limits = shipped in pytest's settings", "add --gonogo-limits lock")
            raise pytest.UsageError(f"{shipped} takes no limit from a lock file, which {name} is about: {remedy}")
    return "shipped"


@pytest.fixture(name=FIXTURE)
def gonogo_gauge(request: pytest.FixtureRequest) -> Fixture:
    """`verify` and `check` of gonogo, by the limits of the project's lock file; else as the module gonogo."""
    return Fixture(request.config.stash[RUN], request.node)

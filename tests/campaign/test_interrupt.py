"""Ctrl-C while campaigns take turns: all of them hear of it, not only the one whose turn it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gonogo.campaign import Plan, Progress, Steps, _follow, run_campaign
from gonogo.errors import CampaignFailed


def make_campaign(name: str, heard: list[str], *, pressed: bool = False) -> Steps:
    """One that does nothing, for ever; while it does, Ctrl-C may be `pressed`."""
    try:
        yield Progress(0, 2, {}, is_begun=False)
        if pressed:
            raise KeyboardInterrupt
        while True:
            yield Progress(1, 2, {"ok": 1})
    except BaseException as error:
        heard.append(f"{name}: {type(error).__name__}")
        raise


def interrupt(progress: Progress) -> None:
    """Ctrl-C in nobody's turn."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(("pressed", "report"), [("second", None), ("", interrupt)])
def test_all_campaigns_hear_of_an_interrupt(pressed: str, report: Callable[[Progress], None] | None) -> None:
    heard: list[str] = []
    names = ("first", "second", "third")
    campaigns = {name: make_campaign(name, heard, pressed=name == pressed) for name in names}
    with pytest.raises(KeyboardInterrupt):
        _follow(campaigns, "cpu", report)
    assert sorted(heard) == [f"{name}: KeyboardInterrupt" for name in names]


@pytest.mark.parametrize("raised", [KeyboardInterrupt("again"), CampaignFailed("a full disk")])
def test_all_hear_of_it_whatever_one_raises(raised: BaseException) -> None:
    """As where Ctrl-C is pressed again, which must not have the others wait."""
    heard: list[str] = []

    def make_failing() -> Steps:
        try:
            yield from make_campaign("failing", heard)
        except KeyboardInterrupt:
            raise raised from None

    campaigns = {name: make_campaign(name, heard) for name in ("first", "last")}
    with pytest.raises(type(raised), match=str(raised)):
        _follow({"first": campaigns["first"], "": make_failing(), "last": campaigns["last"]}, "cpu", interrupt)
    assert sorted(heard) == [f"{name}: KeyboardInterrupt" for name in ("failing", "first", "last")]


@pytest.mark.parametrize(("when", "reported"), [("describe", []), ("run", [0])])
def test_a_run_that_is_not_there_is_not_reported(when: str, reported: list[int], tmp_path: Path) -> None:
    """Ctrl-C before it is made leaves nothing to go on with."""

    class Crew:
        def describe(self) -> dict[str, Any]:
            return self.press("describe")

        def run(self, jobs: object) -> Any:
            return self.press("run")

        def press(self, now: str) -> Any:
            if now == when:
                raise KeyboardInterrupt
            return {}

        def close(self) -> None:
            pass

    class Hiring:
        def hire(self, order: object) -> Crew:
            return Crew()

    told: list[Progress] = []
    plan = Plan(("relu",), ("float32",), cases=1, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        run_campaign(plan, tmp_path / "run", report=told.append, engine=Hiring())  # type: ignore[arg-type]
    assert [progress.rows for progress in told] == reported
    assert (tmp_path / "run" / "run.json").exists() == bool(reported)


def test_a_campaign_is_reported_as_soon_as_its_run_is_there() -> None:
    """Then it can be resumed, and the same command again would be refused."""

    def make_slow() -> Steps:
        yield Progress(0, 2, {}, is_begun=False)
        assert told == []
        yield Progress(0, 2, {})
        assert told == [Progress(0, 2, {})]
        yield Progress(0, 2, {})

    told: list[Progress] = []
    _follow({"": make_slow()}, "cpu", told.append)
    assert told == [Progress(0, 2, {})]

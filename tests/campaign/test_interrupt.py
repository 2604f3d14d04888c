"""Ctrl-C while campaigns take turns: all of them hear of it, not only the one whose turn it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gonogo.campaign import Progress, Steps, _follow
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

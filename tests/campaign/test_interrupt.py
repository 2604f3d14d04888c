"""Ctrl-C while campaigns take turns: all of them hear of it, not only the one whose turn it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gonogo.campaign import Progress, Steps, _follow


def make_campaign(name: str, heard: list[str], *, pressed: bool = False) -> Steps:
    """One that does nothing, for ever; while it does, Ctrl-C may be `pressed`."""
    try:
        yield Progress(0, 2, {})
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

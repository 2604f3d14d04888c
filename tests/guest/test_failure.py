"""What is told of an exception: the kernel's own lines, and never what calls it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import gonogo  # noqa: E402
from gonogo.guest.failure import format_error, tell_error  # noqa: E402


def boom(x: object) -> object:
    raise RuntimeError("boom\nand more")


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError


def test_lines_of_gonogo_are_left_out() -> None:
    found = gonogo.verify(boom, "relu", cases=1, device="cpu", strict=False)
    record = found.failed[0].record
    assert record.detail == "RuntimeError: boom (test_failure.py, line 14)"
    assert record.error is not None
    assert record.error.startswith('Traceback (most recent call last):\n  File "')
    assert "src/gonogo" not in record.error
    arity = gonogo.verify(lambda: None, "relu", cases=1, device="cpu", strict=False)  # type: ignore[misc,arg-type]
    assert "(calling.py" not in str(arity.failed[0].record.detail)


def test_a_text_that_cannot_be_had() -> None:
    with pytest.raises(Mute) as caught:
        raise Mute
    assert tell_error(caught.value).startswith("Mute: its text raises ValueError (test_failure.py, line ")
    assert "Mute" in format_error(caught.value)

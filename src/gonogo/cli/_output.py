"""Text and JSON → stdout and stderr, in whatever encoding these have; refusals as JSON where that was asked for."""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from gonogo.errors import InputError
from gonogo.plain import to_plain

SCHEMA = 1
"""Of what every command prints under --json, but for verifications, which have their own."""
PLAIN_FORMS = {
    "×": "x", "·": "*", "–": "-", "—": "-", "−": "-", "½": "1/2", "→": "->", "…": "...", "√": "sqrt ", "≤": "<=",
    "≥": ">=", "λ": "lambda ", "⁻": "-", "│": "|", "█": "#", "━": "-", "╸": "-", "╺": "-",
}  # fmt: skip
"""For terminals that cannot show the signs on the left; any other sign becomes a question mark."""
DEGRADE = "gonogo.degrade"
"""Name of the error handler that puts them in."""


def prepare_streams() -> None:
    """Have stdout and stderr take any text: a sign that their encoding lacks is written in another way."""
    codecs.register_error(DEGRADE, _replace_signs)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=DEGRADE)


def write_plainly(text: str) -> str:
    """A text as stdout will show it."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return "".join(sign if _has(encoding, sign) else PLAIN_FORMS.get(sign, "?") for sign in text)


def _has(encoding: str, sign: str) -> bool:
    try:
        sign.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _replace_signs(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    signs = error.object[error.start : error.end]
    return "".join(PLAIN_FORMS.get(sign, "?") for sign in signs), error.end


def echo(text: str, *, aside: bool = False) -> None:
    """A line on stdout; `aside` on stderr. Not by click, which writes UTF-8 to terminals that take only ASCII.

    Where nobody reads stdout any more, as behind `head`, nothing is printed, and the exit code is what it would be.
    """
    stream = sys.stderr if aside else sys.stdout
    try:
        stream.write(text if text.endswith("\n") else f"{text}\n")
        stream.flush()
    except BrokenPipeError:
        forget(stream)
    except OSError as error:  # a full disk
        forget(stream)
        raise InputError(f"the output cannot be written: {error.strerror}") from None


def note_all(notes: Iterable[str]) -> None:
    """What is no refusal and belongs to no table, on stderr."""
    for note in notes:
        echo(f"note: {note}", aside=True)


def forget(stream: TextIO) -> None:
    """Write no more to it, nor at Python's end, when what is still held is flushed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_json(value: Any) -> None:
    """Print strict JSON, whatever numbers are in it."""
    echo(json.dumps(to_plain(value), indent=1, allow_nan=False))


def print_error(kind: str, message: str, exit_code: int) -> None:
    """A refusal, as JSON: `kind` is the name of an exception of gonogo.errors, Usage, Interrupted or Crash."""
    print_json({"schema": SCHEMA, "error": {"kind": kind, "message": message, "exit_code": exit_code}})

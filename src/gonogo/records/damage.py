"""What goes wrong while a file of rows is read → one line that names the file and says what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from gonogo.errors import InputError
from gonogo.records.description import format_resume
from gonogo.records.places import Place, S3Place


@contextmanager
def name_damage(path: Place) -> Iterator[None]:
    """Around reading a file of rows: whatever is wrong with it is said in a line that names it."""
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        if error.errno is None:  # Arrow's own, on what it read
            raise tell_damage(path, error) from None
        raise InputError(
            f"{path} cannot be read: {error.strerror}. Make it readable, or restore it from a copy"
        ) from None
    # Arrow raises kinds of its own for each of these; a flipped bit may ask for any amount of memory.
    except (ValueError, TypeError, LookupError, ArithmeticError, MemoryError, pa.ArrowException) as error:
        raise tell_damage(path, error) from None


def tell_damage(path: Place, error: Exception | str) -> InputError:
    """A file that is there and cannot be used."""
    again = f"delete it and measure its cases again (of a campaign: {format_resume(path.parent)})"
    if isinstance(path, S3Place):  # a run that is closed lists it for good
        again = "leave the run out, and measure its cases again by another"
    return InputError(f"{path} is damaged: {shorten(error)}. Restore it from a copy, or {again}")


def shorten(error: BaseException | str) -> str:
    """The first sentence of what Arrow says: more of them follow, and name its sources."""
    text = str(error) or type(error).__name__
    return re.split(r"\. |\.?\n", text, maxsplit=1)[0].rstrip(".")[:200]

"""What commands share before they do anything: lists in a word, examples in --help, packages that are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gonogo.errors import BackendMissing


def split_words(text: str) -> tuple[str, ...]:
    """A list with commas → its words."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def show_examples(*lines: str) -> str:
    """The end of a command's --help; the mark keeps click from wrapping lines that are to be pasted."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


@contextmanager
def need_backend(command: str) -> Iterator[None]:
    """Around imports: a package that is missing is said in one line, with the command that gets it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise BackendMissing(str(error.name), command) from None

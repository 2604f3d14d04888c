"""What commands share before they do anything: options, words, examples, places to write to, missing packages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

import click

from gonogo.cli._output import echo
from gonogo.errors import BackendMissing, InputError, suggest
from gonogo.words import ADDRESS, need_torch

if TYPE_CHECKING:
    from gonogo.records.places import Place


class PlaceType(click.Path):
    """A path, or s3://bucket/prefix, which a Path would not leave whole."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text → Path or S3Place."""
        if not isinstance(value, str) or not ADDRESS.match(value):
            return super().convert(value, param, ctx)
        from gonogo.records.places import parse_place  # loads Arrow, which a path on disk may do without

        return parse_place(value)


class FileType(click.Path):
    """A path alone: what is at an address is neither read nor written by such an option."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text → Path."""
        if isinstance(value, str) and ADDRESS.match(value) and not Path(value).exists():
            name = "" if param is None else f"{param.opts[-1]}: "
            raise InputError(f"{name}only runs are in object stores, and this is a file on disk. Give a path")
        return super().convert(value, param, ctx)


PLACE, FILE = PlaceType(), FileType()


class Interrupted(click.ClickException):
    """Ctrl-C, with what is to be said of it. click's own exit code is that of a no-go."""

    exit_code = 130

    def __init__(self, message: str = "interrupted") -> None:
        super().__init__(message)

    def show(self, file: IO[Any] | None = None) -> None:
        """Say it on stderr."""
        echo(self.message, aside=True)


class Commands(click.Group):
    """All commands; Ctrl-C ends any of them alike."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None
        except EOFError as error:  # which click would take for a Ctrl-D
            raise RuntimeError(f"EOFError: {error}") from error


class WordsOption(click.Option):
    """An option that takes words, repeated or comma-separated; of its names only the first is shown."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Its line in --help."""
        record = super().get_help_record(ctx)
        return record and (record[0].replace("".join(f", {name}" for name in self.opts[1:]), ""), record[1])


def words_option(*names: str, metavar: str, **options: Any) -> Callable[[Any], Any]:
    """An option whose value is a tuple of words; empty where it is not given."""

    def split(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
        words = tuple(dict.fromkeys(word for text in given for word in split_words(text)))
        if given and not words:
            raise InputError(f"{parameter.opts[0]} names nothing: give a word, or leave it out")
        return words

    return click.option(*names, cls=WordsOption, multiple=True, metavar=metavar, callback=split, **options)


def split_words(text: str) -> tuple[str, ...]:
    """A list with commas → its words."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def check_recorded(what: str, words: Sequence[str], known: Collection[str]) -> None:
    """Refuse a word that no record has; a near one is suggested."""
    there = sorted(known)
    for word in words:
        if word not in known:
            near = suggest(word, there)
            listed = f"{near} There are: " if near else "; there are: "
            raise InputError(f"no record has {what} {word!r}{listed}{', '.join(there)}")


def show_examples(*lines: str) -> str:
    """The end of a command's --help; the mark keeps click from wrapping lines that are to be pasted."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


@contextmanager
def need_backend(command: str) -> Iterator[None]:
    """Around imports: a package that is missing is said in one line, with the command that gets it; torch, too.

    Workers load it, so that it would be missed by them.
    """
    need_torch(command)
    try:
        yield
    except ModuleNotFoundError as error:
        raise BackendMissing(str(error.name), command) from None


@contextmanager
def write_to(path: Path) -> Iterator[None]:
    """Around writing to a place that the user chose: what the system refuses there is said in one line."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror or error}. Choose another place") from None


def prepare_folder(folder: Place) -> None:
    """Make a folder to write to, and its parents; refuse one that takes no files before work is done, not after."""
    if not isinstance(folder, Path):
        folder.list_below()  # says whether the store can be reached, and knows us
        return
    with write_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):  # modes do not tell it: a file system may be read-only, or full
            pass


def prepare_file(path: Path) -> None:
    """Make the folder of a file to write; refuse a path that takes no file before work is done, not after."""
    with write_to(path):
        if path.is_dir():
            raise InputError(f"cannot write to {path}: it is a folder. Name a file in it")
    prepare_folder(path.parent)

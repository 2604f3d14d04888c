"""Limits ↔ `gonogo.lock`, a text file that is reviewed like any other: same limits, same bytes, one block each.

A universal limit is an entry like any other, with "*" for its op and the number of ops it was made from, as
"28 ops", for its kernel. No op has that name, so a reader that knows of no universal limits passes them over.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from gonogo.errors import InputError
from gonogo.limits import Limit
from gonogo.limits.changes import Change, Key, diff_limits, key_of, order_of

__all__ = ["Change", "diff_limits", "list_devices", "note_devices", "read_lock", "write_lock"]

LOCK_FORMAT = 1
CONFLICT_MARKER = re.compile(r"^(<{7}|={7}|>{7}|\|{7})( |$)", re.MULTILINE)
CALIBRATE = "make it again with: gonogo calibrate RUNS"

DEVICE_OF = "device of "
"""Begins the entry of a run in the provenance of a lock whose limits are from several machines."""

Provenance = dict[str, str | int]


def list_devices(limit: Limit, provenance: Mapping[str, str | int]) -> tuple[str, ...]:
    """The machines that a limit was measured on; all of the lock's, where that does not tell runs apart."""
    named = {str(provenance[DEVICE_OF + run]) for run in limit.runs if DEVICE_OF + run in provenance}
    if named and all(DEVICE_OF + run in provenance for run in limit.runs):
        return tuple(sorted(named))
    devices = str(provenance.get("devices", ""))
    return (devices,) if devices else ()


def note_devices(
    limits: Sequence[Limit], provenance: Mapping[str, str | int], devices_of_runs: Mapping[str, str]
) -> Provenance:
    """Provenance that names the machines of these limits, and no others; which run is from which where they differ.

    `provenance` is that of the lock so far, `devices_of_runs` has the runs that are new.
    """
    of_runs: dict[str, str] = {}
    elsewhere: set[str] = set()
    for limit in limits:
        told = ", ".join(list_devices(limit, provenance))
        of_runs |= {run: devices_of_runs.get(run, str(provenance.get(DEVICE_OF + run, told))) for run in limit.runs}
        elsewhere |= set() if limit.runs else {told}
    facts = {name: value for name, value in provenance.items() if not name.startswith(DEVICE_OF)}
    devices = sorted({name for told in (*of_runs.values(), *elsewhere) for name in told.split(", ")} - {""})
    if len(devices) > 1:
        facts |= {DEVICE_OF + run: device for run, device in of_runs.items() if device}
    return facts | {"devices": ", ".join(devices)}


def write_lock(path: Path, limits: Sequence[Limit], provenance: Mapping[str, str | int]) -> None:
    """Write a lock whole or not at all; what could not be read back is refused."""
    from gonogo.records.writing import write_atomically  # reading a lock needs no Arrow

    table = "".join(f"{_quote_key(key)} = {_format(value)}\n" for key, value in sorted(provenance.items()))
    blocks = [_format_limit(limit) for limit in sorted(limits, key=lambda limit: order_of(key_of(limit)))]
    text = "\n".join([f"format = {LOCK_FORMAT}\n", f"[provenance]\n{table}", *blocks])
    _parse_lock(text, _File(str(path), CALIBRATE))
    write_atomically(path, text.encode())


@dataclass(frozen=True, slots=True)
class _File:
    """A lock as messages speak of it."""

    name: str
    remedy: str
    """What makes it again."""

    def __str__(self) -> str:
        return self.name

    @property
    def make_again(self) -> str:
        """The remedy as a sentence begins."""
        return self.remedy[0].upper() + self.remedy[1:]


def read_lock(path: Path, *, name: str | None = None, remedy: str = CALIBRATE) -> tuple[list[Limit], Provenance]:
    """Limits and provenance of a lock, as write_lock got them; `name` is what messages call it, if not its path.

    `remedy` is what a user can do where it is not as it should be.
    """
    file = _File(name or str(path), remedy)
    try:
        text = path.read_bytes().decode("utf-8-sig")  # some editors begin a file with a mark
    except FileNotFoundError:
        raise InputError(f"there is no {file}. Make one with: gonogo calibrate RUNS") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text: byte {error.start}. {file.make_again}") from None
    limits, provenance = _parse_lock(text, file)
    return list(limits), dict(provenance)


@lru_cache(maxsize=8)  # a service looks into one for every kernel
def _parse_lock(text: str, file: _File) -> tuple[list[Limit], Provenance]:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        marker = CONFLICT_MARKER.search(text)
        if marker:
            line = text.count("\n", 0, marker.start()) + 1
            raise InputError(
                f"{file} holds a merge conflict at line {line}. Keep one side whole, or {file.remedy}"
            ) from None
        raise InputError(f"{file} is not TOML: {error}. {file.make_again}") from None
    # The version first: another one may have other keys.
    if "format" not in content:
        raise InputError(f"{file} does not say its lock format; this gonogo reads {LOCK_FORMAT}. {file.make_again}")
    version = content["format"]
    if type(version) is not int or version != LOCK_FORMAT:
        remedy = "Update gonogo" if type(version) is int and version > LOCK_FORMAT else file.make_again
        raise InputError(f"{file} has lock format {version!r}, this gonogo reads {LOCK_FORMAT}. {remedy}")
    _refuse_unknown(content, ("format", "provenance", "limit"), str(file))
    entries = content.get("limit", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{file}: 'limit' is not a list of tables: write every limit under its own [[limit]]")
    limits: dict[Key, Limit] = {}
    for number, entry in enumerate(entries, 1):
        where = f"{file}: limit {number}{_name_entry(entry)}"
        limit = _parse_limit(entry, where, file)
        if key_of(limit) in limits:
            raise InputError(f"{where} is there twice. Keep one of them")
        limits[key_of(limit)] = limit
    return list(limits.values()), _parse_provenance(content.get("provenance"), file)


def _parse_provenance(table: object, file: _File) -> Provenance:
    if not isinstance(table, dict):
        raise InputError(f"{file} has no [provenance] table. {file.make_again}")
    for key, value in table.items():
        if not (_is_text(value) or _is_count(value)):
            raise InputError(f"{file}: provenance {key!r} is {value!r}, not a text or a whole number")
    return table


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return type(value) is int


def _is_number(value: object) -> bool:
    # A limit of inf would let everything pass.
    return _is_count(value) or (isinstance(value, float) and math.isfinite(value))


def _is_value(value: object) -> bool:
    # 0 is what exact kernels read, and the limit that some rules make of it; nothing reads less.
    return _is_number(value) and isinstance(value, int | float) and value >= 0


def _is_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


_TEXT, _COUNT, _NUMBER = (_is_text, "a text"), (_is_count, "a whole number"), (_is_number, "a finite number")
_KINDS = {
    "op": _TEXT,
    "contract": _TEXT,
    "kernel": _TEXT,
    "dtype": _TEXT,
    "gauge": _TEXT,
    "rule": _TEXT,
    "parameters": (_is_numbers, "a table of finite numbers"),
    "value": (_is_value, "a finite number >= 0"),
    "cases": _COUNT,
    "exceeding": _COUNT,
    "fp_upper95": _NUMBER,
    "runs": (_is_texts, "a list of texts"),
    "worst": (_is_value, "a finite number >= 0"),
}
"""Keys of an entry in the order they are written in, and what each holds."""
_MAY_BE_ABSENT = ("kernel", "dtype", "worst")
assert tuple(_KINDS) == tuple(field.name for field in fields(Limit))


def _parse_limit(entry: dict[str, Any], where: str, file: _File) -> Limit:
    # A misspelt `dtype` must not turn into a limit for all dtypes.
    _refuse_unknown(entry, tuple(_KINDS), where)
    for key, (is_kind, kind) in _KINDS.items():
        if key in entry:
            if not is_kind(entry[key]):
                raise InputError(f"{where}: {key!r} is {entry[key]!r}, not {kind}")
        elif key not in _MAY_BE_ABSENT:
            raise InputError(f"{where} has no {key!r}. {file.make_again}")
    return Limit(
        op=entry["op"],
        contract=entry["contract"],
        kernel=entry.get("kernel"),
        dtype=entry.get("dtype"),
        gauge=entry["gauge"],
        rule=entry["rule"],
        parameters={name: float(value) for name, value in entry["parameters"].items()},
        value=float(entry["value"]),
        cases=entry["cases"],
        exceeding=entry["exceeding"],
        fp_upper95=float(entry["fp_upper95"]),
        runs=tuple(entry["runs"]),
        worst=float(entry["worst"]) if "worst" in entry else None,
    )


def _refuse_unknown(table: dict[str, Any], known: Sequence[str], where: str) -> None:
    unknown = [key for key in table if key not in known]
    if unknown:
        raise InputError(f"{where}: unknown key {unknown[0]!r}; known: {', '.join(known)}")


def _name_entry(entry: dict[str, Any]) -> str:
    named = [str(entry[key]) for key in ("op", "contract", "kernel", "dtype", "gauge") if key in entry]
    return f" ({'/'.join(named)})" if named else ""


def _format_limit(limit: Limit) -> str:
    values = {key: getattr(limit, key) for key in _KINDS}
    lines = [f"{key} = {_format(value)}" for key, value in values.items() if value is not None]
    return "\n".join(["[[limit]]", *lines, ""])


def _format(value: object) -> str:
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for one control character that JSON lets through.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_quote_key(key)} = {_format(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_format, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    assert isinstance(value, Real)
    # NumPy's scalars say their type in their own repr.
    return repr(int(value) if isinstance(value, Integral) else float(value))


def _quote_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _format(key)

"""Rows → what each is known by, as 8 bytes while nothing depends on it and as text where two look alike.

Two rows whose hashes differ are two. Equal hashes prove nothing: these few rows are compared by their text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gonogo.records.schema import KEY

Hashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio, made odd: multiplying by it spreads what differs in a few bits over all 64."""


def hash_keys(table: pa.Table) -> Hashes:
    """A hash of each row's key, good within this process; the columns of KEY must be there, as text or codes."""
    hashes: Hashes = np.zeros(table.num_rows, np.uint64)
    for name in KEY:
        column = table[name].unify_dictionaries().combine_chunks()
        codes = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        words = np.fromiter(map(hash, codes.dictionary.to_pylist()), np.int64, len(codes.dictionary))
        hashes = (hashes ^ words.view(np.uint64)[codes.indices.to_numpy()]) * MULTIPLIER
        hashes ^= hashes >> np.uint64(29)
    return hashes


def join_key(table: pa.Table) -> pa.Array:
    """The key of each row in one string."""
    texts = (table[name].cast(pa.string()) for name in KEY)
    return pc.binary_join_element_wise(*texts, "|").combine_chunks()


def mark_first(hashes: Sequence[Hashes], read_keys: Callable[[int], pa.Array]) -> list[Mask]:
    """Of every row of some parts, whether no row before has its key; `read_keys` gives those of a part."""
    marks = [np.ones(len(part), np.bool_) for part in hashes]
    alike = _find_repeated(hashes)
    seen: set[str] = set()
    for number, part in enumerate(hashes if alike.size else ()):
        rows = np.flatnonzero(np.isin(part, alike))
        for row, key in zip(rows, read_keys(number).take(rows).to_pylist() if rows.size else (), strict=True):
            marks[number][row] = key not in seen
            seen.add(key)
    return marks


def _find_repeated(hashes: Sequence[Hashes]) -> Hashes:
    """Hashes that occur more than once."""
    ordered = np.concatenate([np.empty(0, np.uint64), *hashes])
    ordered.sort()
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])

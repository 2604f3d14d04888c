"""A Parquet file ↔ its seal: what a closed run says of it, so that columns can be read alone and be trusted.

A seal has a checksum of the footer and one of each column chunk. Only what is wanted is read, and a flipped bit in
it is noticed, wherever it is: checksums of pages, which Parquet has of its own, leave out the headers of pages.
"""

from __future__ import annotations

import base64
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from gonogo.errors import InputError
from gonogo.records.places import Place, S3Place
from gonogo.records.ranges import Bytes, Ranges, open_ranges
from gonogo.records.schema import check_version

CHANGED = "its bytes are not those that were written, by the checksum in"
Fetched = tuple[list[int], Bytes]
"""Row groups, and a file of which nothing but their columns is filled."""
ENDING = 8
"""Bytes behind a Parquet file's metadata: their length, and PAR1."""
PART_NAME = re.compile(r"part-(\d+)(?:-[0-9a-f]{16})?(?:-([0-9a-f]{8}))?")
"""Of a file, less its ending: its number; what tells writers apart, in a store; and the CRC-32 of its bytes."""


@dataclass(frozen=True)
class Seal:
    """What is known of a file before it is opened."""

    name: str
    rows: int
    bytes: int
    footer_bytes: int
    footer: str
    """CRC-32 of the footer, in hexadecimal."""
    chunks: str
    """CRC-32 of each column chunk, by row group, then column: unsigned, 4 bytes each, little-endian, in base64."""

    def to_dict(self) -> dict[str, Any]:
        """As it stands in run.json."""
        return asdict(self)

    @staticmethod
    def from_dict(found: Any, path: object) -> Seal:
        """As it stands in run.json, checked."""
        kinds = {field.name: {"int": int, "str": str}[str(field.type)] for field in fields(Seal)}
        is_sound = isinstance(found, dict) and {name: type(value) for name, value in found.items()} == kinds
        if not is_sound or not PART_NAME.fullmatch(found["name"].removesuffix(".parquet")):
            raise InputError(f"{path} describes no run: its list of parts is damaged. Restore it from a copy")
        return Seal(**found)


def seal_file(path: Place) -> Seal:
    """Read a file once and note what is in it."""
    content = path.read_bytes()
    check_name(path, content)
    metadata = read_metadata(content)
    footer_bytes = ENDING + metadata.serialized_size
    every = _list_chunks(metadata, range(metadata.num_row_groups), range(metadata.num_columns))
    chunks = [zlib.crc32(memoryview(content)[start:end]) for _, start, end in every]
    packed = base64.b64encode(np.array(chunks, "<u4").tobytes()).decode()
    footer = f"{zlib.crc32(content[-footer_bytes:]):08x}"
    return Seal(path.name, metadata.num_rows, len(content), footer_bytes, footer, packed)


def check_name(path: Place, content: bytes) -> None:
    """Refuse bytes that are not those that the file's name says, if it does."""
    name = PART_NAME.fullmatch(path.stem)
    if name and name[2] and int(name[2], 16) != zlib.crc32(content):
        raise ValueError(f"{CHANGED} its name")


def read_metadata(content: bytes) -> pq.FileMetaData:
    """The metadata of a Parquet file, or of its footer alone."""
    return pq.read_metadata(pa.BufferReader(content))


def iterate_sealed(
    path: Place, seal: Seal, names: Sequence[str], as_codes: Sequence[str], rows: int
) -> Iterator[pa.Table]:
    """The columns of `names` that there are, some row groups at a time: as many as have `rows`, or one."""
    with open_ranges(path) as file:
        metadata = _read_footer(file, seal)
        check_version((metadata.metadata or {}).get(b"gonogo_schema", b"?").decode(), path)
        columns = [at for at in range(metadata.num_columns) if metadata.schema.column(at).name in names]
        checksums = np.frombuffer(base64.b64decode(seal.chunks), "<u4").reshape(-1, metadata.num_columns)

        is_far = isinstance(path, S3Place)

        def fetch(groups: list[int]) -> Fetched:
            # As long as the file, so that offsets hold; memory is taken only by what is filled.
            sparse = np.empty(seal.bytes, np.uint8) if is_far else _take_room(seal.bytes)
            chunks = _list_chunks(metadata, groups, columns)
            file.fill(sparse, [(start, end) for _, start, end in chunks])
            for place, start, end in chunks:
                if zlib.crc32(sparse[start:end].data) != checksums[place]:
                    raise ValueError(f"{CHANGED} run.json")
            return groups, sparse

        for groups, sparse in _look_ahead(fetch, _gather_groups(metadata, rows), is_far=is_far):
            with pq.ParquetFile(
                pa.BufferReader(sparse), metadata=metadata, read_dictionary=list(as_codes)
            ) as parquet:
                wanted = [metadata.schema.column(at).name for at in columns]
                yield parquet.read_row_groups(groups, wanted, use_threads=False)


_rooms = threading.local()


def _take_room(size: int) -> npt.NDArray[np.uint8]:
    """Memory to read into, the same again in the same thread: fresh pages cost as much as reading into them.

    What was read is decoded before anything else is read here; Arrow's columns have memory of their own.
    """
    room = getattr(_rooms, "room", None)
    if room is None or len(room) < size:
        _rooms.room = room = np.empty(size + size // 4, np.uint8)
    return room[:size]


def _look_ahead(
    fetch: Callable[[list[int]], Fetched], batches: Iterator[list[int]], *, is_far: bool
) -> Iterator[Fetched]:
    """What is fetched for each batch, one by one; from far away the next while this one is looked at."""
    if not is_far:
        yield from map(fetch, batches)
        return
    with ThreadPoolExecutor(1) as pool:
        coming: Future[Fetched] | None = None
        for batch in batches:
            following = pool.submit(fetch, batch)
            if coming is not None:
                yield coming.result()
            coming = following
        if coming is not None:
            yield coming.result()


def _read_footer(file: Ranges, seal: Seal) -> pq.FileMetaData:
    footer = np.empty(seal.bytes, np.uint8)
    start = max(seal.bytes - seal.footer_bytes, 0)
    file.fill(footer, [(start, seal.bytes)])
    content = footer[start:].tobytes()
    if zlib.crc32(content) != int(seal.footer, 16):
        raise ValueError(f"{CHANGED} run.json")
    return read_metadata(content)


def _gather_groups(metadata: pq.FileMetaData, rows: int) -> Iterator[list[int]]:
    gathered: list[int] = []
    held = 0
    for group in range(metadata.num_row_groups):
        count = metadata.row_group(group).num_rows
        if gathered and held + count > rows:
            yield gathered
            gathered, held = [], 0
        gathered, held = [*gathered, group], held + count
    if gathered:
        yield gathered


def _list_chunks(
    metadata: pq.FileMetaData, groups: Iterable[int], columns: Sequence[int]
) -> list[tuple[tuple[int, int], int, int]]:
    """((row group, column), first byte, end) of some column chunks."""
    chunks = []
    for group in groups:
        for column in columns:
            chunk = metadata.row_group(group).column(column)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            chunks.append(((group, column), start, start + chunk.total_compressed_size))
    return chunks

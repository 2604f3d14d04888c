"""Records → a run in an object store: `open.json` first, parts as they fill, and `run.json` last.

open.json, created once, is a campaign's claim on the prefix. Every part has a name of its own and appears whole, so
that no writer meets another. The run is closed by one conditional write of run.json, which lists its parts: a
reader sees nothing before, and after it nothing but what is listed.
"""

from __future__ import annotations

import secrets
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from gonogo.errors import CampaignFailed, GonogoError, InputError
from gonogo.records.closing import choose_dropped, choose_rewritten, merge_parts, seal_part
from gonogo.records.description import (
    CLAIM,
    OPEN_FILE,
    PARTS,
    RUN_FILE,
    format_description,
    format_resume,
    read_description,
)
from gonogo.records.parts import Part, Row, count_next, encode_rows, list_parts
from gonogo.records.places import S3Place
from gonogo.records.places.failures import StoreAway
from gonogo.records.sealed import Seal

UPLOAD_S = 30
"""After so long rows are written though they fill no part: a campaign that is killed loses no more."""
PATIENCE_S = 180
"""How long a campaign, which may have run for hours, waits for a store that is started again."""
PAUSE_S = 1
HASTE_S = 5
"""How long whoever has pressed Ctrl-C waits for the store."""
Result = TypeVar("Result")


class RemoteRun:
    """A run being written to a store."""

    def __init__(self, folder: S3Place, description: dict[str, Any], *, part_rows: int) -> None:
        self.folder = folder
        self.part_rows = part_rows
        self._rows: list[Row] = []
        self._description = {name: value for name, value in description.items() if name not in (PARTS, CLAIM)}
        self._token = secrets.token_hex(8)
        """Of our claim: whoever resumes the run makes it theirs."""
        self._claim()
        self._number = count_next(folder)
        self._uploaded = time.monotonic()

    def _claim(self) -> None:
        """Create open.json, or write it again when the campaign goes on."""
        if (self.folder / RUN_FILE).exists():
            raise InputError(f"{self.folder} is closed: nothing can be added to it. Choose another prefix")
        content = format_description(self._description | {CLAIM: self._token})
        path = self.folder / OPEN_FILE
        if self._description.get("resumed"):
            path.write(content)
            return
        try:
            path.create(content)
        except FileExistsError:
            raise InputError(
                f"{self.folder} is taken by another campaign, which runs or was cut off. Choose another prefix, or "
                f"go on with that one: {format_resume(self.folder)}"
            ) from None

    def append_rows(self, rows: Sequence[Row]) -> None:
        """Keep the rows of one case."""
        self._rows.extend(rows)
        if len(self._rows) >= self.part_rows or time.monotonic() - self._uploaded > UPLOAD_S:
            self._insist(self._upload)

    def suspend(self, cause: BaseException) -> None:
        """Write what is left, and leave the run open: it can be resumed, and is not read before it is closed.

        Whoever has pressed Ctrl-C waits HASTE_S for the store, and less if they press it again. A note on the
        interrupt says how many rows are not known to be there: their cases are run again.
        """
        if not isinstance(cause, KeyboardInterrupt):
            self._insist(self._upload)
            return
        upload = threading.Thread(target=self._try_upload, daemon=True)
        with suppress(KeyboardInterrupt):
            upload.start()
            upload.join(HASTE_S)
        if self._rows:
            cause.add_note(f"{len(self._rows):,} records that did not reach {self.folder}")

    def _try_upload(self) -> None:
        with suppress(GonogoError, OSError):
            self._upload()

    def close(self) -> None:
        """Write what is left, merge, and list the parts in run.json; when interrupted, suspend."""
        try:
            self._close()
        except KeyboardInterrupt as interrupt:
            self.suspend(interrupt)
            raise

    def _close(self) -> None:
        self._insist(self._upload)
        seals, dropped = self._insist(self._merge)
        content = format_description(self._description | {PARTS: [seal.to_dict() for seal in seals]})
        self._insist(lambda: self._publish(content))
        for part in dropped:
            with suppress(InputError):  # the run is whole without: what is not listed is not read
                part.path.unlink(missing_ok=True)

    def _check_claim(self) -> None:
        """End where another has closed the run, or goes on with it, rather than work in vain."""
        if (self.folder / RUN_FILE).exists():
            raise self._tell_closed()
        if read_description(self.folder).get(CLAIM) != self._token:
            raise CampaignFailed(
                f"{self.folder} was taken over by another gonogo run --resume, which will complete it: this one "
                "has ended",
                says_rest=True,
            )

    def _tell_closed(self) -> CampaignFailed:
        return CampaignFailed(
            f"{self.folder} was closed by another writer meanwhile: its {RUN_FILE} stands, and what this campaign "
            "added since is not in it",
            says_rest=True,
        )

    def _upload(self) -> None:
        self._check_claim()
        if self._rows:
            content = encode_rows(self._rows)
            (self.folder / _name_part(self._number, zlib.crc32(content))).write(content)
            self._rows, self._number = [], self._number + 1
        self._uploaded = time.monotonic()

    def _merge(self) -> tuple[list[Seal], list[Part]]:
        """Seals of all files that are to be listed, and files that are not needed then."""
        parts = list_parts(self.folder, may_lack=True)
        dropped = choose_dropped(parts)
        seals = [seal_part(part.path) for part in parts if part not in dropped]
        with TemporaryDirectory(prefix="gonogo-") as scratch:
            for path, seal in merge_parts(Path(scratch), choose_rewritten(parts), self._number):
                _, number, checksum = path.stem.split("-")
                name = _name_part(int(number), int(checksum, 16))
                (self.folder / name).write(path)
                path.unlink()
                seals.append(replace(seal, name=name))
        return seals, dropped

    def _publish(self, content: bytes) -> None:
        try:
            (self.folder / RUN_FILE).create(content)
        except FileExistsError:
            raise self._tell_closed() from None

    def _insist(self, work: Callable[[], Result]) -> Result:
        """Do work that may be done again, until the store is back or has been away too long."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return work()
            except (InputError, OSError) as error:
                is_away = isinstance(error, StoreAway)
                if not is_away or time.monotonic() > end:
                    waited = f" It was waited for {PATIENCE_S} s." if is_away else ""
                    lost = f" {len(self._rows):,} records did not reach it." if self._rows else ""
                    raise CampaignFailed(
                        f"{str(error).removesuffix('.')}.{waited}{lost} What was recorded there stays; go on: "
                        f"{format_resume(self.folder, self._description.get('plan'))}",
                        says_rest=True,
                    ) from None
            time.sleep(PAUSE_S)


def _name_part(number: int, checksum: int) -> str:
    """A name that no other writer gives."""
    return f"part-{number:05d}-{secrets.token_hex(8)}-{checksum:08x}.parquet"

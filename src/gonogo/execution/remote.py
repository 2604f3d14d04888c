"""A kernel's source and a case → what its calls gave, by a process that is not trusted: whatever it sends is data.

It gets the bytes of arguments and gives bytes back. It has neither reference nor expected value, and knows of no
seed, limit or case.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from gonogo.cases import GUARD_BITS
from gonogo.errors import BadArguments
from gonogo.execution.call import make_form
from gonogo.execution.decoy import make_decoy
from gonogo.execution.functions import make_cotangent
from gonogo.execution.replies import Called, Raised, check_loaded, read_reply
from gonogo.execution.told import Told, describe_exit
from gonogo.guest.calling import GRAD, Leaves, is_vast, list_state
from gonogo.guest.wire import (
    BrokenProtocol,
    Gone,
    Late,
    TensorFile,
    clean,
    pack_call,
    pack_tensor,
    receive,
    send,
    take,
    take_texts,
)
from gonogo.ops import Elsewhere, InModule, Kernel

if TYPE_CHECKING:
    from gonogo.execution.bench import Bench

START_S = 60.0
"""What a guest may take until it has its walls; loading its source comes after that."""
END_S = 10.0
ASKED_AGAIN = 4
"""Times that the first small case is asked for once more."""
REPEATS = 200
"""Calls on the first small case that must all give the same: more than the hundred after which one may change."""
SMALL_BYTES = 2**16
ALL_DECOYED, DECOY_ONE_IN = 6, 4
"""The first cases of a guest all begin with other values, later ones now and then: it cannot know which."""


class GuestEnded(Exception):
    """A guest that gave no answer; its outcome and a line on it."""

    def __init__(self, word: str, detail: str) -> None:
        self.word, self.detail = word, detail
        super().__init__(f"{word}: {detail}")


class Guest:
    """One kernel's process, seen from outside."""

    def __init__(self, stem: socket.socket, setting: Mapping[str, Any], printed: int) -> None:
        self.channel, theirs = socket.socketpair()
        self.line, keepers = socket.socketpair()
        send(stem, setting, (theirs.fileno(), keepers.fileno(), printed))
        theirs.close()
        keepers.close()
        self.repeated, self.called = False, 0

    def ask(self, message: Mapping[str, Any], files: Sequence[TensorFile], within_s: float) -> dict[str, Any]:
        """Its answer; GuestEnded where there is none in time, or none that is one."""
        try:
            self.channel.settimeout(within_s)
            send(self.channel, message, [file.descriptor for file in files])
            return self.listen(within_s)
        except BrokenProtocol as error:  # what is to be sent does not fit a message
            raise BadArguments(f"arguments of too many parts: {error}") from None
        except TimeoutError:
            self.end()
            raise GuestEnded("timed-out", f"no answer in {within_s:g} s") from None
        except OSError:
            raise self._explain_end() from None

    def listen(self, within_s: float) -> dict[str, Any]:
        """The next message."""
        try:
            reply, _ = receive(self.channel, within_s, most_files=0)
        except Late:
            self.end()
            raise GuestEnded("timed-out", f"no answer in {within_s:g} s") from None
        except Gone:
            raise self._explain_end() from None
        except BrokenProtocol as error:
            self.end()
            raise GuestEnded("broken-protocol", str(error)) from None
        return reply

    def _explain_end(self) -> GuestEnded:
        """What became of it, as its keeper tells."""
        try:
            told, _ = receive(self.line, END_S, most_files=0)
            why, status = take(told, "ended", str), take(told, "status", str)
        except (BrokenProtocol, Late, Gone):
            why, status = "", ""
        self.end()
        word, _, number = why.partition(" ")
        if word == "memory" and number.isdigit():
            return GuestEnded("out-of-memory", f"{int(number) / 2**30:.3g} GiB resident")
        if word == "processes" and number.isdigit():
            return GuestEnded("crashed", f"it had {number} processes")
        code = int(status) if status.lstrip("-").isdigit() and len(status) < 6 else None
        return GuestEnded("crashed", describe_exit(code))

    def end(self) -> None:
        """End it and all that it has started; back once its keeper is gone, too."""
        self.channel.close()
        try:
            self.line.shutdown(socket.SHUT_WR)
            end = time.monotonic() + END_S
            while time.monotonic() < end:
                self.line.settimeout(max(end - time.monotonic(), 0.01))
                if not self.line.recv(4096):
                    break
        except OSError:
            pass
        self.line.close()


@dataclass
class Guests:
    """The guests of one worker: one per source, kept until it ends."""

    stem: socket.socket
    device: str
    timeout_s: float
    memory_bytes: float
    printed: int
    hidden: tuple[str, ...]
    _known: dict[Elsewhere, Guest] = field(default_factory=dict)
    told: Told = field(default_factory=Told)

    def call(self, kernel: Kernel, bench: Bench, refused: str | None) -> Called | Raised:
        """Two judged calls of a kernel on a case; GuestEnded, GuestRefused, or a refusal of gonogo's."""
        assert isinstance(kernel.source, Elsewhere)
        guest = self._open(kernel.source, bench)
        arguments, answer = TensorFile(), TensorFile()
        try:
            message = self._make_message(guest, kernel, bench, refused, arguments)
            called = read_reply(guest.ask(message, (arguments, answer), self.timeout_s), answer, bench, kernel)
            # What calls in between gave is the guest's word; these answers are read here.
            for _ in range(ASKED_AGAIN if message["repeats"] else 0):
                if not isinstance(called, Called):
                    break
                called = self._ask_again(guest, message, called, bench, kernel, arguments)
            if isinstance(called, Called):
                self.told = self.told.join(Told(own=called.own, overwritten=called.overwritten))
            return called
        except (BrokenProtocol, GuestEnded) as error:
            self._known.pop(kernel.source, None)
            guest.end()
            if isinstance(error, BrokenProtocol):
                raise GuestEnded("broken-protocol", str(error)) from None
            raise
        finally:
            arguments.close()
            answer.close()

    def _ask_again(
        self,
        guest: Guest,
        message: dict[str, Any],
        called: Called,
        bench: Bench,
        kernel: Kernel,
        arguments: TensorFile,
    ) -> Called | Raised:
        """The same with two more calls on the same arguments, whose outputs must have the same bits."""
        answer = TensorFile()
        try:
            reply = guest.ask(message | {"repeats": 0, "decoy": None}, (arguments, answer), self.timeout_s)
            later = read_reply(reply, answer, bench, kernel)
        finally:
            answer.close()
        if not isinstance(later, Called):
            return later
        differing = sum(not _have_same_bits(called.first, each) for each in (later.first, later.again))
        return replace(called, unrepeated=called.unrepeated + differing, flags=called.flags or later.flags)

    def drop(self, source: Elsewhere) -> None:
        """End the guest of a source: its GPU is lost, say."""
        guest = self._known.pop(source, None)
        if guest is not None:
            guest.end()

    def close(self) -> None:
        """End all of them, and forget what was told."""
        self.told = Told()
        for source in list(self._known):
            self.drop(source)

    def _open(self, source: Elsewhere, bench: Bench) -> Guest:
        if source in self._known:
            return self._known[source]
        hidden = [path for path in self.hidden if path != source.path]
        setting = {
            "memory_bytes": int(self.memory_bytes), "device": self.device, "hide": hidden,
            "guards": {str(width): bits for width, bits in GUARD_BITS.items()},
        }  # fmt: skip
        guest = Guest(self.stem, setting, self.printed)
        loaded = TensorFile()
        try:
            self.told = self.told.join(Told(tuple(take_texts(guest.listen(START_S), "walls"))))
            state = _find_state(bench)
            packed = None if state is None else {path: pack_tensor(x, loaded) for path, x in state.items()}
            message = {
                "source": None if isinstance(source, InModule) else _write_text(source.text, loaded),
                "module": source.module if isinstance(source, InModule) else None,
                "path": source.path, "name": source.name, "state": packed,
                "trained": [path for path, x in (state or {}).items() if isinstance(x, torch.nn.Parameter)],
                "folders": source.folders,
            }  # fmt: skip
            reply = guest.ask(message, (loaded,), self.timeout_s)
            check_loaded(reply, source)
            at_import = tuple(clean(text) for text in take_texts(reply, "flags"))
            self.told = self.told.join(Told(at_import=at_import))
        except BrokenProtocol as error:
            guest.end()
            raise GuestEnded("broken-protocol", str(error)) from None
        except BaseException:
            guest.end()
            raise
        finally:
            loaded.close()
        self._known[source] = guest
        return guest

    def _make_message(
        self, guest: Guest, kernel: Kernel, bench: Bench, refused: str | None, arguments: TensorFile
    ) -> dict[str, Any]:
        form = make_form(kernel, bench, _find_state(bench) or {})
        try:
            packed = pack_call(bench.call, arguments)
        except TypeError as error:
            raise BadArguments(
                f"{error}. A kernel in a process of its own takes tensors, numbers, texts and dtypes, and tuples, "
                "lists and dicts of these; gonogo.verify takes any"
            ) from None
        guest.called += 1
        wants_decoy = guest.called <= ALL_DECOYED or secrets.randbelow(DECOY_ONE_IN) == 0
        decoy = make_decoy(bench, "cpu") if wants_decoy else None
        small = sum(x.nbytes for _, x in bench.call.tensors) <= SMALL_BYTES
        asked_again = bench.job.asked_again and not kernel.contract.atomics
        repeats = REPEATS if small and asked_again and not guest.repeated else 0
        guest.repeated |= bool(repeats)
        return {
            "form": asdict(form), "call": packed, "refused": refused, "repeats": repeats,
            "decoy": None if decoy is None else pack_call(decoy, arguments),
            "cotangents": _pack_cotangents(kernel, bench, arguments) if form.wanted is not None else {},
        }  # fmt: skip


def _write_text(text: str, file: TensorFile) -> tuple[int, int]:
    """Where it begins, and its bytes: a source may be longer than a message."""
    content = text.encode()
    return file.write(content), len(content)


def _have_same_bits(one: Leaves, other: Leaves) -> bool:
    """Whether all leaves of two outputs are the same, NaN for NaN."""
    if one.keys() != other.keys():
        return False
    for path, leaf in one.items():
        if not isinstance(leaf, torch.Tensor) or not isinstance(other[path], torch.Tensor):
            continue
        if leaf.shape != other[path].shape or leaf.dtype != other[path].dtype:
            return False
        if is_vast(leaf):
            continue  # a shape without content
        bits = [x.contiguous().reshape(-1).view(torch.uint8) for x in (leaf, other[path])] if leaf.numel() else []
        if bits and not torch.equal(*bits):
            return False
    return True


def _find_state(bench: Bench) -> dict[str, torch.Tensor] | None:
    """The state of a reference that is a module."""
    reference = bench.op.load_reference()
    return list_state(reference) if isinstance(reference, torch.nn.Module) else None


def _pack_cotangents(kernel: Kernel, bench: Bench, file: TensorFile) -> dict[str, Any]:
    """What outputs are multiplied by, for each leaf of the reference that is no gradient."""
    leaves = bench.references(kernel.contract_for(bench.job.case.dtype))
    return {
        leaf.path: pack_tensor(make_cotangent(bench.job.case.id, leaf.path, leaf.expected.cpu(), leaf.dtype), file)
        for leaf in leaves
        if not leaf.path.startswith(GRAD) and getattr(torch, leaf.dtype, torch.bool).is_floating_point
    }

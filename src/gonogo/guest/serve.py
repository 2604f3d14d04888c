"""The loop of a kernel's process: its source, then calls, each answered by its outputs in a file of memory."""

from __future__ import annotations

import contextlib
import linecache
import mmap
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location, spec_from_loader
from operator import attrgetter
from types import ModuleType
from typing import Any

import torch

from . import flags
from .arguments import Call
from .calling import Form, Once, call_once, copy_leaf, is_vast, shares_memory, synchronize
from .failure import format_error, tell_briefly, tell_error
from .launches import Launches, RefusedLaunch, WrongDevice
from .leaves import find_unusable, pack_leaves
from .libraries import list_own
from .memory import INTEGERS, count_holders, fill_arguments, renew_tensors, take_store
from .state import UnfitState, find_changed, set_state
from .wire import SPARSE, Gone, TensorFile, receive, send, unpack_call, unpack_tensor

MODULE = "kernel_under_test"
REPEATED_S = 0.5
"""What repeated calls of one case may take together."""


class Guest:
    """A kernel as it is called here."""

    def __init__(self, setting: Mapping[str, Any]) -> None:
        self.device = str(setting["device"])
        self.guards = {int(width): bits for width, bits in setting["guards"].items()}
        self.function: Callable[..., Any] | None = None
        self.state: dict[str, torch.Tensor] = {}
        self.trained: tuple[str, ...] = ()
        self.brought, self.own, self.calls = list_own(), False, 0

    def load(self, message: Mapping[str, Any], file: TensorFile | None) -> dict[str, Any]:
        """Run the source, and take the function; of a module a state is set."""
        _set_up(self.device)
        path, name = str(message["path"]), str(message["name"])
        before = flags.read()
        try:
            if message["module"] is None:
                assert file is not None
                module = _run_source(file.read(*message["source"]).decode(), path, message["folders"])
            else:
                module = _import(str(message["module"]), path, message["folders"])
        except BaseException as error:  # noqa: BLE001  a SystemExit, too
            return {"unloaded": f"cannot be loaded: {tell_briefly(error)}"}
        try:
            function = attrgetter(name)(module)
        except AttributeError:
            return {"unloaded": f"has no {name!r} once it is loaded"}
        if not callable(function):
            return {"unloaded": f"has {name!r} as {type(function).__name__}, not as a function"}
        self.function = function
        if isinstance(function, torch.nn.Module) and message["state"] is not None:
            assert file is not None
            memory = file.map()
            self.state = {
                path: unpack_tensor(facts, memory, self.device, 0) for path, facts in message["state"].items()
            }
            self.trained = tuple(message["trained"])
            _let_go(memory)
            function.to(self.device)
            try:
                set_state(function, self.state, self.trained)
            except UnfitState as error:
                return {"unfit": str(error)}
        return {"loaded": True, "flags": flags.compare(before, flags.read())}

    def call(self, message: Mapping[str, Any], file: TensorFile, answer: TensorFile) -> dict[str, Any]:
        """Two judged calls behind some that are not; what they gave, or what they raised."""
        form = _read_form(message["form"])
        memory = file.map() if os.fstat(file.descriptor).st_size else None
        launches = Launches(self.device, message["refused"])
        before = flags.read()
        try:
            made = launches.watch(lambda: self._call(form, message, memory, answer))
        except RefusedLaunch as refusal:
            return {"refused": str(refusal)}
        except WrongDevice as error:
            return {"wrong_device": [error.name, error.problem]}
        except BaseException as error:  # noqa: BLE001  the one place where a kernel may do what it likes
            memory_error = isinstance(error, MemoryError | torch.OutOfMemoryError)
            word = "out-of-memory" if memory_error else "crashed" if self._is_lost() else "raised"
            return {"raised": word, "detail": tell_error(error), "error": format_error(error)[-4000:]}
        finally:
            _let_go(memory)
        self.calls += 1
        if not self.own and self.calls & (self.calls - 1) == 0:  # after 1, 2, 4, … calls: it costs more than a call
            self.own = list_own() != self.brought
        own = launches.seen or self.own
        return made | {"launched": launches.seen, "own": own, "flags": flags.compare(before, flags.read())}

    def _is_lost(self) -> bool:
        try:
            synchronize(self.device)
        except RuntimeError:
            return True
        return False

    def _call(
        self, form: Form, message: Mapping[str, Any], memory: mmap.mmap | None, answer: TensorFile
    ) -> dict[str, Any]:
        assert self.function is not None

        def unpack(name: str) -> Call:
            return unpack_call(message[name], memory, self.device, self.guards)

        def cotangent(path: str, leaf: torch.Tensor) -> torch.Tensor:
            facts = message["cotangents"].get(path)
            if facts is None:
                return torch.zeros_like(leaf)
            return unpack_tensor(facts, memory, self.device, 0).reshape(leaf.shape)

        call, pristine = unpack("call"), unpack("call")
        # The same memory first holds other values: what is kept by that is then wrong. So is, by turns, what is
        # kept by the tensors themselves, and what by their version: memory that is given out again has the same.
        decoy = None if message["decoy"] is None else unpack("decoy")
        repeats, earlier, kept = [], {}, {}
        if decoy is not None:
            renews, holders = self.calls % 2 == 1, count_holders(call)
            fill_arguments(call, decoy)
            misled = renew_tensors(call) if renews else call
            earlier = call_once(self.function, form, misled, decoy, 0, cotangent).leaves
            kept = {path: copy_leaf(leaf) for path, leaf in earlier.items()}
            self._restore()
            del misled
            if renews and count_holders(call) != holders:  # what a kernel holds on to is not given out again
                call = unpack("call")
            fill_arguments(call, pristine)
            call = renew_tensors(call) if renews else call
        first = call_once(self.function, form, call, pristine, 0, cotangent)
        overwritten = any(_differ(leaf, kept[path]) for path, leaf in earlier.items())
        leaves = {path: copy_leaf(leaf) for path, leaf in first.leaves.items()}
        changed = self._restore()
        until = time.monotonic() + REPEATED_S
        for number in range(message["repeats"]):
            repeats.append(_digest(call_once(self.function, form, call, pristine, number, cotangent), self.device))
            self._restore()
            if time.monotonic() > until:
                break
        synchronize(self.device)
        elsewhere = unpack("call").map(lambda path, x: _take_out(x))  # the same values in other memory
        again = call_once(self.function, form, elsewhere, pristine, 1, cotangent)
        changed += self._restore()
        written = (*form.mutates, *form.scratch)
        facts = [_look_at(x, written, pristine) for x in (call, elsewhere)]
        return {
            "first": pack_leaves(leaves, self.device, answer),
            "again": pack_leaves(again.leaves, self.device, answer),
            "elapsed_s": again.elapsed_s,
            "strays": _count_strays([*first.guards, *again.guards]) + sum(strays for strays, _ in facts),
            "changed": sorted({path for _, paths in facts for path in paths}),
            "parameters": sorted(set(changed)),
            "overwritten": overwritten,
            "aliases": again.aliases,
            "shared": _list_shared(again, elsewhere, written),
            "unrepeated": len(repeats) - repeats.count(_digest(again, self.device)) if repeats else 0,
        }

    def _restore(self) -> list[str]:
        """Set a module's state again; parameters that were changed."""
        if not isinstance(self.function, torch.nn.Module) or not self.state:
            return []
        changed = find_changed(self.function, self.state)
        set_state(self.function, self.state, self.trained)
        return changed


def _take_out(x: torch.Tensor) -> torch.Tensor:
    """A tensor in memory that is no larger than it must be, as most that kernels ever get; else it lies as before.

    With other strides or another alignment a right kernel may add in another order, and give other bits.
    """
    plain = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return plain.copy_(x) if x.storage_offset() == 0 and x.stride() == plain.stride() else x


def _digest(once: Once, device: str) -> int:
    """A number that two calls of the same bits share; of leaves that cannot be measured, nothing."""
    total = 0
    for path, leaf in once.leaves.items():
        if isinstance(leaf, torch.Tensor) and find_unusable(leaf, device) is None and not is_vast(leaf):
            total ^= hash((path, _list_bytes(leaf).cpu().numpy().tobytes()))
    return total


def _list_bytes(leaf: torch.Tensor) -> torch.Tensor:
    return leaf.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8)


def _differ(leaf: Any, copied: Any) -> bool:
    """Whether an output has become another since it was copied."""
    if leaf is copied or not isinstance(leaf, torch.Tensor) or find_unusable(copied, leaf.device.type) is not None:
        return False
    return not torch.equal(_list_bytes(leaf), _list_bytes(copied))


def _count_strays(guards: list[tuple[torch.Tensor, int]]) -> int:
    """Elements of guards that were written."""
    return sum(int((guard != held).sum()) for guard, held in guards)


def _look_at(call: Call, mutates: tuple[str, ...], pristine: Call) -> tuple[int, list[str]]:
    """Elements written around arguments, and arguments that were changed and were not to be."""
    before, strays, changed = dict(pristine.tensors), 0, []
    for path, x in call.tensors:
        wanted = before[path]
        differing = int((_bits(x) != _bits(wanted)).sum())
        if differing and not any(path == name or path.startswith(f"{name}.") for name in mutates):
            changed.append(path)
        alike = x.untyped_storage().nbytes() == wanted.untyped_storage().nbytes()
        if alike and x.untyped_storage().nbytes() <= SPARSE * x.nbytes + 2**20:
            strays += int((take_store(x) != take_store(wanted)).sum()) - _count_stored(x, wanted)
    return max(strays, 0), changed


def _count_stored(x: torch.Tensor, wanted: torch.Tensor) -> int:
    """Stored elements of a tensor's own that differ: of one that repeats elements each counts once."""
    mask = torch.zeros(take_store(x).numel(), dtype=torch.bool, device=x.device)
    mask.as_strided(x.shape, x.stride(), x.storage_offset()).fill_(True)
    return int(((take_store(x) != take_store(wanted)) & mask).sum())


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(INTEGERS[tensor.dtype.itemsize])


def _list_shared(once: Once, call: Call, mutates: tuple[str, ...]) -> list[str]:
    """Leaves that stand in the memory of an argument that is not to be written."""
    kept = [x for path, x in call.tensors if not any(path == m or path.startswith(f"{m}.") for m in mutates)]
    return [path for path, leaf in once.leaves.items() if any(shares_memory(leaf, x) for x in kept)]


def _import(name: str, path: str, folders: list[str]) -> ModuleType:
    """A module by its name, if that is the file which is meant; else the file, by that name."""
    sys.path[:] = folders
    if name == "__main__":  # a script: not run as one, or it would verify its kernel here again
        name = MODULE
    try:
        module = import_module(name)
        if str(getattr(module, "__file__", "")) == path:
            return module
    except ImportError:
        pass
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run_source(source: str, path: str, folders: list[str]) -> ModuleType:
    """The source as a module; what it imports may lie beside it, behind what is installed."""
    sys.path += [folder for folder in folders if folder not in sys.path]
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)  # Triton reads it there
    spec = spec_from_loader(MODULE, None, origin=path)
    assert spec is not None
    module = sys.modules[MODULE] = module_from_spec(spec)
    module.__file__ = path
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def _set_up(device: str) -> None:
    """One thread, and no half precision where float32 is asked for."""
    torch.set_num_threads(1)
    flags.set_precise()
    if device == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]


def _read_form(packed: Mapping[str, Any]) -> Form:
    outs = tuple((path, dtype, tuple(shape)) for path, dtype, shape in packed["outs"])
    wanted = None if packed["wanted"] is None else tuple(packed["wanted"])
    listed = {name: tuple(packed[name]) for name in ("mutates", "scratch")}
    return Form(**{**packed, **listed, "outs": outs, "wanted": wanted})


def serve(channel: socket.socket, setting: Mapping[str, Any], in_force: list[str]) -> None:
    """Answer until nobody asks any more."""
    guest = Guest(setting)
    send(channel, {"walls": in_force})
    while True:
        try:
            message, descriptors = receive(channel)
        except Gone:
            return
        files = [TensorFile(descriptor) for descriptor in descriptors]
        reply = guest.load(message, files[0] if files else None) if "source" in message else None
        if reply is None:
            reply = guest.call(message, files[0], files[1])
        for name in ("stdout", "stderr"):
            _flush(name)
        send(channel, reply)
        for file in files:
            file.close()


def _let_go(memory: mmap.mmap | None) -> None:
    """Unmap what arguments came in: it has a descriptor, and unpacking refers to itself, and to it."""
    with contextlib.suppress(BufferError):
        if memory is not None:
            memory.close()


def _flush(name: str) -> None:
    try:
        getattr(sys, name).flush()
    except BaseException:  # noqa: BLE001  whatever a kernel has put in its place
        return

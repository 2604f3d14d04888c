"""A definition of FlashInfer-Bench, with its workloads → sizes of its axes, its inputs, its reference as a module.

Workloads are looked for in the folder of a trace set, workloads/…/NAME.jsonl. Without any, sizes are small, and
integers are drawn by what their names say: offsets ascend, indices point to what there is.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gonogo.errors import BadKernelFile, InputError
from gonogo.ops import evaluate
from gonogo.problems.problem import read_text
from gonogo.problems.safetensors import read_tensor
from gonogo.problems.source import check_scale, run_source

if TYPE_CHECKING:
    import torch

SMALL = 5
"""Of an axis that no workload names; sequences and batches are smaller, so that their offsets end there."""
BATCH = 2
WIDE = 256
"""Fixed axes from here on are made smaller where that is asked for: below are experts, groups, heads and blocks."""


class Definition:
    """A definition with its workloads, and its reference once it has run."""

    def __init__(self, where: str) -> None:
        self.path = Path(where)
        told = json.loads(read_text(self.path, "definition"))
        self.name = str(told.get("name") or self.path.stem)
        self.axes, self.inputs, self.outputs = told["axes"], told["inputs"], told["outputs"]
        self.reference, self.custom = str(told["reference"]), told.get("custom_inputs_entrypoint")
        self.constraints = [str(each) for each in told.get("constraints") or []]
        for part in ("axes", "inputs", "outputs"):
            if not isinstance(told[part], dict) or not all(isinstance(each, dict) for each in told[part].values()):
                raise InputError(f"{where}: {part} is no mapping of names to what is said of each")
        for name, facts in (self.inputs | self.outputs).items():
            if "dtype" not in facts:
                raise InputError(f"{where}: {name} has no dtype")
        self.fixed = {name: int(axis["value"]) for name, axis in self.axes.items() if axis.get("type") == "const"}
        self.own = dict(self.fixed)
        self.workloads = _read_workloads(self.path, self.name)

    def load(self, device: str) -> ModuleType:
        """Its reference as a module, which has run()."""
        import torch

        beside = (str(self.path.parent),)
        known = {"math": math, "torch": torch}
        module = run_source(self.reference, f"{self.path}#reference", device, beside, known)
        if not callable(getattr(module, "run", None)):
            raise BadKernelFile(str(self.path), "has a reference without run()")
        return module

    def order(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Its reference as a function of all inputs in order: it may take them by name, and not all."""
        taken = list(inspect.signature(run).parameters)
        if not all(name in self.inputs for name in taken):
            return run
        places = [list(self.inputs).index(name) for name in taken]
        return lambda *args: run(*(args[place] for place in places))

    def size_axes(self, workload: Mapping[str, Any] | None) -> dict[str, int]:
        """The size of every axis: by a workload, or small."""
        told = {} if workload is None else {name: int(size) for name, size in workload.get("axes", {}).items()}
        sizes = dict(self.fixed)
        for name, axis in self.axes.items():
            if name in sizes or axis.get("type") == "expr":
                continue
            if workload is not None and name not in told:
                raise InputError(f"{self.name}: workload {workload.get('uuid')} has no size of axis {name}")
            sizes[name] = told[name] if name in told else self._choose_size(name, sizes)
        for name, axis in self.axes.items():
            if axis.get("type") == "expr":
                sizes[name] = evaluate(str(axis.get("expression") or axis.get("value")), sizes)
        return sizes

    def _choose_size(self, name: str, sizes: Mapping[str, int]) -> int:
        """A small size, one more than a batch where a constraint says so."""
        for constraint in self.constraints:
            if found := re.fullmatch(rf"{name} == (\w+) \+ 1", constraint):
                return sizes.get(found[1], BATCH) + 1
        if name.startswith("len_") or name.endswith("_indptr"):
            return BATCH + 1
        return BATCH if "batch" in name or name in ("num_seqs", "B") else SMALL + ("pages" in name)

    def shrink(self, scale: float, device: str) -> None:
        """Make fixed axes smaller, and numbers of the reference that are the same; as many as it survives."""
        check_scale(scale)
        text = self.reference
        for chosen in filter(None, self._list_wide()):
            self.fixed = self.own | {name: max(1, round(self.own[name] * scale)) for name in chosen}
            self.reference = text
            for size, smaller in {self.own[name]: self.fixed[name] for name in chosen}.items():
                if size >= WIDE:
                    self.reference = re.sub(rf"(?<![\w.]){size}(?![\w.])", str(smaller), self.reference)
            if self._runs(device):
                return
        raise InputError(
            f"{self.path} does not survive --scale {scale:g}: its fixed axes cannot be changed. Leave it out"
        )

    def _list_wide(self) -> Iterator[list[str]]:
        """Which axes to change together, the most first; numbers of blocks go with what they are of."""
        parts = [name for name in self.own if "blocks" in name or "packed" in name]
        for least in (4 * WIDE, WIDE):
            wide = [name for name, size in self.own.items() if size >= least]
            yield list(dict.fromkeys(wide + parts)) if wide else []

    def _runs(self, device: str) -> bool:
        try:
            self.order(self.load(device).run)(*draw_inputs(self, next(iter(self.workloads), None), device))
        except Exception:  # noqa: BLE001  whatever it raises, it does not run
            return False
        return True

    def tell_shrunk(self) -> str:
        """Axes that are smaller than its own."""
        return ", ".join(f"{name} {size}" for name, size in self.fixed.items() if size != self.own[name])


@lru_cache(maxsize=16)
def read_definition(where: str, scale: float = 1.0, device: str = "cpu") -> Definition:
    """Once for each process."""
    definition = Definition(where)
    if scale != 1:
        definition.shrink(scale, device)
    return definition


def _read_workloads(path: Path, name: str) -> list[dict[str, Any]]:
    """Of a trace set's folder, or of a file of the same name beside the definition."""
    beside = [path.with_suffix(".jsonl"), *path.parent.glob(f"workloads/**/{name}.jsonl")]
    for parent in list(path.resolve().parents)[:4]:
        if (parent / "workloads").is_dir():
            beside += sorted((parent / "workloads").rglob(f"{name}.jsonl"))
            break
    file = next((file for file in beside if file.is_file()), None)
    if file is None:
        return []
    found = []
    for number, line in enumerate(read_text(file, "workloads").splitlines(), 1):
        if not line.strip():
            continue
        try:
            told = json.loads(line)
            told = told.get("workload", told)
            found.append({"axes": told["axes"], "inputs": told["inputs"], "root": str(_find_root(file)),
                          "uuid": str(told.get("uuid", number)), "tolerance": told.get("tolerance")})  # fmt: skip
        except (ValueError, KeyError, AttributeError) as error:
            raise InputError(f"{file} line {number} is no workload: {type(error).__name__} {error}") from None
    return found


def _find_root(file: Path) -> Path:
    """The folder that paths of tensors begin in: that of the trace set."""
    return next((parent.parent for parent in file.resolve().parents if parent.name == "workloads"), file.parent)


def draw_inputs(definition: Definition, workload: Mapping[str, Any] | None, device: str) -> list[Any]:
    """All inputs, in order, drawn on a device."""
    import torch

    sizes = definition.size_axes(workload)
    told = {} if workload is None else dict(workload["inputs"])
    drawn: dict[str, Any] = {}
    if any(facts.get("type") == "custom" for facts in told.values()) or (workload is None and definition.custom):
        module = definition.load(device)
        entry = getattr(module, str(definition.custom), None)
        if not callable(entry):
            raise BadKernelFile(str(definition.path), f"has no custom_inputs_entrypoint {definition.custom!r}")
        drawn = dict(entry(sizes, device))
    for name, facts in definition.inputs.items():
        if name not in drawn:
            with torch.device(device):
                drawn[name] = _draw_input(definition, name, facts, told.get(name, {}), sizes, workload)
    return [drawn[name] for name in definition.inputs]


def _draw_input(
    definition: Definition,
    name: str,
    facts: Mapping[str, Any],
    told: Mapping[str, Any],
    sizes: Mapping[str, int],
    workload: Mapping[str, Any] | None,
) -> Any:
    kind, dtype = told.get("type", "random"), str(facts["dtype"])
    if kind == "scalar":
        return told["value"]
    if kind == "safetensors":
        file = Path(str((workload or {})["root"])) / str(told["path"])
        if not file.is_file():
            raise InputError(f"{definition.name}: workload {(workload or {}).get('uuid')} misses {file}")
        return read_tensor(file, str(told["tensor_key"]))
    if facts.get("shape") is None:
        return definition.fixed[name] if name in definition.fixed else _choose_scalar(name, dtype)
    shape = [size if isinstance(size, int) else _find_size(str(size), sizes) for size in facts["shape"]]
    return draw_tensor(name, dtype, shape, definition)


def _find_size(axis: str, sizes: Mapping[str, int]) -> int:
    return sizes[axis] if axis in sizes else evaluate(re.sub(r"(?<!/)/(?!/)", "//", axis), sizes)


def _choose_scalar(name: str, dtype: str) -> Any:
    if dtype == "bool":
        return True
    if "int" in dtype:
        return 1
    return 0.125 if "scale" in name else 0.5


def draw_tensor(name: str, dtype: str, shape: Sequence[int], definition: Definition) -> torch.Tensor:
    """Values by dtype and, of integers, by what their name says that they are."""
    import torch

    wanted = getattr(torch, dtype, None)
    if wanted is None:
        raise InputError(f"{definition.path}: {name} is {dtype}, which this torch has not")
    if dtype == "bool":
        return torch.rand(shape) > 0.5
    if not wanted.is_floating_point:
        return _draw_integers(name, dtype, shape).to(wanted)
    if dtype.startswith("float8"):
        return torch.randn(shape).clamp_(-2, 2).to(wanted)
    positive = any(word in name for word in ("scale", "probs", "weight_sf"))
    return (torch.rand(shape) + 0.1 if positive else torch.randn(shape)).to(wanted)


def _draw_integers(name: str, dtype: str, shape: Sequence[int]) -> torch.Tensor:
    import torch

    count = math.prod(shape)
    if any(word in name for word in ("indptr", "cu_seqlens", "offsets", "cu_seq")):
        return torch.tensor([math.ceil(SMALL * at / max(count - 1, 1)) for at in range(count)]).reshape(shape)
    if "last_page" in name:
        return torch.ones(shape, dtype=torch.int64)
    if "lens" in name or "seq_len" in name:
        return torch.full(shape, 3)
    return torch.randint(0, 100 if dtype in ("int8", "uint8") else SMALL, shape)

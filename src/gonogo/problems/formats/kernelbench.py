"""KernelBench and its kin: a file with Model, get_inputs and get_init_inputs; a solution has ModelNew.

MultiKernelBench has get_input_groups instead; KernelBench-Hard a folder with reference.py and shapes.py, whose
SHAPES are written over the numbers of the reference, and solutions that call their class Model, too.
"""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gonogo.errors import BadKernelFile, InputError
from gonogo.guest.arguments import Call
from gonogo.guest.nests import list_leaves
from gonogo.problems.problem import (
    Options,
    Problem,
    Solution,
    check_dtype,
    choose_contract,
    find_dtype,
    list_bound,
    make_kernel_file,
    make_op,
    name_problem,
    need_bound,
    read_text,
    tell_unjudged,
)
from gonogo.problems.source import list_sizes, run_source, scale_sizes
from gonogo.problems.values import cast_nest, split_both, vary_nest
from gonogo.user.target import split_target

if TYPE_CHECKING:
    import torch

NAME = "kernelbench"
KNOWN_BY = "a file with class Model, get_inputs and get_init_inputs, or a folder of reference.py with shapes.py"
DRAWS = ("get_inputs", "get_input_groups")
SEED, TRIALS = 42, 5
SHOWN = 4
"""Names of weights in a note."""
TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}


def detect(path: Path) -> bool:
    """By what a file binds."""
    file = path / "reference.py" if path.is_dir() else path
    if path.is_dir() and not (path / "shapes.py").is_file():
        return False
    if file.suffix != ".py" or not file.is_file():
        return False
    try:
        bound = list_bound(read_text(file, "problem"), file)
    except InputError:
        return False
    return "Model" in bound and any(draw in bound for draw in DRAWS)


def list_problems(path: Path) -> list[Path]:
    """Of a checkout: files of level1 to level4, in order, or whatever lies in the folder."""
    found = [file for file in path.rglob("*.py") if file.stem.partition("_")[0].isdecimal() and detect(file)]
    found = found or [file for file in path.rglob("*.py") if detect(file)]
    return sorted(found, key=lambda file: (str(file.parent), _number(file), file.stem))


def _number(file: Path) -> int:
    head = file.stem.partition("_")[0]
    return int(head) if head.isdecimal() else 0


def open_problems(path: Path, options: Options) -> list[Problem]:
    """The problem of a file; one for each of its shapes, where it has a list of them."""
    file = path / "reference.py" if path.is_dir() else path
    shapes = _list_shapes(file)
    parts = [replace(options, part=part) for part in range(max(1, len(shapes)))]
    return [_open(file, part, shapes) for part in parts]


def _open(file: Path, options: Options, shapes: list[Mapping[str, Any]]) -> Problem:
    where = str(file.resolve())
    opened = _open_model(where, options)
    dtype = check_dtype(options.dtype, opened.find_own_dtype())
    notes = []
    if opened.evaluates:
        notes.append("in evaluation mode: it draws random numbers in training mode, which nothing can be held to")
    if options.scale != 1:
        notes.append(f"sizes are {options.scale:g} times its own: {opened.tell_sizes()}")
    tag = f"shape{options.part}" if len(shapes) > 1 else ""
    level = file.parent.name if file.parent.name.startswith("level") else ""
    name = name_problem(file.resolve().parent.name, tag) if shapes else name_problem(level, file.stem)
    scratch = tuple(opened.list_arguments()) if opened.writes else ()
    notes += [tell_unjudged(scratch)] if scratch else []
    if plain := opened.list_plain():
        shown = ", ".join([*plain[:SHOWN], *(["…"] if len(plain) > SHOWN else [])])
        notes.append(f"weights that are all 0 or all 1, and show nowhere where a solution leaves them out: {shown}")
    tolerance = TOLERANCES.get(dtype, TOLERANCES["float32"])
    return Problem(
        name, NAME, make_op(name, __name__, where, options, dtype=dtype, scratch=scratch),
        f"allclose(atol = rtol = {tolerance:g}), {TRIALS} trials from seed {SEED}", _draw_trials(),
        partial(read_solution, where, options), choose_contract(dtype), tuple(notes),
    )  # fmt: skip


def _draw_trials() -> tuple[int, ...]:
    """The seeds of the benchmark's trials, drawn as it draws them."""
    import torch

    drawn = torch.Generator().manual_seed(SEED)
    return tuple(int(torch.randint(0, 2**32 - 1, (1,), generator=drawn)) for _ in range(TRIALS))


def _list_shapes(problem: Path) -> list[Mapping[str, Any]]:
    """What is written over a problem's numbers, one set after the other, where shapes.py stands beside it."""
    file = problem.with_name("shapes.py")
    if problem.name != "reference.py" or not file.is_file():
        return []
    shapes = vars(run_source(read_text(file, "file"), str(file), "cpu")).get("SHAPES", [])
    if not shapes or not all(isinstance(shape, Mapping) for shape in shapes):
        raise InputError(f"{file} has no SHAPES, a list of names and numbers")
    return list(shapes)


class Opened:
    """A problem that has run: its module, and its reference with weights."""

    def __init__(self, where: str, options: Options) -> None:
        file = Path(where)
        text = read_text(file, "problem")
        self.where, self.options = str(file), options
        self.module = run_source(text, str(file), options.device, (str(file.parent),))
        shapes = _list_shapes(file)
        if shapes:
            vars(self.module).update(shapes[options.part])
        scale_sizes(self.module, options.scale, self._runs, str(file))
        if options.vary:
            self._vary_batch()
        self.init = list(self._call("get_init_inputs") if "get_init_inputs" in vars(self.module) else [])
        self.writes = "inplace=True" in text.replace(" ", "")
        self.model = self._build()
        self.evaluates = draws_random(self.model, text)
        self.model.train(not self.evaluates)

    def _call(self, name: str) -> Any:
        try:
            return getattr(self.module, name)()
        except Exception as error:
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise BadKernelFile(self.where, f"has a {name}() that raises {why}") from error

    def _build(self) -> torch.nn.Module:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            try:
                model = self.module.Model(*self.init)
            except Exception as error:
                why = f"{type(error).__name__}: {error}".partition("\n")[0]
                raise BadKernelFile(self.where, f"has a Model that cannot be made: {why}") from error
        if not isinstance(model, torch.nn.Module):
            raise BadKernelFile(self.where, "has a Model that is no torch.nn.Module")
        asked = None if self.options.dtype is None else getattr(torch, check_dtype(self.options.dtype, "float32"))
        return model.to(device=self.options.device, dtype=asked)

    def list_plain(self) -> list[str]:
        """Weights that change nothing as the problem makes them: those of norms, mostly."""
        return [
            name for name, x in self.model.named_parameters() if x.numel() and bool((x == 0).all() | (x == 1).all())
        ]  # fmt: skip

    def draw(self) -> list[Any]:
        """Arguments, as the problem draws them: its generators have been seeded."""
        import torch

        name = next(draw for draw in DRAWS if draw in vars(self.module))
        drawn = self._call(name)
        if name == "get_input_groups":
            drawn = drawn[int(torch.randint(len(drawn), (), device="cpu"))]
        return list(drawn)

    def list_arguments(self) -> list[str]:
        """Names of what forward takes."""
        return list(inspect.signature(self.model.forward).parameters)

    def find_own_dtype(self) -> str:
        """The dtype of what it draws; without values, where that is possible."""
        import torch

        for device in ("meta", "cpu"):
            try:
                with torch.device(device):
                    return find_dtype(self.draw())
            except (NotImplementedError, RuntimeError, BadKernelFile):
                continue
        return "float32"

    def _runs(self) -> bool:
        """Whether the problem still fits together; on no device, where that is possible."""
        import torch

        for device in ("meta", "cpu"):
            try:
                with torch.device(device), torch.no_grad():
                    init = list(self._call("get_init_inputs") if "get_init_inputs" in vars(self.module) else [])
                    self.module.Model(*init)(*[_place(x, device) for x in self.draw()])
            except (NotImplementedError, BadKernelFile):
                continue
            except Exception:  # noqa: BLE001  sizes that do not fit
                return False
            return True
        return False

    def _vary_batch(self) -> None:
        """One more of what comes in batches: a size that no tile divides."""
        before = list_sizes(self.module)
        batches = [name for name, value in before.items() if "batch" in name.lower() and type(value) is int]
        vars(self.module).update({name: before[name] + 1 for name in batches})
        if not self._runs():
            vars(self.module).update(before)

    def tell_sizes(self) -> str:
        """Its sizes, in words."""
        return ", ".join(f"{name} {value}" for name, value in list_sizes(self.module).items())


def _place(x: Any, device: str) -> Any:
    return x.to(device) if hasattr(x, "to") else x


def draws_random(model: torch.nn.Module, text: str) -> bool:
    """Whether a module in training mode drops elements at random."""
    import torch

    dropping = (torch.nn.modules.dropout._DropoutNd,)
    drops = any(isinstance(part, dropping) and part.p > 0 for part in model.modules())
    recurrent = any(isinstance(part, torch.nn.RNNBase) and part.dropout > 0 for part in model.modules())
    attending = any(isinstance(part, torch.nn.MultiheadAttention) and part.dropout > 0 for part in model.modules())
    return drops or recurrent or attending or "F.dropout(" in text or "functional.dropout(" in text


@lru_cache(maxsize=2)
def _open_model(where: str, options: Options) -> Opened:
    return Opened(where, options)


def make_reference(where: str, options: Options) -> torch.nn.Module:
    """Model, with weights by the benchmark's seed."""
    return _open_model(where, options).model


def make_draw(where: str, options: Options) -> Callable[..., Any]:
    """get_inputs, in the dtype asked for."""
    import torch

    opened = _open_model(where, options)

    def draw(seed: int) -> list[Any]:
        with torch.device(options.drawn_on):
            drawn = opened.draw()
        drawn = vary_nest(drawn, seed) if options.vary else drawn
        return list(drawn if options.dtype is None else cast_nest(drawn, options.dtype))

    return draw


def make_check(where: str, options: Options) -> Callable[[Call, Mapping[str, Any]], bool]:
    """Shapes, then allclose against the reference in the same dtype, as the benchmark has it."""
    import torch

    model = copy.deepcopy(_open_model(where, options).model)
    dtype = check_dtype(options.dtype, _open_model(where, options).find_own_dtype())

    def check(call: Call, leaves: Mapping[str, Any]) -> bool:
        with torch.no_grad():
            expected = model(*call.args, **call.kwargs)
        wanted = [x for _, x in list_leaves(expected) if isinstance(x, torch.Tensor)]
        outputs = [x for x in leaves.values() if isinstance(x, torch.Tensor)]
        if [x.shape for x in outputs] != [x.shape for x in wanted]:
            return False
        return all(tolerates(x.to(y.device, y.dtype), y, dtype) for x, y in zip(outputs, wanted, strict=True))

    return check


def tolerates(output: torch.Tensor, expected: torch.Tensor, dtype: str) -> bool:
    """The benchmark's allclose."""
    import torch

    tolerance = TOLERANCES.get(dtype, TOLERANCES["float32"])
    pairs = split_both(expected, output)
    return all(torch.allclose(x, y, atol=tolerance, rtol=tolerance) for x, y in pairs)


def read_solution(where: str, options: Options, target: str) -> Solution:
    """ModelNew, with the weights of Model where it has the same, else by the same seed."""
    path, name = split_target(target)
    text = read_text(path, "solution")
    opened = _open_model(where, options)
    named = (name,) if name else ("ModelNew", "Model") if _list_shapes(Path(where)) else ("ModelNew",)
    found = need_bound(text, path, named, "solution of this problem")
    shapes = {key: tuple(x.shape) for key, x in opened.model.named_parameters()}
    facts = {
        "init": _write_literal(opened.init, opened.where), "shapes": repr(shapes), "seed": SEED,
        "device": repr(options.device), "dtype": "None" if options.dtype is None else f"torch.{options.dtype}",
        "training": repr(not opened.evaluates), "name": found,
    }  # fmt: skip
    return Solution(make_kernel_file(path, text, EPILOGUE.format(**facts)), path.stem)


def _write_literal(value: Any, where: str) -> str:
    """What a constructor is given, as it can be written in a source."""
    written = repr(value)
    try:
        if ast.literal_eval(written) == value:
            return written
    except (ValueError, SyntaxError):
        pass
    raise BadKernelFile(where, f"has get_init_inputs() of {written[:80]}, which no other process can be handed")


EPILOGUE = """

def _gonogo_open():
    import torch

    torch.manual_seed({seed})
    model = {name}(*{init})
    if not isinstance(model, torch.nn.Module):
        return model
    model = model.to(device={device}, dtype={dtype}).train({training})
    if {{key: tuple(x.shape) for key, x in model.named_parameters()}} == {shapes}:
        return model

    def run(*args, **kwargs):
        return model(*args, **kwargs)

    return run


_gonogo_solution = _gonogo_open()
"""
"""Behind a solution's source: one whose parameters are the reference's is handed its weights, others are seeded."""

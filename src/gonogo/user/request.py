"""What gonogo.verify is asked, as data → its op, and the call that asks for one case of it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gonogo.cases import USUAL
from gonogo.errors import InputError, check_path, check_type
from gonogo.limits import Limit
from gonogo.ops import DTYPES, Op
from gonogo.schema import Contract
from gonogo.user import own_op
from gonogo.user.kernels import name_function
from gonogo.user.own_op import choose_contract, name_op
from gonogo.user.planning import DEFAULT_CASES, Choice
from gonogo.verdict.referee import Suspects
from gonogo.words import find_contract, find_op, name_contract

if TYPE_CHECKING:
    import torch

OF_REFERENCE = ("inputs", "outputs", "mutates", "grads")
"""What is said of an op that is told by its reference."""
UNSAID = (None, (), False)
"""Of any of these, that nothing is said; there is but one empty tuple."""


@dataclass(frozen=True)
class Request:
    """A kernel, its op, and how it is to be judged; each field as gonogo.verify takes it."""

    kernel: Callable[..., Any]
    op: str | Op | None = None
    reference: Callable[..., Any] | None = None
    inputs: Any = None
    outputs: Any = None
    mutates: str | Sequence[str] = ()
    grads: bool | str | Sequence[str] = False
    dtypes: str | Sequence[str | torch.dtype] | torch.dtype = DTYPES
    cases: int = DEFAULT_CASES
    seed: int = 0
    contract: Contract | str | None = None
    controls: Sequence[Callable[..., Any]] = ()
    distributions: str | Sequence[str] = USUAL
    device: str = "auto"
    lock: str | Path | None = None
    limit: Limit | None = None
    suspects: Suspects = "rerun"
    only: str | None = None
    record: str | Path | None = None
    name: str | None = None
    isolated: bool = False
    limit_from: Path | None = None
    """The lock file that `limit` is from, where it is from one: a replay names it."""

    @cached_property
    def known(self) -> Op:
        """The op that is named, at hand, or told by its reference."""
        if self.op is not None and self.reference is not None:
            raise InputError("verify takes an op, or reference= and inputs=: leave one of them out")
        if self.reference is not None:
            return own_op.Op(
                name_op(self.reference), reference=self.reference, inputs=self.inputs, outputs=self.outputs,
                mutates=self.mutates, grads=self.grads,
            )  # fmt: skip
        if self.op is None:
            raise InputError("verify needs an op, or reference= and inputs=")
        if self.said_of_reference:
            word = next(iter(self.said_of_reference))
            raise InputError(f"{word}= goes with reference=; of an op, say it in gonogo.Op(...)")
        return find_op(self.op)

    @property
    def said_of_reference(self) -> dict[str, Any]:
        """What is said that only an op told by its reference takes."""
        said = {word: getattr(self, word) for word in OF_REFERENCE}
        # By identity: a value may be a tensor, which is equal to nothing.
        return {word: value for word, value in said.items() if not any(value is unsaid for unsaid in UNSAID)}

    @cached_property
    def keeps(self) -> Contract:
        """What the kernel promises."""
        return find_contract(choose_contract(self.known) if self.contract is None else self.contract)

    @property
    def used_controls(self) -> tuple[Callable[..., Any], ...]:
        """The controls to run: with a limit at hand they are for a record alone."""
        return tuple(self.controls) if self.limit is None or self.record is not None else ()

    @property
    def choice(self) -> Choice:
        """Which cases it is verified on."""
        return Choice(self.known, self.dtypes, self.cases, self.seed, self.distributions)

    def check(self) -> None:
        """Refuse what cannot be run, before anything is."""
        kernel: Any = self.kernel
        controls: Any = self.controls
        if not callable(kernel):
            raise InputError(
                f"kernel is {type(kernel).__name__}, not a function of the inputs of {self.known.name}"
            )
        if callable(controls):
            raise InputError(f"controls is one function; give a list: controls=[{name_function(controls)}]")
        check_type("controls", controls, (list, tuple), "a list of functions")
        for word in ("lock", "record"):
            if getattr(self, word) is not None:
                check_path(word, getattr(self, word))
        if self.name is not None:
            check_type("name", self.name, str, "text")
        check_type("suspects", self.suspects, str, "rerun or fail")


def tell_replay(request: Request, case: str) -> str:
    """The call that runs one case again, by the same limit."""
    words = [_show(request.kernel, "kernel"), *_tell_op(request), f'only="{case}"']
    if request.keeps != Contract():
        words.append(f'contract="{name_contract(request.keeps)}"')
    words += _tell_limit(request)
    words += [f'device="{request.device}"'] if request.device != "auto" else []
    words += [f'suspects="{request.suspects}"'] if request.suspects != "rerun" else []
    words += ["isolated=True"] if request.isolated else []
    return f"gonogo.verify({', '.join(words)})"


def _tell_op(request: Request) -> list[str]:
    """The arguments that name the op."""
    if request.op is not None:
        return [f'"{request.op}"' if isinstance(request.op, str) else "op"]
    said = [
        f"{word}={_show(value, word) if word == 'inputs' else repr(value)}"
        for word, value in request.said_of_reference.items()
    ]
    return [f"reference={_show(request.reference, 'reference')}", *said]


def _tell_limit(request: Request) -> list[str]:
    """The arguments that a case needs to meet the same limit."""
    if request.limit_from is not None:
        return [f"lock={str(request.limit_from)!r}"]
    if request.limit is not None:
        return ["limit=limit"]
    if request.used_controls:
        planned = [f"cases={request.cases}", f"seed={request.seed}", f"dtypes={request.dtypes!r}"]
        usual = request.distributions == USUAL
        return ["controls=controls", *planned, *([] if usual else [f"distributions={request.distributions!r}"])]
    return [] if request.lock is None else [f"lock={str(request.lock)!r}"]


def _show(value: Any, otherwise: str) -> str:
    """What a function is called, where it can be written so; else a word for it."""
    name = str(getattr(value, "__name__", ""))
    return name if name.isidentifier() else otherwise

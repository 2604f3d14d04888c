"""One torch op on tracked tensors → tracked results: finds the rule, applies it, lets nothing escape.

A reference runs inside this mode, so every op passes here, also those on tensors the reference made itself.
Floating tensors that carry an error are `Tracked`; what it made without arithmetic stays plain and exact;
integers and booleans are plain, because a discrete value is either right or wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functionalize
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from gonogo.errors import NoErrorRule, WritesInPlace
from gonogo.formats import get_format
from gonogo.guest.nests import list_leaves, map_leaves
from gonogo.instrument.running_error.accuracy import Accuracy, get_accuracy
from gonogo.instrument.running_error.companion import (
    CONSTANT,
    EXACT,
    FUNCTIONAL_HINT,
    Error,
    Tracked,
    is_inexact,
    join,
    widen,
)
from gonogo.instrument.running_error.doubt import MOVING, Doubts, find_reach
from gonogo.instrument.running_error.facts import (
    COMPLEX_HINT,
    CORRECTLY_ROUNDED,
    EXACT_WRITES,
    KEEPS_WHOLE,
    OUTSIDE_HINT,
    POSITION_HINT,
    PRODUCTS,
    RANDOM_HINT,
    RESHAPES,
    TO_PYTHON,
    constant_ulps,
    find_formula,
    find_functional,
    find_tensors,
    give_hint,
    guard_error,
    is_whole,
    read_schema,
)
from gonogo.instrument.running_error.summation import find_longest
from gonogo.instrument.running_error.writes import Outside, exchange
from gonogo.schema import Contract

Rule = Callable[..., tuple[Any, Any]]

WIDE = 1e30
"""Formats that reach this far (float32 and bfloat16, not float16) are taken to hold every intermediate result."""


class RunningErrorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The state of one error_scale call; rules get it as their first argument."""

    noisy = False
    """Whether results are disturbed by their errors, which then are carried no further."""

    def __init__(
        self,
        contract: Contract,
        rules: Mapping[str, Rule],
        passive: frozenset[str],
        *,
        guarded: bool,
        takes_complex: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.contract = contract
        fmt = get_format(contract.accumulate, role="contract accumulate")
        self.unit = fmt.unit_roundoff
        self.range = float(fmt.overflow_threshold) if fmt.largest < WIDE else math.inf
        self.smallest = float(fmt.smallest_normal)
        self.stored_ulps = 0.0 if contract.stored is None else self.cast_ulps(contract.stored)
        self._depth = 0
        """How many decompositions the op at hand is inside of: a kernel stores what comes out of all of them."""
        self.rules = rules
        self.takes_complex = takes_complex
        """Ops whose rules hold for complex numbers."""
        self.passive = passive
        """Ops that move or make exact values: on plain tensors they are left alone, views included."""
        self.guarded = guarded
        self.functional = False
        """Whether all writes are taken out of what runs."""
        self.returning = False
        """Whether it has run, and what it wrote to its inputs is written to them."""
        self.doubts = Doubts()
        self.outside = Outside()
        """What it writes to that is neither its own nor tracked."""
        self.summed = False
        """Whether the reference added up more than one term."""
        self.applied = 0
        """Ops that a rule was found for."""
        self.products = 0
        """Products of matrices among them, and convolutions."""
        self.advice: tuple[str, str] | None = None
        """Of an op that made what no bound holds for: its name, and what to judge instead."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch imports its compiler, about a second, only to keep it away from this mode.
        return False

    def begin_again(self) -> None:
        """Forget what a run found that was given up."""
        self.doubts = Doubts()
        self.outside = Outside()
        self.summed = False
        self.advice = None

    # What rules use.

    def split(self, arg: Any) -> tuple[Any, Error]:
        """Give the float64 value (or number) and the error of an op's argument."""
        if isinstance(arg, Tracked):
            return arg.value, arg.error
        if is_inexact(arg):
            return widen(arg), EXACT
        if isinstance(arg, Tensor) and (places := self.doubts.find(arg)) is not None:
            # A mask is 0 for 1 or 1 for 0; a position may be any other.
            jump = 1 / self.unit if arg.dtype == torch.bool else torch.inf
            return arg, Error(torch.zeros_like(places, dtype=torch.float64).masked_fill_(places, jump))
        if isinstance(arg, float):
            # A kernel holds the constant in its own format: 0.01 is off by up to one u_c before any use.
            return arg, Error(None, constant_ulps(arg, self.contract.accumulate))
        return arg, EXACT

    def values(self, args: Any) -> Any:
        """Replace every tensor in a nest of arguments by its plain float64 value."""
        return tree_map(lambda arg: self.split(arg)[0], args)

    def accuracy(self, function: str) -> Accuracy:
        """How well a kernel under this contract computes `function`."""
        return get_accuracy(function, self.contract)

    def growth(self, length: int) -> float:
        """g(length) of the contract's summation; blocks are added up one after another only so far."""
        self.summed |= length > 1
        chain = min(length, find_longest(self.unit)) if self.contract.summation == "blocked" else length
        return self.contract.growth(int(max(chain, 1)))

    def cast_ulps(self, fmt: str) -> float:
        """Error of rounding to `fmt`, relative, in units of u_c."""
        return get_format(fmt).unit_roundoff / self.unit

    def lose_overflow(self, measure: Callable[[], Tensor], ulps: float = 0.0) -> Tensor | None:
        """Infinite error where results of measured sizes, `ulps` larger, are past the accumulate format's range.

        A kernel that keeps the contract has lost the value there, and what it makes of an infinity is its own.
        None where there is no such place; a wide format has none, and nothing is measured.
        """
        if self.range == math.inf:
            return None
        sizes = measure() * (1 + ulps * self.unit)
        lost = sizes.isfinite() & (sizes >= self.range)
        return torch.zeros_like(sizes).masked_fill_(lost, torch.inf) if bool(lost.any()) else None

    def keep_lost(self, extra: Tensor | None) -> Tensor | None:
        """The error of a product or quotient: 0·inf is inf where a factor is lost, for a kernel makes NaN of it."""
        if self.range == math.inf or extra is None:
            return extra
        return extra.nan_to_num(nan=torch.inf, posinf=torch.inf)

    def reach(self, value: Any, extra: Tensor | None) -> Tensor | float:
        """How far a kernel's value may be from the reference's."""
        return find_reach(value, extra, self.unit, self.range)

    def run_primitive(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run `function`, written in primitive ops, on tracked arguments; without its writes, if it has any."""
        self._depth += 1
        try:
            with self:
                return function(*args, **kwargs)
        except WritesInPlace:
            return self.run_functional(function, args, kwargs)
        finally:
            self._depth -= 1

    def run_functional(
        self, function: Callable[..., Any], args: Any, kwargs: Any, outside: Sequence[Tensor] = ()
    ) -> Any:
        """Run `function` with every write made an op that returns what was written, as torch's compiler has it.

        `outside` are tensors that it writes to though it neither made nor was given them, such as a module's.
        """
        nests = []

        def run(args: Any, kwargs: Any, instead: list[Tensor]) -> list[Any]:
            with exchange(outside, instead) as swap:
                nests.append(swap(function(*args, **kwargs)))
            self.returning = True
            return [leaf for _, leaf in list_leaves(nests[0])]  # torch knows fewer kinds of nests

        instead = [Tracked(widen(x), EXACT) if is_inexact(x) else x.clone() for x in outside]
        before, self.functional = self.functional, True
        try:
            with self:
                leaves = iter(functionalize(run)(args, dict(kwargs), instead))
            return map_leaves(lambda path, leaf: next(leaves), nests[0])
        except (RuntimeError, TypeError) as error:  # a module takes nothing else for a parameter
            if not any(told in str(error) for told in ("mutating a non-functional tensor", "as parameter")):
                raise
            raise NoErrorRule("aten.copy_", OUTSIDE_HINT) from error
        finally:
            self.functional, self.returning = before, False

    # The way of one op.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the op by its rule."""
        kwargs = kwargs or {}
        name, mutable, _ = read_schema(func)
        leaves = list(find_tensors((*args, *kwargs.values())))
        tracked = any(isinstance(leaf, Tracked) for leaf in leaves)
        if self.functional and any(map(torch._is_functional_tensor, leaves)):
            raise NoErrorRule(name, FUNCTIONAL_HINT)  # what is wrapped is no tensor that an op can be run on
        if mutable:
            self.outside.note_written(func, args, kwargs)
            made = self._write(func, name, args, kwargs, tracked=tracked)
        elif tracked:
            made = self._apply(func, name, args, kwargs)
        else:
            made = self._apply_plain(func, name, args, kwargs, leaves)
        if self.stored_ulps and self._depth == 0 and name.removesuffix("_") not in self.passive:
            for leaf in find_tensors((made,)):
                self._store(leaf)
        self.outside.note_made(func, made)
        return made

    def _store(self, made: Tensor) -> None:
        """Charge a rounding to the format that results are stored in."""
        if isinstance(made, Tracked) and not made.error.exact and not made.is_complex():
            error = made.error
            made.error = Error(
                error.extra, error.ulps + self.stored_ulps, uncast=error, cast_to=self.contract.stored
            )

    def _find_rule(self, func: Any, name: str) -> Rule:
        rule = self.rules.get(str(func)) or self.rules.get(name)
        if rule is None:
            raise NoErrorRule(name, give_hint(func, name))
        return rule

    def _apply(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if func not in TO_PYTHON and name not in self.rules and str(func) not in self.rules:
            if not all(leaf.numel() for leaf in find_tensors((*args, *kwargs.values()))):
                func(*self.values(args), **self.values(kwargs))  # what torch refuses, it refuses in its own words
            decomposed = self.run_primitive(func.decompose, args, kwargs)
            if decomposed is not NotImplemented:
                return decomposed
            if (formula := find_formula(func)) is not None:
                return self._run_formula(formula, func, name, args, kwargs)
        rule = self._find_rule(func, name)
        if name not in self.takes_complex and any(map(torch.is_complex, find_tensors((*args, *kwargs.values())))):
            raise NoErrorRule(name, COMPLEX_HINT)
        value, error = rule(self, func, args, kwargs)
        self.applied += name not in self.passive
        self.products += name in PRODUCTS
        if name in MOVING and isinstance(error, Error):
            error = self._move_uncast(func, args, kwargs, value, error)
        if name in KEEPS_WHOLE and isinstance(error, Error) and self._are_whole(args, value):
            error = Error(error.extra, whole=True)
        if self.range < math.inf and name not in self.passive and isinstance(value, Tensor):
            error = self._add_underflow(value, error)
        _, _, aliased = read_schema(func)
        if aliased:
            for leaf in find_tensors((*args, *kwargs.values())):
                if isinstance(leaf, Tracked):
                    leaf.aliased = True
        return self.wrap(value, error, aliased=aliased)

    def _move_uncast(self, func: Any, args: Any, kwargs: Any, value: Tensor, error: Error) -> Error:
        """With the error before a cast moved as the value is: a view of what was cast is cast, too."""
        before = args[0].error.uncast if isinstance(args[0], Tracked) else None
        if before is None:
            return error
        extra = before.extra
        if extra is not None:
            extra = func(extra.expand(args[0].shape), *args[1:], **kwargs)
        cast = args[0].error
        return replace(error, uncast=Error(extra, before.ulps), cast_to=cast.cast_to, buffered=cast.buffered)

    def _are_whole(self, args: Any, value: Tensor) -> bool:
        """Whether an op is one on whole numbers, one of them rounded to be, and as small as to be exact."""
        if not any(isinstance(arg, Tracked) and arg.error.whole for arg in args):
            return False
        return all(map(is_whole, args)) and float(value.abs().max() if value.numel() else 0.0) < 1 / self.unit

    def _run_formula(self, formula: Callable[..., Any], func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """What a formula of torch's makes of tracked arguments; where that has no rule, the op itself has none."""
        try:
            return self.run_primitive(formula, args, kwargs)
        except NoErrorRule as error:
            raise NoErrorRule(name, give_hint(func, name)) from error

    def _add_underflow(self, value: Tensor, error: Any) -> Any:
        """Charge half a step of the accumulate format where a computed value is among its subnormals.

        Only in a format of short range: float32 and bfloat16 have the scale's floor for this.
        """
        if not value.is_floating_point() or (isinstance(error, Error) and error.exact):
            return error
        small = (value != 0) & (value.abs() < self.smallest)
        if not bool(small.any()):
            return error
        error = error if isinstance(error, Error) else Error(error)
        step = torch.zeros_like(value).masked_fill_(small, self.smallest)
        return replace(error, extra=step if error.extra is None else step + error.extra)

    def load(self, value: Tensor, ulps: float) -> Any:
        """One floating input, which a kernel rounds by so much as it loads it."""
        return self.wrap(value, Error(None, ulps), aliased=True)

    def wrap(self, value: Any, error: Any, *, aliased: bool) -> Any:
        """Value and error as one tracked tensor, or a nest of them; what is not floating stays as it is."""
        if isinstance(value, (tuple, list)):
            errors = error if isinstance(error, (tuple, list)) else [error] * len(value)
            return type(value)(self.wrap(one, its, aliased=aliased) for one, its in zip(value, errors, strict=True))
        if not is_inexact(value) or error is CONSTANT:
            return value
        error = error if isinstance(error, Error) else Error(error)
        if error.extra is not None and error.extra.device != value.device:
            error = replace(error, extra=error.extra.to(value.device))
        if self.guarded:
            error = guard_error(value, error)
        if self.range < math.inf and not error.exact:
            reached = value.abs() if error.extra is None else value.abs() + self.unit * error.extra
            lost = self.lose_overflow(lambda: reached, error.ulps)
            error = replace(error, extra=join(lost, error.extra, error.extra))
        return Tracked(widen(value), error, aliased=aliased)

    def _apply_plain(self, func: Any, name: str, args: Any, kwargs: Any, leaves: list[Tensor]) -> Any:
        """Apply an op to the reference's own constants: exact moves stay plain, arithmetic is tracked."""
        if func in TO_PYTHON:
            return func(*args, **kwargs)
        uncertain = any(self.doubts.find(leaf) is not None for leaf in leaves if not is_inexact(leaf))
        picked = uncertain and any(map(is_inexact, leaves))
        if not leaves or (name in self.passive and not picked):
            if torch.Tag.nondeterministic_seeded in func.tags:
                raise NoErrorRule(name, RANDOM_HINT)
            made = func(*args, **kwargs)
            self.doubts.follow(made, func, name, args, kwargs)
            narrow = self.functional and is_inexact(made)
            return widen(made) if narrow else made  # what is written to it is not rounded
        if not any(map(is_inexact, leaves)):
            made = func(*args, **kwargs)
            self.doubts.follow(made, func, name, args, kwargs)
            floating = any(map(is_inexact, find_tensors((made,))))
            sure = all(self.doubts.find(leaf) is None for leaf in leaves)
            if not floating or (sure and name == "aten._to_copy"):
                return made
            # Integers divided, or fed to a function: torch would answer in its default dtype, float32.
            chosen, rest = ((args[0],), args[1:]) if name == "aten.where" else ((), args)
            args, kwargs = (*chosen, *tree_map(self._widen_integer, rest)), tree_map(self._widen_integer, kwargs)
        made = self._apply(func, name, args, kwargs)
        return tree_map(lambda one: self._settle_constant(one, name), made)

    def _widen_integer(self, leaf: Any) -> Any:
        """Turn an integer or boolean tensor into float64, tracked where it may be wrong; leave anything else."""
        if not isinstance(leaf, Tensor) or is_inexact(leaf):
            return leaf
        value, error = self.split(leaf)
        return value.to(torch.float64) if error.exact else Tracked(value.to(torch.float64), error)

    def _settle_constant(self, made: Any, name: str) -> Any:
        """Back to plain where the op made no rounding error; a kernel computes the same constant."""
        if not isinstance(made, Tracked):
            return made
        if made.error.exact:
            return made.value
        # A correctly rounded op whose result is a value of the accumulate format was exact there too. What a
        # kernel's own division loses is no matter: constants are computed before it runs.
        if name in CORRECTLY_ROUNDED and made.error.extra is None and made.error.ulps == self._roundings(name):
            narrow = getattr(torch, self.contract.accumulate)
            if not made.is_complex() and torch.equal(made.value.to(narrow).to(torch.float64), made.value):
                return made.value
        return made

    def _roundings(self, name: str) -> float:
        """What one correctly rounded op is charged on exact operands."""
        short = name.removeprefix("aten.")
        return self.accuracy(short).relative if short in ("div", "reciprocal", "sqrt") else 1.0

    def _reshape(self, func: Any, target: Tracked, args: Any, kwargs: Any) -> Tracked:
        """Give a tracked tensor another shape, and its value and error with it."""
        error = target.error
        extra = None if error.extra is None else error.extra.expand(target.shape)
        with no_dispatch():  # the wrapper's own sizes, which torch's composites go on by
            func(target, *args[1:], **kwargs)
        value, moved = (None if x is None else func(x.detach(), *args[1:], **kwargs) for x in (target.value, extra))
        assert value is not None
        target.value, target.error = value, Error(moved, error.ulps)
        return target

    def _write(self, func: Any, name: str, args: Any, kwargs: Any, *, tracked: bool) -> Any:
        target: Any = args[0] if args else None
        is_choice = name == "aten.masked_fill_"  # whose rule knows what a doubtful mask may do
        if not is_choice and any(self.doubts.find(leaf) is not None for leaf in find_tensors(args)):
            raise NoErrorRule(name, POSITION_HINT)
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise NoErrorRule(name, RANDOM_HINT)
        if not tracked:
            discrete = isinstance(target, Tensor) and not is_inexact(target)
            if discrete or (name in EXACT_WRITES and not any(map(torch.is_complex, find_tensors(args)))):
                return func(*args, **kwargs)
            raise WritesInPlace(name, FUNCTIONAL_HINT)
        if name in RESHAPES and isinstance(target, Tracked):
            return self._reshape(func, target, args, kwargs)
        if self.returning and name == "aten.copy_" and isinstance(target, Tracked):
            value, error = self.split(args[1])
            target.value, target.error = value.expand(target.shape), error
            return target
        # Reached from inside torch's own composites only (rms_norm, cosine_similarity, ...): those write to
        # temporaries that nothing else sees, so the functional rule's result can take their place.
        functional = self.rules.get(name.removesuffix("_"))
        alone = isinstance(target, Tracked) and not target.aliased and name.endswith("_")
        returning = find_functional(func)
        if functional is None or returning is None or not alone:
            raise WritesInPlace(name, FUNCTIONAL_HINT)
        value, error = functional(self, returning, args, kwargs)
        made = self.wrap(value, error, aliased=False)
        if made.shape != target.shape:
            raise WritesInPlace(name, FUNCTIONAL_HINT)
        target.value, target.error = made.value, made.error
        return target

"""Exceptions: every refusal of gonogo, with the facts in attributes and a message that says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from os import PathLike
from typing import Any


def suggest(name: str, known: Sequence[str]) -> str:
    """A sentence that names what `name` is short for or near to; empty where it is near to nothing known."""
    from difflib import get_close_matches

    begun = [one for one in known if len(name) > 1 and one.startswith(name)]
    near = begun[:3] or get_close_matches(name, known)
    return f". Did you mean {' or '.join(near)}?" if near else ""


class GonogoError(Exception):
    """Base of everything gonogo raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy message and facts, so that it comes back whole from another process."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[GonogoError], args: tuple[Any, ...], facts: dict[str, Any]) -> GonogoError:
    """Not by calling it: each takes facts of its own and makes the message from them."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class InputError(GonogoError, ValueError):
    """What was handed in cannot be measured; nothing was computed."""


class NoSuchHoldout(InputError):
    """These runs cannot be held out in that way: there is one run, one op or one device."""


def check_type(what: str, value: Any, kinds: type | tuple[type, ...], give: str) -> None:
    """Refuse what is of no such type: `give` says what would be."""
    if not isinstance(value, kinds):
        raise InputError(f"{what} is {type(value).__name__}; give {give}")


def check_path(what: str, value: Any) -> None:
    """Refuse what names no file, nor could."""
    check_type(what, value, (str, PathLike), "a path")
    if "\0" in str(value):
        raise InputError(f"{what} has a null byte in it, which no path has")


class ShapeMismatch(InputError):
    """Actual and expected do not have the same shape; gonogo never broadcasts."""

    def __init__(self, actual: tuple[int, ...], expected: tuple[int, ...]) -> None:
        self.actual, self.expected = actual, expected
        super().__init__(
            f"shapes differ: actual {actual}, expected {expected}. "
            "gonogo does not broadcast: reshape one of them to the other's shape"
        )


class UnsupportedDtype(InputError):
    """Integer, boolean, complex or otherwise non-real data where floating point is measured."""

    def __init__(self, role: str, dtype: str) -> None:
        self.role, self.dtype = role, dtype
        super().__init__(
            f"{role} has dtype {dtype}; gonogo measures real floating point. "
            "Cast it first if its values are meant as reals"
        )


class UnknownFormat(InputError):
    """A floating-point format gonogo has no description of."""

    def __init__(self, name: str, known: Sequence[str], *, role: str | None = None) -> None:
        self.name, self.known, self.role = name, tuple(known), role
        where = f"{role} has" if role else "there is an"
        super().__init__(f"{where} unknown floating-point format {name!r}; known: {', '.join(known)}")


class UnsupportedArray(InputError):
    """An object that is not an array gonogo can read in place."""

    def __init__(self, role: str, what: str) -> None:
        self.role, self.what = role, what
        super().__init__(
            f"{role} is {what}; pass a dense NumPy array, a torch tensor, or an object with __dlpack__ or __array__"
        )


class DeviceMismatch(InputError):
    """Arrays of one measurement stand on more than one device."""

    def __init__(self, devices: dict[str, str]) -> None:
        self.devices = dict(devices)
        listed = ", ".join(f"{role} on {device}" for role, device in devices.items())
        super().__init__(f"arrays on two devices: {listed}. Move them to one device first")


class BackendMissing(GonogoError, ImportError):
    """The call needs a package that is not installed."""

    def __init__(self, package: str, why: str, *, extra: str = "torch") -> None:
        self.package = package
        super().__init__(f"{why} needs {package}, which is not installed. Run: pip install 'gonogo[{extra}]'")


class BadTolerance(InputError):
    """A tolerance that is negative, NaN or no number, or infinite where it makes a unit."""

    def __init__(self, name: str, value: float, *, finite: bool = False) -> None:
        self.name, self.value = name, value
        super().__init__(f"{name} is {value}; a tolerance is a {'finite ' if finite else ''}number >= 0")


def check_tolerance(name: str, value: Any, *, finite: bool = False) -> None:
    """Refuse what is no number ≥ 0, and infinity too where that would leave no unit."""
    if not isinstance(value, Real) or not float(value) >= 0 or (finite and float(value) == float("inf")):
        raise BadTolerance(name, value, finite=finite)


class ArraysChanged(GonogoError, RuntimeError):
    """Two passes over the same arrays counted differently."""

    def __init__(self, cut: float, first: int, second: int) -> None:
        self.cut, self.first, self.second = cut, first, second
        super().__init__(
            f"{first} errors were below {cut} in one pass and {second} in another: the arrays changed while they "
            "were measured. Synchronise whatever writes to them first"
        )


class UnknownGauge(InputError):
    """A gauge name that no file in gonogo/instrument/gauges answers to."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(f"there is no gauge {name!r}; known: {', '.join(known)}")


class ScaleMissing(InputError):
    """The gauge divides by the error scale S and none was given."""

    def __init__(self, gauge: str) -> None:
        self.gauge = gauge
        super().__init__(
            f"gauge {gauge!r} needs the error scale S of the op and got none. "
            "Get it with: expected, scale = gonogo.error_scale(reference, inputs)"
        )


class BadScale(InputError):
    """An error scale with the wrong shape, a negative element or a NaN."""

    def __init__(
        self,
        problem: str,
        *,
        index: tuple[int, ...] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        self.problem, self.index, self.shape = problem, index, shape
        super().__init__(f"scale {problem}; S is one number >= 0 per element of the output")


class NoErrorRule(GonogoError, NotImplementedError):
    """The reference used a torch op the running-error mode has no rule for."""

    def __init__(self, op: str, hint: str | None = None) -> None:
        self.op = op
        self.problem = f"no error rule for {op}: {hint or 'write the reference in primitive ops'}"
        super().__init__(
            f"{self.problem}. To add one: gonogo.error_scale(..., rules={{'{op}': rule}}), where rule(ctx, op, "
            "args, kwargs) returns (value, error); see gonogo/instrument/running_error"
        )


class WritesInPlace(NoErrorRule):
    """The reference, or an op of torch's, wrote to a tensor that others may see: it is run again without writes."""


class BadReference(InputError):
    """A reference that does not return what error_scale can judge."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"reference {problem}")


class UnknownOp(InputError):
    """No folder of that name under gonogo/ops."""

    def __init__(self, name: str, known: Sequence[str], *, near: str = "") -> None:
        self.name, self.known = name, tuple(known)
        listed = f"; known: {', '.join(known)}. List them with: gonogo ops"
        super().__init__(f"unknown op {name!r}" + (f"{near} All: gonogo ops" if near else listed))


class UnknownWord(InputError):
    """A dtype, contract, distribution or other word that gonogo has no meaning for."""

    def __init__(self, what: str, word: object, known: Sequence[str]) -> None:
        self.what, self.word, self.known = what, word, tuple(known)
        near = suggest(str(word), known)
        super().__init__(f"unknown {what} {word!r}{near or ';'} {'K' if near else 'k'}nown: {', '.join(known)}")


class CampaignFailed(GonogoError, RuntimeError):
    """A campaign that cannot go on, through no fault of a kernel."""

    def __init__(self, problem: str, *, says_rest: bool = False) -> None:
        self.says_rest = says_rest
        """Whether it says itself how to go on; else whoever knows the whole command does."""
        super().__init__(problem)


class UnknownRule(InputError):
    """A rule name that no file in gonogo/limits/rules answers to."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(f"there is no rule {name!r}; known: {', '.join(known)}")


class TooFewCases(InputError):
    """Fewer readings than the rule needs for what it promises."""

    def __init__(self, rule: str, have: int, needs: int, *, rate: float | None = None) -> None:
        self.rule, self.have, self.needs, self.rate = rule, have, needs, rate
        promise = "" if rate is None else f" for a false-positive rate of {rate:g}"
        super().__init__(
            f"rule {rule} needs {needs:,} reading{'' if needs == 1 else 's'}{promise} and has {have:,}. "
            "Run more cases, or choose another rule"
        )


class BadKernelFile(InputError):
    """A kernel file that cannot be loaded, or has no function where one was named: there is nothing to judge."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path} {problem}. Nothing was judged")


class BadArguments(InputError):
    """Arguments that are none, or that an op's reference or kernel does not take."""


class BadModule(InputError):
    """A kernel whose parameters and buffers are not those of its reference: there is nothing to judge."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(
            f"the reference's state does not fit the kernel: {problem}. Nothing was judged. "
            "A kernel that keeps a state of its own can be given as a function: lambda *inputs: kernel(*inputs)"
        )


class ReferenceFailed(InputError):
    """The reference of an op raised: no kernel of the op can be measured."""

    def __init__(self, op: str, case: str, error: Exception) -> None:
        self.op, self.case = op, case
        # Who gives an op gives no rules with it.
        told = error.problem if isinstance(error, NoErrorRule) else f"{type(error).__name__}: {error}"
        if isinstance(error, MemoryError) or "DefaultCPUAllocator" in told:  # torch's own words name its sources
            told = "it ran out of memory. Give smaller inputs"
        self.why = told.partition("\n")[0]
        super().__init__(f"reference of op {op} failed on {case}: {self.why}")


class CaseTooLarge(InputError):
    """A case that takes more memory than there is: nothing was judged on it."""

    def __init__(
        self, case: str, needed: float, available: float | None, where: str, *, ran_out: bool = False
    ) -> None:
        self.case, self.needed, self.available, self.where = case, needed, available, where
        size = tell_bytes(available)
        there = {"cuda": f"the GPU has {size}", "worker": f"a worker may use {size}"}
        takes = f"its inputs, their float64 values and its output take {tell_bytes(needed)} or more, and "
        problem = "ran out of memory" if ran_out else "does not fit into memory"
        remedy = "allow more by --memory-gb" if where == "worker" else "run it where there is more memory"
        super().__init__(
            f"case {case} {problem}: {takes if needed else ''}"
            f"{there.get(where, f'this machine has {size} available')}. Choose smaller sizes, or {remedy}"
        )


def tell_bytes(count: float | None) -> str:
    """A size in the largest unit of which it has one, as in 1.5 GiB; of what nobody knows, that it is less."""
    if count is None:
        return "less"
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = max(int(count).bit_length() - 1, 0) // 10
    if power >= len(units):
        return f"2^{int(count).bit_length() - 1} bytes"
    return f"{count / 1024**power:.3g} {units[power]}"


class NothingJudged(InputError):
    """Not one element of one output can be judged: there is no verdict."""

    def __init__(self, op: str, why: str) -> None:
        self.op, self.why = op, why
        super().__init__(f"op {op}: nothing was judged: {why}. Choose other dtypes or inputs, or another contract")


class ControlFailed(InputError):
    """A control that is wrong itself: no limit can be made from it."""

    def __init__(self, control: str, case: str, problem: str) -> None:
        self.control, self.case, self.problem = control, case, problem
        super().__init__(
            f"control {control} cannot calibrate: on {case} it {problem}. Leave it out, mend it, or declare by "
            "contract= what it promises"
        )


class NoGo(GonogoError, AssertionError):
    """A kernel is no-go on at least one case; `verification` holds every verdict."""

    def __init__(self, verification: Any) -> None:
        self.verification = verification
        super().__init__(repr(verification))


class ServiceError(GonogoError, ConnectionError):
    """What a server did not do, its HTTP status, and when to try again; 0 where there was no answer."""

    def __init__(self, status: int, message: str, retry_s: float = 1.0) -> None:
        self.status, self.retry_s = status, retry_s
        super().__init__(message)

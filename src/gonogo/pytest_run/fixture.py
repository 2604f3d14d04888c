"""A kernel or an output in a test → a verdict by the run's limits; noted for summaries and for JUnit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest
from _pytest.outcomes import Failed

from gonogo.pytest_run.judged import Held, Judged, describe_verdict, describe_verification, tell_suspect
from gonogo.pytest_run.run import JUDGED, Run

if TYPE_CHECKING:
    from gonogo.limits import Limit
    from gonogo.ops import Op
    from gonogo.schema import Contract
    from gonogo.user.request import Request
    from gonogo.verdict.judge import Verdict
    from gonogo.verdict.setting import Setting
    from gonogo.verdict.verdicts import Verification

T = TypeVar("T")
NEEDS_GPU = (
    "the kernel launches Triton, which needs a GPU; none here. TRITON_INTERPRET=1 before the import runs it in the "
    "interpreter"
)
STOPS_LAUNCHES = ("gonogo.guest.launches", "triton.runtime.driver")
"""Modules that raise where a launch finds no GPU: gonogo's stops it; where Triton tunes first, its own does."""


class Fixture:
    """What the fixture hands to a test: two methods, and the other public names of the module `gonogo`."""

    def __init__(self, run: Run, test: pytest.Item) -> None:
        self._run, self._test, self._suite = run, test, run.open_suite()
        self._judged: list[Judged] = test.stash.setdefault(JUDGED, [])
        self._judged.clear()  # a test may be run again

    def __getattr__(self, name: str) -> Any:
        import gonogo
        from gonogo.errors import suggest

        if name in gonogo.__all__:
            return getattr(gonogo, name)
        hint = suggest(name, gonogo.__all__)
        raise AttributeError(
            f"the fixture gonogo has no {name!r}: it has verify, check and the public names of the module{hint}"
        )

    def __dir__(self) -> list[str]:
        import gonogo

        return sorted({*super().__dir__(), *gonogo.__all__})

    def verify(
        self,
        kernel: Callable[..., Any],
        op: str | Op | None = None,
        *,
        contract: Contract | str | None = None,
        controls: Sequence[Callable[..., Any]] = (),
        device: str = "auto",
        strict: bool = True,
        **options: Any,
    ) -> Verification:
        """Do what gonogo.verify does, by the limit of the lock file; fails the test unless not `strict`.

        `controls` are what that limit is measured on, when pytest is asked to. An op that is told by its reference,
        or whose output is a nest, is held to the universal limit where the lock file has none of its own; with
        --gonogo-limits shipped every op is held to the package's. The summary names a test that passes with a
        suspect case; under --gonogo-strict it fails. Where there is no GPU, a kernel that launches Triton skips it.
        """
        __tracebackhide__ = True
        from gonogo.user.request import Request
        from gonogo.user.verification import verify

        self._refuse_limits(options)
        usual = {"cases": self._suite.cases, "seed": self._suite.seed, "suspects": self._choose_suspects()}
        usual["isolated"] = self._run.config.option.gonogo_isolate
        options = {**usual, **self._choose_record(kernel), **options}
        inspect.signature(verify).bind(kernel, op, **options)  # an unknown option is one of verify's
        request = Request(kernel, op, contract=contract, controls=controls, device=device, **options)
        known, keeps = _call(lambda: (request.known, request.keeps))
        measured = set(self._suite.fresh)
        try:
            limit = self._give_limit(known, keeps, controls, device)
        except SetUpFailed:
            self._skip_without_gpu(request)  # what is missing is a GPU's to measure
            raise
        if limit is not None:  # at hand here, and in the file there
            request = replace(request, limit=limit, limit_from=Path(self._suite.name))
        elif self._run.limits == "shipped":
            request = replace(request, controls=())  # or the limit would be made from them
        verification, error = self._answer(request, measured)
        if _is_stopped(verification, error):
            self._suite.forget(set(self._suite.fresh) - measured)
            pytest.skip(NEEDS_GPU)
        if verification.recorded is not None:
            self._run.added += verification.recorded.added
            self._run.known += verification.recorded.known
        held = None if request.used_controls and limit is None else self._describe_limit(known, keeps, limit)
        judged = describe_verification(verification, held, tell_suspect(verification) if strict else None)
        if self._run.config.option.gonogo_report is not None:
            from gonogo.report.verdicts import describe

            judged = replace(judged, page=describe(verification, self._test.nodeid))
        self._add(
            judged,
            [case.verdict for case in verification.verdicts],
            {"not_judged": len(verification.unjudged)} | _list_setting(verification.setting),
        )
        if strict and verification.failed:
            counted = f"seed {options['seed']}, {options['cases']} cases per dtype"
            pytest.fail(f"{verification!r}\n  lock        {self._tell_source(limit)}; {counted}")
        return verification

    def check(
        self,
        actual: Any,
        op: str | Op | None = None,
        *,
        contract: Contract | str | None = None,
        controls: Sequence[Callable[..., Any]] = (),
        strict: bool = True,
        **options: Any,
    ) -> Verdict:
        """Do what gonogo.check does, by the limit of the lock file; fails the test on a no-go unless not `strict`.

        One output cannot be had on other seeds: a suspect one passes, and the summary says so; under
        --gonogo-strict it fails.
        """
        __tracebackhide__ = True
        from gonogo.user.checking import check
        from gonogo.words import find_contract, find_op

        self._refuse_limits(options)
        limit, keeps, held = None, None, None
        if op is not None and options.get("expected") is None:
            known, keeps = _call(find_op, op), _call(find_contract, contract)
            limit = self._give_limit(known, keeps, controls, "auto")
            held = self._describe_limit(known, keeps, limit)
        verdict = _call(check, actual, op, contract=keeps or contract, limit=limit, **options)
        name = "output" if op is None else op if isinstance(op, str) else op.name
        described = keeps.describe() if keeps else "none"
        failing = ("no-go",) if self._choose_suspects() == "rerun" else ("no-go", "suspect")
        passes = strict and verdict.decision == "suspect" and "suspect" not in failing
        suspect = f"{name} {verdict.message}" if passes else None
        self._add(describe_verdict(verdict, name, described, held, suspect, _find_machine(actual)), [verdict])
        if strict and verdict.decision in failing:
            source = "" if limit is None and self._run.limits == "lock" else f"\n  {self._tell_source(limit)}"
            pytest.fail(f"{name}: {verdict.message}{source}")
        return verdict

    def _answer(
        self, request: Request, measured: set[tuple[str, str]]
    ) -> tuple[Verification, BaseException | None]:
        """All verdicts; a limit that was measured for a test which is then skipped is not kept."""
        __tracebackhide__ = True
        from gonogo.user.verification import answer

        try:
            return _call(answer, request)
        except pytest.skip.Exception:
            self._suite.forget(set(self._suite.fresh) - measured)
            raise

    def _skip_without_gpu(self, request: Request) -> None:
        """Skip the test if its kernel launches Triton, and there is no GPU: one case tells."""
        __tracebackhide__ = True
        from torch.cuda import is_available

        from gonogo.user.verification import answer

        if not is_available() and _is_stopped(*_call(answer, replace(request, cases=1, controls=(), record=None))):
            pytest.skip(NEEDS_GPU)

    def _give_limit(
        self, op: Op, contract: Contract, controls: Sequence[Callable[..., Any]], device: str
    ) -> Limit | None:
        """The limit of the lock file; None where the package's is to be used."""
        __tracebackhide__ = True
        if self._run.limits == "shipped":
            return None
        if op.is_nest:
            return _call(self._suite.find_limit, op, contract)
        return _call(self._suite.give_limit, op, contract, controls, device)

    def _describe_limit(self, op: Op, contract: Contract, limit: Limit | None) -> Held | None:
        """What the limit in use is from; None: it is the deterministic bound."""
        from gonogo.limits.shipped import find_limit, note_loose
        from gonogo.user.calibration import count_per_dtype

        if limit is None:
            found = find_limit(op.name, contract)
            devices = (found.devices,) if found.devices not in (None, "?") else ()
            return None if found.limit is None else Held("package", found.limit.cases, None, devices)
        source: Literal["lock", "here"] = "here" if self._suite.is_fresh(limit) else "lock"
        loose = note_loose(limit)
        told = f"the limit {limit.value:.4g} is {loose}" if loose else None
        return Held(source, limit.cases, count_per_dtype(limit), self._suite.list_devices(limit), told)

    def _tell_source(self, limit: Limit | None) -> str:
        """Where the limit is from, for a failure."""
        if limit is not None:
            return f"limit from {self._suite.name}"
        return "the universal limit of the package" if self._run.limits == "lock" else "limit of the package"

    def _refuse_limits(self, options: Mapping[str, Any]) -> None:
        """The limit is the lock file's; another would be left unused."""
        __tracebackhide__ = True
        for name in ("lock", "limit"):
            if name in options:
                limits = f"in {self._suite.name}" if self._run.limits == "lock" else "the package's"
                problem = f"{name}= is not for the fixture, whose limits are {limits}"
                pytest.fail(f"{problem}. Name another file by --gonogo-lock, or call gonogo.verify", pytrace=False)

    def _choose_suspects(self) -> str:
        return "fail" if self._run.config.option.gonogo_strict else "rerun"

    def _choose_record(self, kernel: Callable[..., Any]) -> dict[str, Any]:
        """Where to record a kernel, and by what name: two tests may well have a `<lambda>` each."""
        from gonogo.user.kernels import name_function

        config = self._run.config
        if not config.option.gonogo_record:
            return {}
        given = config.option.gonogo_record
        folder = given if given.lower().startswith("s3://") else config.invocation_params.dir / given
        return {"record": folder, "name": f"{self._test.nodeid}/{name_function(kernel)}"}

    def _add(
        self, judged: Judged, verdicts: Sequence[Verdict], more: Mapping[str, object] = MappingProxyType({})
    ) -> None:
        """Note what was judged, for summaries; and as properties of the test, for JUnit."""
        self._judged.append(judged)
        readings = [verdict.reading for verdict in verdicts if verdict.reading is not None]
        limits = [verdict.limit for verdict in verdicts if verdict.limit is not None]
        facts = {
            "op": judged.op, "contract": judged.contract, "decision": judged.decision, "cases": judged.cases,
            "worst_reading": max(readings, default="none"), "limit": max(limits, default="none"),
            "share_of_limit": "none" if judged.share is None else judged.share, **more,
        }  # fmt: skip
        number = len(self._judged)
        prefix = "gonogo" if number == 1 else f"gonogo_{number}"
        # As record_property does, which warns of JUnit's strictest schema.
        self._test.user_properties += [(f"{prefix}_{name}", value) for name, value in facts.items()]


def _list_setting(setting: Setting | None) -> dict[str, object]:
    """Machine, versions and seed, as properties of a test."""
    if setting is None:
        return {}
    versions = {"version" if name == "gonogo" else name: text for name, text in setting.versions.items()}
    seed = {} if setting.seed is None else {"seed": setting.seed}
    return {"device": setting.device, "machine": setting.machine, **versions, **seed}


def _find_machine(output: Any) -> tuple[str, str] | None:
    """Device and machine that an output is on; None where it does not say."""
    from gonogo.runners.environment import name_machine

    on_gpu = getattr(output, "is_cuda", None)
    if on_gpu is None:
        return None
    device = "cuda" if on_gpu else "cpu"
    return device, name_machine(device)


class SetUpFailed(Failed):
    """Nothing was judged: a missing limit, say. No test is expected to fail for that, one marked xfail neither."""


def _call(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """What a function of gonogo returns; what it refuses fails the test in one line, a lack of a GPU skips it."""
    __tracebackhide__ = True
    from gonogo.errors import GonogoError, NoGo

    try:
        return function(*arguments, **options)
    except NoGo:
        raise
    except GonogoError as error:
        problem, skips = str(error), _lacks_gpu(error)
    if skips:
        pytest.skip(NEEDS_GPU)
    raise SetUpFailed(problem, pytrace=False)  # out here, or it would be told twice


def _is_stopped(verification: Verification, error: BaseException | None) -> bool:
    """Whether all that failed did so for want of a GPU."""
    raised = [_ends_with(case.record.error, error) for case in verification.failed]
    return bool(raised) and all(raised) and _lacks_gpu(error)


def _lacks_gpu(error: BaseException | None) -> bool:
    """Whether it was raised where Triton was to launch a kernel, on a machine without a GPU."""
    from torch.cuda import is_available

    if error is not None and type(error.__cause__).__name__ == "WrongDevice":  # in a process of its own
        return not is_available()
    frame = None if error is None else error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None or frame.tb_frame.f_globals.get("__name__") not in STOPS_LAUNCHES:
        return False
    return not is_available()


def _ends_with(text: str | None, error: BaseException | None) -> bool:
    """Whether a traceback ends with an error."""
    return text is not None and text.rstrip().endswith(f"{type(error).__name__}: {error}")

"""An op with its functions at hand, and cases → rows, in this process: for code a user trusts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.cases import Case, make_inputs
from gonogo.diagnosis import Planned
from gonogo.own_op import OwnOp
from gonogo.verdicts import Row


@dataclass(frozen=True)
class InProcess:
    """Runs kernels here."""

    op: OwnOp
    device: str
    bounds_only: bool = False
    """Whether rows are for verdicts alone, and not for a record."""

    def run(self, planned: Sequence[Planned], kernels: Sequence[str], *, worst: int = 0) -> list[list[Row]]:
        """Rows of each case, of those kernels that take its dtype."""
        return [self.run_case(number, *one, kernels, worst=worst) for number, one in enumerate(planned)]

    def run_case(
        self, number: int, case: Case, strategy: str, kernels: Sequence[str], *, worst: int = 0
    ) -> list[Row]:
        """Rows of one case."""
        from gonogo.campaign.bench import Job
        from gonogo.campaign.execute import run_job

        usable = tuple(name for name in kernels if case.dtype in self.op.kernel(name).dtypes)
        job = Job(number, case, strategy, usable, self.device, worst=worst, bounds_only=self.bounds_only)
        return list(run_job(job, lambda kernel: None, op=self.op))

    def find_narrow_casts(self, case: Case) -> tuple[str, ...]:
        """Formats narrower than float64 that the reference of the op casts to, on one case."""
        from gonogo.measure.running_error import error_scale
        from gonogo.measure.running_error.rules import RULES

        found: set[str] = set()

        def watch(context: Any, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
            dtype = kwargs.get("dtype")
            if dtype is not None and dtype.is_floating_point and dtype.itemsize < 8:
                found.add(str(dtype).removeprefix("torch."))
            return RULES["aten._to_copy"](context, func, args, kwargs)

        inputs = make_inputs(case, self.device, self.op)
        error_scale(self.op.load_reference(), inputs, rules={"aten._to_copy": watch})
        return tuple(sorted(found))

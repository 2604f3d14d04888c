"""Small cases by workers that run a kernel themselves, and by workers whose guests run it → what guests cost.

python benchmarks/isolation.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from gonogo.cases import INTERPRETER, USUAL, Planned, plan_cases
from gonogo.execution.job import Job
from gonogo.ops import DTYPES, InFile, InText, Kernel, get_op
from gonogo.runners.device import set_switches
from gonogo.runners.pool import Allowance, Pool
from gonogo.schema import Contract
from gonogo.user.kernels import make_candidate

SOURCE = "import torch\ndef softmax(x):\n    return torch.softmax(x.float(), -1).to(x.dtype)\n"
CASES, ROUNDS = 100, 5


def time_cases(
    planned: list[Planned], kernel: Kernel, guests_of: tuple[str, ...] | None, depth: dict[str, Any]
) -> float:
    """Seconds of all cases, with workers and guests that have run some before."""
    pool = Pool(2, Allowance(), guests_of=guests_of, device="cpu")

    def run(some: list[Planned]) -> None:
        op = get_op("softmax")
        jobs = (Job(at, case, how, op, (kernel,), "cpu", **depth) for at, (case, how) in enumerate(some))
        for _ in pool.run(jobs):
            pass

    try:
        run(planned[:8])
        begun = time.perf_counter()
        run(planned)
        return time.perf_counter() - begun
    finally:
        pool.close()


def main() -> None:
    set_switches("cpu")
    op = get_op("softmax")
    planned = [
        case for dtype in DTYPES for case in plan_cases(op, dtype, CASES, 0, distributions=USUAL, limit=INTERPRETER)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.py")
        path.write_text(SOURCE)
        own = make_candidate(op, InFile(str(path), "softmax"), Contract())
        strange = make_candidate(op, InText(str(path), "softmax", SOURCE), Contract())
        for name, depth in (
            ("all that a campaign records", {}),
            ("a verdict and ErrorStats", {"bounds_only": True, "stats": True}),
        ):
            pairs = [
                (time_cases(planned, own, None, depth), time_cases(planned, strange, (), depth))
                for _ in range(ROUNDS)
            ]
            here, there = (statistics.median(times) for times in zip(*pairs, strict=True))
            ratio = statistics.median(guest / worker for worker, guest in pairs)
            print(
                f"{name}: {len(planned) / here:.0f} cases/s in workers, {len(planned) / there:.0f} by guests; "
                f"{ratio:.2f} times as long"
            )


if __name__ == "__main__":
    main()

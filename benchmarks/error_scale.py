"""Reference ops → time of error_scale as a multiple of the plain float64 reference, one row per op."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from timing import time_side_by_side

from gonogo.instrument.running_error import error_scale


@dataclass(frozen=True)
class Workload:
    """One reference with its inputs."""

    name: str
    reference: Callable[..., torch.Tensor]
    inputs: list[torch.Tensor]


@dataclass(frozen=True)
class Row:
    """Medians of one workload."""

    name: str
    reference_ms: float
    error_scale_ms: float

    @property
    def ratio(self) -> float:
        """How many references one error_scale costs."""
        return self.error_scale_ms / self.reference_ms


def softmax(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def layernorm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    m = x.mean(-1, keepdim=True)
    c = x - m
    v = (c * c).mean(-1, keepdim=True)
    return c * torch.rsqrt(v + 1e-5) * w + b


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5) @ v


def make_workloads(device: str) -> list[Workload]:
    torch.manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, device=device)

    return [
        Workload("softmax 4096×4096", softmax, [draw(4096, 4096)]),
        Workload("layernorm 4096×4096", layernorm, [draw(4096, 4096), draw(4096), draw(4096)]),
        Workload("matmul 4096³", torch.matmul, [draw(4096, 4096), draw(4096, 4096)]),
        Workload("attention 4096×64", attention, [draw(4096, 64) for _ in range(3)]),
    ]


def measure_row(workload: Workload, *, device: str, repeats: int) -> Row:
    """Medians of both, taken in turn."""
    times = time_side_by_side(
        {
            "reference": lambda: workload.reference(*workload.inputs),
            "error_scale": lambda: error_scale(workload.reference, workload.inputs),
        },
        repeats=repeats,
        cuda=device != "cpu",
    )
    return Row(workload.name, times["reference"], times["error_scale"])


def name_machine(device: str) -> str:
    if device != "cpu":
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = named[0] if named else model
    return f"{model}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def format_table(rows: list[Row], machine: str, repeats: int) -> str:
    lines = [
        f"error_scale against its float64 reference on {machine}; median of {repeats}.",
        "",
        "| op | reference (ms) | error_scale (ms) | ratio |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row.name} | {row.reference_ms:.2f} | {row.error_scale_ms:.2f} | {row.ratio:.2f} |" for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    rows = [
        measure_row(workload, device=chosen.device, repeats=chosen.repeats)
        for workload in make_workloads(chosen.device)
    ]
    table = format_table(rows, name_machine(chosen.device), chosen.repeats)
    print(table)
    if chosen.markdown:
        chosen.markdown.write_text(table, encoding="utf-8")


if __name__ == "__main__":
    main()

"""A device, a seed and the records of a kernel → where and how it was judged, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gonogo.schema import Record

NO_CUDA = "no CUDA device: ran on the CPU"
INTERPRETED = (
    "Triton's interpreter ran the kernel, on the CPU: what its compiler makes of it on a GPU is not judged"
)


@dataclass(frozen=True)
class Setting:
    """The machine, the versions and the seed that verdicts are from."""

    device: str
    """`cpu` or `cuda`."""
    machine: str
    """Name of the GPU, or of the processor."""
    versions: Mapping[str, str]
    """Of gonogo, torch, Python, and of Triton where the kernel launches it."""
    seed: int | None
    """Of the cases; None where one case was named, whose id has its own."""
    fell_back: bool = False
    """Whether the device was to be chosen, and there was no GPU."""
    interpreted: bool = False
    """Whether Triton's interpreter ran the kernel."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """One line: machine, versions, seed."""
        machine = f"{self.machine} ({NO_CUDA})" if self.fell_back else self.machine
        named = [f"{name.replace('python', 'Python')} {version}" for name, version in self.versions.items()]
        listed = ", ".join([machine, *named])
        return listed if self.seed is None else f"{listed}; seed {self.seed}"


def describe_setting(asked: str, device: str, seed: int | None, records: Sequence[Record]) -> Setting:
    """What is to be told of a run on `device`, where `asked` was given for it; `records` are the candidate's."""
    from gonogo.runners.environment import name_machine, read_versions

    launched, on_cpu = any(record.framework == "triton" for record in records), device == "cpu"
    return Setting(
        device, name_machine(device), read_versions(triton=launched), seed, fell_back=asked == "auto" and on_cpu,
        interpreted=launched and on_cpu,
    )  # fmt: skip

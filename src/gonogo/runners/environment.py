"""Machine → what a run must tell of it: hardware, versions, and every switch that changes numerics."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gonogo._version import __version__
from gonogo.schema import name_device

SWITCHES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TRITON_DEFAULT_FP_FUSION",
    "TRITON_F32_DEFAULT",
    "TRITON_INTERPRET",
)


def read_switches() -> dict[str, str | None]:
    """Environment variables that change numerics, as they are set now."""
    return {name: os.environ.get(name) for name in SWITCHES}


def describe_environment(device: str) -> dict[str, Any]:
    """Facts of the machine, its software and its switches, in types that JSON can hold."""
    import torch

    from gonogo.execution.precision import FLAGS

    facts: dict[str, Any] = {
        "gonogo": __version__,
        "commit": _read_commit(),
        "python": platform.python_version(),
        "platform": _read_platform(),
        "processor": _read_processor(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "triton": _read_version("triton"),
        "numpy": _read_version("numpy"),
        "device": device,
        "switches": read_switches(),
        "torch_flags": FLAGS,
    }
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        facts |= {
            "gpu": properties.name,
            "gpu_memory": properties.total_memory,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
            "driver": _read_driver(),
        }
    return facts


def name_machine(device: str) -> str:
    """The GPU's name, or the processor's, as runs made here are known by."""
    if device == "cuda":
        import torch

        return name_device({"gpu": torch.cuda.get_device_name(0)})
    return name_device({"processor": _read_processor(), "platform": _read_platform()})


def read_versions(*, triton: bool) -> dict[str, str]:
    """Versions that a verdict depends on; Triton's if it was used."""
    loaded = sys.modules.get("torch")  # which says more, as for which CUDA it was built; it is not loaded for that
    versions = {"torch": _read_version("torch") if loaded is None else str(loaded.__version__)}
    versions |= {"triton": _read_version("triton")} if triton else {}
    versions |= {"gonogo": __version__, "python": platform.python_version()}
    return {name: str(version) for name, version in versions.items()}


def _read_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _read_commit() -> str | None:
    """What GONOGO_COMMIT says; else the commit of the checkout, with a + where gonogo's files differ from it.

    None where gonogo is no part of the checkout it lies in, as in a virtual environment of another project.
    """
    if "GONOGO_COMMIT" in os.environ:
        return os.environ["GONOGO_COMMIT"]
    try:
        _ask_git("ls-files", "--error-unmatch", "__init__.py")
        commit = _ask_git("rev-parse", "--short=12", "HEAD")
        changed = _ask_git("status", "--porcelain", "--", "..")
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+" if changed else "")


def _ask_git(*words: str) -> str:
    here = Path(__file__).parent
    answer = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True, timeout=10)
    return answer.stdout.strip()


def _read_platform() -> str:
    return f"{platform.system()} {platform.machine()}"


def _read_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def _read_driver() -> str | None:
    try:
        words = Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return None
    return next((word for word in words if word[:1].isdigit() and word.count(".") >= 1), None)

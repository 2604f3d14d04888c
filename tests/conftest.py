"""Fixtures of all tests; decides once whether Triton compiles for a GPU, and how many threads torch may use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the exact oracle is shared by all folders

os.environ.setdefault("GONOGO_TESTED_BY", "CI" if os.environ.get("CI") else "hand")  # CI is always set below
os.environ["CI"] = "1"  # the seeds of gonogo check stay what they are
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take 3/4 of a GPU from all later tests
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    # A share of the cores for each worker, and for what it starts: threads that wait for one another on cores that
    # are taken make a test ten times as long. Read when torch is imported.
    share = (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ.setdefault("OMP_NUM_THREADS", str(max(share, 1)))


def pytest_configure(config: pytest.Config) -> None:
    """Have Triton interpret where there is no GPU; not in the process that only hands out tests to others."""
    hands_out = config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
    if not hands_out and not has_gpu():
        # Read when a kernel is decorated, so it must be set before path_triton is imported.
        os.environ["TRITON_INTERPRET"] = "1"


@cache
def has_gpu() -> bool:
    """Whether torch is there, and sees a CUDA device."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


@pytest.fixture(autouse=True, scope="module")
def no_ops_of_others() -> Iterator[None]:
    """Folders of ops that a module adds are gone after it: others count and list what comes with the package."""
    from gonogo import ops

    before = list(ops.more_folders)
    yield
    if ops.more_folders != before:
        ops.more_folders[:] = before
        ops.get_op.cache_clear()


@pytest.fixture
def several_threads() -> Iterator[None]:
    """torch has more than one thread, however many processes share the cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(before, 2))
    yield
    torch.set_num_threads(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not has_gpu():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))

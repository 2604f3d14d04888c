"""Fixtures of all tests; decides once whether Triton compiles for a GPU or interprets on the CPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the exact oracle is shared by all folders


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


GPU = _has_gpu()
if not GPU:
    # Read when a kernel is decorated, so it must be set before path_triton is imported.
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True, scope="module")
def no_ops_of_others() -> Iterator[None]:
    """Folders of ops that a module adds are gone after it: others count and list what comes with the package."""
    from gonogo import ops

    before = list(ops.more_folders)
    yield
    if ops.more_folders != before:
        ops.more_folders[:] = before
        ops.get_op.cache_clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not GPU:
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))

"""FILE[:NAME]: where the path ends, and what is said of a file that is not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gonogo.errors import InputError
from gonogo.user.kernel_file import find_kernel
from gonogo.user.op_file import find_op_file
from gonogo.user.target import split_target


@pytest.mark.parametrize(
    ("target", "path", "name"),
    [
        ("k.py", "k.py", ""),
        ("k.py:func", "k.py", "func"),
        ("k.py:", "k.py", ""),
        ("a:b/k.py", "a:b/k.py", ""),
        ("a:b/k.py:func", "a:b/k.py", "func"),
        ("folder/k:func", "folder/k", "func"),
        ("C:\\k.py", "C:\\k.py", ""),
        ("C:\\k.py:func", "C:\\k.py", "func"),
        ("C:/some folder/k.py", "C:/some folder/k.py", ""),
        ("c:/k.py:func", "c:/k.py", "func"),
        ("C:k.py", "C:k.py", ""),
        ("C:k.py:func", "C:k.py", "func"),
        ("\\\\?\\C:\\k.py", "\\\\?\\C:\\k.py", ""),
        ("\\\\?\\C:\\k.py:func", "\\\\?\\C:\\k.py", "func"),
        (":func", ".", "func"),
        ("x" * 5000, "x" * 5000, ""),
    ],
)
def test_a_drive_is_part_of_the_path(target: str, path: str, name: str) -> None:
    assert split_target(target) == (Path(path), name)


def test_what_exists_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("k.py:func", "k"):
        (tmp_path / name).write_text("")
    assert split_target("k.py:func") == (Path("k.py:func"), "")
    assert split_target("k:func") == (Path("k"), "func")


@pytest.mark.parametrize("find", [lambda target: find_kernel(target, "relu"), find_op_file])
@pytest.mark.parametrize("target", ["C:\\k.py", "C:\\k.py:func", "D:/k.py", "k.py", "k.py:func"])
def test_a_missing_file_is_named_whole(find: Callable[[str], Any], target: str) -> None:
    with pytest.raises(InputError) as caught:
        find(target)
    assert str(caught.value) == f"there is no file {target.removesuffix(':func')}"


def test_a_name_is_found_behind_a_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("C:\\k.py").write_text("def one(x): ...\ndef two(x): ...\n")  # a file name like any other, but on Windows
    found = find_kernel("C:\\k.py:two", "relu")
    assert (found.path.name, found.function) == (Path("C:\\k.py").name, "two")

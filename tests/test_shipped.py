"""The limit of a lock file, looked up as users do: by verify, by check and by the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import gonogo
from gonogo.cli import cli
from gonogo.errors import InputError
from gonogo.lock import read_lock, write_lock

torch = pytest.importorskip("torch")
pytest_plugins = ("pytester",)

RUN = Path(__file__).parent.parent / "records" / "h200-1"
MAKE = "Make it with: gonogo calibrate RUNS --gauge bound --rule pooled"


@pytest.fixture(scope="module")
def other_locks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Made by the command: limits of one control and dtype each, and limits in ULPs."""
    folder = tmp_path_factory.mktemp("locks")
    for name, words in (("paper", ["--rule", "paper"]), ("ulp", ["--gauge", "ulp"])):
        given = ["calibrate", str(RUN), "--ops", "matmul", "-o", str(folder / name), *words]
        assert CliRunner().invoke(cli, given, catch_exceptions=False).exit_code == 0
    return {name: folder / name for name in ("paper", "ulp")}


def multiply(a: Any, b: Any) -> Any:
    return (a.float() @ b.float()).to(a.dtype)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("paper", "limits for matmul, contract float32, each for one kernel and dtype; verdicts need one for all"),
        ("ulp", "3 limits for matmul, contract float32, in the gauge ulp; verdicts need one in bound"),
    ],
)
def test_a_lock_of_another_kind_is_refused(
    name: str, told: str, other_locks: dict[str, Path], tmp_path: Path
) -> None:
    lock, file = other_locks[name], tmp_path / "kernel.py"
    file.write_text("def multiply(a, b):\n    return (a.float() @ b.float()).to(a.dtype)\n")
    a = torch.ones(2, 2)
    calls = (
        lambda: gonogo.verify(multiply, "matmul", dtypes="float32", cases=2, device="cpu", lock=lock),
        lambda: gonogo.check(a @ a, "matmul", inputs={"a": a, "b": a}, lock=lock),
        lambda: CliRunner().invoke(
            cli, ["check", str(file), "--op", "matmul", "--lock", str(lock)], catch_exceptions=False
        ),
    )
    for call in calls:
        with pytest.raises(InputError) as caught:
            call()
        assert str(caught.value).startswith(f"{lock}: ")
        assert str(caught.value).endswith(f"{told}. {MAKE}")
    # An op that it says nothing of is as before.
    found = gonogo.verify(torch.relu, "relu", dtypes="float32", cases=1, device="cpu", lock=lock)
    assert found.limit_from.startswith("the deterministic bound")


def test_one_limit_of_one_dtype_is_not_for_the_others(other_locks: dict[str, Path], tmp_path: Path) -> None:
    limits, provenance = read_lock(other_locks["paper"])
    write_lock(tmp_path / "one.lock", [one for one in limits if one.dtype == "bfloat16"][:1], provenance)
    with pytest.raises(InputError, match="1 limit for matmul, contract float32, each for one kernel and dtype"):
        gonogo.verify(multiply, "matmul", dtypes="float32", cases=1, device="cpu", lock=tmp_path / "one.lock")


def test_a_project_with_a_lock_of_another_kind(pytester: pytest.Pytester, other_locks: dict[str, Path]) -> None:
    """Limits of one control and dtype each, and limits in ULPs: neither is what a verdict is by."""
    pytester.makepyfile("""
        def test_matmul(gonogo):
            kernel = lambda a, b: (a.float() @ b.float()).to(a.dtype)
            gonogo.verify(kernel, "matmul", dtypes="float32", device="cpu")
    """)
    lock = pytester.path / "gonogo.lock"

    def run(*options: str) -> pytest.RunResult:
        given = ("--gonogo-cases", "3", "-p", "no:cacheprovider", *options)
        return pytester.runpytest_subprocess(*given, timeout=120)

    for name, told in (("paper", "each for one kernel and dtype; *"), ("ulp", "in the gauge ulp; *")):
        lock.write_bytes(other_locks[name].read_bytes())
        for option in ((), ("--gonogo-update-new",)):
            found = run(*option)
            found.assert_outcomes(failed=1)
            found.stdout.fnmatch_lines([
                f"gonogo.lock: * limits for matmul, contract float32, {told}. Make it with: pytest --gonogo-update"
            ])  # fmt: skip
        assert lock.read_bytes() == other_locks[name].read_bytes()
        run("--gonogo-update").assert_outcomes(passed=1)
        run().assert_outcomes(passed=1)

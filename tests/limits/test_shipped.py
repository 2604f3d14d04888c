"""The limit of a lock file, looked up as users do: by verify, by check and by the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from warm import run_pytest

import gonogo
from gonogo.cli import cli
from gonogo.errors import InputError
from gonogo.limits import EVERY_OP, Limit
from gonogo.limits.lock import read_lock, write_lock
from gonogo.limits.shipped import NOTHING_CALIBRATED, choose_limit
from gonogo.ops import get_op
from gonogo.schema import Contract
from gonogo.user.suite import Suite

torch = pytest.importorskip("torch")
pytest_plugins = ("pytester",)

RUN = Path(__file__).parent.parent.parent / "records" / "h200-1"
MAKE = "Make it with: gonogo calibrate RUNS --gauge bound --rule pooled"


@pytest.fixture(scope="module")
def other_locks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Made by the command: limits of one control and dtype each, and limits in ULPs."""
    folder = tmp_path_factory.mktemp("locks")
    for name, words in (("paper", ["--rule", "paper"]), ("ulp", ["--gauge", "ulp"])):
        given = ["calibrate", str(RUN), "--ops", "matmul", "-o", str(folder / name), *words]
        assert CliRunner().invoke(cli, given, catch_exceptions=False).exit_code == 0
    return {name: folder / name for name in ("paper", "ulp")}


@pytest.fixture
def small_lock(tmp_path: Path) -> Path:
    """A limit of softmax's own, and one for all ops that compute in float32."""
    own = Limit("softmax", "float32", None, None, "bound", "pooled", {"floor": 2.0}, 4.5, 3_072)
    universal = replace(own, op=EVERY_OP, kernel="28 ops", rule="universal", value=16.5, cases=88_784)
    write_lock(tmp_path / "small.lock", [own, universal], {"devices": "NVIDIA H200"})
    return tmp_path / "small.lock"


def test_which_limit_is_chosen(small_lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An op's own, else the universal one of the contract, else the deterministic bound."""
    universal = "universal, 88,784 cases of 28 ops on NVIDIA H200: this op has no limit of its own"
    for op, contract, gauge, value, words in (
        ("softmax", Contract(), "bound", 4.5, "pooled, 3,072 cases of correct kernels on NVIDIA H200"),
        ("relu", Contract(), "bound", 16.5, universal),
        ("softmax", Contract(accumulate="bfloat16"), "deterministic", 1.0,
         f"the deterministic bound: {small_lock} has no limit for this one"),
    ):  # fmt: skip
        chosen = choose_limit(get_op(op), contract, lock=small_lock)
        assert (chosen.gauge, chosen.value, chosen.told) == (gauge, value, words)
    monkeypatch.setattr("gonogo.limits.shipped.shipped_lock", lambda: small_lock)
    mine = gonogo.Op("square", inputs={"x": "n"}, output="n", sizes={"n": (3,)}, reference=lambda x: x * x)
    chosen = choose_limit(mine, Contract())
    assert (chosen.gauge, chosen.value, chosen.told) == ("bound", 16.5, universal)
    assert choose_limit(mine, Contract(accumulate="bfloat16")).told == NOTHING_CALIBRATED
    right = gonogo.verify(lambda x: x * x, mine, dtypes="float32", cases=2, device="cpu")
    assert (right.decision, right.limit_from) == ("go", universal)
    wrong = gonogo.verify(
        lambda x: x * x * (1 + 2**-18), mine, dtypes="float32", cases=2, device="cpu", strict=False
    )
    assert wrong.decision == "no-go"


def test_a_universal_limit_may_be_given(small_lock: Path) -> None:
    universal = read_lock(small_lock)[0][0]
    chosen = choose_limit(get_op("relu"), Contract(), limit=universal)
    assert chosen.told == "universal, 88,784 cases of 28 ops: this op has no limit of its own"
    with pytest.raises(
        InputError, match=r"limit is for op \*, contract float32; this is op relu, contract bfloat16"
    ):
        choose_limit(get_op("relu"), Contract(accumulate="bfloat16"), limit=universal)


def test_a_vacuous_universal_limit_is_refused(small_lock: Path) -> None:
    universal = replace(read_lock(small_lock)[0][0], value=1e7)
    write_lock(small_lock, [universal], {})
    with pytest.raises(InputError, match=r"the limit 1e\+07 for \*, contract float32, lets errors pass that no"):
        choose_limit(get_op("relu"), Contract(), lock=small_lock)


def test_no_test_is_asked_to_use_a_universal_limit(small_lock: Path) -> None:
    """A project's tests take limits of their ops alone, so a universal one is not told to be unused."""
    suite = Suite(small_lock, "small.lock", "", None, cases=1, seed=0)
    assert suite.find_unused()[1:] == ["  softmax, contract float32"]
    with pytest.raises(InputError, match=r"no limit for relu, contract float32, in small\.lock"):
        suite.give_limit("relu", Contract(), (), "cpu")


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


@pytest.mark.slow
def test_a_project_with_a_lock_of_another_kind(pytester: pytest.Pytester, other_locks: dict[str, Path]) -> None:
    """Limits of one control and dtype each, and limits in ULPs: neither is what a verdict is by."""
    pytester.makepyfile("""
        def test_matmul(gonogo):
            kernel = lambda a, b: (a.float() @ b.float()).to(a.dtype)
            gonogo.verify(kernel, "matmul", dtypes="float32", device="cpu")
    """)
    lock = pytester.path / "gonogo.lock"

    def run(*options: str) -> pytest.RunResult:
        return run_pytest(pytester, "--gonogo-cases", "3", "-p", "no:cacheprovider", *options)

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

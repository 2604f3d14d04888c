"""Whose limits the fixture takes, and what it says of them: driven as a project would."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from pytest_project import RIGHT, list_section, run

from gonogo.limits.lock import read_lock, write_lock
from gonogo.limits.shipped import shipped_lock
from gonogo.pytest_run.judged import Held, Judged, tell_limits
from gonogo.runners.environment import name_machine

torch = pytest.importorskip("torch")
pytest_plugins = ("pytester",)

HERE = name_machine("cpu")
PACKAGE = f"the package's limits are from NVIDIA H200; judged on {HERE}"
SHIPPED = ("--gonogo-limits", "shipped")


@pytest.mark.slow
def test_shipped_limits_need_no_lock(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(f"""{RIGHT}
    def scale(x, y):
        return x * y

    def test_own(gonogo):
        op = gonogo.Op("scale", inputs={{"x": "n", "y": "n"}}, output="n", sizes={{"n": (5, 70)}}, reference=scale)
        found = gonogo.verify(scale, op, device="cpu", controls=[scale])
        assert found.limit_from.startswith("universal, "), found.limit_from
        narrow = gonogo.Contract(accumulate="float8_e5m2", output="float32")
        found = gonogo.verify(scale, op, device="cpu", contract=narrow, dtypes="float32", strict=False)
        assert found.limit_from.startswith("the deterministic bound: "), found.limit_from

    def test_relu_too(gonogo):
        found = gonogo.verify(torch.relu, "relu", device="cpu", controls=[torch.sin])
        assert "cases of correct kernels on NVIDIA H200" in found.limit_from
    """)
    found = run(pytester, *SHIPPED, "-n", "2")
    found.assert_outcomes(passed=5)
    assert list_section(found) == [PACKAGE]
    lock = pytester.path / "gonogo.lock"
    assert not lock.exists()

    # A lock file that is there is neither read nor told to hold unused limits; what is in it may be wrong.
    lock.write_text("<<<<<<< ours\n")
    pytester.makeini("[pytest]\ngonogo_limits = shipped\n")
    path.write_text(path.read_text().replace("torch.softmax(x, -1)", "torch.softmax(x, -1) * 1.01"))
    found = run(pytester)
    found.assert_outcomes(passed=4, failed=1)
    found.stdout.fnmatch_lines([
        "E * Failed: softmax: no-go, * cases failed (contract float32; limit: pooled, * on NVIDIA H200)",
        'E * replay      gonogo.verify(kernel, "softmax", only="softmax:f16:*", device="cpu")',
        "E * lock        limit of the package; seed 0, 6 cases per dtype",
    ])  # fmt: skip
    found = run(pytester, "--gonogo-limits", "lock")
    found.assert_outcomes(failed=5)
    found.stdout.fnmatch_lines(["gonogo.lock holds a merge conflict at line 1. *"])


@pytest.mark.slow
def test_shipped_limits_are_not_updated(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(RIGHT)
    for option in ("--gonogo-update", "--gonogo-update-new", "--gonogo-lock=other.lock"):
        about = f"takes no limit from a lock file, which {option.partition('=')[0]} is about"
        found = run(pytester, *SHIPPED, option)
        assert found.ret == pytest.ExitCode.USAGE_ERROR
        found.stderr.fnmatch_lines([f"ERROR: --gonogo-limits shipped {about}: give one of them"])
    pytester.makeini("[pytest]\ngonogo_limits = shipped\n")
    found = run(pytester, "--gonogo-update")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    about = "takes no limit from a lock file, which --gonogo-update is about"
    found.stderr.fnmatch_lines([f"ERROR: gonogo_limits = shipped in pytest's settings {about}: add *-limits lock"])
    pytester.makeini("[pytest]\ngonogo_limits = mine\n")
    found = run(pytester)
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines(["ERROR: gonogo_limits is 'mine' in pytest's settings; it is lock or shipped"])
    assert not (pytester.path / "gonogo.lock").exists()


MANY = """
    import pytest, torch

    @pytest.mark.parametrize("dtypes", ["float16", ("float16", "float32", "bfloat16")])
    def test_softmax(gonogo, dtypes):
        gonogo.verify(lambda x: torch.softmax(x, -1), "softmax", device="cpu", dtypes=dtypes)

    def test_swiglu(gonogo):
        def swiglu(x, y):
            return (torch.nn.functional.silu(x.float()) * y.float()).to(x.dtype)
        gonogo.verify(swiglu, "swiglu", device="cpu")
"""


@pytest.mark.slow
def test_a_limit_from_too_few_cases_is_named(pytester: pytest.Pytester) -> None:
    """By the command that takes enough, once per op and contract; torch's swiglu is a control in one dtype only."""
    pytester.makepyfile(MANY)
    fresh = run(pytester, "--gonogo-update", "--gonogo-cases", "2", "--gonogo-lock", "few.lock")
    fresh.assert_outcomes(passed=3)
    assert not any("judged by it" in line for line in list_section(fresh))
    again = "Measure it on as many: pytest --gonogo-update --gonogo-lock=few.lock --gonogo-cases"
    told = [
        f"softmax, contract float32: the limit is from 6 cases, and 18 were judged by it. {again} 6",
        f"swiglu, contract float32: the limit is from 2 cases, and 18 were judged by it. {again} 18",
    ]
    assert list_section(run(pytester, "--gonogo-lock", "few.lock", "-n", "2")) == told
    # The command that is told is enough.
    options = re.split(r" pytest ", told[1])[1].split()
    run(pytester, *options).assert_outcomes(passed=3)
    assert list_section(run(pytester, "--gonogo-lock", "few.lock")) == []


@pytest.mark.slow
def test_a_limit_that_was_loosened_by_hand_is_named(pytester: pytest.Pytester) -> None:
    """In pytest's summary and on the page for a CI job, once per op, with the command that measures it again."""
    pytester.makepyfile(f"""{RIGHT}
    def test_again(gonogo):
        gonogo.verify(torch.relu, "relu", device="cpu")
    """)
    run(pytester, "--gonogo-update").assert_outcomes(passed=4)
    lock = pytester.path / "gonogo.lock"
    before, relu, after = lock.read_text().partition('op = "relu"')
    lock.write_text(before + relu + after.replace("value = 2.0", "value = 2000.0", 1))
    told = (
        "relu, contract float32: the limit 2000 is far above 0, the most that its controls read, and the package's "
        "own, 2. Measure it again: pytest --gonogo-update"
    )
    found = run(pytester, "-n", "2", "--gonogo-summary", "page.md")
    found.assert_outcomes(passed=4)
    assert [line for line in list_section(found) if "far above" in line] == [told]
    assert (pytester.path / "page.md").read_text().count(told) == 1
    run(pytester, "--gonogo-update").assert_outcomes(passed=4)
    assert not any("far above" in line for line in list_section(run(pytester)))


@pytest.mark.slow
def test_a_limit_from_another_device_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""{RIGHT}
    def test_again(gonogo):
        gonogo.verify(torch.relu, "relu", device="cpu")
    """)
    (pytester.path / "gonogo.lock").write_bytes(shipped_lock().read_bytes())
    elsewhere = f"contract float32: the limit is from NVIDIA H200, judged on {HERE}"
    found = run(pytester, "-n", "2")
    found.assert_outcomes(passed=4)
    lines = [line for line in list_section(found) if "judged on" in line]
    assert lines == [f"{op}, {elsewhere}" for op in ("relu", "softmax", "tanh")]


@pytest.mark.parametrize(
    ("devices", "told"),
    [
        (("A", "B"), ["relu, contract float32: the limit is from A and B, judged on Chip"]),
        (("Chip",), []),
        (("NVIDIA H200, Chip",), []),  # a lock file that does not tell runs apart
        (("cpu",), []),  # `gonogo calibrate` does not name the processor
        ((), []),
    ],
)  # fmt: skip
def test_on_which_machine_a_limit_was_measured(devices: tuple[str, ...], told: list[str]) -> None:
    judged = Judged("relu", "float32", "go", 3, held=Held("lock", 9, 3, devices), device="cpu", machine="Chip")
    assert tell_limits([judged, judged], "") == told


@pytest.mark.slow
def test_a_lock_names_only_machines_that_its_limits_are_from(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(RIGHT)
    run(pytester, "--gonogo-update").assert_outcomes(passed=3)
    lock = pytester.path / "gonogo.lock"
    fresh = lock.read_bytes()
    limits, provenance = read_lock(lock)
    assert provenance["devices"] == HERE
    write_lock(lock, limits, provenance | {"devices": "Old GPU"})
    run(pytester, "--gonogo-update", "-n", "2").assert_outcomes(passed=3)
    assert lock.read_bytes() == fresh

    # What is not measured anew is still from there.
    kept = [limit for limit in limits if limit.op == "relu"]
    write_lock(lock, [replace(limit, runs=("old",)) for limit in kept], {"devices": "Old GPU"})
    found = run(pytester, "--gonogo-update-new")
    found.assert_outcomes(passed=3)
    assert read_lock(lock)[1]["devices"] == ", ".join(sorted([HERE, "Old GPU"]))
    assert list_section(found)[-1] == f"relu, contract float32: the limit is from Old GPU, judged on {HERE}"


def test_xfail_does_not_excuse_a_missing_limit(pytester: pytest.Pytester) -> None:
    """Nothing was judged, so nothing failed as expected."""
    pytester.makepyfile("""
        import pytest, torch

        @pytest.mark.xfail(strict=True)
        def test_relu(gonogo):
            gonogo.verify(torch.sigmoid, "relu", device="cpu")
    """)
    done = run(pytester)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines("*no limit for relu*")
    run(pytester, *SHIPPED).assert_outcomes(xfailed=1)

"""The pytest plugin, driven as a project would: a suite in a folder, its lock file, and what pytest says."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from pytest_project import RIGHT, run
from warm import run_pytest

import gonogo
from gonogo.cases import NON_FINITE
from gonogo.evaluate.score import calibrate, default_methods
from gonogo.limits.lock import read_lock, write_lock
from gonogo.limits.shipped import shipped_lock
from gonogo.records import load_columns, read_run

pytest_plugins = ("pytester",)

OWN = """
    import pytest, torch
    from gonogo import Op

    SQUARES = Op("squares", inputs={"x": "rows cols"}, output="rows", sizes={"rows": (9, 30), "cols": (20, 40)},
                 reduced=("cols",), reference=lambda x: (x * x).sum(-1))

    def squares(x):
        return (x.float() ** 2).sum(-1).to(x.dtype)

    def sloppy(x):
        return squares(x) * (1 + 2**-18)

    @pytest.mark.parametrize("kernel", [squares])
    def test_own(gonogo, kernel):
        gonogo.verify(kernel, SQUARES, device="cpu")
"""


def set_value(path: Path, op: str, value: float) -> None:
    limits, provenance = read_lock(path)
    write_lock(path, [replace(one, value=value) if one.op == op else one for one in limits], provenance)


@pytest.mark.slow
def test_a_project_from_no_lock_to_junit(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(RIGHT)
    lock = pytester.path / "gonogo.lock"
    found = run(pytester)
    found.assert_outcomes(failed=3)
    remedy = "Measure it: pytest --gonogo-update-new, or use the package's: --gonogo-limits shipped"
    found.stdout.fnmatch_lines(
        [f"no limit for relu, contract float32, in gonogo.lock, which does not exist. {remedy}"]
    )
    assert not lock.exists()

    found = run(pytester, "--gonogo-update-new")
    found.assert_outcomes(passed=3)
    found.stdout.fnmatch_lines([
        "3 limits written to gonogo.lock: 3 new",
        "  new        relu, contract float32: 2 (relu_torch)",
        "  new        softmax, contract float32: * (softmax_torch)",
    ])  # fmt: skip
    limits, provenance = read_lock(lock)
    assert [(one.op, one.kernel, one.dtype, one.cases) for one in limits] == [
        (op, f"{op}_torch", None, 18) for op in ("relu", "softmax", "tanh")
    ]
    assert set(provenance) == {"devices", "gonogo"}
    written = lock.read_bytes()

    # Workers and one process write the same bytes.
    lock.unlink()
    run(pytester, "--gonogo-update", "-n", "2").assert_outcomes(passed=3)
    assert lock.read_bytes() == written

    found = run(pytester, "--junitxml=facts.xml", "-W", "error")
    found.assert_outcomes(passed=3)
    found.stdout.no_fnmatch_line("*= gonogo =*")
    facts = {
        case.get("name"): {item.get("name"): item.get("value") for item in case.iter("property")}
        for case in ElementTree.parse(pytester.path / "facts.xml").iter("testcase")
    }
    machine = facts["test_relu"].pop("gonogo_machine")
    assert machine
    assert facts["test_relu"] == {
        "gonogo_op": "relu", "gonogo_contract": "float32", "gonogo_decision": "go", "gonogo_cases": "18",
        "gonogo_worst_reading": "0.0", "gonogo_limit": "2.0", "gonogo_share_of_limit": "0.0",
        "gonogo_not_judged": "0", "gonogo_device": "cpu", "gonogo_seed": "0", "gonogo_version": gonogo.__version__,
        "gonogo_torch": version("torch"), "gonogo_python": platform.python_version(),
    }  # fmt: skip
    assert facts["test_softmax"]["gonogo_cases"] == "6"


@pytest.mark.slow
def test_changes_and_unused_entries(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(RIGHT)
    run(pytester, "--gonogo-update")
    lock = pytester.path / "gonogo.lock"
    fresh = lock.read_bytes()
    set_value(lock, "relu", 0.5)
    set_value(lock, "tanh", 1e6)
    # What is there stays as it is; an entry is missed by name.
    found = run(pytester, "--gonogo-update-new")
    found.stdout.no_fnmatch_line("*written*")
    text = path.read_text().replace("test_output", "no_output")
    path.write_text(text + "\ndef test_gelu(gonogo):\n    gonogo.verify(torch.relu, 'gelu', device='cpu')\n")
    found = run(pytester)
    found.assert_outcomes(passed=2, failed=1)
    found.stdout.fnmatch_lines(["no limit for gelu, contract float32, in gonogo.lock. Measure it: *-update-new"])
    found.stdout.no_fnmatch_line("*unused limit*")  # a test that failed may have more to use

    path.write_text(text)
    found = run(pytester, "-n", "2")
    found.stdout.fnmatch_lines(["1 unused limit in gonogo.lock; delete *", "  tanh, contract float32"])
    run(pytester, "-k", "relu").stdout.no_fnmatch_line("*unused limit*")

    path.write_text(text.replace("no_output", "test_output"))
    found = run(pytester, "--gonogo-update")
    found.stdout.fnmatch_lines([
        "3 limits written to gonogo.lock: 1 tightened, 1 loosened, 1 unchanged",
        "  tightened  tanh, contract float32: 1e+06 → *",
        "  loosened   relu, contract float32: 0.5 → 2 (relu_torch)",
    ])  # fmt: skip
    assert lock.read_bytes() == fresh


@pytest.mark.slow
def test_own_op_and_wrong_kernels(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(OWN)
    run(pytester, "--gonogo-update-new", "--gonogo-lock", "limits.toml").assert_outcomes(passed=1)
    lock = pytester.path / "limits.toml"
    assert read_lock(lock)[0][0].kernel == "reference in float32"
    pytester.makeini("[pytest]\ngonogo_lock = limits.toml\n")

    # Fresh limits are made from the reference, never from the kernel under test.
    path.write_text(path.read_text().replace("[squares]", "[squares, sloppy]"))
    before = lock.read_bytes()
    found = run(pytester, "--gonogo-update")
    found.assert_outcomes(passed=1, failed=1)
    assert lock.read_bytes() == before
    found.stdout.fnmatch_lines([
        "E * Failed: squares: no-go, * of 18 cases failed*limit: pooled, 18 cases of reference in float32)",
        "E * worst case  squares:*: no-go: reads * bound, above the limit *",
        "E * lock        limit from limits.toml; seed 0, 6 cases per dtype",
    ])  # fmt: skip
    found.stdout.no_fnmatch_line("*src/gonogo/*")

    lock.write_text("format = 1\n<<<<<<< ours\n")
    found = run(pytester, "--gonogo-update")
    found.assert_outcomes(failed=2)
    told = "limits.toml holds a merge conflict at line 2. Keep one side whole, or delete it and run: "
    found.stdout.fnmatch_lines([f"{told}pytest --gonogo-update"])
    assert "<<<<<<<" in lock.read_text()


SUSPECT = """
    import pytest, torch
    from gonogo import error_scale
    from gonogo.cases import make_inputs, parse_case

    CASE = "sum:f32:2x7x1025:c:uniform:1"
    (PLANNED,) = make_inputs(parse_case(CASE))

    def add_error(x, times):
        expected, scale = error_scale(lambda x: x.sum(-1), [x.double()])
        return (expected + times * 2**-24 * scale).to(x.dtype)

    def once(x):
        return add_error(x, 2.1 if torch.equal(x, PLANNED) else 0)

    def always(x):
        return add_error(x, 2.1)

    @pytest.mark.parametrize("kernel", [once, always])
    def test_sum(gonogo, kernel):
        gonogo.verify(kernel, "sum", only=CASE, device="cpu")

    def test_output(gonogo):
        gonogo.check(always(PLANNED), "sum", inputs={"input": PLANNED})
"""


@pytest.mark.slow
def test_suspect_cases(pytester: pytest.Pytester) -> None:
    """Above the limit 2 of a sum, by less than a tenth of it: what counts is whether it comes back."""
    pytester.makepyfile(SUSPECT)
    pytester.path.joinpath("gonogo.lock").write_bytes(shipped_lock().read_bytes())
    found = run(pytester)
    found.assert_outcomes(passed=2, failed=1)
    found.stdout.fnmatch_lines([
        "E * Failed: sum: no-go, 1 of 1 cases failed *",
        "E * worst case  sum:f32:2x7x1025:c:uniform:1: no-go: reads 2.1 bound, above the limit 2 (pooled, *); "
        "repeatedly above what any correct kernel read, with 2.*, 2.*, 2.* on 3 fresh seeds",
        "suspect, but passed: *::test_output: sum suspect: reads 2.1 bound, above the limit 2 (*)",
        "suspect, but passed: *::test_sum[[]once[]]: 1 of 1 cases; sum:f32:2x7x1025:c:uniform:1: suspect: "
        "reads 2.1 bound, above the limit 2 (*); not again on 3 fresh seeds",
    ])  # fmt: skip
    found = run(pytester, "--gonogo-strict")
    found.assert_outcomes(failed=3)
    found.stdout.no_fnmatch_line("*fresh seeds*")


@pytest.mark.slow
def test_limits_in_half_precision_are_made_on_what_the_format_holds(pytester: pytest.Pytester) -> None:
    """Rounding a float32 input to half is no error that the scale knows: it must not loosen what all must keep."""
    path = pytester.makepyfile("""
        import pytest, torch
        from gonogo import Op

        def make(name, reference):
            return Op(name, inputs={"x": "rows cols", "y": "rows cols"}, output="rows cols",
                      sizes={"rows": (8, 16), "cols": (64, 128)}, reference=reference)

        ADD = make("plus", lambda x, y: x + y)
        # In half its epsilon is another, so that the reference in half is not this op.
        RATIO = make("ratio", lambda x, y: x / (x.abs() + torch.finfo(x.dtype).eps) + y)

        @pytest.mark.parametrize("kernel", [torch.add, lambda x, y: 2 * (x + y)], ids=["right", "twice"])
        @pytest.mark.parametrize("contract", ["float16", "bfloat16"])
        def test_plus(gonogo, kernel, contract):
            gonogo.verify(kernel, ADD, contract=contract, dtypes=contract, device="cpu")

        def test_ratio(gonogo):
            gonogo.verify(lambda x, y: 5 * y, RATIO, contract="float16", dtypes="float16", device="cpu")

        def test_narrow(gonogo):
            gonogo.verify(torch.add, ADD, contract="float8_e5m2", device="cpu")
    """)
    found = run(pytester, "--gonogo-update-new")
    found.assert_outcomes(passed=2, failed=4)
    found.stdout.fnmatch_lines([
        "no limit for ratio, contract float16: reference in float16 reads * deterministic, above the bound 1, "
        "on ratio:f16:*. Give correct kernels to measure it on: controls=[[]...[]]",
        "no limit for plus, contract float8_e5m2: no dtype fits into float8_e5m2, so *. Give correct kernels *",
        "2 limits written to gonogo.lock: 2 new",
    ])  # fmt: skip
    limits, _ = read_lock(pytester.path / "gonogo.lock")
    assert [(one.op, one.contract, one.value, one.cases) for one in limits] == [
        ("plus", "bfloat16", 2.0, 6), ("plus", "float16", 2.0, 6)
    ]  # fmt: skip

    # Of a sum of 512 terms in one chain of bfloat16 the bound explains more than a tenth of their size.
    path.write_text("""
import torch
from gonogo import Op

TOTAL = Op("total", inputs={"x": "rows cols"}, output="rows", sizes={"rows": (2,), "cols": (512,)},
           reduced="cols", reference=lambda x: x.sum(-1), only_listed=True)

def lose(x):
    return (x.double().sum(-1) + 0.5 * x.double().abs().sum(-1)).to(x.dtype)

def test_total(gonogo):
    gonogo.verify(lose, TOTAL, contract="bfloat16", dtypes="float32", controls=[lose], device="cpu")
""")
    found = run(pytester, "--gonogo-update-new", "--gonogo-seed", "1")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(
        ["lose: the limit * for total, contract bfloat16, lets errors pass that no rounding *"]
    )
    assert read_lock(pytester.path / "gonogo.lock")[0] == limits


def test_two_ways_to_update_are_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(RIGHT)
    for options in (("--gonogo-update", "--gonogo-update-new"), ("--gonogo-update-new", "--gonogo-update")):
        found = run(pytester, *options)
        assert found.ret == pytest.ExitCode.USAGE_ERROR
        found.stderr.fnmatch_lines(["ERROR: --gonogo-update measures all limits and *: give one of them"])
    assert not (pytester.path / "gonogo.lock").exists()


@pytest.mark.slow
def test_costs_nothing_when_unused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    pytester.makeconftest(
        "import json, sys\ndef pytest_unconfigure():\n    print(json.dumps(['torch' in sys.modules]))"
    )
    # In a Python that has loaded nothing yet.
    found = pytester.runpytest_subprocess("--gonogo-update", "--gonogo-seed", "random", timeout=120)
    found.assert_outcomes(passed=1)
    found.stdout.fnmatch_lines(["gonogo: --gonogo-seed *[0-9]", json.dumps([False])])
    quiet = run(pytester, "-q", "--gonogo-seed", "random")
    quiet.stdout.fnmatch_lines(["*= gonogo =*", "gonogo: --gonogo-seed *[0-9]", "1 passed in *"])
    assert not (pytester.path / "gonogo.lock").exists()
    run(pytester, "--gonogo-cases", "0").stderr.fnmatch_lines(["*'0' is not a whole number above 0"])
    heavy = ("numpy", "torch", "pyarrow", "ml_dtypes", "rich", "gonogo.user.suite", "gonogo.user.verification")
    script = f"import sys, gonogo.pytest_plugin; sys.exit(str([name for name in {heavy} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stderr == "[]\n"


@pytest.mark.slow
def test_records_of_many_processes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""{RIGHT}
    def test_again(gonogo):
        gonogo.verify(lambda x: torch.softmax(x, -1), op="softmax", device="cpu", dtypes=("float16",))

    def test_own_controls(gonogo):
        gonogo.verify(torch.relu, "relu", device="cpu", dtypes="float32", controls=[torch.relu])
    """)
    run(pytester, "--gonogo-update", "--gonogo-seed", "1")
    found = run(pytester, "--gonogo-record", "runs", "-n", "2", "--gonogo-seed", "1")
    found.assert_outcomes(passed=5)
    # Three dtypes of relu, two tests of softmax that share a control, and relu again with one of its own.
    candidates, controls, shared, own = 18 + 6 + 6 + 6, 18 + 6, 6 + 6, 6
    found.stdout.fnmatch_lines([f"{candidates + controls + own} rows added to runs; {shared} were there already"])
    rows = read_run(pytester.path / "runs").to_pylist()
    assert {row["kernel"] for row in rows} == {
        "relu_torch", "softmax_torch", "relu",
        *(f"candidate:test_records_of_many_processes.py::{name}" for name in (
            "test_relu/relu", "test_softmax/<lambda>", "test_again/<lambda>", "test_own_controls/relu")),
    }  # fmt: skip
    assert len({(row["case"], row["kernel"]) for row in rows}) == len(rows) == candidates + controls + own
    limits = calibrate(load_columns([pytester.path / "runs"]), default_methods()[0])
    # Inputs with NaN or infinities say nothing of how far a correct kernel may be off.
    finite = sum(row["kernel"] == "softmax_torch" and row["distribution"] not in NON_FINITE for row in rows)
    assert 3 <= finite < 6
    assert sorted((one.op, one.cases) for one in limits) == [("relu", 24), ("softmax", finite)]
    found = run(pytester, "--gonogo-record", ".", "-k", "relu")
    found.assert_outcomes(failed=1, deselected=4)
    found.stdout.fnmatch_lines(["*is no run directory: it has no run.json. Record to a new one"])


@pytest.mark.slow
def test_words_and_controls_that_are_wrong(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import torch

        def test_typo(gonogo):
            gonogo.verify(torch.relu, "rellu", device="cpu")

        def test_contract(gonogo):
            gonogo.verify(torch.relu, "relu", contract="float32", device="cpu")

        def test_contract_typo(gonogo):
            gonogo.verify(torch.relu, "relu", contract="float3", device="cpu")

        def test_dtype_typo(gonogo):
            gonogo.verify(torch.relu, "relu", dtypes="float33", device="cpu")

        def test_input_typo(gonogo):
            gonogo.check(torch.ones(3), "relu", inputs={"inputs": torch.ones(3)})

        def test_lock(gonogo):
            gonogo.verify(torch.relu, "relu", lock="other.lock", device="cpu")

        def test_lock_of_check(gonogo):
            gonogo.check(torch.ones(3), expected=torch.ones(3), lock="other.lock")

        def test_limit(gonogo):
            gonogo.check(torch.ones(3), "relu", inputs={"input": torch.ones(3)}, limit=None)

        def test_control(gonogo):
            gonogo.verify(torch.tanh, "tanh", device="cpu", controls=[torch.sin])
    """)
    found = run(pytester, "--gonogo-update-new")
    found.assert_outcomes(passed=1, failed=8)
    found.stdout.fnmatch_lines([
        "unknown op 'rellu'. Did you mean relu*? All: gonogo ops",
        "unknown contract 'float3'. Did you mean float32*",
        "unknown dtype 'float33'. Did you mean float32*",
        "op relu takes the inputs input; missing: input; unknown: inputs. Did you mean input?",
        "lock= is not for the fixture, whose limits are in gonogo.lock. Name another file by --gonogo-lock, or *",
        "lock= is not for the fixture, *",
        "limit= is not for the fixture, *",
        "control sin cannot calibrate: on tanh:* it reads * deterministic, above the bound 1. *",
        "1 limit written to gonogo.lock: 1 new",
    ])  # fmt: skip
    found.stdout.no_fnmatch_line("E  *")  # no frames, of gonogo or of the test
    found.stdout.no_fnmatch_line("*src/gonogo/*")


def test_the_lock_is_named_from_the_working_directory(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]")
    below = pytester.mkdir("below")
    (below / "test_it.py").write_text("def test_it(gonogo):\n    gonogo.verify(abs, 'relu', device='cpu')\n")
    pytester.chdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(below)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert "no limit for relu, contract float32, in ../gonogo.lock, which does not exist." in done.stdout


@pytest.mark.slow
def test_cases_and_seeds(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import torch

        def test_relu(gonogo):
            found = gonogo.verify(torch.relu, "relu", device="cpu", dtypes="float32")
            print([one.case for one in found.verdicts])
    """)
    run(pytester, "--gonogo-update-new")

    def list_cases(*options: str) -> str:
        found = run(pytester, "-s", *options)
        found.assert_outcomes(passed=1)
        return next(line for line in found.outlines if line.count("relu:f32:"))

    assert list_cases("--gonogo-cases", "3").count("relu:") == 3
    seven = list_cases("--gonogo-cases", "3", "--gonogo-seed", "7")
    assert all(f":{7 * 10**6 + number}'" in seven for number in range(3))
    assert run_pytest(pytester, "-s").stdout.str().count("relu:f32") == 24
    drawn = {list_cases("--gonogo-cases", "1", "--gonogo-seed", "random") for _ in range(3)}
    assert len(drawn) == 3


DOOR = """
    import torch

    def norm(x):
        rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
        return x * rstd, rstd

    def draw(seed, dtype):
        return torch.randn(5, 40, generator=torch.Generator().manual_seed(seed)).to(dtype),

    def kernel(x):
        return tuple(made.to(x.dtype) for made in norm(x.float()))

    def test_right(gonogo):
        found = gonogo.verify(kernel, reference=norm, inputs=draw, device="cpu")
        assert len(found.verdicts) == 18

    def test_wrong(gonogo):
        gonogo.verify(lambda x: (kernel(x)[0], kernel(x)[1] * 1.02), reference=norm, inputs=draw, device="cpu")

    def test_output(gonogo):
        x, = draw(1, torch.float16)
        gonogo.check(kernel(x), reference=norm, inputs=(x,))

    def test_mistake(gonogo):
        gonogo.verify(kernel, reference=norm, inputs=lambda seed, dtype: None, device="cpu")
"""


@pytest.mark.slow
def test_any_kernel_by_its_reference(pytester: pytest.Pytester) -> None:
    """Held to the universal limit, without a lock file."""
    pytester.makepyfile(DOOR)
    done = run(pytester)
    done.assert_outcomes(passed=2, failed=2)
    done.stdout.fnmatch_lines(
        [
            "*Failed: norm: no-go, 18 of 18 cases failed *universal*",
            "*leaf 1 reads *",
            "*inputs: NoneType is no set of arguments; give a tuple of them, or a mapping by name*",
        ]
    )
    assert not (pytester.path / "gonogo.lock").exists()

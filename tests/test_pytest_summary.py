"""What a run of pytest leaves for people and programs: JUnit's properties, a summary in Markdown, a CI job."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from pytest_project import RIGHT, list_section, run

from gonogo.pytest_run.judged import Judged
from gonogo.pytest_run.markdown import FAILURE_BYTES, ROWS, Result, tell_notes, write_page

pytest.importorskip("torch")
pytest_plugins = ("pytester",)

WORKFLOW = Path(__file__).parent.parent / "examples" / "ci" / "gonogo.yml"
MIXED = """
    import pytest, torch

    def wrong(x):
        return torch.relu(x) + 2**-6

    def raises(x):
        if x.dtype == torch.float16:
            raise ValueError("no | such\\nthing")
        return torch.relu(x)

    @pytest.mark.parametrize("kernel", [torch.relu, wrong, raises], ids=["right", "a|b", "`c`"])
    def test_relu(gonogo, kernel):
        gonogo.verify(kernel, "relu", device="cpu")

    def test_twice(gonogo):
        x = torch.linspace(-3, 3, 33).reshape(3, 11)
        gonogo.check(torch.tanh(x), "tanh", inputs={"input": x})
        gonogo.verify(torch.tanh, "tanh", device="cpu", dtypes="float32")
        assert gonogo.verify(wrong, "relu", device="cpu", strict=False).decision == "no-go"

    def test_module(gonogo):
        import gonogo as module
        names = set(module.__all__) - {"verify", "check"}
        assert all(getattr(gonogo, name) is getattr(module, name) for name in names)
        assert set(module.__all__) <= set(dir(gonogo))
        assert gonogo.verify.__self__ is gonogo is gonogo.check.__self__
        scale = gonogo.Op("scale", inputs={"x": "n"}, output="n", sizes={"n": (5,)}, reference=lambda x: 2 * x)
        gonogo.verify(lambda x: 2 * x, scale, contract=gonogo.Contract(), dtypes="float32", device="cpu")
        assert gonogo.error_scale(lambda x: 2 * x, [torch.ones(2)])[0].tolist() == [2, 2]
        with pytest.raises(AttributeError, match="fixture gonogo has no 'Contrac': .*Did you mean Contract"):
            gonogo.Contrac
        assert not hasattr(gonogo, "limits")

    @pytest.mark.skip(reason="not today")
    def test_skipped(gonogo):
        pass

    @pytest.mark.xfail
    def test_expected(gonogo):
        gonogo.verify(wrong, "relu", device="cpu")

    def test_broken(gonogo):
        gonogo.verify(torch.relu, "rellu", device="cpu")

    def test_another():
        assert False
"""


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)], ids=["one", "two"])
def test_summary(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    pytester.makepyfile(test_it=MIXED)
    page = pytester.path / "pages" / "gonogo.md"
    options = ("--gonogo-limits", "shipped", "--gonogo-summary", "pages/gonogo.md", "--junitxml=facts.xml")
    if workers:
        page.parent.mkdir()
        page.write_text("## of another run\n")
    run(pytester, *options, *workers).assert_outcomes(passed=3, failed=4, skipped=1, xfailed=1)
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines()
    head = "## gonogo: 2 no-go, 1 failed without a no-go, 4 go, 2 no-go but allowed, 1 skipped"
    assert [line for line in lines if line.startswith("## ")] == [head]
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 10
    assert table[2].startswith("| ``test_it.py::test_relu[`c`]`` | `relu` | `float32` | no-go | 18 | – |")
    assert table[3].startswith("| `test_it.py::test_relu[a\\|b]` | `relu` | `float32` | no-go | 18 | ")
    assert table[4] == "| `test_it.py::test_broken` | – | – | failed | – | – |"
    assert table[-1].startswith("| `test_it.py::test_twice` | `relu` | `float32` | no-go but allowed | 18 | ")
    assert "| `test_it.py::test_skipped` | – | – | skipped | – | – |" in table
    assert "test_another" not in text

    _, with_pipe = text.split("### `test_it.py::test_relu[a|b]`\n")
    report = with_pipe.partition("###")[0]
    told = (
        "worst case  relu:",
        "element     ",
        "smallest    relu:",
        'replay      gonogo.verify(wrong, "relu", only="',
    )
    assert all(f"\n  {words}" in report for words in told), report
    assert "<details>" not in report
    raised = text.split("### ``test_it.py::test_relu[`c`]``\n")[1].partition("###")[0]
    assert "\n  pattern     fails only in float16\n" in raised
    assert "<details><summary>What it raised</summary>\n\n```text\nTraceback" in raised
    assert "no | such" in raised
    assert "unknown op 'rellu'. Did you mean relu" in text.split("### `test_it.py::test_broken`\n")[1]
    assert "### Skipped\n\n```text\ntest_it.py::test_skipped: not today\n```\n" in text
    assert "### Limits\n\n```text\nthe package's limits are from NVIDIA H200; judged on " in text
    assert "### Judged on\n\n```text\n" in text
    assert f"Python {sys.version.split()[0]}; seed 0\n```\n" in text

    facts = {
        case.get("name"): {item.get("name"): item.get("value") for item in case.iter("property")}
        for case in ElementTree.parse(pytester.path / "facts.xml").iter("testcase")
    }
    twice = facts["test_twice"]
    shown = [twice[f"gonogo_{number}{name}"] for number in ("", "2_", "3_") for name in ("op", "decision", "cases")]
    assert shown == ["tanh", "go", "1", "tanh", "go", "6", "relu", "no-go", "18"]
    assert twice["gonogo_2_seed"] == "0"
    assert "gonogo_seed" not in twice  # an output at hand has none
    assert facts["test_another"] == {}


SUSPECT = """
    from gonogo.cases import make_inputs, parse_case

    def test_sum(gonogo):
        (x,) = make_inputs(parse_case("sum:f32:2x7x1025:c:uniform:1"))
        expected, scale = gonogo.error_scale(lambda x: x.sum(-1), [x.double()])
        gonogo.check((expected + 2.1 * 2**-24 * scale).float(), "sum", inputs={"input": x})
"""


@pytest.mark.slow
def test_limits_and_suspects_in_the_summary(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Added to a page that GitHub asks for; under --gonogo-strict a suspect output is a failure there, too."""
    pytester.makepyfile(SUSPECT)
    page = pytester.path / "step.md"
    page.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    run(pytester, "--gonogo-update", "--gonogo-summary", "step.md").assert_outcomes(passed=1)
    text = page.read_text()
    assert text.startswith("before\n## gonogo: 1 suspect\n")
    assert "### Suspect, but passed\n\n```text\ntest_" in text
    assert "::test_sum: sum suspect: reads 2.1 bound, above the limit 2 (" in text
    assert "1 limit written to gonogo.lock: 1 new\n  new        sum, contract float32: 2 (sum_torch)\n" in text
    run(pytester, "--gonogo-strict", "--gonogo-summary", "step.md").assert_outcomes(failed=1)
    text = page.read_text().partition("## gonogo: 1 no-go\n")[2]
    assert "| no-go | 1 | 105 % |" in text
    assert "```text\nsum: suspect: reads 2.1 bound" in text


@pytest.mark.slow
def test_a_summary_that_cannot_be_written(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(RIGHT)
    (pytester.path / "taken").write_text("a file")
    options = ("--gonogo-limits", "shipped", "-k", "test_output", "--junitxml=facts.xml")
    found = run(pytester, *options, "--gonogo-summary", "taken/page.md")
    found.assert_outcomes(passed=1, deselected=2)
    assert found.ret == pytest.ExitCode.TESTS_FAILED
    assert list_section(found)[0].startswith("taken/page.md was not written: ")
    assert (pytester.path / "facts.xml").exists()
    found = run(pytester, *options, "--gonogo-summary", "")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines(["*the name of the file is empty: is the variable set that it is from?"])


@pytest.mark.slow
def test_a_worker_that_dies_takes_no_verdict_with_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os, torch

        def test_before(gonogo):
            gonogo.verify(torch.relu, "relu", device="cpu")

        def test_crash(gonogo):
            gonogo.verify(lambda x: os._exit(3), "relu", device="cpu")
    """)
    options = ("--gonogo-limits", "shipped", "--gonogo-summary", "page.md", "-n", "1")
    run(pytester, *options).assert_outcomes(passed=1, failed=1)
    text = (pytester.path / "page.md").read_text()
    assert text.startswith("## gonogo: 1 failed without a no-go, 1 go\n")
    assert "worker 'gw0' crashed while running" in text
    assert "::test_before` | `relu` | `float32` | go | 18 | 0 % |" in text


def test_a_page_stays_below_what_github_takes() -> None:
    report = "\n".join(["relu: no-go", *("x" * 100 for _ in range(200))])
    no_go = Judged("relu", "float32", "no-go", 9, share=float("inf"), report=report, error="é" * 8000)
    failed = Result("failed", (no_go, no_go))
    page = write_page({f"test_it.py::test_relu[{number}]": failed for number in range(3000)}, ["a line"] * 100)
    assert len(page.encode()) < 2**20
    shown = page.count("\n### `")
    assert FAILURE_BYTES // 100_000 <= shown <= FAILURE_BYTES // 20_000
    assert f"{6000 - ROWS:,} more are not shown." in page
    assert f"{3000 - shown:,} more tests failed; pytest's output has them." in page
    assert write_page({}, []) == "## gonogo: no verdicts\n"


def read_workflow() -> dict[Any, Any]:
    yaml = pytest.importorskip("yaml", reason="comes with gonogo[docs]")
    found: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return found


def test_workflow_is_one_that_github_takes() -> None:
    workflow = read_workflow()
    assert set(workflow[True]) == {"push", "pull_request", "workflow_dispatch"}  # YAML takes "on" for a yes
    (job,) = workflow["jobs"].values()
    assert all(len({"uses", "run"} & set(step)) == 1 for step in job["steps"])
    used = {step["uses"] for step in job["steps"] if "uses" in step}
    assert used == {
        f"actions/{name}" for name in ("checkout@v4", "setup-python@v5", "cache@v4", "upload-artifact@v4")
    }
    lists = [
        step["with"]["cache-dependency-path"] for step in job["steps"] if "setup-python" in step.get("uses", "")
    ]
    (install,) = (step["run"] for step in job["steps"] if "pip install" in step.get("run", ""))
    assert install == f"python -m pip install -r {lists[0]}"
    assert "://" not in WORKFLOW.read_text(encoding="utf-8")


def run_step(step: dict[str, Any], folder: Path, page: Path) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does on Linux, with this interpreter's pytest."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {
        "PATH": path,
        "GITHUB_STEP_SUMMARY": str(page),
        "PYTEST_ADDOPTS": "--gonogo-cases=3",
    }
    page.touch()
    return subprocess.run(
        ["bash", "-e", "-c", step["run"]], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )  # fmt: skip


def test_a_reason_that_many_tests_have_is_told_once() -> None:
    judged = Judged("relu", "float32", "go", 9, notes=("1 of 9 cases is not judged: why",))
    results = {f"test_{number}": Result("passed", (judged, judged)) for number in range(3)}
    assert tell_notes(results) == ["test_0 and 2 more tests: 1 of 9 cases is not judged: why"]
    assert "test_0 and 2 more tests: 1 of 9 cases" in write_page(results, [])


def test_a_no_go_that_is_allowed_hides_no_other_failure() -> None:
    allowed = Judged("relu", "float32", "no-go", 9, report="relu: no-go, allowed")
    right = Judged("tanh", "float32", "go", 9)
    page = write_page({"test_it": Result("failed", (allowed, right), "AssertionError: of its own")}, [])
    assert "AssertionError: of its own" in page


@pytest.mark.slow
@pytest.mark.skipif(not (Path(sys.executable).parent / "pytest").exists(), reason="a job has pytest on its path")
def test_workflow_runs(tmp_path: Path) -> None:
    """Its steps, in a project: limits measured and kept, judged by them, and a kernel that became wrong."""
    (job,) = read_workflow()["jobs"].values()
    steps = {step["if"]: step for step in job["steps"] if "pytest" in step.get("run", "")}
    update, judge = steps["${{ inputs.update }}"], steps["${{ !inputs.update }}"]
    kept = {step["with"]["path"] for step in job["steps"] if step.get("uses") == "actions/upload-artifact@v4"}
    assert kept == {"gonogo.xml", "gonogo.lock"}
    kernel = "import torch\n\ndef test_relu(gonogo):\n    gonogo.verify({}, 'relu', device='cpu')\n"
    (tmp_path / "test_it.py").write_text(kernel.format("torch.relu"))

    # As on a runner: the page is there already, and outside the project.
    page = tmp_path.parent / f"{tmp_path.name}-page.md"
    page.write_text("")
    ran = run_step(update, tmp_path, page)
    assert ran.returncode == 0, ran.stdout
    assert all((tmp_path / name).exists() for name in kept)
    text = page.read_text()
    assert text.startswith("## gonogo: 1 go\n")
    assert "1 limit written to gonogo.lock: 1 new" in text

    (tmp_path / "test_it.py").write_text(kernel.format("torch.abs"))
    ran = run_step(judge, tmp_path, tmp_path / "second.md")
    assert ran.returncode == 1, ran.stdout
    text = (tmp_path / "second.md").read_text()
    assert text.startswith("## gonogo: 1 no-go\n")
    assert "  worst case  relu:" in text
    (case,) = ElementTree.parse(tmp_path / "gonogo.xml").iter("testcase")
    assert {item.get("name"): item.get("value") for item in case.iter("property")}["gonogo_decision"] == "no-go"
    assert case.find("failure") is not None

"""The wheel in an empty environment, without torch and triton: what must work does, the rest says what it needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RUN = ROOT / "records" / "cpu-11"
CASE = "softmax:f16:2x7x1025:c:uniform:81"
NEEDS_TORCH = [
    ["audit", "--op", "relu", "--atol", "0", "--rtol", "0"],
    ["check", f"{ROOT}/src/gonogo/ops/softmax/torch.py:softmax_torch", "--op", "softmax"],
    ["demo"],
    ["reproduce", "--out", "out"],
    ["run", "relu", "--out", "out"],
    ["show", CASE, "softmax_torch"],
]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
"""Nothing points back to the sources."""

Gonogo = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources, without what earlier builds left behind."""
    pytest.importorskip("setuptools", reason="building without an index needs setuptools here")
    pytest.importorskip("wheel", reason="building without an index needs wheel here")
    sources, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    shutil.copytree(
        ROOT / "src", sources / "src", ignore=shutil.ignore_patterns("*.egg-info", "*.so", "__pycache__")
    )
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out, sources]
    run(sys.executable, *words)
    (built,) = out.glob("gonogo-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that has the wheel, what it depends on, and pytest."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, symlinks=True)
    found = home / "bin" / "python"
    words = [  # by the pip that is here, and without compiling all of NumPy: both take as long as the rest
        "-m", "pip", "--python", found, "install", "--quiet", "--disable-pip-version-check", "--no-compile",
        "--only-binary", ":all:", "--retries", "1", "--constraint", ROOT / "constraints.txt", wheel, "pytest",
    ]  # fmt: skip
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300, env=CLEAN)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        if any("No matching distribution" in line or "Could not find a version" in line for line in said):
            pytest.skip(f"pip reaches no index with the dependencies: {said[-1]}")
        pytest.fail(done.stderr)
    return found


@pytest.fixture
def gonogo(python: Path, tmp_path: Path) -> Gonogo:
    """The installed command, in an empty folder."""

    def call(*words: object) -> subprocess.CompletedProcess[str]:
        command = [python.with_name("gonogo"), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=CLEAN)

    return call


def run(*words: object) -> str:
    """Stdout of a command that must work."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=300, env=CLEAN)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_files_of_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for name in (
        "limits/shipped.lock",
        "py.typed",
        "policies/field.toml",
        "evaluate/published.toml",
        "ops/relu/triton.py",
    ):
        assert f"gonogo/{name}" in names
    assert all(name.startswith(("gonogo/", "gonogo-")) for name in names)
    if shutil.which("cc") or shutil.which("gcc"):
        for package in ("cases", "instrument"):
            assert any(name.startswith(f"gonogo/{package}/_native") for name in names), "a compiler was there"


def test_import_and_measure(python: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import importlib.util, json
import numpy as np
import gonogo
from gonogo.instrument import path_native

expected = np.sin(np.linspace(0, 3, 1000))
stats = gonogo.measure(expected.astype(np.float16), expected)
refused = []
for call in (
    lambda: gonogo.error_scale(lambda x: x, [expected]),
    lambda: gonogo.verify(lambda x: x, op="softmax"),
    lambda: gonogo.check(expected, op="softmax", inputs={"input": expected}),
):
    try:
        call()
    except gonogo.errors.BackendMissing as error:
        refused.append(str(error))
print(json.dumps({
    "torch": importlib.util.find_spec("torch") is not None,
    "triton": importlib.util.find_spec("triton") is not None,
    "file": gonogo.__file__,
    "max_abs": stats.max_abs,
    "ulp": gonogo.read(expected.astype(np.float16), expected, gauge="ulp").worst,
    "native": path_native.available(),
    "refused": refused,
}))
""")
    told = json.loads(run(python, "-W", "error", script))
    assert not told["torch"]
    assert not told["triton"]
    assert str(python.parent.parent) in told["file"]
    assert 0 < told["max_abs"] <= 2**-12  # half a unit in the last place below 1
    assert 0 < told["ulp"] <= 0.5
    installed = list(Path(told["file"]).parent.glob("instrument/_native*"))
    assert told["native"] == bool(installed), "without the extension NumPy does it"
    assert len(told["refused"]) == 3
    assert all(
        line.endswith("needs torch, which is not installed. Run: pip install 'gonogo[torch]'")
        for line in told["refused"]
    )


def test_commands_that_need_no_torch(gonogo: Gonogo, tmp_path: Path) -> None:
    assert gonogo("--version").stdout.startswith("gonogo")
    assert "Examples:" in gonogo("--help").stdout
    ops = json.loads(gonogo("ops", "--json").stdout)
    assert len(ops["ops"]) >= 28
    made = gonogo("calibrate", RUN, "-o", tmp_path / "gonogo.lock")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "gonogo.lock").read_text().count("[[limit]]") >= 28
    scored = gonogo("evaluate", RUN, "--holdout", "none", "--op", "softmax", "--json")
    assert scored.returncode == 0, scored.stderr
    assert {one["name"] for one in json.loads(scored.stdout)["policies"]} >= {"kernelbench", "torch_testing"}


@pytest.mark.parametrize("words", NEEDS_TORCH, ids=lambda words: words[0])
def test_commands_that_need_torch_say_so(gonogo: Gonogo, words: list[str]) -> None:
    done = gonogo(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"gonogo: gonogo {words[0]}")
    assert line.endswith("needs torch, which is not installed. Run: pip install 'gonogo[torch]'")


def test_pytest_plugin_is_registered(python: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(gonogo):\n    assert callable(gonogo.verify)\n")
    assert "gonogo" in run(python, "-m", "pytest", "--fixtures", tmp_path)
    assert "1 passed" in run(python, "-m", "pytest", "-q", "--rootdir", tmp_path, tmp_path)

"""Words for Python → what it printed and its exit code, from a copy of a Python that has torch loaded already.

A new Python takes seconds to load torch. The server below has loaded it and has run nothing: for each request it
makes a copy of itself by fork, which runs the script or the module and ends as any Python does. Neither gonogo nor
Triton is loaded there, whose switches are read when it is. Not for tests of what is loaded, and when.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

DEADLINE_S = 240
"""After which what is asked for is taken to hang."""
LOADED = ("torch", "numpy.random", "ml_dtypes", "pyarrow.compute", "pyarrow.parquet")


def run_python(
    *words: object, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python SCRIPT …` or `python -m MODULE …`; in this environment, where none is given."""
    given, variables = [*map(str, words)], dict(os.environ if environment is None else environment)
    server = _start_server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        request = {
            "words": given, "cwd": str(cwd), "environment": variables, "out": str(out), "err": str(err)
        }  # fmt: skip
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        code = json.loads(server.stdout.readline())
        return subprocess.CompletedProcess(given, code, *(path.read_text(encoding="utf-8") for path in (out, err)))


def run_pytest(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """What `pytester.runpytest_subprocess` gives, sooner: without Hypothesis, too, which half the time is for."""
    words = ("-m", "pytest", "-p", "no:hypothesispytest", f"--basetemp={pytester.path / 'basetemp'}", *options)
    done = run_python(*words, cwd=pytester.path)
    return pytest.RunResult(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), duration=0.0)


@cache
def _start_server() -> subprocess.Popen[str]:
    """One for all tests of this process; it ends when this process does, and no longer writes to it."""
    return subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def serve() -> dict[str, Any] | None:
    """In the server, None when nobody asks any more; in a copy of it, the request that the copy is for."""
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if (copy := os.fork()) == 0:
            return request
        _, status = os.waitpid(copy, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    return None


def become(words: Sequence[str], cwd: str, environment: Mapping[str, str], out: str, err: str) -> None:
    """Run what was asked for as the main program, with standard streams of its own."""
    signal.alarm(DEADLINE_S)  # its default action ends the process
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        file = os.open(path, flags | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    if words[0] == "-m":
        sys.argv, sys.path[0] = [words[1], *words[2:]], cwd
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = [*words], str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    for name in LOADED:
        __import__(name)
    assert not {"gonogo", "triton"} & set(sys.modules)
    if (asked := serve()) is not None:
        become(**asked)

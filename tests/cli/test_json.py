"""--json of every command: a schema number, documented fields, numbers as numbers, and errors as objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import gonogo.cli
from gonogo.cli import cli

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
RUN = str(ROOT / "records" / "cpu-11")
BY_NAME = {"sizes", "versions", "outcomes", "left_out", "current", "record", "readings", "bins", "probes"}
"""Objects whose keys are words of the data: axes, packages, outcomes, titles, columns, gauges."""
NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+([eE][-+]?\d+)?( ?%|/[\d,]+)?( \([\d,]+/[\d,]+\))?")
TEXTS = {"torch", "python", "triton", "gonogo", "shape", "signal", "bound_at"}
"""Of versions, sizes such as 2x7, ranges and indices, which may look like a number."""
SOFTMAX = "def softmax(x):\n    return x.softmax(-1) * 1.01\n"


def call(*words: str) -> dict:
    done = CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False)
    found = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert type(found["schema"]) is int
    return found


def list_keys(value: object, inside: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, content in value.items():
            if inside not in BY_NAME:
                yield key
            if key != "tables":  # its keys are titles, and columns below them
                yield from list_keys(content, "" if inside in BY_NAME and isinstance(content, dict) else key)
    elif isinstance(value, list):
        for content in value:
            yield from list_keys(content, inside)


def list_texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    for name, content in value.items() if isinstance(value, dict) else ():
        yield from list_texts(content, name)
    for content in value if isinstance(value, list) else ():
        yield from list_texts(content, key)


def read_section(title: str) -> set[str]:
    """Fields that a section names, those of a case or an audit with their parts."""
    named = set(re.findall(r"`([a-z][a-z0-9_-]*)`", SECTIONS[title]))
    bins = named & {"all", "differing", "manifest", "evident", "gross"}
    for name in bins:
        for kind in ("", "no_go_"):
            named |= {f"caught_{kind}{name}", f"recall_{kind}{name}", f"recall_{kind}{name}_interval"}
    return named


CASE = "softmax:f16:2x7x1025:c:uniform:81"
COMMANDS = {
    "audit": ["audit", "--op", "relu", "--dtype", "float16", "--policy", "vllm", "--records", RUN, "--cases", "6"],
    "calibrate": ["calibrate", RUN, "--op", "relu", "-o", "OUT/gonogo.lock"],
    "calibrate --diff": ["calibrate", RUN, "--op", "relu", "--diff", "OUT/shipped.lock"],
    "check": ["check", "OUT/kernel.py", "--op", "softmax", "--cases", "2", "--device", "cpu"],
    "demo": ["demo", "--device", "cpu"],
    "evaluate": ["evaluate", RUN, "--holdout", "none", "--tables", "--sweep"],
    "evaluate --drift": ["evaluate", "--drift", RUN, str(ROOT / "records" / "cpu-12")],
    "ops": ["ops", "relu", "cross_entropy"],
    "report": ["report", RUN, "-o", "OUT/report.html"],
    "run": ["run", "relu", "--cases", "1", "--dtype", "float32", "--device", "cpu", "--out", "OUT/run"],
    "sketch": ["sketch", RUN, "-o", "OUT/one.sketch"],
    "show": ["show", CASE, "softmax_torch", "--device", "cpu", "--worst", "1"],
    "reproduce": ["reproduce", "--records", RUN, "--out", "OUT/tables"],
}


SLOW = ("evaluate", "reproduce")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in COMMANDS]
)
def test_fields_are_documented_and_numbers_are_numbers(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "kernel.py").write_text(SOFTMAX)
    lock = ROOT / "src" / "gonogo" / "limits" / "shipped.lock"
    (tmp_path / "shipped.lock").write_bytes(lock.read_bytes())
    found = call(*(word.replace("OUT", str(tmp_path)) for word in COMMANDS[name]))
    command = name.split()[0]
    section = f"gonogo {command}"
    assert f"`schema` is {found['schema']}." in SECTIONS[section]
    undocumented = set(list_keys(found)) - read_section(section) - {"schema", "part", "whole", "rate"}
    assert not undocumented
    numbers = [(key, text) for key, text in list_texts(found) if NUMBER.fullmatch(text) and key not in TEXTS]
    assert not numbers


def test_every_command_has_json_and_a_section() -> None:
    for name, command in cli.commands.items():
        if name == "serve":  # it prints nothing: what it answers is OpenAPI's to tell
            continue
        assert any("--json" in parameter.opts for parameter in command.params), name
        assert f"gonogo {name}" in SECTIONS


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (["ops", "softmx", "--json"], "UnknownOp", 2),
        (["ops", "--jason", "--json"], "Usage", 2),
        (["evaluate", "nowhere", "--json"], "InputError", 2),
        (["calibrate", RUN, "--json", "--op", "relu", "--diff", "nowhere.lock"], "InputError", 2),
        (["show", "nonsense", "softmax", "--json"], "InputError", 2),
    ],
)
def test_a_refusal_is_an_object_too(
    words: list[str], kind: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["gonogo", *words])
    with pytest.raises(SystemExit) as ended:
        gonogo.cli.main()
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert ended.value.code == code
    assert found == {"schema": 1, "error": {"kind": kind, "message": found["error"]["message"], "exit_code": code}}
    assert found["error"]["message"] in printed.err
    assert set(list_keys(found)) - {"schema"} <= read_section("Errors")


@pytest.mark.parametrize(
    ("raised", "kind", "code"), [(KeyboardInterrupt, "Interrupted", 130), (OSError, "Crash", 3)]
)
def test_what_ends_it_otherwise_is_an_object_too(
    raised: type[BaseException], kind: str, code: int, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def end(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(cli.commands["demo"], "callback", end)
    monkeypatch.setattr("sys.argv", ["gonogo", "demo", "--json"])
    with pytest.raises(SystemExit) as ended:
        gonogo.cli.main()
    assert (ended.value.code, json.loads(capsys.readouterr().out)["error"]["kind"]) == (code, kind)

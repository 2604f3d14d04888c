"""Every block of README, CONTRIBUTING, records/ and docs/ is run; what is not run exists; figures are as generated.

`docs_page.py` has the rules. Pages run in a folder of their own, on the CPU, as a reader of a clone would run them.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from itertools import dropwhile, takewhile
from pathlib import Path

import click
import pytest
from docs_page import Block, Reader, Stale, compare_output, parse_page, renew_output, run_command

from gonogo.cases import DISTRIBUTIONS, DRAWN, DTYPE_CODES, LAYOUTS
from gonogo.cli import cli
from gonogo.ops import find_ops

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "records" / "README.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if not path.is_relative_to(RESULTS)),
]
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]
BLOCKS = {name: parse_page(path, name) for name, path in zip(NAMES, PAGES, strict=True)}
MARKED = [block for blocks in BLOCKS.values() for block in blocks if "not run" in block.notes]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
SOURCES = ROOT / "src"
MAKE_REFERENCE = ROOT / "docs" / "_site" / "make_reference.py"


@pytest.mark.slow
@pytest.mark.skipif(not (Path(sys.executable).parent / "gonogo").exists(), reason="a reader has gonogo installed")
@pytest.mark.parametrize("name", [name for name in NAMES if any(block.runs for block in BLOCKS[name])])
def test_page_runs(name: str, tmp_path: Path) -> None:
    told = tmp_path / "lines.json"
    command = [sys.executable, ROOT / "tests" / "docs_page.py", ROOT / name, "--lines", told]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(told.read_text()) == [block.line for block in BLOCKS[name] if block.runs]


def test_readme_shows_what_it_is() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) < 200
    assert sum(block.language == "python" for block in BLOCKS["README.md"]) >= 3
    commands = [line.split() for block in BLOCKS["README.md"] for line in _list_commands(block)]
    assert {"demo", "test"} <= {words[1] for words in commands if words[0] == "make"}


@pytest.mark.parametrize("block", MARKED, ids=str)
def test_marked_block_names_what_exists(block: Block) -> None:
    assert block.notes["not run"].strip(), "say why"
    if block.language == "python":
        _check_imports(block)
    for command in _list_commands(block):
        _check_command(command, str(block))


@pytest.mark.parametrize("name", NAMES)
def test_commands_in_prose_exist(name: str) -> None:
    for code in re.findall(r"`([^`\n]+)`", _read_prose(name)):
        if code.startswith(("gonogo ", "make ", "pytest ")):
            _check_command(code, name)
        for option in re.findall(r"^--gonogo[\w-]*", code):
            assert option in _list_pytest_options(), f"{name}: {option}"


@pytest.mark.parametrize("name", NAMES)
def test_no_command_hides_in_a_block_that_is_not_run(name: str) -> None:
    for block in BLOCKS[name]:
        if block.language in ("text", "toml") and not block.runs and not block.title:
            hidden = re.findall(r"^(?:\$|gonogo|make|pytest|pip|python) .*", block.text, re.M)
            assert not hidden, f"{block}: {hidden}; make it a console or bash block"


@pytest.mark.parametrize("name", NAMES)
def test_sessions_are_examples_of_docstrings(name: str) -> None:
    """Which are run where they stand; a page of its own would hide code in them."""
    sessions = [block for block in BLOCKS[name] if block.language == "pycon"]
    assert not sessions or name.startswith("docs/reference/"), f"{sessions[0]}: make it a python block"


@pytest.mark.slow
def test_references_are_as_the_code_says() -> None:
    ran = subprocess.run([sys.executable, MAKE_REFERENCE, "--check"], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr.strip() or "run: make reference"


def test_every_public_name_is_described() -> None:
    import gonogo

    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^### gonogo\.(\w+)$", page, re.M)) | set(re.findall(r"^\| `(\w+)` \|", page, re.M))
    assert set(gonogo.__all__) - {"__version__", "errors", "formats"} <= described
    assert "`gonogo.errors`" in page


def test_every_piece_of_a_case_id_is_explained() -> None:
    section = _read_prose("docs/how-to/failure.md").split("\n## Case ids\n")[1].split("\n## ")[0]
    pieces, tables = section.split("| layout | code |")
    assert re.findall(r"^\| (\w+) \| `(\w)` \| \w", tables, re.M) == [(layout, layout[0]) for layout in LAYOUTS]
    assert sorted(re.findall(r"^\| `(\w+)` \| \S", tables, re.M)) == sorted([*DISTRIBUTIONS, DRAWN])
    assert not [code for code in DTYPE_CODES.values() if f"`{code}`" not in pieces]


def _read_prose(name: str) -> str:
    return re.sub(r"^```.*?^```$", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.M | re.S)


def _list_commands(block: Block) -> Iterator[str]:
    if block.language in ("bash", "console"):
        for text, _ in block.commands:
            yield from (line for line in text.splitlines() if line.strip() and not line.startswith("#"))


def _check_command(text: str, where: str) -> None:
    """That a command would be understood: its name, sub-command, options, and files of the project."""
    words = shlex.split(text.replace("…", ""), comments=True)
    words = list(dropwhile(lambda word: "=" in word, words))  # settings of the environment
    name, rest = words[0], words[1:]
    if name == "python" and rest[:1] == ["-m"]:
        name, rest = rest[1], rest[2:]
    options = {word.partition("=")[0] for word in rest if word.startswith("--")}
    match name:
        case "gonogo" if rest and rest[0].isupper():  # stands for any
            return
        case "gonogo":
            command = cli.commands.get(rest[0]) if rest and not rest[0].startswith("-") else cli
            assert command is not None, f"{where}: there is no gonogo {rest[0]}"
            context = click.Context(command, info_name=name, **cli.context_settings)
            known = {option for one in command.get_params(context) for option in (*one.opts, *one.secondary_opts)}
            assert options <= known, f"{where}: gonogo {command.name} has no {options - known}"
        case "make":
            targets = {word for word in rest if "=" not in word}
            assert targets <= TARGETS, f"{where}: the Makefile has no {targets - TARGETS}"
        case "pytest":
            ours = {option for option in options if option.startswith("--gonogo")}
            assert ours <= _list_pytest_options(), f"{where}: {text}"
            assert all((ROOT / word).exists() for word in rest if "/" in word), f"{where}: {text}"
        case "pip":
            extras = {extra for listed in re.findall(r"\[(.*?)\]", text) for extra in listed.split(",")}
            assert extras <= set(PROJECT["project"]["optional-dependencies"]), f"{where}: {text}"
        case "python":
            assert (ROOT / rest[0]).exists(), f"{where}: {text}"
        case _:
            assert (ROOT / name).exists(), f"{where}: unknown command {name!r}"


def _list_pytest_options() -> set[str]:
    source = (ROOT / "src" / "gonogo" / "pytest_plugin.py").read_text(encoding="utf-8")
    return set(re.findall(r'"(--gonogo[\w-]*)"', source))


def _check_imports(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gonogo"):
            module = import_module(str(node.module))
            assert all(hasattr(module, one.name) for one in node.names), f"{block}: {ast.unparse(node)}"


def test_readme_headline_is_as_generated() -> None:
    """Fewer methods and columns than the results have; each cell is that of its method and column there."""
    shown = _read_table(README.read_text(encoding="utf-8"))
    generated = (RESULTS / "h200" / "results.md").read_text(encoding="utf-8")
    rows = _read_table(generated.split("## All methods, held out by run\n")[1])
    assert {"gonogo", "paper", "current"} < shown.keys()
    assert len(shown) >= 8
    for method, row in shown.items():
        assert {"false positives", "manifest flagged", "manifest no-go", "not judged"} < row.keys()
        assert row.items() <= rows[method].items(), f"{method}: copy the cells anew after: make results"


def _read_table(text: str) -> dict[str, dict[str, str]]:
    """The first table of methods: its rows by method, and cells by column."""
    lines = dropwhile(lambda line: not line.startswith("| method "), text.splitlines())
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in takewhile(lambda line: line.startswith("|"), lines)
    ]
    return {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[2:]}


def test_readme_tells_what_is_needed() -> None:
    text, project = README.read_text(encoding="utf-8"), PROJECT["project"]
    (torch,) = [needed for needed in project["optional-dependencies"]["torch"] if needed.startswith("torch")]
    assert f"Python {project['requires-python'].removeprefix('>=')} or later" in text
    assert f"torch, {torch.removeprefix('torch>=').partition(',')[0]} or later" in text


@pytest.mark.parametrize("name", NAMES)
def test_shares_are_as_generated(name: str) -> None:
    """Every share of cases, as 1/100,992, stands in the generated tables."""
    generated = "".join(path.read_text(encoding="utf-8") for path in sorted(RESULTS.rglob("*.md")))
    shares = set(re.findall(r"(?<![\w/.])\d[\d,]*/\d[\d,]*(?![\w/.])", _read_prose(name)))
    known = set(re.findall(r"\d[\d,]*/\d[\d,]*", generated))
    small = {share for share in shares if len(share.partition("/")[2]) <= 2}  # 1/24 is no share of the records
    assert shares - small <= known, f"not in docs/results: {sorted(shares - small - known)}"


@pytest.mark.parametrize("name", NAMES)
def test_counts_of_ops_and_kernels(name: str) -> None:
    ops = find_ops()
    kernels = [kernel for op in ops for kernel in op.kernels]
    faulty = sum(kernel.role == "faulty" for kernel in kernels)
    real = {"ops": len(ops), "kernels": len(kernels), "controls, held": len(kernels) - faulty, "faulty": faulty}
    for count, what in re.findall(r"(?<![\d,])(\d+) (ops|kernels|controls, held|faulty)\b", _read_prose(name)):
        assert int(count) == real[what], f"{name}: {count} {what}"


def test_layers_are_those_that_are_checked() -> None:
    (contract,) = PROJECT["tool"]["importlinter"]["contracts"]
    layers = [name for line in contract["layers"] for name in line.split(" | ")]
    told = re.findall(r"^(gonogo\.\w+) ", (ROOT / "docs" / "design.md").read_text(encoding="utf-8"), re.M)
    assert told == layers


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("go, 3 cases", "go, 3 cases", True),
        ("go, 3 cases", "no-go, 3 cases", False),
        ("go, 3 cases", "go, 4 cases", False),
        ("reads 9.5e+02", "reads 8.7e+02", True),
        ("reads 9.5e+02", "reads 95.0", False),
        ("reads 0.5", "reads -0.5", False),
        ("done in … s: 3", "done in 12 s: 3", True),
        ("done in … s: 3", "done in 12 s: 4", False),
        ("…\nlast", "first\nsecond\nlast", True),
        ("last", "first\nlast", False),
        ("first\n…", "first", True),
        ("┃ a ┃\n│ 1 │", "┏━━━━┓\n┃ a  ┃\n┡━━━━┩\n│  1 │\n└────┘", True),
    ],
)
def test_output_is_compared(shown: str, printed: str, same: bool) -> None:
    try:
        compare_output(shown.splitlines(), printed, "here")
    except Stale:
        assert not same
    else:
        assert same


def test_numbers_are_renewed_and_words_are_not() -> None:
    shown = ["…", "limit 11.64 (4,608 cases), in … s", "┃ a ┃", "reads 950.5"]
    printed = "first\nlimit 4.2 (5,000 cases), in 3 s\n┃ a ┃\nreads 951.2\n"
    assert renew_output(shown, printed) == ["…", "limit 4.2 (5,000 cases), in … s", "┃ a ┃", "reads 950.5"]
    assert renew_output(shown, printed.replace("limit", "bound")) == shown


LOOK = f"""{shlex.quote(sys.executable)} -c 'import os; print(os.get_terminal_size().columns, os.isatty(2))'"""


def test_commands_run_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    ran = run_command(f"{LOOK}; echo below >&2; echo $TERM $NO_COLOR ${{COLUMNS-none}}; exit 3", 77)
    assert ran.stdout == "77 False\nxterm 1 none\n"
    assert (ran.stderr, ran.returncode) == ("below\n", 3)
    styled = run_command(r"printf '\033[1mbold\033[0m \033]8;;file:x\033\\link\033]8;;\033\\ …\n'", 80)
    assert styled.stdout == "bold link …\n"
    assert len(run_command("head -c 3000000 /dev/zero | tr '\\0' x; echo >&2", 80).stdout) == 3_000_000
    assert run_command("cat", 80).stdout == "", "nobody types"


def test_a_page_shows_a_terminal_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    page = tmp_path / "page.md"

    def run(shown: str) -> None:
        text = f"<!-- terminal: 20 -->\n```console\n$ seq 3; {LOOK}\n{shown}\n```\n"
        page.write_text(text, encoding="utf-8")
        Reader(tmp_path).run(parse_page(page, "page.md"))

    run("1\n2\n3\n20 False")
    run("1\n2\n3\n20 …")
    with pytest.raises(Stale, match="printed"):
        run("1\n2\n3\n200 False")
    with pytest.raises(Stale, match="shown whole"):
        run("1\n…\n20 False")
    with pytest.raises(Stale, match="21 columns on a terminal of 20"):
        run("1\n2\n3\n" + "é" * 21)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Run:\n\n    gonogo ops\n", "indented code"),
        ("```sh\ngonogo ops\n```\n", "a block is one of"),
        ("- list\n  ```bash\n", "first column"),
        ("```bash\ngonogo ops\n", "without an end"),
        ("<!-- not run: slow -->\nwords\n", "no block follows"),
        ("<!-- terminal: 80 -->\n```bash\ngonogo ops\n```\n", "for a console block"),
        ("<!-- terminal: wide -->\n```console\n$ gonogo ops\n```\n", "for a console block"),
    ],
)
def test_code_cannot_hide(text: str, told: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(Stale, match=told):
        parse_page(page, "page.md")

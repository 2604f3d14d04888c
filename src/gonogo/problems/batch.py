"""Many solutions, in a folder or a JSONL file → verdicts, by threads that have a warm worker each; resumable."""

from __future__ import annotations

import json
import queue
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from gonogo.errors import CampaignFailed, GonogoError, InputError
from gonogo.problems.finding import detect_format, list_formats
from gonogo.problems.judging import Judged, Terms, judge_solution, refuse
from gonogo.problems.problem import Options, list_bound
from gonogo.runners.pool import Allowance, Pool

SOURCES = ("solution", "code", "source", "predict", "kernel")
"""Keys of a line of JSONL that may hold a solution's source."""
SUFFIXES = (".py", ".json")
BROKEN = ".broken"
"""Of a line that is no solution at all."""
FENCE = "```"


@dataclass(frozen=True)
class Task:
    """One solution and the problem that it is of, or why there is none."""

    name: str
    text: str
    suffix: str
    problem: Path | None
    refused: str = ""
    asked: str = ""
    """What it was judged by, and the problem's content: of anything else an earlier verdict says nothing."""

    @property
    def key(self) -> str:
        """What a verdict is found again by."""
        told = f"{self.problem}\0{self.asked}\0{self.name}\0{self.text}"
        return sha256(told.encode("utf-8", "replace")).hexdigest()[:16]


def list_tasks(problem: Path, solutions: Path) -> list[Task]:
    """Solutions of a folder or a JSONL file, each with its problem: the only one, or the one it is named after."""
    problems = list_problems(problem)
    found = _list_lines(solutions) if solutions.suffix == ".jsonl" else _list_files(solutions)
    tasks = [_place(name, text, suffix, wanted, problems) for name, text, suffix, wanted in found]
    if not tasks:
        raise InputError(
            f"{solutions} has no solutions: files of Python or JSON, or a .jsonl with one in each line"
        )
    return tasks


def list_problems(path: Path) -> dict[str, Path]:
    """Problems by name: of a file one, of a checkout all."""
    try:
        detect_format(path)
        return {path.stem: path}
    except InputError:
        if not path.is_dir():
            raise
    for known in list_formats().values():
        if found := known.list_problems(path):
            return {_name(each): each for each in found}
    raise InputError(f"{path} has no problems of a format that is known")


def _name(path: Path) -> str:
    level = f"{path.parent.name}_" if path.parent.name.startswith("level") else ""
    return f"{level}{path.stem if path.is_file() else path.name}"


def _list_files(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    if not folder.is_dir():
        raise InputError(f"{folder} is neither a folder nor a .jsonl of solutions")
    for path in sorted(folder.rglob("*")):
        if path.suffix in SUFFIXES and path.is_file():
            text = path.read_text("utf-8", errors="replace")
            named = str(path.relative_to(folder).with_suffix("")).replace("/", "_")
            yield str(path.relative_to(folder)), text, path.suffix, _find_wanted(text, path.suffix) or named


def _find_wanted(text: str, suffix: str) -> str:
    """The problem that a solution in JSON names itself."""
    if suffix != ".json":
        return ""
    try:
        return str(json.loads(text).get("definition", ""))
    except (ValueError, AttributeError):
        return ""


def _find_broken(text: str) -> str:
    try:
        json.loads(text)
    except ValueError as error:
        return f"it is no JSON: {error}"
    return ""


def _list_lines(path: Path) -> Iterator[tuple[str, str, str, str]]:
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            told = json.loads(line)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            yield f"{path.stem}:{number}", line, BROKEN, ""
            continue
        source = next((str(told[key]) for key in SOURCES if told.get(key)), "")
        name = str(told.get("name") or told.get("id") or f"{path.stem}:{number}")
        yield name, strip_fence(source), ".py", str(told.get("problem") or told.get("definition") or "")


def strip_fence(text: str) -> str:
    """The code of an answer that has it between fences, or the text as it is."""
    if FENCE not in text:
        return text
    inside = text.split(FENCE)[1]
    first, _, rest = inside.partition("\n")
    return rest if first.strip().isalpha() else inside


def _place(name: str, text: str, suffix: str, wanted: str, problems: dict[str, Path]) -> Task:
    """The problem of a solution: the only one, the one named, or the last whose function it defines."""
    if suffix == BROKEN:
        return Task(name, text, suffix, None, "its line is no JSON object")
    if not text.strip():
        return Task(name, text, suffix, None, f"it has no source: none of {', '.join(SOURCES)}")
    if suffix == ".json" and (problem := _find_broken(text)):
        return Task(name, text, suffix, None, problem)
    if len(problems) == 1:
        return Task(name, text, suffix, next(iter(problems.values())))
    chosen = problems.get(wanted) or problems.get(Path(wanted).stem)
    if chosen is None and wanted:
        near = [path for known, path in problems.items() if known.endswith(wanted) or wanted.startswith(known)]
        chosen = near[0] if len(near) == 1 else None
    if chosen is None:
        try:
            bound = list_bound(text, Path(name))
        except InputError as error:
            return Task(name, text, suffix, None, str(error))
        named = [problems[known] for known in bound if known in problems]
        chosen = named[-1] if named else None  # what others are made for comes last
    return Task(name, text, suffix, chosen, "" if chosen else "it is of no problem there, by its name or its words")


def judge_all(
    tasks: Sequence[Task],
    options: Options,
    terms: Terms,
    *,
    workers: int,
    kept: Path | None = None,
    report: Callable[[int, int, int], None] = lambda done, total, made: None,
) -> list[dict[str, Any]]:
    """Verdicts of all, in order, as plain data; those that `kept` has already are not made again."""
    tasks = [replace(task, asked=_tell_asked(task, options, terms)) for task in tasks]
    answers = {} if kept is None else read_kept(kept)
    left: queue.SimpleQueue[Task] = queue.SimpleQueue()
    waiting = {task.key: task for task in tasks if task.key not in answers}
    for task in waiting.values():
        left.put(task)
    lock, made = threading.Lock(), 0
    ended = threading.Event()

    def keep(task: Task, answer: dict[str, Any]) -> None:
        nonlocal made
        with lock:
            answers[task.key] = answer
            made += 1
            if kept is not None:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"key": task.key} | answer) + "\n")
            report(len(answers), len(tasks), made)

    failures: list[BaseException] = []

    def work(opened: _Worker) -> None:
        with opened as worker:
            while not ended.is_set():
                try:
                    task = left.get_nowait()
                except queue.Empty:
                    return
                try:
                    keep(task, worker.judge(task))
                except BaseException as error:  # noqa: BLE001  ours: no solution raises here
                    failures.append(error)
                    ended.set()

    # Opened here: what workers are forked from ends with the thread that has started it.
    opened = [_Worker(options, terms, workers) for _ in range(min(workers, len(waiting)))]
    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in opened]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    except KeyboardInterrupt:
        ended.set()
        raise
    if failures:
        raise failures[0]
    return [answers[task.key] for task in tasks]


def _tell_asked(task: Task, options: Options, terms: Terms) -> str:
    problem = task.problem.read_bytes() if task.problem is not None and task.problem.is_file() else b""
    judged_by = replace(terms, seed=0) if terms.is_fresh else terms
    return f"{options} {judged_by} {sha256(problem).hexdigest()}"


def read_kept(path: Path) -> dict[str, dict[str, Any]]:
    """Verdicts of an earlier run; a line that was cut off is made again."""
    if not path.exists():
        return {}
    found = {}
    for line in path.read_text("utf-8").splitlines():
        try:
            told = json.loads(line)
            found[told.pop("key")] = told
        except (ValueError, KeyError, AttributeError):
            continue
    return found


class _Worker:
    """A thread's pool of one worker, which stays for all of its solutions."""

    def __init__(self, options: Options, terms: Terms, workers: int) -> None:
        self.options, self.terms, self.share = options, terms, 0.9 / workers
        self.folder = tempfile.TemporaryDirectory(prefix="gonogo-solutions-")
        self.pool = Pool(
            1, terms.allowance or Allowance(), guests_of=(), device=options.device, gpu_memory_share=self.share,
            triton=True,
        )  # fmt: skip

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()
        self.folder.cleanup()

    def judge(self, task: Task) -> dict[str, Any]:
        """The verdict on one solution; whatever is wrong with it costs nobody else anything."""
        if task.problem is None:
            return self._settle(task, Judged("", "", task.name, "refused", task.refused))
        file = Path(self.folder.name) / f"solution_{task.key}{task.suffix}"
        file.write_text(task.text, encoding="utf-8", errors="replace")
        try:
            judged = judge_solution(task.problem, str(file), self.options, self.terms, pool=self.pool)
        except CampaignFailed:
            raise  # nothing that follows would be judged
        except GonogoError as error:
            judged = refuse(task.problem, task.name, error)
        except Exception as error:  # noqa: BLE001  ours, and told as such: the others are judged all the same
            judged = refuse(task.problem, task.name, InputError(f"gonogo failed: {type(error).__name__}: {error}"))
        finally:
            file.unlink(missing_ok=True)
        return self._settle(task, replace(judged, why=judged.why.replace(str(file), task.name)))

    def _settle(self, task: Task, judged: Judged) -> dict[str, Any]:
        answer = judged.to_dict() | {"solution": task.name}
        answer.pop("verifications")
        return answer

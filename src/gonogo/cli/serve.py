"""gonogo serve: kernels over HTTP → verdicts, all day."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gonogo.cli._output import echo
from gonogo.cli._parse import FILE, need_backend, show_examples, words_option
from gonogo.client import TOKEN
from gonogo.errors import BackendMissing, InputError
from gonogo.limits.shipped import choose_limit
from gonogo.user.op_file import find_op_file
from gonogo.words import find_contract, find_op

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PORT = 8420
MOST_CONNECTIONS = 1000
"""At a time; beyond them the answer is 503, and the client comes back."""


@click.command(
    short_help="Judge kernels over HTTP, isolated.",
    epilog=show_examples(
        "gonogo serve --socket judge.sock",
        "gonogo serve --port 8420 --workers 4",
    ),
)
@click.option("--socket", "socket_path", type=FILE, help="Listen on this Unix socket.")
@click.option("--port", type=click.IntRange(0, 65535), help=f"Listen on this port; {PORT} by default, 0 for any.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen on this address.")
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help="Judges at a time; by default one per core, or per GPU that is named.",
)
@words_option(
    "--device", "--devices", "devices", metavar="DEVICE",
    help="auto, cpu, cuda, or GPUs by number: cuda:0,cuda:1. Repeated, or with commas.",
)  # fmt: skip
@click.option("--lock", type=FILE, help="Judge by this lock file instead of the package's.")
@click.option(
    "--op-file", "op_files", multiple=True, metavar="OPFILE[:NAME]",
    help="An op of your own that kernels may name, too. The file is run. Repeated.",
)  # fmt: skip
@click.option("--state", type=FILE, help="Where submissions are kept; in ~/.local/state by default.")
@click.option(
    "--queue",
    "most_waiting",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Submissions that may wait.",
)
@click.option(
    "--keep",
    "most_kept",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Submissions whose verdict is kept.",
)
@click.option("--timeout", "timeout_s", default=60.0, show_default=True, help="Seconds per case, at most.")
@click.option("--memory-gb", default=8.0, show_default=True, help="Memory of a kernel's processes, at most.")
@click.option("--submission-timeout", "submission_s", default=900.0, show_default=True, help="Seconds in all.")
@click.option("--verbose", is_flag=True, help="Log every request.")
def serve(
    socket_path: Path | None,
    port: int | None,
    host: str,
    workers: int | None,
    devices: tuple[str, ...],
    lock: Path | None,
    op_files: tuple[str, ...],
    state: Path | None,
    most_waiting: int,
    most_kept: int,
    timeout_s: float,
    memory_gb: float,
    submission_s: float,
    verbose: bool,
) -> None:
    """Serve verdicts: a kernel's source in, what gonogo check --json prints out. GET / shows the protocol.

    A submission is on the disk before it is accepted: ended and started again, the server goes on where it was.
    Verdicts are kept by content, and the same submission is judged once. All but a Unix socket needs the token in
    $GONOGO_TOKEN; where that is not set, one is made and kept beside the state.
    """
    if socket_path is not None and port is not None:
        raise click.UsageError("--socket and --port are two places to listen: give one of them")
    with need_backend("gonogo serve"):
        from gonogo.runners.device import count_workers, find_device, set_switches
        from gonogo.runners.pool import Allowance
        from gonogo.service.judges import Terms, hash_file
    try:
        from gonogo.service.app import JsonLines, make_app
        from gonogo.service.server import Server
        from gonogo.service.store import Store
    except ImportError as error:
        raise BackendMissing(str(error.name), "gonogo serve", extra="serve") from None
    Allowance(timeout_s, memory_gb * 2**30)
    device, gpus = _find_gpus(devices or ("auto",), find_device)
    set_switches(device)
    count = workers or (len(gpus) if device == "cuda" else count_workers(device))
    own = {op.name: op for op in (find_op_file(each) for each in op_files)}
    _log_to_stderr(JsonLines(), verbose=verbose)
    path = _find_state(state)
    store = Store(path, most_waiting, most_kept, count)
    terms = Terms(
        device, lock, timeout_s, memory_gb, submission_s, (*store.files, str(_find_token_file(path).resolve())),
        hash_file(lock), own,
    )  # fmt: skip
    choose_limit(find_op("softmax"), find_contract(None), lock=lock)  # a lock that cannot be read is refused now
    listener, token = _listen(socket_path, host, PORT if port is None else port, path)
    server = Server(store, terms, [gpus[at % len(gpus)] for at in range(count)])
    where = f"unix:{socket_path}" if socket_path is not None else "http://{}:{}".format(*listener.getsockname()[:2])
    echo(f"listening on {where}, {count} judges on {device}, state in {path}", aside=True)
    _run(make_app(server, token), listener)
    if socket_path is not None:
        socket_path.unlink(missing_ok=True)


def _find_gpus(devices: tuple[str, ...], find_device: Callable[[str], str]) -> tuple[str, list[str | None]]:
    """`cpu` or `cuda`, and the GPUs by number; [None] where the usual one is meant."""
    numbers = [word.removeprefix("cuda:") for word in devices if word.startswith("cuda:")]
    if numbers and len(numbers) == len(devices) and all(number.isdigit() for number in numbers):
        return find_device("cuda"), _list_visible([int(number) for number in dict.fromkeys(numbers)])
    if len(devices) != 1:
        raise InputError(f"devices {', '.join(devices)}: give one of auto, cpu and cuda, or GPUs as cuda:0,cuda:1")
    return find_device(devices[0]), [None]


def _list_visible(numbers: list[int]) -> list[str | None]:
    """GPUs as CUDA_VISIBLE_DEVICES names them, of those that are visible now."""
    from torch.cuda import device_count

    if max(numbers) >= device_count():
        raise InputError(f"device cuda:{max(numbers)}: {device_count()} GPUs are visible here, from cuda:0 on")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(device_count())]
    return [names[number] for number in numbers]


def _find_state(given: Path | None) -> Path:
    if given is None:
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        given = Path(base, "gonogo", "serve.sqlite")
    try:
        given.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{given.parent} cannot be made: {error.strerror}") from None
    return given


def _listen(path: Path | None, host: str, port: int, state: Path) -> tuple[socket.socket, str | None]:
    """A socket that listens, and the token that it takes; none where only this user reaches it."""
    try:
        if path is not None:
            _remove_stale(path)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            before = os.umask(0o177)
            try:
                listener.bind(str(path))
            finally:
                os.umask(before)
            return listener, None
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        raise InputError(f"cannot listen on {path or f'{host}:{port}'}: {error.strerror or error}") from None
    return listener, os.environ.get(TOKEN) or _keep_token(_find_token_file(state))


def _remove_stale(path: Path) -> None:
    """Remove the socket of a server that is gone."""
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise InputError(f"a server listens on {path} already")


def _find_token_file(state: Path) -> Path:
    return state.with_suffix(".token")


def _keep_token(path: Path) -> str:
    """The token of a file that only this user reads; made where there is none."""
    try:
        if path.exists():
            return _read_token(path)
        token = secrets.token_urlsafe(32)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{token}\n")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}. Set {TOKEN} instead") from None
    echo(f"a token was made: export {TOKEN}=$(cat {path})", aside=True)
    return token


def _read_token(path: Path) -> str:
    """A token that was made before; refused where others could have written or read it."""
    facts, token = path.stat(), path.read_text().strip()
    if facts.st_uid != os.getuid() or facts.st_mode & 0o077 or len(token) < 16:
        raise InputError(f"{path} has no token that only you can read. Remove it, or set {TOKEN}")
    return token


def _log_to_stderr(formatter: logging.Formatter, *, verbose: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logger = logging.getLogger("gonogo.service")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    logger.propagate = False


def _run(app: ASGIApp, listener: socket.socket) -> None:
    import uvicorn

    # uvicorn sends itself the signal that ended it once more, when all is done: then it is no longer one to die of.
    for ends in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ends, lambda *_: None)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=5, lifespan="on",
        limit_concurrency=MOST_CONNECTIONS, timeout_keep_alive=30,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listener])

import os
import signal
import subprocess
import sys
from pathlib import Path


def copies(x):
    return x.clone()


def starts_and_crashes(x):
    """Starts a process in a session of its own, and crashes."""
    _tell(_start("signal.pause()"))
    os.kill(os.getpid(), signal.SIGSEGV)


def eats_memory_elsewhere(x):
    """What it starts takes memory and keeps it, more than a worker may: what others share counts in parts."""
    _start("room = b'1' * (900 * 2**20); signal.pause()").wait()


def spins(x):
    """Starts a process in a session of its own, and never returns."""
    _tell(_start("signal.pause()"))
    while True:
        pass


def _start(code):
    return subprocess.Popen([sys.executable, "-c", f"import signal; {code}"], start_new_session=True)


def _tell(child):
    """Leave the numbers of both processes; the file is there once it is complete."""
    folder = os.environ.get("ENDLESS_FOLDER")
    if folder:
        path = Path(folder, str(os.getpid()))
        path.with_suffix(".part").write_text(f"{os.getpid()} {child.pid}")
        path.with_suffix(".part").rename(path.with_suffix(".told"))

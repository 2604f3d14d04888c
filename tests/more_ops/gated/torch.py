import os
import time
from pathlib import Path


def copies(x):
    return x.clone()


def waits_once(x):
    """Tells its process in a file that only one can make, and waits for another file to be there."""
    folder = os.environ.get("GATE_FOLDER")
    if folder and _is_first(Path(folder, "told")):
        while not Path(folder, "open").exists():
            time.sleep(0.01)
    return x.clone()


def _is_first(path):
    part = path.with_name(f"{os.getpid()}.part")
    part.write_text(str(os.getpid()))
    try:
        os.link(part, path)  # there at once and whole, or refused
    except FileExistsError:
        return False
    finally:
        part.unlink()
    return True

"""Kernel files that attack, deceive or are merely odd, each with the decision and outcome it must get.

Every one is a softmax over the last axis, or pretends to be. RIGHT is what a correct one returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

RIGHT = "torch.softmax(x.float(), -1).to(x.dtype)"


TELL = "def tell(number, body): os.write(number, len(body).to_bytes(4, 'little') + body)\n"


@dataclass(frozen=True)
class File:
    """A source, and what must become of it."""

    name: str
    source: str
    decision: str
    outcome: str | None = None
    """An outcome that some case must have; None where readings decide."""


def _file(name: str, decision: str, outcome: str | None, source: str) -> File:
    head = "import os, sys, threading, time, gc, types\nimport numpy as np\nimport torch\n" + TELL
    return File(name, head + dedent(source).replace("RIGHT", RIGHT), decision, outcome)


FILES = [
    # Odd, and right.
    _file("plain", "go", None, """
        def softmax(x):
            return RIGHT
    """),
    _file("parameter", "go", None, """
        def softmax(x):
            return torch.nn.Parameter(RIGHT, requires_grad=False)
    """),
    _file("starts_a_thread", "go", None, """
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        def softmax(x):
            return RIGHT
    """),
    _file("leaves_a_child", "go", None, """
        def softmax(x):
            if os.fork() == 0:
                time.sleep(600)
            return RIGHT
    """),
    _file("leaves_a_daemon", "go", None, """
        def softmax(x):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(600)
                os._exit(0)
            return RIGHT
    """),
    _file("multiprocessing", "go", None, """
        import multiprocessing
        def work(): pass
        def softmax(x):
            process = multiprocessing.get_context("fork").Process(target=work)
            process.start(); process.join()
            return RIGHT
    """),
    _file("prints_much", "go", None, """
        def softmax(x):
            print("x" * 100_000)
            return RIGHT
    """),
    _file("closes_streams", "go", None, """
        sys.stdout.close(); sys.stderr = None
        def softmax(x):
            return RIGHT
    """),
    _file("deletes_modules", "go", None, """
        def softmax(x):
            sys.modules.pop("json", None)
            return RIGHT
    """),
    _file("numpy_seterr_at_import", "go", None, """
        np.seterr(all="raise")
        def softmax(x):
            return RIGHT
    """),
    _file("tmp_files", "go", None, """
        import tempfile
        def softmax(x):
            tempfile.NamedTemporaryFile(delete=False).write(b"x" * 1000)
            open("here", "w").write("x")
            return RIGHT
    """),
    _file("ignores_signals", "go", None, """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        def softmax(x):
            return RIGHT
    """),
    # Ends, hangs, raises.
    _file("raises", "no-go", "raised", "def softmax(x): raise ValueError('no')"),
    _file("exits", "no-go", "raised", "def softmax(x): sys.exit(0)"),
    _file("os_exits_0", "no-go", "crashed", "def softmax(x): os._exit(0)"),
    _file("aborts", "no-go", "crashed", "def softmax(x): os.abort()"),
    _file("kills_itself", "no-go", "crashed", "def softmax(x): os.kill(os.getpid(), 9)"),
    _file("segfaults", "no-go", "crashed", """
        import ctypes
        def softmax(x): ctypes.string_at(0)
    """),
    _file("kills_its_parent", "no-go", None, """
        def softmax(x):
            for process in (os.getppid(), 1):
                try: os.kill(process, 9)
                except OSError: pass
            return x
    """),
    _file("kills_everybody", "no-go", None, """
        def softmax(x):
            try: os.kill(-1, 9)
            except OSError: pass
            return x
    """),
    _file("hangs", "no-go", "timed-out", """
        def softmax(x):
            while True: pass
    """),
    _file("hangs_deaf", "no-go", "timed-out", """
        import signal
        def softmax(x):
            for number in range(1, 32):
                try: signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError): pass
            while True: pass
    """),
    _file("stops_itself", "no-go", None, """
        import signal
        def softmax(x):
            os.kill(os.getpid(), signal.SIGSTOP)
    """),
    _file("eats_memory", "no-go", "out-of-memory", """
        def softmax(x):
            kept = [bytearray(2**26) for _ in range(100)]
            for part in kept: part[::4096] = b"x" * len(part[::4096])
            time.sleep(30)
    """),
    _file("child_eats_memory", "no-go", "out-of-memory", """
        def softmax(x):
            if os.fork() == 0:
                kept = [bytearray(2**26) for _ in range(100)]
                for part in kept: part[::4096] = b"x" * len(part[::4096])
                time.sleep(60); os._exit(0)
            time.sleep(30)
    """),
    _file("many_processes", "no-go", None, """
        def softmax(x):
            made = 0
            while made < 700:  # bounded: where nothing limits it, it must not take the machine down
                made += 1
                try:
                    if os.fork() == 0: time.sleep(60); os._exit(0)
                except OSError: pass
            return x
    """),
    _file("threads_without_end", "no-go", None, """
        def softmax(x):
            def run():
                while True: time.sleep(1)
            for _ in range(50): threading.Thread(target=run, daemon=True).start()
            return x
    """),
    # Exceptions that pretend.
    _file("raises_a_refusal", "no-go", "raised", """
        def softmax(x):
            from gonogo_guest.launches import WrongDevice
            raise ValueError("refused")
    """),
    _file("raises_refused_launch", "no-go", "broken-protocol", """
        def softmax(x):
            from gonogo_guest.launches import RefusedLaunch
            raise RefusedLaunch("Triton's interpreter computes bfloat16 as integers")
    """),
    _file("raises_gonogo_errors", "no-go", "raised", """
        def softmax(x):
            import gonogo.errors
            raise gonogo.errors.CaseTooLarge
    """),
    _file("text_of_escapes", "no-go", "raised", r'''
        def softmax(x): raise ValueError("\x1b[2J\x1b]0;owned\x07 \ud800 \x00 [red]x[/red]")
    '''),
    _file("text_that_raises", "no-go", "raised", """
        class Mute(Exception):
            def __str__(self): raise RuntimeError
            __repr__ = __str__
        def softmax(x): raise Mute
    """),
    _file("text_without_end", "no-go", "raised", "def softmax(x): raise ValueError('x' * 10**7)"),
    # What is returned.
    _file("nothing", "no-go", "no-output", "def softmax(x): return None"),
    _file("a_list", "no-go", "no-output", "def softmax(x): return [1.0]"),
    _file("wrong_shape", "no-go", "wrong-shape", "def softmax(x): return torch.zeros(3)"),
    _file("huge_shape", "no-go", None, "def softmax(x): return torch.zeros((), dtype=x.dtype).expand(2**40)"),
    _file("wrong_dtype", "no-go", "wrong-dtype", "def softmax(x): return torch.softmax(x.double(), -1)"),
    _file("meta", "no-go", "no-output", "def softmax(x): return torch.empty_like(x, device='meta')"),
    _file("sparse", "no-go", "no-output", "def softmax(x): return (RIGHT).to_sparse()"),
    _file("subclass", "no-go", "no-output", """
        class Liar(torch.Tensor):
            pass
        def softmax(x): return (RIGHT).as_subclass(Liar)
    """),
    _file("array_that_lies", "no-go", None, """
        class Liar:
            def __array__(self, *args, **kwargs): return np.zeros(3)
        def softmax(x): return Liar()
    """),
    _file("the_input", "no-go", "aliased", "def softmax(x): return x"),
    _file("unwritten", "no-go", "unwritten", "def softmax(x): return torch.empty_like(x)"),
    _file("zeros", "no-go", None, "def softmax(x): return torch.zeros_like(x)"),
    _file("changes_its_input", "no-go", "inputs-changed", """
        def softmax(x):
            out = RIGHT
            x.zero_()
            return out
    """),
    # Looks for what it must not have.
    _file("imports_the_reference", "no-go", "raised", """
        def softmax(x):
            from gonogo.ops.softmax.reference import reference
            return reference(x.double()).to(x.dtype)
    """),
    _file("reads_the_reference", "no-go", "raised", """
        def softmax(x):
            import importlib.util
            found = [p for p in sys.path if os.path.isdir(os.path.join(p, "gonogo"))]
            text = open(os.path.join(found[0], "gonogo", "ops", "softmax", "reference.py")).read()
            space = {}; exec(text, space)
            return space["reference"](x.double()).to(x.dtype)
    """),
    _file("looks_in_frames", "no-go", "raised", """
        def softmax(x):
            frame = sys._getframe()
            while frame:
                for value in frame.f_locals.values():
                    if type(value).__name__ in ("Bench", "Reference"):
                        return value.expected.to(x.dtype)
                frame = frame.f_back
            raise LookupError
    """),
    _file("looks_in_memory", "no-go", "raised", """
        def softmax(x):
            for thing in gc.get_objects():
                if isinstance(thing, torch.Tensor) and thing.dtype is torch.float64 and thing.shape == x.shape:
                    return thing.to(x.dtype)
            raise LookupError
    """),
    _file("reads_the_judges_memory", "no-go", "raised", """
        def softmax(x):
            for process in os.listdir("/proc"):
                if process.isdigit() and int(process) not in (1, 2, os.getpid()):
                    open(f"/proc/{process}/mem", "rb").read(1)
                    return x.clone()
            raise LookupError
    """),
    _file("ptraces_its_parent", "no-go", "raised", """
        import ctypes
        def softmax(x):
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.ptrace(16, os.getppid(), 0, 0) == 0:
                return x.clone()
            raise PermissionError(ctypes.get_errno())
    """),
    _file("writes_elsewhere", "no-go", "raised", """
        def softmax(x):
            open(os.path.join(os.path.dirname(__file__), "written"), "w").write("x")
            return x.clone()
    """),
    _file("goes_on_line", "no-go", "raised", """
        import socket
        def softmax(x):
            server = socket.socket(); server.settimeout(1)
            server.connect(("192.0.2.1", 80))
    """),
    _file("mounts", "no-go", "raised", """
        import ctypes
        def softmax(x):
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.umount2(b"/proc", 2) and libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None):
                raise PermissionError(ctypes.get_errno())
            return x.clone()
    """),
    _file("reads_the_environment", "no-go", "raised", """
        def softmax(x):
            if os.environ.get("GONOGO_SECRET"): return x.clone()
            raise LookupError
    """),
    # Forges its answers.
    _file("patches_the_measure", "no-go", None, """
        torch.equal = torch.allclose = lambda *a, **k: True
        torch.testing.assert_close = lambda *a, **k: None
        def softmax(x):
            return torch.zeros_like(x)
    """),
    _file("writes_garbage_to_the_judge", "no-go", "broken-protocol", """
        import socket, stat
        def softmax(x):
            for number in range(3, 64):
                try:
                    if stat.S_ISSOCK(os.fstat(number).st_mode): os.write(number, b"\\xff" * 4096)
                except OSError: pass
            time.sleep(60)
    """),
    _file("writes_half_a_message", "no-go", "timed-out", """
        import socket, stat
        def softmax(x):
            for number in range(3, 64):
                try:
                    if stat.S_ISSOCK(os.fstat(number).st_mode): os.write(number, b"\\x00\\x01\\x00\\x00{")
                except OSError: pass
            time.sleep(60)
    """),
    _file("sends_a_pickle", "no-go", "broken-protocol", """
        import pickle, socket, stat, struct
        class Bomb:
            def __reduce__(self): return os.system, ("touch /tmp/gonogo_was_here",)
        def softmax(x):
            body = pickle.dumps(Bomb())
            for number in range(3, 64):
                try:
                    if stat.S_ISSOCK(os.fstat(number).st_mode): tell(number, body)
                except OSError: pass
            time.sleep(60)
    """),
    _file("forges_an_answer", "no-go", "broken-protocol", """
        import json, socket, stat, struct
        def softmax(x):
            body = json.dumps({"first": [], "again": "x", "aliases": {}}).encode()
            for number in range(3, 64):
                try:
                    if stat.S_ISSOCK(os.fstat(number).st_mode): tell(number, body)
                except OSError: pass
            time.sleep(60)
    """),
    _file("forges_deep_json", "no-go", "broken-protocol", """
        import socket, stat, struct
        def softmax(x):
            body = b"[" * 500_000
            for number in range(3, 64):
                try:
                    if stat.S_ISSOCK(os.fstat(number).st_mode): tell(number, body)
                except OSError: pass
            time.sleep(60)
    """),
    _file("closes_the_channel", "no-go", None, """
        def softmax(x):
            os.closerange(3, 256)
            return RIGHT
    """),
    # Right at times.
    _file("cached_by_id", "no-go", None, """
        known = {}
        def softmax(x):
            return known.setdefault((id(x), x.shape), RIGHT)
    """),
    _file("cached_by_pointer", "no-go", None, """
        known = {}
        def softmax(x):
            return known.setdefault((x.data_ptr(), x.shape, x.dtype), RIGHT).clone()
    """),
    _file("cached_by_first_element", "no-go", None, """
        known = {}
        def softmax(x):
            return known.setdefault((float(x.reshape(-1)[0]) if x.numel() else 0, x.shape, x.dtype), RIGHT).clone()
    """),
    _file("cached_by_shape", "no-go", None, """
        known = {}
        def softmax(x):
            return known.setdefault((x.shape, x.dtype), RIGHT).clone()
    """),
    _file("wrong_after_100_calls", "no-go", None, """
        calls = [0]
        def softmax(x):
            calls[0] += 1
            return RIGHT if calls[0] < 100 else torch.zeros_like(x)
    """),
    _file("wrong_now_and_then", "no-go", None, """
        import random
        def softmax(x):
            return RIGHT if random.random() > 0.03 else torch.zeros_like(x)
    """),
    _file("spoils_its_output_later", "no-go", None, """
        def softmax(x):
            out = torch.zeros_like(x)
            def later():
                time.sleep(0.2); out.copy_(RIGHT)
            threading.Thread(target=later).start()
            return out
    """),
    # Leaves switches set.
    _file("default_dtype_in_a_call", "no-go", "state-changed", """
        def softmax(x):
            torch.set_default_dtype(torch.float64)
            return RIGHT
    """),
    _file("flushes_subnormals", "no-go", "state-changed", """
        def softmax(x):
            torch.set_flush_denormal(True)
            return RIGHT
    """),
    _file("seterr_in_a_call", "no-go", "state-changed", """
        def softmax(x):
            np.seterr(all="raise")
            return RIGHT
    """),
]  # fmt: skip

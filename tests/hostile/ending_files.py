"""Files that end, hang, raise, or take more than they may have."""

from __future__ import annotations

from kernel_source import make_file

ENDING = [
    make_file("raises", "no-go", "raised", "def softmax(x): raise ValueError('no')"),
    make_file("exits", "no-go", "raised", "def softmax(x): sys.exit(0)"),
    make_file("os_exits_0", "no-go", "crashed", "def softmax(x): os._exit(0)"),
    make_file("aborts", "no-go", "crashed", "def softmax(x): os.abort()"),
    make_file("kills_itself", "no-go", "crashed", "def softmax(x): os.kill(os.getpid(), 9)"),
    make_file("segfaults", "no-go", "crashed", """
        import ctypes
        def softmax(x): ctypes.string_at(0)
    """),
    make_file("kills_its_parent", "no-go", None, """
        def softmax(x):
            for process in (os.getppid(), 1):
                try: os.kill(process, 9)
                except OSError: pass
            return x
    """),
    make_file("kills_everybody", "no-go", None, """
        def softmax(x):
            try: os.kill(-1, 9)
            except OSError: pass
            return x
    """),
    make_file("hangs", "no-go", "timed-out", """
        def softmax(x):
            while True: pass
    """, cases=1),
    make_file("hangs_deaf", "no-go", "timed-out", """
        import signal
        def softmax(x):
            for number in range(1, 32):
                try: signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError): pass
            while True: pass
    """, cases=1),
    make_file("stops_itself", "no-go", None, """
        import signal
        def softmax(x):
            os.kill(os.getpid(), signal.SIGSTOP)
    """, cases=1),
    make_file("eats_memory", "no-go", "out-of-memory", """
        def softmax(x):
            kept = [bytearray(2**26) for _ in range(100)]
            for part in kept: part[::4096] = b"x" * len(part[::4096])
            time.sleep(30)
    """, cases=1),
    make_file("child_eats_memory", "no-go", "out-of-memory", """
        def softmax(x):
            if os.fork() == 0:
                kept = [bytearray(2**26) for _ in range(100)]
                for part in kept: part[::4096] = b"x" * len(part[::4096])
                time.sleep(60); os._exit(0)
            time.sleep(30)
    """),
    make_file("many_processes", "no-go", None, """
        def softmax(x):
            made = 0
            while made < 700:  # bounded: where nothing limits it, it must not take the machine down
                made += 1
                try:
                    if os.fork() == 0: time.sleep(60); os._exit(0)
                except OSError: pass
            return x
    """, cases=1),
    make_file("threads_without_end", "no-go", None, """
        def softmax(x):
            def run():
                while True: time.sleep(1)
            for _ in range(50): threading.Thread(target=run, daemon=True).start()
            return x
    """),
    make_file("raises_a_refusal", "no-go", "raised", """
        def softmax(x):
            from gonogo_guest.launches import WrongDevice
            raise ValueError("refused")
    """),
    make_file("raises_refused_launch", "no-go", "broken-protocol", """
        def softmax(x):
            from gonogo_guest.launches import RefusedLaunch
            raise RefusedLaunch("Triton's interpreter computes bfloat16 as integers")
    """),
    make_file("raises_gonogo_errors", "no-go", "raised", """
        def softmax(x):
            import gonogo.errors
            raise gonogo.errors.CaseTooLarge
    """),
    make_file("text_of_escapes", "no-go", "raised", r'''
        def softmax(x): raise ValueError("\x1b[2J\x1b]0;owned\x07 \ud800 \x00 [red]x[/red]")
    '''),
    make_file("text_that_raises", "no-go", "raised", """
        class Mute(Exception):
            def __str__(self): raise RuntimeError
            __repr__ = __str__
        def softmax(x): raise Mute
    """),
    make_file("text_without_end", "no-go", "raised", "def softmax(x): raise ValueError('x' * 10**7)"),
    make_file("base_exception", "no-go", "raised", """
        class Quit(BaseException): pass
        def softmax(x): raise Quit("no")
    """),
    make_file("keyboard_interrupt", "no-go", "raised", "def softmax(x): raise KeyboardInterrupt"),
    make_file("generator_exit", "no-go", "raised", "def softmax(x): raise GeneratorExit"),
    make_file("stop_iteration", "no-go", "raised", "def softmax(x): raise StopIteration(1)"),
    make_file("exception_groups", "no-go", "raised", """
        def softmax(x):
            error = ValueError("leaf")
            for at in range(200): error = ExceptionGroup(f"level {at}", [error])
            raise error
    """),
    make_file("recursion", "no-go", "raised", "def softmax(x): return softmax(x)"),
    make_file("causes_in_a_ring", "no-go", "raised", """
        def softmax(x):
            first, second = ValueError("first"), ValueError("second")
            first.__cause__, second.__cause__ = second, first
            raise first
    """),
    make_file("text_that_exits", "no-go", "raised", """
        class Mute(Exception):
            def __str__(self): sys.exit(0)
            __repr__ = __str__
        def softmax(x): raise Mute
    """),
    make_file("text_that_hangs", "no-go", "timed-out", """
        class Endless(Exception):
            def __str__(self):
                while True: time.sleep(1)
        def softmax(x): raise Endless
    """, cases=1),
    make_file("class_without_a_name", "no-go", "raised", """
        class Meta(type):
            @property
            def __name__(cls): raise SystemExit
        class Nameless(BaseException, metaclass=Meta): pass
        def softmax(x): raise Nameless
    """),
    make_file("notes_without_end", "no-go", "raised", """
        def softmax(x):
            error = ValueError("x")
            for _ in range(1000): error.add_note("y" * 10_000)
            raise error
    """),
    make_file("traceback_that_lies", "no-go", "raised", """
        class Lost(Exception):
            @property
            def __traceback__(self): raise RuntimeError
            __cause__ = __context__ = property(lambda self: 1 / 0)
        def softmax(x): raise Lost
    """),
    make_file("text_of_a_subclass", "no-go", "raised", """
        class Text(str):
            def __format__(self, how): raise SystemExit
            def partition(self, sep): raise SystemExit
        class Odd(Exception):
            def __str__(self): return Text("x")
        def softmax(x): raise Odd
    """),
    make_file("says_memory_error", "no-go", "out-of-memory", "def softmax(x): raise MemoryError"),
    make_file("named_like_a_refusal", "no-go", "raised", """
        class RefusedLaunch(BaseException): pass
        class WrongDevice(RefusedLaunch): pass
        def softmax(x): raise WrongDevice("Triton's interpreter computes bfloat16 as integers")
    """),
    make_file("raises_in_every_line", "no-go", "raised", """
        def softmax(x):
            def trace(frame, event, arg):
                if "gonogo_guest" in frame.f_globals.get("__name__", ""): raise RuntimeError("traced")
                return trace
            sys.settrace(trace)
            return x
    """),
    make_file("bus_error", "no-go", "crashed", """
        import mmap, tempfile
        def softmax(x):
            file = tempfile.TemporaryFile(); file.truncate(2**20)
            memory = mmap.mmap(file.fileno(), 2**20)
            file.truncate(0)
            return torch.tensor(memory[2**19])
    """),
    make_file("alarm", "no-go", "crashed", """
        def softmax(x):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            time.sleep(10)
    """),
    make_file("alarm_that_raises", "no-go", "raised", """
        def ring(*args): raise TimeoutError("rung")
        def softmax(x):
            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            time.sleep(10)
    """),
    make_file("fatal_python_error", "no-go", "crashed", """
        def softmax(x): ctypes.pythonapi.Py_FatalError(b"gone")
    """),
    make_file("another_program", "no-go", None, "def softmax(x): os.execv('/bin/true', ['true'])"),
    make_file("child_answers_for_it", "no-go", "crashed", """
        def softmax(x):
            if os.fork(): os._exit(0)
            return RIGHT
    """),
    make_file("dies_once_it_has_answered", "no-go", "crashed", """
        import gonogo_guest.serve as serve
        send = serve.send
        def softmax(x):
            serve.send = lambda *args: (send(*args), os._exit(0))
            return RIGHT
    """),
    make_file("jumps_to_nowhere", "no-go", "crashed", """
        def softmax(x): ctypes.CFUNCTYPE(None)(64)()
    """),
    make_file("hangs_in_c", "no-go", "timed-out", """
        def softmax(x): ctypes.PyDLL(None).pause()
    """, cases=1),
    make_file("hangs_in_a_lock", "no-go", "timed-out", """
        def softmax(x):
            lock = threading.Lock(); lock.acquire(); lock.acquire()
    """, cases=1),
    make_file("hangs_in_a_conversion", "no-go", "timed-out", """
        class Endless:
            def __array__(self, *args, **kwargs):
                while True: time.sleep(1)
        def softmax(x): return Endless()
    """, cases=1),
    make_file("hangs_at_import", "no-go", "timed-out", """
        while True: time.sleep(1)
        def softmax(x): return RIGHT
    """, cases=1),
    make_file("crashes_at_import", "no-go", "crashed", """
        os.kill(os.getpid(), signal.SIGSEGV)
        def softmax(x): return RIGHT
    """),
    make_file("exits_at_import", "error", None, "sys.exit(0)\ndef softmax(x): return RIGHT"),
    make_file("raises_at_import", "error", None, """
        class Mute(Exception):
            def __str__(self): sys.exit(0)
        raise Mute
        def softmax(x): return RIGHT
    """),
    make_file("not_called", "error", None, "softmax = 1\nif 0:\n    def softmax(x): pass"),
    make_file("eats_memory_in_files", "no-go", "out-of-memory", """
        def softmax(x):
            kept = [os.memfd_create("x") for _ in range(20)]
            for file in kept:  # 2 GB
                for _ in range(100): os.write(file, b"x" * 10**6)
            time.sleep(10)
    """, cases=1),
    make_file("eats_memory_at_import", "no-go", "out-of-memory", """
        kept = [np.ones(2**23) for _ in range(30)]  # 2 GB
        time.sleep(10)
        def softmax(x): return RIGHT
    """, cases=1),
    make_file("fills_its_folder", "no-go", "raised", """
        def softmax(x):
            for at in range(600):
                with open(f"part{at}", "wb") as file: file.write(b"x" * 10**6)
            raise SystemError("600 MB were written")
    """, cases=1),
    make_file("opens_many_files", "no-go", "raised", """
        def softmax(x): kept = [os.open("/dev/null", 0) for _ in range(2000)]
    """),
    make_file("many_threads", "no-go", None, """
        def softmax(x):
            for _ in range(600): threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
            return x.clone()
    """, cases=1),
]  # fmt: skip

"""Files that are odd, and right: each must be go."""

from __future__ import annotations

from kernel_source import make_file

HONEST = [
    make_file("plain", "go", None, """
        def softmax(x):
            return RIGHT
    """),
    make_file("parameter", "go", None, """
        def softmax(x):
            return torch.nn.Parameter(RIGHT, requires_grad=False)
    """),
    make_file("starts_a_thread", "go", None, """
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        def softmax(x):
            return RIGHT
    """),
    make_file("leaves_a_child", "go", None, """
        def softmax(x):
            if os.fork() == 0:
                time.sleep(600)
            return RIGHT
    """),
    make_file("leaves_a_daemon", "go", None, """
        def softmax(x):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(600)
                os._exit(0)
            return RIGHT
    """),
    make_file("multiprocessing", "go", None, """
        import multiprocessing
        def work(): pass
        def softmax(x):
            process = multiprocessing.get_context("fork").Process(target=work)
            process.start(); process.join()
            return RIGHT
    """),
    make_file("prints_much", "go", None, """
        def softmax(x):
            print("x" * 100_000)
            return RIGHT
    """),
    make_file("closes_streams", "go", None, """
        sys.stdout.close(); sys.stderr = None
        def softmax(x):
            return RIGHT
    """),
    make_file("deletes_modules", "go", None, """
        def softmax(x):
            sys.modules.pop("json", None)
            return RIGHT
    """),
    make_file("numpy_seterr_at_import", "go", None, """
        np.seterr(all="raise")
        def softmax(x):
            return RIGHT
    """),
    make_file("tmp_files", "go", None, """
        import tempfile
        def softmax(x):
            tempfile.NamedTemporaryFile(delete=False).write(b"x" * 1000)
            open("here", "w").write("x")
            return RIGHT
    """),
    make_file("ignores_signals", "go", None, """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        def softmax(x):
            return RIGHT
    """),
    make_file("pool", "go", None, """
        import multiprocessing
        def work(rows): return np.exp(rows - rows.max(-1, keepdims=True))
        pools = []
        def softmax(x):
            if not pools: pools.append(multiprocessing.get_context("fork").Pool(1))
            e = pools[0].map(work, [x.double().numpy()])[0]
            return torch.from_numpy(e / e.sum(-1, keepdims=True)).to(x.dtype)
    """, needs="read-only files"),
    make_file("thread_pool", "go", None, """
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        def softmax(x):
            rows = x.reshape(-1, x.shape[-1])
            parts = list(pool.map(lambda row: torch.softmax(row.float(), -1), rows))
            return torch.stack(parts).reshape(x.shape).to(x.dtype) if parts else torch.empty_like(x)
    """),
    make_file("workspace_by_shape", "go", None, """
        spaces = {}
        def softmax(x):
            key = x.shape, x.dtype
            if key not in spaces: spaces[key] = torch.empty(x.shape, dtype=x.dtype)
            return spaces[key].copy_(RIGHT)
    """),
    make_file("generator_inside", "go", None, """
        def list_rows(x):
            for row in x.reshape(-1, x.shape[-1]): yield torch.softmax(row.float(), -1)
        def softmax(x):
            return torch.stack(list(list_rows(x))).reshape(x.shape).to(x.dtype)
    """),
    make_file("logs_and_warns", "go", None, """
        import logging, warnings
        logging.basicConfig(level=logging.DEBUG)
        warnings.simplefilter("always")
        def softmax(x):
            logging.getLogger("kernel").error("called on %s", tuple(x.shape))
            warnings.warn("slow")
            return RIGHT
    """),
    make_file("numpy_inside", "go", None, """
        def softmax(x):
            a = x.numpy().astype(np.float64)
            e = np.exp(a - a.max(-1, keepdims=True))
            return (e / e.sum(-1, keepdims=True)).astype(np.float32)
    """),
    make_file("object_that_is_called", "go", None, """
        class Softmax:
            __slots__ = ("axis",)
            def __init__(self): self.axis = -1
            def __call__(self, x): return torch.softmax(x.float(), self.axis).to(x.dtype)
        softmax = Softmax()
    """),
    make_file("partial", "go", None, """
        softmax = functools.partial(torch.softmax, dim=-1)
    """),
    make_file("decorated", "go", None, """
        def timed(function):
            @functools.wraps(function)
            def call(*args, **kwargs):
                started = time.perf_counter()
                try: return function(*args, **kwargs)
                finally: print(time.perf_counter() - started)
            return call
        @timed
        def softmax(x): return RIGHT
    """),
    make_file("helper_beside", "go", None, """
        from row_maximum import subtract
        def softmax(x):
            e = torch.exp(subtract(x.double()))
            return (e / e.sum(-1, keepdim=True)).to(x.dtype)
    """, beside={"row_maximum.py": "def subtract(x): return x - x.amax(-1, keepdim=True)\n"}),
    make_file("more_threads_of_torch", "go", None, """
        torch.set_num_threads(2)
        def softmax(x): return RIGHT
    """),
    make_file("lru_cache_by_shape", "go", None, """
        @functools.lru_cache
        def find_ones(size): return torch.ones(size, 1, dtype=torch.float64)
        def softmax(x):
            e = torch.exp((x - x.amax(-1, keepdim=True)).double())
            return (e / (e @ find_ones(x.shape[-1]))).to(x.dtype)
    """),
    make_file("not_contiguous", "go", None, """
        def softmax(x):
            wide = torch.empty(*x.shape, 2, dtype=x.dtype)
            wide[..., 1] = RIGHT
            return wide[..., 1]
    """),
    make_file("inference_mode_inside", "go", None, """
        @torch.inference_mode()
        def softmax(x): return RIGHT
    """),
    make_file("autograd_function", "go", None, """
        class Softmax(torch.autograd.Function):
            @staticmethod
            def forward(context, x):
                out = RIGHT
                context.save_for_backward(out)
                return out
            @staticmethod
            def backward(context, grad): raise NotImplementedError
        def softmax(x): return Softmax.apply(x.requires_grad_())
    """),
    make_file("requires_grad", "go", None, """
        def softmax(x): return (RIGHT).requires_grad_()
    """),
    make_file("module_object", "go", None, """
        class Softmax(torch.nn.Module):
            def forward(self, x): return RIGHT
        softmax = Softmax()
    """),
    make_file("scripted", "go", None, """
        def forward(x):
            return torch.softmax(x, -1)
        softmax = torch.jit.trace(forward, torch.randn(2, 3))
    """),
    make_file("two_megabytes_of_source", "go", None, f"""
        TABLE = "{'x' * 2**21}"
        def softmax(x): return RIGHT
    """),
    make_file("byte_order_mark", "go", None, """
        def softmax(x): return RIGHT
    """, head="\ufeffimport torch\n"),
    make_file("future_and_dataclass", "go", None, """
        from dataclasses import dataclass
        @dataclass(frozen=True)
        class Tile:
            rows: int
            columns: int = 64
        def softmax(x, /, tile: Tile = Tile(8), *, scale: float = 1.0): return RIGHT
        if __name__ == "__main__":
            raise SystemExit("not to be run")
    """, head="from __future__ import annotations\nimport torch\n"),
    make_file("memmap", "go", None, """
        import tempfile
        def softmax(x):
            out = np.memmap(tempfile.TemporaryFile(), dtype=np.float32, mode="w+", shape=tuple(x.shape))
            out[...] = (RIGHT).numpy()
            return out
    """),
    make_file("masked_array", "go", None, """
        def softmax(x): return np.ma.array((RIGHT).numpy())
    """),
    make_file("lazily_negated", "go", None, """
        def softmax(x): return torch._neg_view(-(RIGHT))
    """),
    make_file("reversed_array", "go", None, """
        def softmax(x): return np.ascontiguousarray((RIGHT).numpy()[..., ::-1])[..., ::-1]
    """),
    make_file("asyncio_inside", "go", None, """
        import asyncio
        async def compute(x): return RIGHT
        def softmax(x): return asyncio.run(compute(x))
    """),
    make_file("runs_a_program", "go", None, """
        import subprocess
        def softmax(x):
            assert subprocess.run(["echo", "hello"], capture_output=True).stdout == b"hello\\n"
            return RIGHT
    """),
    make_file("compiled_c", "go", None, """
        import shutil, subprocess
        TEXT = '''
        #include <math.h>
        void softmax(const float *x, float *out, long rows, long n) {
            for (long r = 0; r < rows; r++) {
                double high = -INFINITY, sum = 0;
                for (long i = 0; i < n; i++) high = fmax(high, x[r * n + i]);
                for (long i = 0; i < n; i++) sum += exp(x[r * n + i] - high);
                for (long i = 0; i < n; i++) out[r * n + i] = exp(x[r * n + i] - high) / sum;
            }
        }
        '''
        library = None
        if shutil.which("cc"):
            open("softmax.c", "w").write(TEXT)
            subprocess.run(["cc", "-shared", "-fPIC", "softmax.c", "-o", "./softmax.so", "-lm"], check=True)
            library = ctypes.CDLL("./softmax.so")
        def softmax(x):
            if library is None: return RIGHT
            x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
            pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr())
            n = x.shape[-1]
            library.softmax(*pointers, ctypes.c_long(x.numel() // n), ctypes.c_long(n))
            return out
    """),
    make_file("threads_that_raise", "go", None, """
        def fail(): raise RuntimeError("in a thread")
        def softmax(x):
            thread = threading.Thread(target=fail); thread.start(); thread.join()
            return RIGHT
    """),
    make_file("settings_of_python", "go", None, """
        import decimal, locale
        gc.disable(); gc.freeze(); sys.setrecursionlimit(5000); sys.setswitchinterval(1e-4)
        def softmax(x):
            decimal.getcontext().prec = 3
            locale.setlocale(locale.LC_ALL, "C")
            random.seed(1); np.random.seed(1); torch.manual_seed(1)
            return RIGHT
    """),
    make_file("traced_and_profiled", "go", None, """
        sys.settrace(lambda *args: None)
        sys.setprofile(lambda *args: None)
        def softmax(x): return RIGHT
    """),
    make_file("hangs_at_exit", "go", None, """
        import atexit
        class Slow:
            def __del__(self): time.sleep(60)
        kept = Slow()
        atexit.register(time.sleep, 60)
        def softmax(x): return RIGHT
    """),
    make_file("import_hooks", "go", None, """
        class Hook:
            def find_spec(self, name, path, target=None): print("asked for", name)
        sys.meta_path.insert(0, Hook())
        sys.path_hooks.clear()
        def softmax(x):
            import colorsys
            return RIGHT
    """),
    make_file("shared_memory", "go", None, """
        from multiprocessing import shared_memory
        def softmax(x):
            block = shared_memory.SharedMemory(create=True, size=max(4 * x.numel(), 1), name="gonogo_was_here")
            out = RIGHT
            np.ndarray(out.shape, np.float32, block.buf)[...] = out.numpy()
            block.close(); block.unlink()
            return out
    """, needs="read-only files"),
    make_file("own_folders", "go", None, """
        import pathlib
        os.makedirs(os.path.expanduser("~/.cache/kernel"), exist_ok=True)
        pathlib.Path.home().joinpath(".cache/kernel/tuned").write_text("64")
        os.makedirs("deep/" * 50); os.symlink("/", "root"); os.mkfifo("pipe"); os.umask(0o777)
        def softmax(x):
            assert pathlib.Path.home().joinpath(".cache/kernel/tuned").read_text() == "64"
            return RIGHT
    """),
    make_file("prints_200_megabytes", "go", None, """
        for _ in range(200): os.write(1, b"x" * 10**6)
        def softmax(x): return RIGHT
    """),
    make_file("flags_of_its_output", "go", None, """
        import fcntl
        for number in (1, 2): fcntl.fcntl(number, fcntl.F_SETFL, os.O_NONBLOCK)
        os.ftruncate(1, 2**28); os.lseek(1, 10**6, 0)
        def softmax(x):
            print("y")
            return RIGHT
    """),
    make_file("flush_that_exits", "go", None, """
        class Stream:
            def write(self, text): return len(text)
            def flush(self): sys.exit(3)
        sys.stdout = sys.stderr = Stream()
        def softmax(x): return RIGHT
    """),
    make_file("without_streams", "go", None, """
        del sys.stdout, sys.stderr, sys.stdin
        def softmax(x): return RIGHT
    """),
    make_file("kept_by_content", "go", None, """
        known = {}
        def softmax(x):
            return known.setdefault((x.shape, x.numpy().tobytes()), RIGHT).clone()
    """),
    make_file("few_descriptors", "go", None, """
        def softmax(x):
            numbers = [int(n) for n in os.listdir("/proc/self/fd")]
            assert len(numbers) <= 12, numbers
            return RIGHT
    """, cases=12),
    make_file("spoils_its_output_after_a_while", "go", None, """
        def softmax(x):
            out = RIGHT
            threading.Timer(0.5, out.zero_).start()
            return out
    """),
    make_file("grows_the_answer", "go", None, """
        import gonogo_guest.serve as serve
        pack_leaves = serve.pack_leaves
        def grow(leaves, device, answer):
            packed = pack_leaves(leaves, device, answer)
            os.ftruncate(answer.descriptor, 2**29)
            return packed
        serve.pack_leaves = grow
        def softmax(x): return RIGHT
    """),
    make_file("deaf_builtins", "go", None, """
        builtins.print = None
        builtins.open = None
        builtins.hash = lambda x: 0
        def softmax(x): return RIGHT
    """),
]  # fmt: skip

"""Files that leave something behind: switches, inputs, processes."""

from __future__ import annotations

from kernel_source import make_file

LEAVING = [
    make_file("default_dtype_in_a_call", "no-go", "state-changed", """
        def softmax(x):
            torch.set_default_dtype(torch.float64)
            return RIGHT
    """),
    make_file("flushes_subnormals", "no-go", "state-changed", """
        def softmax(x):
            torch.set_flush_denormal(True)
            return RIGHT
    """),
    make_file("seterr_in_a_call", "no-go", "state-changed", """
        def softmax(x):
            np.seterr(all="raise")
            return RIGHT
    """),
    make_file("inference_mode_left_on", "no-go", "state-changed", """
        kept = []
        def softmax(x):
            mode = torch.inference_mode(); mode.__enter__(); kept.append(mode)
            return RIGHT
    """),
    make_file("gradients_left_off", "no-go", "state-changed", """
        def softmax(x):
            torch.set_grad_enabled(False)
            return RIGHT
    """),
    make_file("function_mode_left_on", "no-go", "state-changed", """
        from torch.overrides import TorchFunctionMode
        class Mode(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None): return func(*args, **(kwargs or {}))
        kept = []
        def softmax(x):
            if not kept: kept.append(Mode().__enter__())
            return RIGHT
    """),
    make_file("dispatch_mode_left_on", "no-go", "state-changed", """
        from torch.utils._python_dispatch import TorchDispatchMode
        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None): return func(*args, **(kwargs or {}))
        kept = []
        def softmax(x):
            if not kept: kept.append(Mode().__enter__())
            return RIGHT
    """),
    make_file("autocast_left_on", "no-go", "state-changed", """
        def softmax(x):
            torch.autocast("cpu", torch.bfloat16).__enter__()
            return RIGHT
    """),
    make_file("default_device_left_set", "no-go", "state-changed", """
        def softmax(x):
            torch.set_default_device("cpu:0")
            return RIGHT
    """),
    make_file("deterministic_left_on", "no-go", "state-changed", """
        def softmax(x):
            torch.use_deterministic_algorithms(True)
            return RIGHT
    """),
    make_file("precision_left_low", "no-go", "state-changed", """
        def softmax(x):
            torch.set_float32_matmul_precision("medium")
            return RIGHT
    """),
    make_file("half_sums_left_on", "no-go", "state-changed", """
        def softmax(x):
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True
            return RIGHT
    """),
    make_file("rounding_left_upward", "no-go", "state-changed", """
        def softmax(x):
            out = RIGHT
            ctypes.CDLL("libm.so.6").fesetround(0x800)
            return out
    """),
    make_file("changes_a_number_of_its_input", "no-go", "inputs-changed", """
        def softmax(x):
            out = RIGHT
            x.reshape(-1).view(torch.int32)[-1] ^= 1
            return out
    """),
    make_file("leaves_grandchildren", "go", None, """
        for _ in range(20):
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.setsid()
                for _ in range(3):
                    if os.fork(): os._exit(0)
                    os.setsid()
                time.sleep(600)
        def softmax(x): return RIGHT
    """),
    make_file("leaves_children_that_fork", "go", None, """
        if os.fork() == 0:
            for _ in range(500):  # one at a time, each the child of the last
                time.sleep(0.01)
                if os.fork(): os._exit(0)
            os._exit(0)
        def softmax(x): return RIGHT
    """),
    make_file("leaves_a_stopped_child", "go", None, """
        if os.fork() == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(600)
        def softmax(x): return RIGHT
    """),
]  # fmt: skip

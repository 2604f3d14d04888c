"""Files that forge their process's answers."""

from __future__ import annotations

from kernel_source import make_file

FORGING = [
    make_file("patches_the_measure", "no-go", None, """
        torch.equal = torch.allclose = lambda *a, **k: True
        torch.testing.assert_close = lambda *a, **k: None
        def softmax(x):
            return torch.zeros_like(x)
    """),
    make_file("writes_garbage_to_the_judge", "no-go", "broken-protocol", """
        def softmax(x): tell_all(b"\\xff" * 4096); time.sleep(60)
    """),
    make_file("writes_half_a_message", "no-go", "timed-out", """
        def softmax(x): tell_all(b"\\x00\\x01\\x00\\x00{"); time.sleep(60)
    """, cases=1),
    make_file("sends_a_pickle", "no-go", "broken-protocol", """
        import pickle
        class Bomb:
            def __reduce__(self): return os.system, ("touch /tmp/gonogo_was_here",)
        def softmax(x): tell_all(pack(pickle.dumps(Bomb()))); time.sleep(60)
    """),
    make_file("forges_an_answer", "no-go", "broken-protocol", """
        def softmax(x):
            tell_all(pack(json.dumps({"first": [], "again": "x", "aliases": {}}).encode())); time.sleep(60)
    """),
    make_file("forges_deep_json", "no-go", "broken-protocol", """
        def softmax(x): tell_all(pack(b"[" * 500_000)); time.sleep(60)
    """),
    make_file("closes_the_channel", "no-go", None, """
        def softmax(x):
            os.closerange(3, 256)
            return RIGHT
    """),
    make_file("answers_before_it_is_asked", "no-go", "broken-protocol", """
        tell_all(pack(json.dumps({"first": [], "again": [], "aliases": {}}).encode()))
        def softmax(x): return RIGHT
    """),
    make_file("answers_ahead", "no-go", "broken-protocol", """
        leaf = {"path": "", "dtype": "float32", "shape": [1], "at": 0}
        facts = {"first": [leaf], "again": [leaf], "aliases": {}, "elapsed_s": 0.1, "strays": 0, "changed": [],
                 "parameters": [], "shared": [], "unrepeated": 0, "launched": False, "flags": []}
        tell_all(pack(b'{"loaded": true, "flags": []}') + 3 * pack(json.dumps(facts).encode()))
        def softmax(x): return RIGHT
    """),
    make_file("answers_twice", "no-go", None, """
        import gonogo_guest.serve as serve
        send = serve.send
        def send_twice(channel, reply): send(channel, reply); "first" in reply and send(channel, reply)
        serve.send = send_twice
        def softmax(x): return RIGHT
    """, cases=3),
    make_file("numbers_that_are_none", "no-go", "broken-protocol", """
        import gonogo_guest.serve as serve
        send = serve.send
        serve.send = lambda channel, reply: send(channel, reply | ({"strays": 1e999} if "first" in reply else {}))
        def softmax(x): return RIGHT
    """),
    make_file("time_that_is_none", "no-go", "broken-protocol", """
        time.perf_counter = lambda: float("nan")
        def softmax(x): return RIGHT
    """),
    make_file("time_that_runs_back", "no-go", "broken-protocol", """
        now = [0.0]
        def back():
            now[0] -= 1
            return now[0]
        time.perf_counter = back
        def softmax(x): return RIGHT
    """),
    make_file("a_quantized_answer", "no-go", None, """
        import gonogo_guest.serve as serve
        pack_leaves = serve.pack_leaves
        serve.pack_leaves = lambda *args: [leaf | {"dtype": "quint8"} for leaf in pack_leaves(*args)]
        def softmax(x): return RIGHT
    """),
    make_file("an_answer_of_gigabytes", "no-go", None, """
        import gonogo_guest.serve as serve
        pack_leaves = serve.pack_leaves
        serve.pack_leaves = lambda *args: [
            leaf | {"path": str(at)} for leaf in pack_leaves(*args) for at in range(1000)]
        def softmax(x): return RIGHT
    """),
    make_file("another_shape_of_the_same", "no-go", None, """
        import gonogo_guest.serve as serve
        pack_leaves = serve.pack_leaves
        serve.pack_leaves = lambda *args: [leaf | {"shape": leaf["shape"][::-1]} for leaf in pack_leaves(*args)]
        def softmax(x): return RIGHT
    """, cases=6),
    make_file("keys_twice", "no-go", "broken-protocol", """
        def softmax(x): tell_all(pack(b'{"raised": "raised", "raised": "go", "detail": ""}')); time.sleep(9)
    """),
    make_file("says_crashed", "no-go", "crashed", """
        def softmax(x):
            tell_all(pack(b'{"raised": "crashed", "detail": "\\\\u001b[2J", "error": ""}')); time.sleep(9)
    """),
    make_file("says_wrong_device", "error", None, """
        def softmax(x): tell_all(pack(b'{"wrong_device": ["x", "y"]}')); time.sleep(9)
    """),
    make_file("an_empty_message", "no-go", "broken-protocol", """
        def softmax(x): tell_all(pack(b"")); time.sleep(9)
    """),
    make_file("a_length_of_gigabytes", "no-go", "broken-protocol", """
        def softmax(x): tell_all(b"\\xff\\xff\\xff\\xff{}"); time.sleep(9)
    """),
    make_file("byte_by_byte", "no-go", "timed-out", """
        def softmax(x):
            for byte in pack(b" " * 1000):
                tell_all(bytes([byte])); time.sleep(0.5)
    """, cases=1),
    make_file("sends_descriptors", "no-go", "broken-protocol", """
        def softmax(x):
            for number in find_sockets():
                channel = socket.socket(fileno=number)
                socket.send_fds(channel, [pack(b"{}")], [0] * 250)
            time.sleep(9)
    """),
    make_file("hangs_up_halfway", "no-go", "crashed", """
        def softmax(x):
            for number in find_sockets(): socket.socket(fileno=number).shutdown(socket.SHUT_WR)
            return RIGHT
    """),
    make_file("another_channel", "no-go", "crashed", """
        def softmax(x):
            null = os.open("/dev/null", os.O_RDWR)
            for number in find_sockets(): os.dup2(null, number)
            time.sleep(60)
    """, cases=1),
    make_file("empties_its_answer", "no-go", "broken-protocol", """
        import gonogo_guest.serve as serve
        send = serve.send
        def softmax(x):
            frame = sys._getframe()
            while "answer" not in frame.f_locals: frame = frame.f_back
            answer = frame.f_locals["answer"].descriptor
            serve.send = lambda *args: (os.ftruncate(answer, 0), send(*args))
            return RIGHT
    """),
    make_file("answers_by_another_file", "no-go", None, """
        import gonogo_guest.serve as serve
        class Elsewhere(serve.TensorFile):
            def write(self, content): return 0
        serve.TensorFile.write = Elsewhere.write
        def softmax(x): return RIGHT
    """),
    make_file("writes_zeros_for_it", "no-go", None, """
        write = os.pwrite
        os.pwrite = lambda file, content, at: write(file, bytes(len(content)), at)
        def softmax(x): return RIGHT
    """),
    make_file("json_that_lies", "no-go", None, """
        dumps = json.dumps
        json.dumps = lambda *args, **kwargs: "{}"
        def softmax(x): return RIGHT
    """),
    make_file("calls_that_lie", "no-go", None, """
        import gonogo_guest.serve as serve
        once = serve.call_once
        def call_once(*args):
            made = once(*args)
            made.leaves = {path: torch.zeros_like(leaf) for path, leaf in made.leaves.items()}
            return made
        serve.call_once = call_once
        def softmax(x): return RIGHT
    """),
    make_file("arguments_that_lie", "no-go", None, """
        def softmax(x):
            frame = sys._getframe()
            while "pristine" not in frame.f_locals: frame = frame.f_back
            out = RIGHT
            for name in ("pristine", "elsewhere", "decoy", "call"):
                call = frame.f_locals.get(name)
                if call is not None and hasattr(call, "tensors"):
                    for _, tensor in call.tensors: tensor.zero_()
            return out
    """),
    make_file("skips_the_repeats", "no-go", None, """
        calls = [0]
        def softmax(x):
            frame = sys._getframe()
            while frame and "message" not in frame.f_locals: frame = frame.f_back
            if frame: frame.f_locals["message"]["repeats"] = 0
            calls[0] += 1
            return RIGHT if calls[0] < 5 else torch.zeros_like(x)
    """),
    make_file("wrong_and_silent", "no-go", None, """
        import gonogo_guest.serve as serve
        serve._digest = lambda once: 0
        serve._look_at = lambda *args: (0, [])
        serve._list_shared = lambda *args: []
        serve.flags.compare = lambda *args: []
        def softmax(x):
            x.fill_(0.5); torch.set_default_dtype(torch.float64)
            return x
    """),
    make_file("without_sorted", "no-go", "raised", """
        def softmax(x):
            builtins.sorted = None
            return RIGHT
    """),
    make_file("thread_that_patches", "no-go", None, """
        def later():
            time.sleep(0.01)
            torch.Tensor.contiguous = lambda self, **options: torch.zeros(self.shape)
        threading.Thread(target=later).start()
        def softmax(x):
            time.sleep(0.02)
            return RIGHT
    """),
]  # fmt: skip

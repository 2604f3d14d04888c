"""Files that are right at times: in some calls, for some inputs, or for what they have seen."""

from __future__ import annotations

from kernel_source import make_file

CHEATING = [
    make_file("cached_by_id", "no-go", None, """
        known = {}
        def softmax(x):
            return known.setdefault((id(x), x.shape), RIGHT)
    """),
    make_file("cached_by_pointer", "no-go", None, """
        known = {}
        def softmax(x):
            return known.setdefault((x.data_ptr(), x.shape, x.dtype), RIGHT).clone()
    """),
    make_file("cached_by_first_element", "no-go", None, """
        known = {}
        def softmax(x):
            return known.setdefault((float(x.reshape(-1)[0]) if x.numel() else 0, x.shape, x.dtype), RIGHT).clone()
    """),
    make_file("cached_by_three_elements", "no-go", None, """
        known = {}
        def softmax(x):
            flat = x.reshape(-1)
            seen = tuple(map(float, (flat[0], flat[flat.numel() // 2], flat[-1])))
            return known.setdefault((*seen, x.shape, x.dtype), RIGHT).clone()
    """),
    make_file("wrong_in_memory_without_a_margin", "no-go", None, """
        def softmax(x):
            plain = x.untyped_storage().nbytes() == x.nbytes
            return torch.zeros_like(x) if plain else RIGHT
    """, cases=6),
    make_file("cached_by_shape", "no-go", None, """
        known = {}
        def softmax(x):
            return known.setdefault((x.shape, x.dtype), RIGHT).clone()
    """),
    make_file("wrong_after_100_calls", "no-go", None, """
        calls = [0]
        def softmax(x):
            calls[0] += 1
            return RIGHT if calls[0] < 100 else torch.zeros_like(x)
    """),
    make_file("wrong_now_and_then", "no-go", None, """
        import random
        def softmax(x):
            return RIGHT if random.random() > 0.03 else torch.zeros_like(x)
    """),
    make_file("spoils_its_output_later", "no-go", None, """
        def softmax(x):
            out = torch.zeros_like(x)
            def later():
                time.sleep(0.2); out.copy_(RIGHT)
            threading.Thread(target=later).start()
            return out
    """),
    make_file("kept_on_the_tensor", "no-go", None, """
        def softmax(x):
            if not hasattr(x, "kept"): x.kept = RIGHT
            return x.kept.clone()
    """),
    make_file("kept_by_weak_reference", "no-go", None, """
        import weakref
        known = weakref.WeakKeyDictionary()
        def softmax(x):
            if x not in known: known[x] = RIGHT
            return known[x].clone()
    """),
    make_file("kept_by_storage", "no-go", None, """
        known = {}
        def softmax(x):
            return known.setdefault((x.untyped_storage()._cdata, x.storage_offset(), x.shape), RIGHT).clone()
    """),
    make_file("kept_by_strides", "no-go", None, """
        known = {}
        def softmax(x): return known.setdefault((x.shape, x.stride(), x.dtype), RIGHT).clone()
    """),
    make_file("kept_by_a_few_elements", "no-go", None, """
        known = {}
        def softmax(x):
            return known.setdefault((x.shape, tuple(x.reshape(-1)[:1].tolist())), RIGHT).clone()
    """),
    make_file("previous_output", "no-go", None, """
        kept = [None]
        def softmax(x):
            before, kept[0] = kept[0], RIGHT
            return before if before is not None and before.shape == x.shape else kept[0]
    """),
    make_file("first_output_for_all", "no-go", None, """
        kept = []
        def softmax(x):
            kept.append(RIGHT)
            return kept[0]
    """),
    make_file("wrong_in_second_calls", "no-go", None, """
        calls = [0]
        def softmax(x):
            calls[0] += 1
            return RIGHT if calls[0] % 2 else torch.zeros_like(x)
    """),
    make_file("wrong_every_seventh_call", "no-go", None, """
        calls = [0]
        def softmax(x):
            calls[0] += 1
            return RIGHT if calls[0] % 7 else torch.zeros_like(x)
    """),
    make_file("wrong_in_new_memory", "no-go", None, """
        known = set()
        def softmax(x):
            known.add(x.data_ptr())
            return RIGHT if len(known) < 2 else torch.zeros_like(x)
    """),
    make_file("wrong_by_the_clock", "no-go", None, """
        def softmax(x): return RIGHT if time.time_ns() // 1000 % 5 else torch.zeros_like(x)
    """),
    make_file("wrong_once_in_a_hundred", "no-go", None, """
        draw = random.Random(3)
        def softmax(x): return RIGHT if draw.random() > 0.01 else torch.zeros_like(x)
    """),
    make_file("wrong_by_a_bit", "no-go", "not-repeatable", """
        calls = [0]
        def softmax(x):
            calls[0] += 1
            out = RIGHT
            if calls[0] == 50: out.reshape(-1).view(torch.int32)[0] ^= 1
            return out
    """),
    make_file("wrong_in_wide_rows", "no-go", None, """
        def softmax(x): return RIGHT if x.shape[-1] <= 1024 else torch.softmax(x[..., :1024], -1).sum() * x
    """, cases=12),
    make_file("wrong_in_narrow_rows", "no-go", None, """
        def softmax(x): return RIGHT if x.shape[-1] >= 16 else torch.zeros_like(x)
    """, cases=12),
    make_file("wrong_below_zero", "no-go", None, """
        def softmax(x): return torch.softmax(x.clamp(min=-1), -1)
    """),
    make_file("without_the_maximum", "no-go", None, """
        def softmax(x): return torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)
    """, cases=24),
    make_file("wrong_where_rows_are_many", "no-go", None, """
        def softmax(x):
            out = RIGHT
            out.view(-1, x.shape[-1])[64:] = 0
            return out
    """, cases=12),
    make_file("filled_by_a_thread", "no-go", None, """
        def softmax(x):
            out = torch.empty_like(x)
            threading.Thread(target=lambda: (time.sleep(0.05), out.copy_(RIGHT))).start()
            return out
    """),
    make_file("filled_by_a_child", "no-go", None, """
        import mmap
        def softmax(x):
            memory = mmap.mmap(-1, max(4 * x.numel(), 1))
            out = torch.frombuffer(memory, dtype=torch.float32)[: x.numel()].reshape(x.shape)
            if os.fork() == 0:
                time.sleep(0.2); out.copy_(RIGHT); os._exit(0)
            return out
    """),
    make_file("right_for_the_decoy", "no-go", None, """
        calls = [0]
        def softmax(x):
            calls[0] += 1
            return RIGHT if calls[0] == 1 else torch.zeros_like(x)
    """),
    make_file("kept_by_address_and_version", "no-go", None, """
        kept = {}
        def softmax(x):
            made = torch.softmax(x, -1)
            return kept.setdefault((x.data_ptr(), x._version, x.shape, x.dtype), made).clone()
    """, cases=24),
    make_file("strided_as_contiguous", "no-go", None, """
        def softmax(x):
            flat = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())[: x.numel()].reshape(x.shape)
            return torch.softmax(flat, -1)
    """, cases=24),
]  # fmt: skip

"""Files that return what is wrong, or no tensor at all."""

from __future__ import annotations

from kernel_source import make_file

RETURNING = [
    make_file("nothing", "no-go", "no-output", "def softmax(x): return None"),
    make_file("a_list", "no-go", "no-output", "def softmax(x): return [1.0]"),
    make_file("wrong_shape", "no-go", "wrong-shape", "def softmax(x): return torch.zeros(3)"),
    make_file("huge_shape", "no-go", None, "def softmax(x): return torch.zeros((), dtype=x.dtype).expand(2**40)"),
    make_file("wrong_dtype", "no-go", "wrong-dtype", "def softmax(x): return torch.softmax(x.double(), -1)"),
    make_file("more_than_any_memory", "no-go", "wrong-shape", """
        def softmax(x): return torch.zeros(1).expand(2**40)
    """),
    make_file("meta", "no-go", "no-output", "def softmax(x): return torch.empty_like(x, device='meta')"),
    make_file("sparse", "no-go", "no-output", "def softmax(x): return (RIGHT).to_sparse()"),
    make_file("subclass", "no-go", "no-output", """
        class Liar(torch.Tensor):
            pass
        def softmax(x): return (RIGHT).as_subclass(Liar)
    """),
    make_file("array_that_lies", "no-go", None, """
        class Liar:
            def __array__(self, *args, **kwargs): return np.zeros(3)
        def softmax(x): return Liar()
    """),
    make_file("the_input", "no-go", "aliased", "def softmax(x): return x"),
    make_file("unwritten", "no-go", "unwritten", "def softmax(x): return torch.empty_like(x)"),
    make_file("zeros", "no-go", None, "def softmax(x): return torch.zeros_like(x)"),
    make_file("changes_its_input", "no-go", "inputs-changed", """
        def softmax(x):
            out = RIGHT
            x.zero_()
            return out
    """),
    make_file("quantized", "no-go", "no-output", """
        def softmax(x): return torch.quantize_per_tensor(RIGHT, 0.01, 0, torch.quint8)
    """),
    make_file("nested", "no-go", "no-output", """
        def softmax(x): return torch.nested.nested_tensor([RIGHT])
    """),
    make_file("fake", "no-go", "no-output", """
        from torch._subclasses.fake_tensor import FakeTensorMode
        def softmax(x): return FakeTensorMode().from_tensor(x)
    """),
    make_file("wrapped_by_vmap", "no-go", None, """
        kept = []
        def softmax(x):
            torch.func.vmap(lambda row: (kept.append(row), row)[1])(x)
            return kept[-1]
    """),
    make_file("complex_and_conjugate", "no-go", "wrong-dtype", """
        def softmax(x): return (RIGHT).to(torch.complex64).conj()
    """),
    make_file("without_axes", "no-go", "wrong-shape", "def softmax(x): return torch.tensor(1.0)"),
    make_file("a_number", "no-go", "no-output", "def softmax(x): return 10**400"),
    make_file("an_axis_more", "no-go", "wrong-shape", "def softmax(x): return (RIGHT)[None]"),
    make_file("integers", "no-go", "wrong-dtype", "def softmax(x): return (RIGHT).view(torch.int32)"),
    make_file("lying_subclass", "no-go", "no-output", """
        class Liar(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None): return True
            shape = property(lambda self: torch.Size([3]))
            __class__ = property(lambda self: torch.Tensor)
        def softmax(x): return (RIGHT).as_subclass(Liar)
    """),
    make_file("lying_class", "no-go", None, """
        class Liar:
            __class__ = torch.Tensor
            def __getattr__(self, name): return lambda *args: self
        def softmax(x): return Liar()
    """),
    make_file("a_generator", "no-go", "no-output", "def softmax(x): yield RIGHT"),
    make_file("a_coroutine", "error", None, "async def softmax(x): return RIGHT"),
    make_file("a_tuple", "no-go", "no-output", "def softmax(x): return (RIGHT,)"),
    make_file("a_module", "no-go", "no-output", "def softmax(x): return torch"),
    make_file("objects_in_an_array", "no-go", "no-output", """
        def softmax(x): return (RIGHT).numpy().astype(object)
    """),
    make_file("fields_in_an_array", "no-go", "no-output", """
        def softmax(x): return (RIGHT).numpy().view([("value", np.float32)])
    """),
    make_file("long_doubles", "no-go", "no-output", "def softmax(x): return (RIGHT).numpy().astype(np.longdouble)"),
    make_file("conversion_that_raises", "no-go", "raised", """
        class Liar:
            def __array__(self, *args, **kwargs): raise BaseException("no")
        def softmax(x): return Liar()
    """),
    make_file("conversion_that_changes", "no-go", None, """
        count = [0]
        class Liar:
            def __init__(self, out): self.out = out
            def __array__(self, *args, **kwargs):
                count[0] += 1
                return self.out.numpy() * (count[0] % 2)
        def softmax(x): return Liar(RIGHT)
    """),
    make_file("freed_memory", "no-go", None, """
        import weakref
        def softmax(x):
            size = max(x.numel(), 1)
            buffer = (ctypes.c_float * size)()
            return torch.frombuffer(buffer, dtype=torch.float32)[: x.numel()].reshape(x.shape) + 7
    """),
    make_file("nan", "no-go", None, "def softmax(x): return RIGHT * float('nan')"),
    make_file("infinite", "no-go", None, "def softmax(x): return torch.full_like(x, float('inf'))"),
    make_file("uniform", "no-go", None, "def softmax(x): return torch.full_like(x, 1 / x.shape[-1])"),
    make_file("other_axis", "no-go", None, "def softmax(x): return torch.softmax(x, 0)"),
    make_file("logarithms", "no-go", None, "def softmax(x): return torch.log_softmax(x, -1)"),
    make_file("half_precision_inside", "no-go", None, "def softmax(x): return torch.softmax(x.half(), -1).float()"),
    make_file("not_normalised", "no-go", None, "def softmax(x): return torch.exp(x - x.amax(-1, keepdim=True))"),
    make_file("a_little_off", "no-go", None, "def softmax(x): return (RIGHT) * (1 + 1e-4)"),
    make_file("last_element_wrong", "no-go", None, """
        def softmax(x):
            out = RIGHT
            out.reshape(-1)[-1] += 0.25
            return out
    """),
    make_file("last_row_of_another", "no-go", None, """
        def softmax(x):
            out = RIGHT
            rows = out.view(-1, x.shape[-1])
            rows[-1] = rows[0] if len(rows) > 1 else rows[-1].flip(0)
            return out
    """, cases=8),
    make_file("last_column_unwritten", "no-go", "unwritten", """
        def softmax(x):
            out = torch.empty_like(x)
            out[..., :-1] = (RIGHT)[..., :-1]
            return out
    """),
    make_file("in_place", "no-go", None, """
        def softmax(x):
            return x.copy_(RIGHT)
    """),
    make_file("view_of_the_input", "no-go", None, """
        def softmax(x): return x.view(torch.int32).view(torch.float32)
    """),
    make_file("writes_before_its_output", "no-go", "out-of-bounds", """
        def softmax(x):
            out = torch.empty_like(x).copy_(RIGHT)
            out.as_strided((1,), (1,), out.storage_offset() - 3).fill_(0)
            return out
    """),
    make_file("writes_behind_its_output", "no-go", "out-of-bounds", """
        def softmax(x):
            out = torch.zeros(x.shape).copy_(RIGHT)
            ctypes.memset(out.data_ptr() + 4 * out.numel(), 1, 4)
            return out
    """),
]  # fmt: skip

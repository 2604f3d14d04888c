"""The public functions on CUDA tensors against the same data on the host; run on a GPU, skipped elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from patterns import NUMPY_DTYPES
from test_paths import SHAPES_OF_ERROR, assert_paths_agree, make_pair, near_ties, smooth

import gonogo
from gonogo.errors import DeviceMismatch
from gonogo.formats import FORMATS
from gonogo.instrument.gauges import gauge_names
from gonogo.instrument.readings import read_worst

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from gonogo.instrument.launch_triton import Tape  # noqa: E402
from gonogo.instrument.path_triton import find_capability  # noqa: E402
from gonogo.instrument.triton_kernels.brackets import count_before, count_before_in_float32  # noqa: E402
from gonogo.instrument.triton_kernels.numbers import divide_by_short  # noqa: E402
from gonogo.instrument.triton_kernels.ulps import packed_ulp_distance  # noqa: E402

pytestmark = pytest.mark.gpu

N = 2**20 + 7


def to_cuda(array: np.ndarray, name: str):
    signed = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[array.itemsize]
    return torch.from_numpy(array.view(signed)).cuda().view(getattr(torch, name))


@pytest.mark.parametrize("make", [*SHAPES_OF_ERROR, near_ties], ids=lambda make: make.__name__)
@pytest.mark.parametrize("same", [True, False], ids=["same", "float64"])
@pytest.mark.parametrize("name", FORMATS)
def test_measure(name: str, same: bool, make) -> None:
    actual, expected = make_pair(make, name, same, n=N)
    found = gonogo.measure(to_cuda(actual, name), to_cuda(expected, name if same else "float64"), atol=1e-3)
    assert_paths_agree(gonogo.measure(actual, expected, atol=1e-3), found)


@pytest.mark.parametrize("name", FORMATS)
def test_measure_from_any_address(name: str) -> None:
    """Arrays that begin at their second element: no vector of theirs lies where vectors do."""
    actual, expected = make_pair(smooth, name, same=True, n=N)
    found = gonogo.measure(to_cuda(actual, name)[1:], to_cuda(expected, name)[1:], atol=1e-3)
    assert_paths_agree(gonogo.measure(actual[1:], expected[1:], atol=1e-3), found)


@pytest.mark.parametrize("name", ["float16", "float32"])
def test_measure_again_on_other_arrays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was launched for one pair is launched again for the next: apart or not, and wherever these begin."""
    played, play = [], Tape.play
    monkeypatch.setattr(Tape, "play", lambda tape, memory: (played.append(tape), play(tape, memory)))
    rng = np.random.default_rng(0)
    whole, other = (to_cuda(rng.standard_normal(2 * N).astype(NUMPY_DTYPES[name]), name) for _ in range(2))
    several = [whole[at : at + N] for at in (0, 1, 8, N - N % 8)]
    pairs = [(actual, expected) for expected in (*several, other[:N], other[1 : N + 1]) for actual in several]
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        aside = [gonogo.measure(actual, expected, atol=1e-3) for actual, expected in pairs]
    for (actual, expected), found in zip(pairs, aside, strict=True):
        host = gonogo.measure(actual.cpu(), expected.cpu(), atol=1e-3)
        assert_paths_agree(host, found)
        assert_paths_agree(host, gonogo.measure(actual, expected, atol=1e-3))
    assert len(played) > len(pairs)


@pytest.mark.parametrize("gauge_name", gauge_names())
@pytest.mark.parametrize("name", FORMATS)
def test_read(name: str, gauge_name: str) -> None:
    gauge = gonogo.gauge(gauge_name, **({"atol": 1e-3, "rtol": 1e-2} if gauge_name == "policy" else {}))
    actual, expected = make_pair(smooth, name, same=False, n=N)
    scale = np.abs(expected)
    host = gonogo.read(actual, expected, gauge=gauge, scale=scale)
    found = gonogo.read(
        to_cuda(actual, name),
        torch.from_numpy(expected).cuda(),
        gauge=gauge,
        scale=torch.from_numpy(scale).cuda(),
    )
    assert (host.worst, host.index) == (found.worst, found.index)
    assert found.bias == pytest.approx(host.bias, rel=1e-9)


def test_layouts() -> None:
    expected = torch.randn(1100, 1200, dtype=torch.float64, device="cuda")
    actual = (expected * 1.001).half()
    scale = expected.abs()
    for view in (
        lambda x: x.t(),
        lambda x: x[::2, 1::3],
        lambda x: x[:, None, :].expand(1100, 2, 1200),
        lambda x: x[3:, 5:],
        lambda x: x[:, 7],
    ):
        found, host = (
            gonogo.measure(view(actual), view(expected)),
            gonogo.measure(view(actual).cpu(), view(expected).cpu()),
        )
        assert_paths_agree(host, found)
        reading = gonogo.read(view(actual), view(expected), gauge="bound", scale=view(scale))
        on_host = gonogo.read(view(actual).cpu(), view(expected).cpu(), gauge="bound", scale=view(scale).cpu())
        assert (reading.worst, reading.index) == (on_host.worst, on_host.index)


def test_one_transposed_operand() -> None:
    expected = torch.randn(1500, 1400, dtype=torch.float64, device="cuda")
    actual = (expected * 1.001).bfloat16().t().contiguous().t()
    assert_paths_agree(gonogo.measure(actual.cpu(), expected.cpu()), gonogo.measure(actual, expected))


def test_small_tensors_launch_at_most_three_kernels() -> None:
    from torch.profiler import ProfilerActivity, profile

    expected = torch.randn(1000, dtype=torch.float64, device="cuda")
    actual = expected.half()
    gonogo.measure(actual, expected)
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as trace:
        gonogo.measure(actual, expected)
        (expected + 1).sum()  # two kernels more, so that a trace that sees nothing fails
        torch.cuda.synchronize()
    on_gpu = [e.name for e in trace.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    kernels = [name for name in on_gpu if not name.startswith(("Memcpy", "Memset"))]
    assert 2 <= len(kernels) <= 3 + 2


def test_extra_memory() -> None:
    expected = torch.randn(2**26, device="cuda")
    actual = expected * 1.001
    gonogo.measure(actual, expected)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    gonogo.measure(actual, expected)
    gonogo.measure(actual.view(-1, 1024)[:, ::2], expected.view(-1, 1024)[:, ::2])
    assert torch.cuda.max_memory_allocated() - before <= 64 * 2**20


def test_two_devices() -> None:
    with pytest.raises(DeviceMismatch, match="arrays on two devices: actual on cuda:0, expected on cpu"):
        gonogo.measure(torch.ones(3, device="cuda"), np.ones(3))


@pytest.mark.parametrize("library", ["cupy", "jax"])
def test_dlpack(library: str) -> None:
    actual, expected = make_pair(smooth, "float32", same=True, n=N)
    if library == "cupy":
        cupy = pytest.importorskip("cupy")
        arrays = cupy.asarray(actual), cupy.asarray(expected)
    else:
        jax = pytest.importorskip("jax")
        arrays = jax.numpy.asarray(actual), jax.numpy.asarray(expected)
    assert_paths_agree(gonogo.measure(actual, expected), gonogo.measure(*arrays))


def test_error_scale_on_cuda() -> None:
    def softmax(x):
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)

    # The same input each time. In some rows the bias of a sum decides the scale, which is Σ(rounded − exact) over
    # its terms: small differences of them, in which the last place of an exp shows at the tenth digit.
    x = torch.randn(64, 300, generator=torch.Generator().manual_seed(0)).half()
    expected, scale = gonogo.error_scale(softmax, (x,))
    on_gpu, scale_on_gpu = gonogo.error_scale(softmax, (x.cuda(),))
    assert on_gpu.is_cuda
    torch.testing.assert_close(on_gpu.cpu(), expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(scale_on_gpu.cpu(), scale, rtol=1e-12, atol=0)


@pytest.mark.parametrize("make", SHAPES_OF_ERROR, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", FORMATS)
def test_read_worst(name: str, make) -> None:
    actual, expected = make_pair(make, name, same=False, n=N)
    gauges = [gonogo.gauge(gauge) for gauge in ("absolute", "magnitude", "ulp")]
    gauges += [
        gonogo.gauge("policy", atol=atol, rtol=rtol) for atol, rtol in ((1e-3, 1e-2), (0.0, 1e-5), (0.0, 0.0))
    ]
    found = read_worst(to_cuda(actual, name), torch.from_numpy(expected).cuda(), gauges)
    assert found == read_worst(actual, expected, gauges)


@triton.jit
def divide_all(numerators, denominators, out, zeros, BITS: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    quotient, zero = divide_by_short(tl.load(numerators + at), tl.load(denominators + at), BITS)
    tl.store(out + at, quotient)
    tl.store(zeros + at, zero)


@pytest.mark.parametrize(("name", "bits"), [("float16", 11), ("bfloat16", 11), ("float32", 24)])
def test_division_is_correctly_rounded(name: str, bits: int) -> None:
    """Any finite numbers of a format, and such as differ a little, against the quotients of the CPU; 0 over 0."""
    rng, dtype = np.random.default_rng(3), getattr(torch, name)
    words = rng.integers(0, 2**16 if name != "float32" else 2**32, 2**22, dtype=np.uint32)
    words = words.astype(np.uint16).view(np.int16) if name != "float32" else words.view(np.int32)
    expected = torch.from_numpy(words).view(dtype).double()
    expected = torch.where(expected.isfinite(), expected, 3.0)
    expected[::1024] = -0.0
    other = expected[torch.randperm(2**22, generator=torch.Generator().manual_seed(1))]
    near = (expected * (1 + 1e-2 * torch.from_numpy(rng.standard_normal(2**22)))).to(dtype).double()
    for actual in (other, torch.where(near.isfinite(), near, other)):
        numerators = (actual - expected).abs()
        out = torch.empty_like(numerators, device="cuda")
        zeros = torch.empty_like(out, dtype=torch.int32)
        divide_all[(2**12,)](numerators.cuda(), expected.cuda(), out, zeros, BITS=bits, enable_fp_fusion=False)
        assert torch.equal(out.cpu(), torch.where(expected == 0, 0.0, numerators / expected.abs()))
        assert torch.equal(zeros.cpu() == 1, expected == 0)


@triton.jit
def distances_of_pairs(actual, expected, out):
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    tl.store(out + at, packed_ulp_distance(tl.load(actual + at), tl.load(expected + at)).to(tl.int32))


def test_distances_of_pairs() -> None:
    """Every pattern of 16 bits against some others, against the next one, and against its negation."""
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("PTX has no pairs of 16 bits before compute capability 9.0")
    patterns = np.arange(2**16, dtype=np.uint16)
    rng = np.random.default_rng(5)
    others = [rng.permutation(patterns) for _ in range(30)] + [patterns + 1, patterns ^ 0x8000]
    actual, expected = np.tile(patterns, len(others)), np.concatenate(others).astype(np.uint16)
    out = torch.empty(len(actual), dtype=torch.int32, device="cuda")
    on_gpu = [torch.from_numpy(x.view(np.int16)).cuda() for x in (actual, expected)]
    distances_of_pairs[(len(actual) // 1024,)](*on_gpu, out)
    keys = [np.where(x >= 0x8000, -(x & 0x7FFF).astype(int), x & 0x7FFF) for x in (actual, expected)]
    assert np.array_equal(out.cpu().numpy(), np.abs(keys[0] - keys[1]))


@triton.jit
def count_all_before(words, bounds, as_ints, as_floats, CAPABILITY: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    word, bound = tl.load(words + at), tl.load(bounds + at)
    tl.store(as_ints + at, count_before(word, bound, CAPABILITY))
    tl.store(as_floats + at, count_before_in_float32(word, bound, CAPABILITY))


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].bits <= 16])
def test_high_words_are_compared_as_floats(name: str) -> None:
    """Those of errors between any two finite numbers, with themselves, the words next to them and any other."""
    rng = np.random.default_rng(6)
    bits, dtype = FORMATS[name].bits, NUMPY_DTYPES[name]
    words = [rng.integers(0, 2**bits, 2**20).astype(f"u{bits // 8}") for _ in range(2)]
    with np.errstate(all="ignore"):  # NaN and infinities are left out below
        actual, expected = (x.view(dtype).astype(float) for x in words)
        errors = np.where(rng.random(2**20) < 0.5, np.abs(actual), np.abs(actual - expected))
    words = (np.where(np.isfinite(errors), errors, 0.0).view(np.int64) >> 32).astype(np.int32)
    for bounds in (words, words + 1, np.maximum(words - 1, 0), rng.permutation(words)):
        as_ints = torch.empty(2**20, dtype=torch.int32, device="cuda")
        as_floats = torch.empty(2**20, dtype=torch.float32, device="cuda")
        on_gpu = [torch.from_numpy(x).cuda() for x in (words, bounds)]
        count_all_before[(2**10,)](*on_gpu, as_ints, as_floats, CAPABILITY=find_capability(as_ints.device))
        assert np.array_equal(as_ints.cpu().numpy(), words < bounds)
        # No error has the word 1, next to that of 0.
        usual = (words != 1) & (bounds != 1)
        assert np.array_equal(as_floats.cpu().numpy()[usual], (words < bounds)[usual])

"""The C extension draws what NumPy draws, whatever is asked for and in whatever order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.cases import stream
from gonogo.cases.stream import NativeStream, NumpyStream, open_stream

pytestmark = pytest.mark.skipif(stream._native is None, reason="built without a C compiler")

# Around what a counter gives, and what is made at a time.
COUNTS = st.one_of(st.integers(0, 9), st.integers(1020, 1028), st.integers(0, 5000))
DRAWS = st.lists(st.tuples(st.sampled_from(["words", "uniform", "normal"]), COUNTS), max_size=8)


@given(st.text(max_size=9), DRAWS)
def test_the_same_as_by_numpy(name: str, draws: list[tuple[str, int]]) -> None:
    native, numpys = NativeStream(name), NumpyStream(name)
    for kind, count in draws:
        drawn, expected = getattr(native, kind)(count), getattr(numpys, kind)(count)
        assert drawn.dtype == expected.dtype
        np.testing.assert_array_equal(drawn, expected)


def test_it_is_used_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(open_stream("a")) is NativeStream
    monkeypatch.setattr(stream, "_native", None)
    assert type(open_stream("a")) is NumpyStream


def test_buffers_that_do_not_fit() -> None:
    out = np.zeros(3)
    with pytest.raises(ValueError, match="a key of 3 bytes, not 16"):
        stream._native.words(b"abc", 0, out)
    with pytest.raises(TypeError, match="read-write"):
        stream._native.words(bytes(16), 0, b"12345678")
    for odd in (bytearray(15), memoryview(bytearray(17))[1:]):
        with pytest.raises(ValueError, match="not of words of 64 bits"):
            stream._native.words(bytes(16), 0, odd)
    np.testing.assert_array_equal(out, 0)

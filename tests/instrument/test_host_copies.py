"""Tensors fetched together → the bits, shapes and strides of tensors copied one by one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gonogo.instrument.host_copies import fetch, pack, unpack  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def make_tensors(device: str) -> list[torch.Tensor]:
    """Of every width, with odd numbers of elements between wider ones; empty, without axes, NaN among them."""
    draw = torch.Generator().manual_seed(2)
    tensors = [
        torch.randn(3, 5, generator=draw).half(), torch.randn(7, generator=draw).double(),
        torch.randn(2, 0, 3, generator=draw), torch.tensor(float("nan"), dtype=torch.float64),
        torch.randn(1, 9, generator=draw) > 0, torch.randn(11, generator=draw).bfloat16(),
        torch.arange(5), torch.randn(3, generator=draw),
    ]  # fmt: skip
    return [x.to(device) for x in tensors]


def assert_same(made: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    for x, y in zip(made, wanted, strict=True):
        assert (x.device.type, x.dtype, x.shape, x.stride()) == ("cpu", y.dtype, y.shape, y.stride())
        assert torch.equal(x.contiguous().reshape(-1).view(torch.uint8), y.cpu().reshape(-1).view(torch.uint8))
        assert x.data_ptr() % x.element_size() == 0


@pytest.mark.parametrize("device", DEVICES)
def test_packed_and_unpacked_they_are_as_before(device: str) -> None:
    tensors = make_tensors(device)
    assert_same(unpack(pack(tensors), tensors), tensors)


@pytest.mark.parametrize("device", DEVICES)
def test_fetched_they_lie_as_before(device: str) -> None:
    tensors = [*make_tensors(device), torch.arange(12.0, device=device).view(3, 4).t(), torch.ones(2)]
    assert_same(fetch(tensors), tensors)
    assert fetch([]) == []
    on_host = torch.ones(3)
    assert fetch([on_host])[0] is on_host

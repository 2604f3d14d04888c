"""Memory of arguments: filled with other values and put back, in every layout, and carried to a guest."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from gonogo.cases import EVERYWHERE, find_guard, make_call, parse_case  # noqa: E402
from gonogo.guest.memory import copy_whole, fill_arguments, take_store  # noqa: E402
from gonogo.guest.wire import TensorFile, pack_tensor, unpack_tensor  # noqa: E402


@pytest.mark.parametrize("layout", EVERYWHERE)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_what_is_filled_and_put_back_has_every_bit_that_it_had(layout: str, dtype: str) -> None:
    case = replace(parse_case(f"layernorm:{dtype}:2x3x65:c:uniform:1"), layout=layout)
    call, others = make_call(case), make_call(replace(case, seed=2))
    before = call.map(lambda path, x: copy_whole(x))
    addresses = [x.data_ptr() for _, x in call.tensors]
    fill_arguments(call, others)
    assert all(torch.equal(x, y) for (_, x), (_, y) in zip(call.tensors, others.tensors, strict=True))
    assert not all(torch.equal(x, y) for (_, x), (_, y) in zip(call.tensors, before.tensors, strict=True))
    fill_arguments(call, before)
    assert [x.data_ptr() for _, x in call.tensors] == addresses
    for (_, x), (_, y) in zip(call.tensors, before.tensors, strict=True):
        assert torch.equal(take_store(x), take_store(y))
        assert find_guard(x) is not None


@pytest.mark.parametrize("repeated", [False, True])
def test_a_tensor_far_smaller_than_its_memory_travels(repeated: bool) -> None:
    wide = torch.arange(4.0 * 10**6).reshape(4, -1)[:, 5:6]
    tensor = wide.expand(4, 128) if repeated else wide
    file = TensorFile()
    facts = pack_tensor(tensor, file)
    assert facts["sparse"]
    carried = unpack_tensor(facts, file.map(), "cpu", 7)
    file.close()
    assert torch.equal(carried, tensor)
    assert carried.stride() == tensor.stride()
    assert (take_store(carried) == 7).sum() == take_store(carried).numel() - 4

"""The parts of a record that no campaign on this machine shows by itself."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from make_record import make_record

import gonogo
from gonogo.cases import Call, parse_case
from gonogo.errors import BadReference
from gonogo.execution import execute
from gonogo.execution.bench import prepare
from gonogo.execution.call import to_torch
from gonogo.execution.job import Job
from gonogo.execution.measurement import compare_outputs, measure_output
from gonogo.execution.reference import Reference, make_reference
from gonogo.ops import AtHand, get_op
from gonogo.records import RunDirectory, read_run
from gonogo.runners import environment
from gonogo.schema import Contract
from gonogo.user.kernels import make_candidate
from gonogo.user.own_op import Op


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_arrays_become_tensors(dtype: type) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    for given in (array, array[::-1], array[:, ::-1], array.T, array[0, 1], np.asarray(array[1, 1])):
        made = to_torch(given)
        assert isinstance(made, torch.Tensor)
        assert tuple(made.shape) == given.shape
        assert made.double().tolist() == np.asarray(given).astype(np.float64).tolist()
    assert to_torch(array).data_ptr() == array.__array_interface__["data"][0]


def test_roundings_apart_among_subnormals_are_two_units_of_signal() -> None:
    step = 2.0**-24
    expected = torch.tensor([1.5 * step, 1.0], dtype=torch.float64)
    reference = Reference(expected, torch.zeros(2), Contract(), lambda: torch.zeros(2))
    down, up = (torch.tensor([times * step, 1.0]).half() for times in (1, 2))
    assert compare_outputs(down, up, reference, "float16") == (False, 2.0)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_a_case_is_blind_where_most_of_what_it_says_is_within_the_limit(count: int) -> None:
    """Zeros, infinite scales and NaN say nothing; an exact element is never blind."""
    ratios = torch.arange(1, count + 1, dtype=torch.float64)
    expected = torch.cat([ratios, torch.tensor([0.0, 5.0, math.nan], dtype=torch.float64)])
    scale = torch.full_like(expected, 2.0**24)
    scale[count + 1] = math.inf
    blind_from = Reference(expected, scale, Contract(), lambda: scale).blind_from
    assert blind_from is not None
    for limit in torch.arange(0.25, count + 2, 0.25).tolist():
        assert (2 * int((ratios < limit).sum()) > count) == (limit > blind_from)
    assert Reference(expected, 0 * ratios.new_ones(count + 3), Contract(), lambda: scale).blind_from == math.inf
    assert Reference(0 * ratios, ratios, Contract(), lambda: scale).blind_from is None


def test_a_run_keeps_what_the_schema_has_a_column_for(tmp_path: Path) -> None:
    record = make_record(bound=0.5, policies={"kernelbench": 0.25}, blind_from=math.inf, printed="hello")
    directory = RunDirectory(tmp_path, {})
    directory.append([record])
    (row,) = json.loads((tmp_path / "journal.jsonl").read_text())
    assert row == make_record(bound=0.5, policies={"kernelbench": 0.25}).to_dict()
    assert not {"blind_from", "printed", "set_up"} & row.keys()
    directory.close()
    assert read_run(tmp_path).num_rows == 1


def test_ctrl_c_ends_a_kernel_run_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    op = get_op("relu")
    job = Job(0, parse_case("relu:f32:2x5x3:c:uniform:1"), "replay", op, (op.kernel("relu_torch"),), "cpu")
    bench = prepare(job)
    monkeypatch.setattr(execute, "call_twice", interrupt)
    with pytest.raises(KeyboardInterrupt):
        execute.run_kernel(bench, bench.op.kernel("relu_torch"))


def read_v_abft(a: list[list[float]], b: list[list[float]], output: torch.Tensor) -> float | None:
    op = get_op("matmul")
    inputs = [torch.tensor(x, dtype=torch.float16) for x in (a, b)]
    call = Call(tuple(inputs), {}, ("a", "b"))
    reference = make_reference(op, call, Contract(), tuple(output.shape), "float16")
    return measure_output(make_record(), op, "float16", output, reference, 2, None, inputs, None).v_abft


def test_reference_of_another_shape() -> None:
    call = Call((torch.ones(2, 3), torch.ones(3, 1)), {}, ("a", "b"))
    with pytest.raises(BadReference, match=r"returns shape \(2, 1\); the op's output has \(2, 2\) here"):
        make_reference(get_op("matmul"), call, Contract(), (2, 2), "float32")


def test_scales_are_one_where_the_order_of_sums_changes_nothing() -> None:
    """It is then read once, not twice."""
    call = Call((torch.ones(1, 2, 3),), {}, ("x",))
    relu = make_reference(get_op("relu"), call, Contract(), (1, 2, 3), "float32")
    assert relu.sequential_scale is relu.scale
    softmax = make_reference(get_op("softmax"), call, Contract(), (1, 2, 3), "float32")
    assert bool((softmax.sequential_scale > softmax.scale).all())


def test_v_abft_of_agreement_and_of_overflow() -> None:
    b = [[1.0], [1.0]]
    odd = [[math.nan, 1.0], [math.inf, 1.0], [2.0, 1.0]]
    agreed = torch.tensor([[math.nan], [math.inf], [3.0]], dtype=torch.float16)
    assert read_v_abft(odd, b, agreed) == 0.0
    assert read_v_abft(odd, b, torch.tensor([[math.nan], [5.0], [3.0]], dtype=torch.float16)) == math.inf
    large = [[60000.0, 60000.0]]
    assert read_v_abft(large, b, torch.tensor([[math.inf]], dtype=torch.float16)) is None
    assert read_v_abft(large, b, torch.tensor([[-math.inf]], dtype=torch.float16)) == math.inf
    assert read_v_abft([[2.0, 1.0]], b, torch.tensor([[math.inf]], dtype=torch.float16)) == math.inf


def test_commit_of_another_project_is_not_gonogos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GONOGO_COMMIT", raising=False)
    package = tmp_path / "site-packages" / "gonogo" / "runners"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    monkeypatch.setattr(environment, "__file__", str(package / "environment.py"))
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "x"], cwd=tmp_path, check=True)
    assert environment._read_commit() is None
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    assert (environment._read_commit() or "").endswith("+")


@pytest.mark.parametrize("contract", [Contract(), Contract(accumulate="float16")])
def test_the_reference_in_force_comes_before_the_kernel_is_announced(contract: Contract) -> None:
    """A reference that takes long never counts against a kernel, and no contract but its own is worked out."""
    events: list[str] = []

    def reference(x: torch.Tensor) -> torch.Tensor:
        events.append("reference")
        return x.sum(-1)

    def kernel(x: torch.Tensor) -> torch.Tensor:
        events.append("kernel")
        return x.double().sum(-1).to(x.dtype)

    op = Op(
        "total", inputs={"x": "rows cols"}, output="rows", sizes={"rows": (3,), "cols": (5,)}, reference=reference
    )
    case = parse_case("total:f16:3x5:c:uniform:1", op)
    job = Job(0, case, "verify", op, (make_candidate(op, AtHand(kernel), contract),), "cpu", bounds_only=True)
    (record,) = execute.run_job(job, events.append)
    assert record.outcome == "ok"
    assert events == ["reference", "reference", "candidate", "kernel", "kernel"]  # its scale, and that of one chain


class RaisesWhenAsked(torch.Tensor):
    """Whose own words raise."""

    @property
    def is_nested(self) -> bool:
        raise KeyError("no word")

    dtype = is_nested


def give_back_memory(x: torch.Tensor) -> torch.Tensor:
    output = torch.softmax(x, -1)
    output.untyped_storage().resize_(0)
    return output


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (lambda x: torch.softmax(x, -1).as_subclass(RaisesWhenAsked), "returned a RaisesWhenAsked, a subclass"),
        (give_back_memory, "returned a tensor whose memory was given back"),
    ],
)
def test_an_output_that_cannot_be_looked_at_says_why(kernel: Callable[..., Any], said: str) -> None:
    found = gonogo.verify(kernel, "softmax", cases=1, dtypes="float32", device="cpu", strict=False)
    (record,) = [case.record for case in found.verdicts]
    assert record.outcome == "no-output"
    assert record.detail.startswith(said)


def test_what_is_raised_while_an_output_is_measured_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("no such leaf")

    monkeypatch.setattr("gonogo.execution.execute.judge_leaves", fail)
    found = gonogo.verify(
        lambda x: torch.softmax(x, -1), "softmax", cases=1, dtypes="float32", device="cpu", strict=False
    )
    (record,) = [case.record for case in found.verdicts]
    assert record.outcome == "no-output"
    assert record.detail.startswith("its output cannot be read: KeyError: 'no such leaf'")

"""A stranger's kernel: what verify and check say of right and wrong ones, known ops and own ones."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import gonogo
from gonogo.errors import InputError, NoGo
from gonogo.explain import Trial, guess_pattern


def short_sum(x: torch.Tensor) -> torch.Tensor:
    """The last column is left out of the sum."""
    powers = (x.float() - x.float().amax(-1, keepdim=True)).exp()
    kept = powers[..., :-1] if x.shape[-1] > 1 else powers
    return (powers / kept.sum(-1, keepdim=True)).to(x.dtype)


def padded(x: torch.Tensor) -> torch.Tensor:
    """Lanes up to the next power of two count as 0."""
    lanes = 2 ** (x.shape[-1] - 1).bit_length()
    wide = torch.nn.functional.pad(x.float(), (0, lanes - x.shape[-1]))
    powers = (wide - wide.amax(-1, keepdim=True)).exp()
    return (powers / powers.sum(-1, keepdim=True))[..., : x.shape[-1]].to(x.dtype)


def test_a_right_kernel_is_go() -> None:
    found = gonogo.verify(lambda x: torch.softmax(x, -1), op="softmax", device="cpu")
    assert (found.decision, len(found.verdicts), found.failed) == ("go", 72, ())
    assert "cases of correct kernels on NVIDIA H200" in found.limit_from
    told = json.loads(json.dumps(found.to_dict()))
    assert (told["schema"], told["decision"], len(told["verdicts"])) == (1, "go", 72)
    assert found._repr_html_().startswith("<pre>softmax: go")


def test_a_wrong_kernel_explains_itself() -> None:
    with pytest.raises(NoGo) as caught:
        gonogo.verify(short_sum, op="softmax", device="cpu")
    found = caught.value.verification
    assert found.decision == "no-go"
    assert found.smallest is not None
    assert "softmax:" in found.smallest
    text = str(caught.value)
    for word in ("worst case", "element", "expected", "ULPs apart", "smallest", "above the limit"):
        assert word in text
    with pytest.raises(NoGo) as again:
        gonogo.verify(short_sum, op="softmax", device="cpu", only=found.smallest)
    assert [one.case for one in again.value.verification.verdicts] == [found.smallest]
    # One row and few columns are enough to show it.
    assert [int(size) for size in found.smallest.split(":")[2].split("x")][:2] == [1, 1]


def test_pattern_of_padding() -> None:
    found = gonogo.verify(padded, op="softmax", device="cpu", strict=False, dtypes=("float32",), cases=60)
    assert found.decision == "no-go"
    assert found.pattern == "fails only where H is no power of two"


def own_rmsnorm() -> gonogo.Op:
    return gonogo.Op(
        "my_rmsnorm", inputs={"x": "rows cols", "w": "cols"}, output="rows cols",
        sizes={"rows": (1, 7), "cols": (1, 3, 255)}, reduced=("cols",),
        reference=lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w,
    )  # fmt: skip


def rmsnorm(x: torch.Tensor, w: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype)


def test_own_op() -> None:
    found = gonogo.verify(rmsnorm, own_rmsnorm(), dtypes=("float16", "bfloat16"), device="cpu")
    assert found.decision == "go"
    assert "deterministic bound" in found.limit_from
    wrong = gonogo.verify(lambda x, w: rmsnorm(x, w, 1e-3), own_rmsnorm(), device="cpu", strict=False)
    assert wrong.decision == "no-go"


def test_controls_make_the_limit() -> None:
    found = gonogo.verify(rmsnorm, own_rmsnorm(), controls=[rmsnorm], device="cpu", dtypes=("float32",), cases=8)
    assert (found.decision, found.limit_from) == ("go", "made from 1 control on the same cases")


def test_outcomes_are_verdicts() -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        raise ArithmeticError("no")

    found = gonogo.verify(raises, op="relu", device="cpu", strict=False, dtypes=("float32",), cases=2)
    assert [one.verdict.message for one in found.verdicts] == ["no-go: raised: ArithmeticError: no"] * 2


def test_numpy_outputs_are_taken() -> None:
    found = gonogo.verify(
        lambda x: np.maximum(x.numpy(), np.float32(0)), op="relu", device="cpu", dtypes=("float32",), cases=4
    )
    assert found.decision == "go"


class OnlyArray:
    """What JAX hands out, as far as gonogo looks."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return self.array


def test_foreign_outputs_are_taken() -> None:
    found = gonogo.verify(
        lambda x: OnlyArray(np.maximum(x.numpy(), np.float32(0))),
        op="relu",
        device="cpu",
        dtypes=("float32",),
        cases=4,
    )
    assert found.decision == "go"


def test_check_one_output() -> None:
    x = torch.randn(4, 7, 33)
    right = gonogo.check(torch.softmax(x, -1), op="softmax", inputs={"input": x})
    wrong = gonogo.check(short_sum(x), op="softmax", inputs={"input": x})
    assert (right.decision, wrong.decision) == ("go", "no-go")
    assert gonogo.check(np.float32([1.0]), expected=np.array([1.0])).decision == "go"
    with pytest.raises(InputError, match="check needs op= and inputs=, or expected="):
        gonogo.check(x)
    with pytest.raises(InputError, match="op softmax takes the inputs input; missing: input"):
        gonogo.check(x, op="softmax", inputs={"x": x})


def make_trial(size: int, failed: bool, **given: object) -> Trial:
    fields = {"layout": "contiguous", "distribution": "normal", "reading": 9.0, "worst_at": (0,), "ratios": None}
    return Trial({"K": size}, failed=failed, output_shape=(size,), **(fields | given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trials", "told"),
    [
        ([make_trial(8, False), make_trial(9, True), make_trial(16, False)],
         "fails only where K is no power of two"),
        ([make_trial(8, False), make_trial(8, True, layout="strided")],
         "fails only on inputs that are not contiguous"),
        ([make_trial(8, False), make_trial(512, True)], "fails only where K is above 8"),
        ([make_trial(9, True, worst_at=(8,)), make_trial(8, True, worst_at=(7,))],
         "the worst element is always in the last column"),
        ([make_trial(n, True, reading=float(n)) for n in (3, 5, 9, 17, 33)], "the error grows with K"),
        ([make_trial(8, True, ratios=(2.0, 2.0))], "everything is off by one factor, about 2"),
        ([make_trial(8, False)], None),
    ],
)  # fmt: skip
def test_patterns(trials: list[Trial], told: str | None) -> None:
    assert guess_pattern(trials, "K") == told

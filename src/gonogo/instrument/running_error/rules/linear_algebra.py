"""Solving, factoring and inverting → value and first-order componentwise bounds, in the manner of Higham.

A backward-stable algorithm answers for A + ΔA with |ΔA| ≤ g(n)·(what its factors multiply to in absolute value),
and E(A) comes on top; how far that moves the answer is the derivative of solving, with absolute values all along.
Higham, Accuracy and Stability of Numerical Algorithms: 9.3 and 9.4 (LU), 8.5 (triangular), 10.3 and 10.5
(Cholesky), 14 (inverse, determinant), 19.4 and 19.6 (QR).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gonogo.errors import NoErrorRule
from gonogo.instrument.running_error.companion import EXACT, Error, widen_error
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode

Split = tuple[Tensor, Error]
VECTORS_HINT = (
    "vectors of close values are as good as any others of their plane; judge what they are for: the residual "
    "A·v − λ·v or U·S·Vᵀ − A, and that they are orthogonal"
)
VALUES_HINT = (
    "eigenvalues of a matrix that is not symmetric may move by any amount; judge det(A − λ·I), or residuals"
)


def grow(ctx: RunningErrorMode, length: int) -> float:
    """Roundings of an elimination over `length` steps, a division and a rounding of the product beside its sum."""
    return ctx.growth(length) + 2


def disturb_factors(ctx: RunningErrorMode, a: Tensor, err: Error) -> tuple[Tensor, Tensor]:
    """ΔA that Gauss's elimination answers for, with E(A) in it, and |A⁻¹|."""
    permutation, lower, upper = torch.linalg.lu(a)
    weight = permutation.abs() @ (lower.abs() @ upper.abs())
    inverse = torch.linalg.inv_ex(a)[0].abs()
    return weight * (2 * grow(ctx, a.shape[-1])) + widen_error(a, err), inverse


def solve(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """A·X = B: |A⁻¹|·(ΔA·|X| + E(B)); LU and pivots beside it, as of lu_factor."""
    (a, err_a), (b, err_b) = ctx.split(args[0]), ctx.split(args[1])
    left = kwargs.get("left", True)
    made = op(a, b, **ctx.values(kwargs))
    x = made[0]
    disturbed, inverse = disturb_factors(ctx, a, err_a)
    if not left:
        disturbed, inverse = disturbed.mT, inverse.mT
    is_vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])

    def turn(t: Tensor) -> Tensor:
        return t.unsqueeze(-1) if is_vector else t if left else t.mT

    error = inverse @ (disturbed @ turn(x.abs()) + turn(widen_error(b, err_b)))
    error = error.squeeze(-1) if is_vector else error if left else error.mT
    factored = bound_factors(ctx, a, err_a, torch.lu_unpack(made[1], made[2]))[0].reshape(made[1].shape)
    return made, (Error(error), Error(factored), *[EXACT] * (len(made) - 2))


def invert(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """A⁻¹: |A⁻¹|·ΔA·|A⁻¹|."""
    a, err = ctx.split(args[0])
    made = op(a, **kwargs)
    disturbed, inverse = disturb_factors(ctx, a, err)
    return made, (Error(inverse @ disturbed @ inverse), EXACT)


def bound_factors(
    ctx: RunningErrorMode, a: Tensor, err: Error, factors: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Of L and U in one matrix, of L, of U: L·stril(L⁻¹ΔA·U⁻¹) and triu(L⁻¹ΔA·U⁻¹)·U, in absolute values.

    `factors` are P, L and U as they are, with rows exchanged or without: without, they may be far larger.
    """
    permutation, lower, upper = factors
    size = min(a.shape[-2:])
    first, last = lower[..., :size, :], upper[..., :, :size]
    inner = _invert_triangle(first, upper=False), _invert_triangle(last, upper=True)
    weight = lower.abs() @ upper.abs() * grow(ctx, size)
    own = widen_error(a, err)
    disturbed = weight + (permutation.mT.abs() @ own if permutation.numel() else own)
    moved = inner[0] @ disturbed[..., :size, :size] @ inner[1]
    of_lower = lower.abs() @ moved.tril(-1)
    of_upper = moved.triu() @ upper.abs()
    if a.shape[-2] > size:  # rows below the square: L₂ = A₂·U⁻¹
        of_lower[..., size:, :] += disturbed[..., size:, :size] @ inner[1]
    if a.shape[-1] > size:
        of_upper[..., :, size:] += inner[0] @ disturbed[..., :size, size:]
    packed = torch.zeros_like(a)
    packed[..., :, :size] += of_lower.tril(-1)
    packed[..., :size, :] += of_upper.triu()
    return packed, of_lower.tril(-1), of_upper.triu()


def bound_returned(ctx: RunningErrorMode, a: Tensor, err: Error, packed: Tensor, pivots: Tensor) -> Tensor:
    """Of L and U as an op returns them beside its result: of A, or of its transpose, as suits its memory."""
    factors = torch.lu_unpack(packed, pivots)
    product = factors[0] @ factors[1] @ factors[2]
    own = widen_error(a, err)
    turned = float((product - a).abs().sum()) > float((product - a.mT).abs().sum())
    matrix, moved = (a.mT, own.mT) if turned else (a, own)
    return bound_factors(ctx, matrix, Error(moved), factors)[0].reshape(packed.shape)


def _invert_triangle(t: Tensor, *, upper: bool) -> Tensor:
    """|T⁻¹|; infinite entries where T is singular."""
    identity = torch.eye(t.shape[-1], dtype=t.dtype, device=t.device).expand(t.shape)
    inverse: Tensor = torch.linalg.solve_triangular(t, identity, upper=upper)
    return inverse.abs().nan_to_num(nan=torch.inf, posinf=torch.inf)


def factor_packed(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """lu_factor: L and U in one matrix."""
    a, err = ctx.split(args[0])
    made = op(a, **kwargs)
    packed = bound_factors(ctx, a, err, torch.lu_unpack(made[0], made[1]))[0]
    return made, (Error(packed), *[EXACT] * (len(made) - 1))


def factor(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """lu: P, L and U."""
    a, err = ctx.split(args[0])
    made = op(a, **kwargs)
    _, lower, upper = bound_factors(ctx, a, err, made)
    return made, (EXACT, Error(lower), Error(upper))


def unpack_factors(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """lu_unpack: the same op on the errors; the diagonal of L is 1."""
    packed, err = ctx.split(args[0])
    made = op(packed, *args[1:], **kwargs)
    size = min(packed.shape[-2:])
    errors = widen_error(packed, err)
    return made, (EXACT, Error(errors[..., :, :size].tril(-1)), Error(errors[..., :size, :].triu()))


def solve_factored(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """lu_solve: LU's own errors, |A⁻¹|·((E(L)|U| + |L|E(U) + g·|L||U|)·|X| + E(B)), permuted."""
    (packed, err), pivots, (b, err_b) = ctx.split(args[0]), args[1], ctx.split(args[2])
    left, adjoint = kwargs.get("left", True), kwargs.get("adjoint", False)
    value = op(packed, pivots, b, **kwargs)
    permutation, lower, upper = torch.lu_unpack(packed, pivots)
    errors = widen_error(packed, err)
    weight = lower.abs() @ upper.abs() * (2 * grow(ctx, packed.shape[-1]))
    weight = weight + errors.tril(-1) @ upper.abs() + lower.abs() @ errors.triu()
    weight = permutation @ weight
    inverse = torch.linalg.inv_ex(permutation @ lower @ upper)[0].abs()
    if adjoint == left:
        weight, inverse = weight.mT, inverse.mT
    right = widen_error(b, err_b)
    if left:
        return value, Error(inverse @ (weight @ value.abs() + right))
    return value, Error((inverse @ (weight @ value.abs().mT + right.mT)).mT)


def find_determinant(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """det: |det|·Σ|A⁻¹|ᵀΔA + n·|det|; of its logarithm the same without |det|. LU and pivots beside them."""
    a, err = ctx.split(args[0])
    made = op(a, **kwargs)
    disturbed, inverse = disturb_factors(ctx, a, err)
    moved = (inverse.mT * disturbed).sum((-2, -1)) + a.shape[-1]
    packed = Error(bound_returned(ctx, a, err, made[-2], made[-1]))
    if op._schema.name == "aten::_linalg_slogdet":
        near = moved * ctx.unit >= 1  # the sign itself is lost
        sign = Error(torch.zeros_like(made[0]).masked_fill_(near, 2 / ctx.unit))
        return made, (sign, Error(moved, ctx.accuracy("log").relative), packed, EXACT)
    singular = made[0] == 0
    sizes = torch.where(singular, _bound_minors(a, disturbed), moved * made[0].abs())
    return made, (Error(sizes), packed, EXACT)


def _bound_minors(a: Tensor, disturbed: Tensor) -> Tensor:
    """How far the determinant of a singular matrix may be off: by Hadamard's inequality, column by column."""
    columns = torch.linalg.vector_norm(a, dim=-2)
    moved = torch.linalg.vector_norm(disturbed, dim=-2)
    others = columns.unsqueeze(-1).expand(*columns.shape, columns.shape[-1])
    others = others.masked_fill(torch.eye(columns.shape[-1], dtype=torch.bool, device=a.device), 1.0)
    bound: Tensor = (others.prod(-2) * moved).sum(-1)
    return bound


def factor_symmetric(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Cholesky: |L|·tril(|L⁻¹|·(g·|L||Lᵀ| + E(A))·|L⁻ᵀ|)."""
    a, err = ctx.split(args[0])
    made = op(a, *args[1:], **kwargs)
    first = made[0] if isinstance(made, tuple) else made
    upper = kwargs.get("upper", args[1] if len(args) > 1 else False)
    lower = first.mT if upper else first
    disturbed = lower.abs() @ lower.mT.abs() * grow(ctx, a.shape[-1]) + widen_error(a, err)
    inverse = _invert_triangle(lower, upper=False)
    moved = lower.abs() @ (inverse @ disturbed @ inverse.mT).tril()
    error = Error((moved.mT.triu() if upper else moved.tril()).reshape(first.shape))
    return made, (error, EXACT) if isinstance(made, tuple) else error


def solve_symmetric(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """cholesky_solve, cholesky_inverse: |A⁻¹|·(g·|L||Lᵀ| + 2·E(L)|Lᵀ|)·|X| + |A⁻¹|·E(B)."""
    inverts = op._schema.name == "aten::cholesky_inverse"
    (factors, err), rest = ctx.split(args[0 if inverts else 1]), args[1 if inverts else 2 :]
    upper = rest[0] if rest else kwargs.get("upper", False)
    value = op(*ctx.values(args), **kwargs)
    lower = factors.triu().mT if upper else factors.tril()
    errors = widen_error(factors, err)
    errors = errors.triu().mT if upper else errors.tril()
    weight = lower.abs() @ lower.mT.abs() * (2 * grow(ctx, lower.shape[-1]))
    weight = weight + 2 * errors @ lower.mT.abs()
    inverse = torch.cholesky_inverse(lower).abs()
    moved = weight @ value.abs()
    if not inverts:
        moved = moved + widen_error(*ctx.split(args[0]))
    return value, Error(inverse @ moved)


def solve_triangle(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """T·X = B: |T⁻¹|·((g·|T| + E(T))·|X| + E(B))."""
    (t, err), (b, err_b) = ctx.split(args[0]), ctx.split(args[1])
    upper, left, unit = kwargs["upper"], kwargs.get("left", True), kwargs.get("unitriangular", False)
    value = op(t, b, **kwargs)
    weight, inverse = _weigh_triangle(ctx, t, err, upper=upper, unit=unit)
    right = widen_error(b, err_b)
    if left:
        return value, Error(inverse @ (weight @ value.abs() + right))
    return value, Error((value.abs() @ weight + right) @ inverse)


def _weigh_triangle(
    ctx: RunningErrorMode, t: Tensor, err: Error, *, upper: bool, unit: bool
) -> tuple[Tensor, Tensor]:
    """g·|T| + E(T), and |T⁻¹|, of the triangle that counts."""
    keep = torch.triu if upper else torch.tril
    kept, errors = keep(t), keep(widen_error(t, err))
    if unit:
        one = torch.eye(t.shape[-1], dtype=t.dtype, device=t.device)
        kept, errors = kept * (1 - one) + one, errors * (1 - one)
    return kept.abs() * grow(ctx, t.shape[-1]) + errors, _invert_triangle(kept, upper=upper)


def solve_triangle_beside(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """triangular_solve, the older form: solution and a copy of the matrix."""
    (b, err_b), (t, err) = ctx.split(args[0]), ctx.split(args[1])
    upper, transposed, unit = list(args[2:]) + [True, False, False][len(args) - 2 :]
    made = op(b, t, *args[2:], **kwargs)
    weight, inverse = _weigh_triangle(ctx, t, err, upper=upper, unit=unit)
    if transposed:
        weight, inverse = weight.mT, inverse.mT
    error = inverse @ (weight @ made[0].abs() + widen_error(b, err_b))
    return made, (Error(error), Error(widen_error(t, err)))


def factor_orthogonal(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """QR by reflections: with W = |Qᵀ|ΔA|R⁻¹|, ΔR ≤ triu(W + Wᵀ)·|R|, ΔQ ≤ (ΔA + |Q|(tril W + tril Wᵀ)|R|)|R⁻¹|."""
    a, err = ctx.split(args[0])
    mode = args[1] if len(args) > 1 else kwargs.get("mode", "reduced")
    made = op(a, *args[1:], **kwargs)
    rows, columns = a.shape[-2:]
    if rows < columns or (mode == "complete" and rows > columns):
        raise NoErrorRule(
            "aten.linalg_qr", "factors of more than the columns' own plane are not unique; use reduced"
        )
    q, r = torch.linalg.qr(a)
    disturbed = _disturb_columns(ctx, a) + widen_error(a, err)
    inverse = _invert_triangle(r, upper=True)
    moved = q.abs().mT @ disturbed @ inverse
    lower = moved.tril(-1)
    of_r = ((moved + moved.mT).triu() @ r.abs()).triu()
    of_q = disturbed @ inverse + q.abs() @ (moved.triu() + lower + lower.mT)
    of_q = of_q if mode != "r" else torch.zeros_like(made[0])
    return made, (Error(of_q), Error(of_r))


def _disturb_columns(ctx: RunningErrorMode, a: Tensor) -> Tensor:
    """ΔA of Householder's reflections: every element by its column's length."""
    rows, columns = a.shape[-2:]
    lengths = torch.linalg.vector_norm(a, dim=-2, keepdim=True)
    spread: Tensor = lengths * (columns * (ctx.growth(rows) + 4))
    return spread.expand(a.shape)


def invert_any(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """A⁺, at a constant rank: |A⁺|ΔA|A⁺| + |A⁺A⁺ᵀ|ΔAᵀ|I − AA⁺| + |I − A⁺A|ΔAᵀ|A⁺ᵀA⁺| (Golub, Pereyra)."""
    a, err = ctx.split(args[0])
    value = op(a, *ctx.values(args[1:]), **ctx.values(kwargs))
    disturbed = _disturb_all(ctx, a) + widen_error(a, err)
    return value, Error(_move_inverse(a, value, disturbed))


def _disturb_all(ctx: RunningErrorMode, a: Tensor) -> Tensor:
    """ΔA of an algorithm that is stable by its norm alone."""
    size = max(a.shape[-2:], default=1)
    spread: Tensor = torch.linalg.matrix_norm(a, keepdim=True) * (4 * ctx.growth(size) + 4)
    return spread.expand(a.shape)


def _move_inverse(a: Tensor, inverse: Tensor, disturbed: Tensor) -> Tensor:
    rows, columns = (torch.eye(size, dtype=a.dtype, device=a.device) for size in a.shape[-2:])
    past, before = (rows - a @ inverse).abs(), (columns - inverse @ a).abs()
    moved = inverse.abs() @ disturbed @ inverse.abs()
    moved = moved + (inverse @ inverse.mT).abs() @ disturbed.mT @ past
    return moved + before @ disturbed.mT @ (inverse.mT @ inverse).abs()


def fit(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Least squares, x = A⁺b: the inverse's own change times |b|, and |A⁺|·E(b)."""
    (a, err), (b, err_b) = ctx.split(args[0]), ctx.split(args[1])
    made = op(a, b, *args[2:], **kwargs)
    inverse = torch.linalg.pinv(a)
    is_vector = b.dim() == a.dim() - 1
    column, errors = (x.unsqueeze(-1) if is_vector else x for x in (b, widen_error(b, err_b)))
    disturbed = _disturb_all(ctx, a) + widen_error(a, err)
    moved = _move_inverse(a, inverse, disturbed) @ column.abs() + inverse.abs() @ errors
    moved = moved.squeeze(-1) if is_vector else moved
    x = inverse @ column
    apart = disturbed @ x.abs() + a.abs() @ (moved.unsqueeze(-1) if is_vector else moved) + errors
    apart = apart + (a.abs() @ x.abs() + column.abs()) * (ctx.growth(a.shape[-1]) + 1)
    squares = (2 * (column - a @ x).abs() * apart + ctx.unit * apart * apart).sum(-2)
    left = Error(squares.reshape(made[1].shape), ctx.growth(a.shape[-2])) if made[1].numel() else EXACT
    spectrum = torch.linalg.matrix_norm(disturbed).unsqueeze(-1)
    values = Error(spectrum.expand(made[3].shape)) if made[3].numel() else EXACT
    return made, (Error(moved), left, EXACT, values)


def find_spectrum(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Values of a symmetric matrix, singular values: off by ‖ΔA‖₂ at most (Weyl). Their vectors are refused."""
    a, err = ctx.split(args[0])
    name = op._schema.name
    made = op(a, *args[1:], **kwargs)
    size = max(a.shape[-2:], default=1)
    norm = torch.linalg.matrix_norm(a) * (4 * ctx.growth(size) + 4) + torch.linalg.matrix_norm(widen_error(a, err))
    values = made[1] if name == "aten::_linalg_svd" else made[0]
    error = Error(norm.unsqueeze(-1).expand(values.shape))
    lost = [Error(torch.full_like(one, torch.inf)) for one in made]
    if made[0 if name == "aten::_linalg_svd" else 1].numel():  # vectors were asked for
        ctx.advice = (name.replace("::", "."), VECTORS_HINT)
    if name == "aten::_linalg_svd":
        return made, (lost[0], error, lost[2])
    return made, (error, lost[1])


def refuse(hint: str) -> Rule:
    """Rule of an op that has no bound, with the way out."""

    def rule(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        raise NoErrorRule(op._schema.name.replace("::", "."), hint)

    return rule


def exponentiate(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """e^A by scaling and squaring: g·e^‖A‖-bounded, |e^A| taken of |A|: (g·|A| + E(A)) times e^|A|, each way."""
    a, err = ctx.split(args[0])
    grown = op(a.abs())
    steps = grow(ctx, a.shape[-1]) * (8 + math.log2(max(float(a.abs().sum(-1).max()) if a.numel() else 1.0, 1.0)))
    return op(a), Error(grown @ (widen_error(a, err) + a.abs()) @ grown * 1.0 + grown * steps)


LINEAR_ALGEBRA: dict[str, Rule] = {
    "aten._linalg_solve_ex": solve,
    "aten.linalg_inv_ex": invert,
    "aten.linalg_lu_factor_ex": factor_packed,
    "aten.linalg_lu": factor,
    "aten.lu_unpack": unpack_factors,
    "aten.linalg_lu_solve": solve_factored,
    "aten._linalg_det": find_determinant,
    "aten._linalg_slogdet": find_determinant,
    "aten.linalg_cholesky_ex": factor_symmetric,
    "aten.cholesky": factor_symmetric,
    "aten.cholesky_solve": solve_symmetric,
    "aten.cholesky_inverse": solve_symmetric,
    "aten.linalg_solve_triangular": solve_triangle,
    "aten.triangular_solve": solve_triangle_beside,
    "aten.linalg_qr": factor_orthogonal,
    "aten.linalg_pinv": invert_any,
    "aten.linalg_lstsq": fit,
    "aten._linalg_eigh": find_spectrum,
    "aten._linalg_svd": find_spectrum,
    "aten.linalg_matrix_exp": exponentiate,
    "aten.linalg_eig": refuse(VALUES_HINT),
    "aten._linalg_eigvals": refuse(VALUES_HINT),
    "aten.linalg_eigvals": refuse(VALUES_HINT),
}

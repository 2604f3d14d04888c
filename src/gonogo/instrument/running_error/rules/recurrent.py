"""Steps of recurrent layers that torch has as one op on a GPU, forward and backward → their primitive form's error.

Gates are named by what they do: enter, keep, new, leave of an LSTM; reset, enter, new of a GRU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gonogo.instrument.running_error.mode import Rule
from gonogo.instrument.running_error.rules.activations import primitive_rule


def add_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    """X + bias, where there is one."""
    return x if bias is None else x + bias


def step_lstm(
    given: Tensor, hidden: Tensor, cell: Tensor, bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """C' = keep·c + enter·new, h' = leave·tanh(c'), and the gates."""
    sums = add_bias(given, bias) + add_bias(hidden, hidden_bias)
    enter, keep, new, leave = sums.chunk(4, 1)
    enter, keep, new, leave = torch.sigmoid(enter), torch.sigmoid(keep), torch.tanh(new), torch.sigmoid(leave)
    kept = keep * cell + enter * new
    return leave * torch.tanh(kept), kept, torch.cat([enter, keep, new, leave], 1)


def step_lstm_backward(
    given: Tensor | None, given_cell: Tensor | None, cell: Tensor, kept: Tensor, gates: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of the sums behind the gates, of c, and of the biases."""
    enter, keep, new, leave = gates.chunk(4, 1)
    bent = torch.tanh(kept)
    flowing = torch.zeros_like(kept) if given_cell is None else given_cell
    if given is not None:
        flowing = given * leave * (1 - bent * bent) + flowing
    leaving = torch.zeros_like(kept) if given is None else given * bent * leave * (1 - leave)
    entering, keeping = flowing * new * enter * (1 - enter), flowing * cell * keep * (1 - keep)
    sums = torch.cat([entering, keeping, flowing * enter * (1 - new * new), leaving], 1)
    return sums, flowing * keep, sums.sum(0) if has_bias else None


def step_gru(
    given: Tensor, hidden: Tensor, state: Tensor, bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """H' = new + enter·(h − new), new = tanh(x + reset·Wh), and what the gradient needs."""
    (reset, enter, new), (reset_h, enter_h, new_h) = (
        add_bias(x, b).chunk(3, 1) for x, b in ((given, bias), (hidden, hidden_bias))
    )
    reset, enter = torch.sigmoid(reset + reset_h), torch.sigmoid(enter + enter_h)
    new = torch.tanh(new + reset * new_h)
    return new + enter * (state - new), torch.cat([reset, enter, new, state, new_h], 1)


def step_gru_backward(given: Tensor, kept: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    """Gradients of the sums of x, of those of h, of h itself, and of both biases."""
    reset, enter, new, state, new_h = kept.chunk(5, 1)
    newer = given * (1 - enter) * (1 - new * new)
    resetting, entering = newer * new_h * reset * (1 - reset), given * (state - new) * enter * (1 - enter)
    of_x = torch.cat([resetting, entering, newer], 1)
    of_h = torch.cat([resetting, entering, newer * reset], 1)
    biases = (of_x.sum(0), of_h.sum(0)) if has_bias else (None, None)
    return of_x, of_h, given * enter, *biases


RECURRENT: dict[str, Rule] = {
    "aten._thnn_fused_lstm_cell": primitive_rule(step_lstm),
    "aten._thnn_fused_lstm_cell_backward_impl": primitive_rule(step_lstm_backward),
    "aten._thnn_fused_gru_cell": primitive_rule(step_gru),
    "aten._thnn_fused_gru_cell_backward": primitive_rule(step_gru_backward),
}

"""State from step to step, cleared where an episode begins."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec

__all__ = ["Recurrent"]


class Recurrent(nn.Module):
    """An LSTM or a GRU: `forward(x [T, R, num_inputs], state, first [T, R]) -> (y [T, R, num_features], state)`.

    `state` is a nest of tensors `[R, num_features]`, described by `state_spec`; that of rows with `first[t]` is zero
    before step `t`.
    """

    def __init__(self, kind: str, num_inputs: int, size: int) -> None:
        super().__init__()
        self.num_features = size
        self.cell = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](num_inputs, size)
        gates = 4 if kind == "lstm" else 3
        for name, parameter in self.cell.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
            else:
                for gate in parameter.data.chunk(gates):
                    nn.init.orthogonal_(gate, 1.0)
        # The second gate of either kind says how much is kept: a new network remembers for more than a few steps.
        self.cell.bias_ih_l0.data[size : 2 * size] = 1.0
        names = ("hidden", "cell") if kind == "lstm" else ("hidden",)
        self.state_spec: Nest = {name: ArraySpec((size,), np.float32) for name in names}

    def forward(self, x: Any, state: Nest, first: Any) -> tuple[Any, Nest]:
        states = tuple(state[name] for name in self.state_spec)
        num_steps = x.shape[0]
        # Rows whose episode begins cut the unroll; between the cuts one fused call does all steps.
        begins = [t for t, any_row in enumerate(first.any(1).tolist()) if any_row] if num_steps > 1 else [0]
        pieces = []
        for start, stop in pairwise(sorted({0, *begins, num_steps})):
            keep = (~first[start]).unsqueeze(-1)
            states = tuple(state * keep for state in states)
            piece, states = self._run(x[start:stop], states)
            pieces.append(piece)
        y = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        return y, dict(zip(self.state_spec, states, strict=True))

    def _run(self, x: Any, states: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        given = tuple(state.unsqueeze(0) for state in states)
        y, after = self.cell(x, given if len(given) == 2 else given[0])
        return y, tuple(state.squeeze(0) for state in (after if len(given) == 2 else (after,)))

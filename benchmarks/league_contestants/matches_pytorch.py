"""PyTorch alone: games of Connect Four in one process, the boards as tensors, one network for both sides.

    BatchedGames(module, 256).play()                   # some moves on all boards; how many games ended

As one would write it by hand: boards are planes, four in a line is found by convolutions.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

__all__ = ["BatchedGames"]

_HEIGHT, _WIDTH, _STEPS = 6, 7, 64


def _lines() -> torch.Tensor:
    """One kernel of 4 × 4 for each direction."""
    kernels = torch.zeros(4, 1, 4, 4)
    for cell in range(4):
        kernels[0, 0, 0, cell] = kernels[1, 0, cell, 0] = kernels[2, 0, cell, cell] = kernels[3, 0, cell, 3 - cell] = 1
    return kernels


class BatchedGames:
    def __init__(self, module: torch.nn.Module, num_games: int) -> None:
        self._module = module
        self._lines = _lines()
        self._rows = torch.arange(num_games)
        self._boards = torch.zeros(num_games, 2, _HEIGHT, _WIDTH)  # of the player to move, and of the other

    @torch.inference_mode()
    def play(self) -> int:
        num = 0
        for _ in range(_STEPS):
            boards = self._boards
            heights = boards.sum((1, 2)).long()  # discs in each column
            logits = self._module(boards.flatten(1))[0].masked_fill(heights == _HEIGHT, -1e9)
            columns = torch.distributions.Categorical(logits=logits).sample()
            rows = _HEIGHT - 1 - heights[self._rows, columns]
            boards[self._rows, 0, rows, columns] = 1.0
            own = F.pad(boards[:, :1], (3, 3, 3, 3))
            won = (F.conv2d(own, self._lines) >= 4.0).flatten(1).any(1)
            over = won | (boards.flatten(1).sum(1) == _HEIGHT * _WIDTH)
            self._boards = boards.flip(1) * (~over)[:, None, None, None]
            num += int(over.sum())
        return num

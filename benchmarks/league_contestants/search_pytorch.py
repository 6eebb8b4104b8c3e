"""A tree search of Connect Four written by hand around a PyTorch module, made as well as such code usually is.

Trees are Python objects with lists of numbers, boards are two Python integers, wins are found by shifts. `num_games=1`
is what most repositories have: one game, and a forward pass for every leaf. With more games their leaves are evaluated
in one forward pass. The search is the same as Ludus's: PUCT with the same constant, the same value before a visit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

WIDTH, HEIGHT = 7, 6
COLUMNS = [sum(1 << (8 * row + column) for row in range(HEIGHT)) for column in range(WIDTH)]
TOPS = [1 << (8 * (HEIGHT - 1) + column) for column in range(WIDTH)]
EXPLORATION = 1.25
MOST_KNOWN = 1 << 17


def has_four(discs: int) -> bool:
    for shift in (1, 8, 7, 9):
        pairs = discs & (discs >> shift)
        if pairs & (pairs >> (2 * shift)):
            return True
    return False


def observations(boards: list[tuple[int, int]]) -> torch.Tensor:
    """`[N, 84]`: a plane of the mover's discs, then one of the other's, each with the top row first."""
    rows = np.array(boards, np.uint64).view(np.uint8).reshape(len(boards), 2, 8)[:, :, HEIGHT - 1 :: -1]
    planes = np.unpackbits(np.ascontiguousarray(rows), axis=2, bitorder="little").reshape(-1, 2, HEIGHT, 8)
    return torch.from_numpy(planes[:, :, :, :WIDTH].reshape(len(boards), -1).astype(np.float32))


class Node:
    """`own` and `other` are the discs of who is to move and of the other; `worth` is of a game that is over."""

    __slots__ = ("children", "legal", "moves", "other", "own", "prior", "quality", "total", "visits", "worth")

    def __init__(self, own: int, other: int, moves: int) -> None:
        self.own, self.other, self.moves = own, other, moves
        self.worth: float | None = None
        if has_four(other):
            self.worth = -1.0
        elif moves == WIDTH * HEIGHT:
            self.worth = 0.0

    def open(self, prior: list[float], value: float) -> None:
        taken = self.own | self.other
        self.legal = [column for column in range(WIDTH) if not taken & TOPS[column]]
        self.prior = prior
        self.visits = [0] * WIDTH
        self.quality = [value] * WIDTH
        self.children: list[Node | None] = [None] * WIDTH
        self.total = 1

    def after(self, column: int) -> Node:
        taken = self.own | self.other
        room = COLUMNS[column] & ~taken
        return Node(self.other, self.own | (room & -room), self.moves + 1)

    def best(self) -> int:
        root = EXPLORATION * math.sqrt(self.total)
        prior, visits, quality = self.prior, self.visits, self.quality
        best, chosen = -math.inf, 0
        for column in self.legal:
            score = quality[column] + root * prior[column] / (1 + visits[column])
            if score > best:
                best, chosen = score, column
        return chosen


def descend(root: Node) -> tuple[list[tuple[Node, int]], Node]:
    """The path to a node that is new, or at which the game is over."""
    path, node = [], root
    while True:
        column = node.best()
        path.append((node, column))
        below = node.children[column]
        if below is None:
            below = node.children[column] = node.after(column)
            return path, below
        if below.worth is not None:
            return path, below
        node = below


def back_up(path: list[tuple[Node, int]], worth: float) -> None:
    """`worth` is for who is to move at the end of the path."""
    for node, column in reversed(path):
        worth = -worth
        node.total += 1
        node.visits[column] += 1
        node.quality[column] += (worth - node.quality[column]) / node.visits[column]


class PyTorchSearch:
    """`network(obs) -> logits, value`, a module. The games of all boards go on side by side."""

    def __init__(
        self, network: Any, *, num_games: int, simulations: int, seed: int = 0, remembers: bool = False
    ) -> None:
        self.network = network
        self._known: dict[tuple[int, int], tuple[list[float], float]] | None = {} if remembers else None
        self.simulations = simulations
        self._rng = np.random.default_rng(seed)
        self._roots = [Node(0, 0, 0) for _ in range(num_games)]

    @torch.inference_mode()
    def search(self, roots: list[Node]) -> None:
        self._open(roots)
        for _ in range(self.simulations):
            found = [descend(root) for root in roots]
            new = [node for _, node in found if node.worth is None]
            values = iter(self._open(new))
            for path, node in found:
                back_up(path, next(values) if node.worth is None else node.worth)

    def _open(self, nodes: list[Node]) -> list[float]:
        if not nodes:
            return []
        if self._known is None:
            return self._evaluate(nodes)
        known = self._known
        if len(known) > MOST_KNOWN:
            known.clear()
        new = {(node.own, node.other): node for node in nodes if (node.own, node.other) not in known}
        if new:
            for value, (board, node) in zip(self._evaluate(list(new.values())), new.items(), strict=True):
                known[board] = node.prior, value
        found = [known[node.own, node.other] for node in nodes]
        for node, (prior, value) in zip(nodes, found, strict=True):
            node.open(prior, value)
        return [value for _, value in found]

    def _evaluate(self, nodes: list[Node]) -> list[float]:
        obs = observations([(node.own, node.other) for node in nodes])
        logits, value = self.network(obs)
        room = obs.view(-1, 2, HEIGHT, WIDTH)[:, :, 0].sum(1) == 0
        priors = logits.masked_fill(~room, -math.inf).softmax(1).tolist()
        values = value.clamp(-1.0, 1.0).tolist()
        for node, prior, worth in zip(nodes, priors, values, strict=True):
            node.open(prior, worth)
        return values

    def move(self) -> int:
        self.search(self._roots)
        for number, root in enumerate(self._roots):
            share = np.array(root.visits) / sum(root.visits)
            chosen = root.after(int(self._rng.choice(WIDTH, p=share)))
            self._roots[number] = Node(0, 0, 0) if chosen.worth is not None else chosen
        return len(self._roots) * self.simulations

    def visits(self, moves: list[int]) -> list[int]:
        root = Node(0, 0, 0)
        for move in moves:
            root = root.after(move)
        self.search([root])
        return root.visits

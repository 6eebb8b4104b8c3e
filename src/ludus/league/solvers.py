"""What a population is worth as a whole: mixtures of players that nobody beats, and how far one is from that.

    strategy = nash(matrix)                            # zero-sum: [N, M] what the row player gets
    exploitability(matrix, *strategy)                  # 0 at an equilibrium

Matrices hold what the row player gets; in a zero-sum game the column player gets the negative of it. Of a symmetric
game, such as win rates minus a half, rows and columns are the same players.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ludus.errors import DataError, MissingExtra

__all__ = [
    "Strategies",
    "alpha_rank",
    "exploitability",
    "fictitious_play",
    "nash",
    "projected_replicator",
    "replicator",
]

Floats = NDArray[np.float64]


class Strategies(NamedTuple):
    """Probabilities of rows and of columns."""

    rows: Floats
    columns: Floats


def nash(matrix: ArrayLike) -> Strategies:
    """An equilibrium of a zero-sum game, by linear programming."""
    payoff = _matrix(matrix)
    return Strategies(_maximin(payoff), _maximin(-payoff.T))


def _maximin(payoff: Floats) -> Floats:
    """The mixture of rows whose least payoff over columns is the largest."""
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise MissingExtra("scipy", extra="league") from None
    num_rows, num_columns = payoff.shape
    # Of p and v: maximise v, where p is a distribution and no column gives less than v.
    found = linprog(
        c=np.append(np.zeros(num_rows), -1.0),
        A_ub=np.hstack([-payoff.T, np.ones((num_columns, 1))]),
        b_ub=np.zeros(num_columns),
        A_eq=np.append(np.ones(num_rows), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * num_rows + [(None, None)],
    )
    if not found.success:
        raise DataError(f"no equilibrium was found: {found.message}")
    return _distribution(found.x[:num_rows])


def fictitious_play(matrix: ArrayLike, num_steps: int = 10_000) -> Strategies:
    """The averages of two players who always play best against the other's average so far. Zero-sum games converge.

    https://doi.org/10.1515/9781400881970-005 (J. Robinson's proof: Annals of Mathematics 54, 1951)
    """
    payoff = _matrix(matrix)
    rows, columns = np.zeros(payoff.shape[0]), np.zeros(payoff.shape[1])
    rows[0] = columns[0] = 1.0
    of_rows, of_columns = payoff[:, 0].copy(), payoff[0].copy()  # what each would have had so far
    for _ in range(num_steps):
        row, column = int(of_rows.argmax()), int(of_columns.argmin())
        rows[row] += 1.0
        columns[column] += 1.0
        of_rows += payoff[:, column]
        of_columns += payoff[row]
    return Strategies(_distribution(rows), _distribution(columns))


def replicator(
    matrix: ArrayLike, start: ArrayLike | None = None, *, num_steps: int = 10_000, step_size: float = 0.01
) -> Floats:
    """Where a population goes in which those who do better than average multiply: `[num_steps + 1, N]` its shares.

    Of a symmetric game. In rock-paper-scissors it goes in circles, and its average is the equilibrium.
    """
    payoff = _matrix(matrix)
    num = len(payoff)
    if payoff.shape != (num, num):
        raise DataError(f"a population plays against itself: the matrix is {payoff.shape}, and must be square")
    shares = np.full(num, 1.0 / num) if start is None else _distribution(np.asarray(start, np.float64))
    if shares.shape != (num,):
        raise DataError(f"start has {len(shares)} shares of {num} players")
    path = np.empty((num_steps + 1, num))
    path[0] = shares
    for step in range(1, num_steps + 1):
        fitness = payoff @ shares
        shares = shares * np.exp(step_size * (fitness - shares @ fitness))
        path[step] = shares = shares / shares.sum()
    return path


def projected_replicator(
    matrix: ArrayLike, *, least: float = 0.02, num_steps: int = 10_000, step_size: float = 0.01
) -> Floats:
    """The average over the path of `replicator`, in which each of N players keeps a share of about `least / N`.

    So nobody dies out. https://arxiv.org/abs/1711.00832
    """
    payoff = _matrix(matrix)
    num = len(payoff)
    if payoff.shape != (num, num):
        raise DataError(f"a population plays against itself: the matrix is {payoff.shape}, and must be square")
    if not 0.0 <= least <= 1.0:
        raise DataError(f"least={least}: it is a share, from 0 to 1")
    shares = np.full(num, 1.0 / num)
    total = np.zeros(num)
    for _ in range(num_steps):
        fitness = payoff @ shares
        grown = shares * np.exp(step_size * (fitness - shares @ fitness))
        shares = np.maximum(grown / grown.sum(), least / num)
        shares /= shares.sum()
        total += shares
    return _distribution(total)


def alpha_rank(matrix: ArrayLike) -> Floats:
    """How much of the time each player is the one that a population consists of: OpenSpiel's α-rank.

    Of a symmetric game, win rates for example. https://www.nature.com/articles/s41598-019-45619-9
    """
    try:
        from open_spiel.python.egt import alpharank
    except ImportError:
        raise MissingExtra("open_spiel", extra="openspiel") from None
    payoff = _matrix(matrix)
    found: Any = alpharank.sweep_pi_vs_epsilon([payoff])
    return _distribution(found)


def exploitability(matrix: ArrayLike, rows: ArrayLike, columns: ArrayLike) -> float:
    """Half of what both could gain by playing best against the other: 0 at an equilibrium of a zero-sum game.

    The whole of it is called NashConv.
    """
    payoff = _matrix(matrix)
    p, q = np.asarray(rows, np.float64), np.asarray(columns, np.float64)
    if p.shape != payoff.shape[:1] or q.shape != payoff.shape[1:]:
        raise DataError(f"strategies of {p.shape} and {q.shape} do not fit a matrix of {payoff.shape}")
    return 0.5 * float((payoff @ q).max() - (p @ payoff).min())


def _matrix(matrix: ArrayLike) -> Floats:
    payoff = np.asarray(matrix, np.float64)
    if payoff.ndim != 2 or not payoff.size or not np.isfinite(payoff).all():
        raise DataError(f"a game is a matrix of finite numbers; this is of shape {payoff.shape}")
    return payoff


def _distribution(weights: Any) -> Floats:
    positive = np.maximum(np.asarray(weights, np.float64), 0.0)
    total = positive.sum()
    if not total > 0.0:
        raise DataError("the weights of a distribution are all 0")
    shares: Floats = positive / total
    return shares

"""The perfect Connect Four player of `connect_four.cpp`, compiled when it is first needed.

    values = solve(states)                             # [N, 7] as the C++ file says; FULL: no move
    agreement(states, actions, values)

It needs `g++`, or what the environment variable CXX names.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["FULL", "agreement", "solve"]

FULL = -100
_SOURCE = Path(__file__).with_name("connect_four.cpp")
_TABLE_BITS = 24
_COMPILE_S = 120.0


def solve(
    states: NDArray[np.int64], *, on_progress: Callable[[int, int], None] = lambda done, all_: None
) -> NDArray[np.int64]:
    """What each move of these positions, states of `board:connect_four` that are not over, is worth."""
    with tempfile.TemporaryDirectory(prefix="connect-four-") as folder:
        program = Path(folder) / "connect_four"
        command = [os.environ.get("CXX", "g++"), "-O3", "-march=native", "-std=c++17", "-o", str(program), str(_SOURCE)]
        subprocess.run(command, check=True, timeout=_COMPILE_S)
        with subprocess.Popen(
            [str(program), str(_TABLE_BITS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as solver:
            assert solver.stdin is not None
            assert solver.stdout is not None
            found = []
            try:
                for number, state in enumerate(states):
                    solver.stdin.write(f"{state[0]} {state[1]}\n")
                    solver.stdin.flush()
                    found.append([int(value) for value in solver.stdout.readline().split()])
                    on_progress(number + 1, len(states))
                solver.stdin.close()
            except BaseException:
                solver.kill()
                raise
    return np.array(found, np.int64).reshape(len(states), -1)


def agreement(values: NDArray[np.int64], actions: NDArray[np.int64]) -> dict[str, float]:
    """The share of positions in which the move is one of the best: by win, draw or loss, and by how soon as well.

    `decided` is the first of these among the positions in which moves differ: in the others every move is right.
    """
    chosen = np.take_along_axis(values, actions[:, None], axis=1)[:, 0]
    best = values.max(1)
    is_right = np.sign(chosen) == np.sign(best)
    worst = np.where(values == FULL, 100, values).min(1)
    differs = np.sign(worst) != np.sign(best)
    return {
        "result": float(is_right.mean()),
        "result_where_moves_differ": float(is_right[differs].mean()) if differs.any() else 1.0,
        "distance": float((chosen == best).mean()),
        "positions": len(values),
        "positions_where_moves_differ": int(differs.sum()),
    }

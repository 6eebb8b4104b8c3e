"""A picture as text for a terminal: each character is two pixels, the upper one its ink and the lower its paper."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["draw", "fit"]

_RESET = "\x1b[0m"
_COARSE = 0xF8  # colours that differ by less are drawn as one: far fewer bytes, and nobody sees it


def fit(height: int, width: int, *, columns: int, lines: int) -> tuple[int, int]:
    """How many lines and columns of text a picture of that size fills, in its proportions, within those there are."""
    scale = min(columns / width, 2 * lines / height)
    return max(1, int(height * scale / 2)), max(1, int(width * scale))


def draw(frame: NDArray[np.uint8], *, columns: int, lines: int) -> list[str]:
    """`lines` strings of `columns` characters each, in true colour."""
    pixels = _resize(frame, 2 * lines, columns) & _COARSE
    return [_line(pixels[row].tolist(), pixels[row + 1].tolist()) for row in range(0, 2 * lines, 2)]


def _line(upper: list[list[int]], lower: list[list[int]]) -> str:
    parts: list[str] = []
    ink: list[int] | None = None
    paper: list[int] | None = None
    for above, below in zip(upper, lower, strict=True):
        if below != paper:
            parts.append(f"\x1b[48;2;{below[0]};{below[1]};{below[2]}m")
            paper = below
        if above == below:
            parts.append(" ")
            continue
        if above != ink:
            parts.append(f"\x1b[38;2;{above[0]};{above[1]};{above[2]}m")
            ink = above
        parts.append("▀")
    return "".join(parts) + _RESET


def _resize(frame: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Each pixel the mean of those it stands for, so that thin lines fade instead of vanishing."""
    sums = np.add.reduceat(frame.astype(np.uint32), _starts(frame.shape[0], height), axis=0)
    sums = np.add.reduceat(sums, _starts(frame.shape[1], width), axis=1)
    counts = np.outer(_counts(frame.shape[0], height), _counts(frame.shape[1], width))
    means: NDArray[np.uint8] = (sums // counts[..., None]).astype(np.uint8)
    return means


def _starts(size: int, num: int) -> NDArray[np.int64]:
    return np.arange(num, dtype=np.int64) * size // num


def _counts(size: int, num: int) -> NDArray[np.int64]:
    """How many each of `num` stands for; where a picture is enlarged, `reduceat` takes one for several."""
    return np.maximum(np.diff(np.append(_starts(size, num), size)), 1)

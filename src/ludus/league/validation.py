"""What callers send is checked before anything is done with it."""

from __future__ import annotations

from typing import Any

from ludus.data.nest import Nest
from ludus.errors import DataError

__all__ = ["expect", "expect_names", "expect_number_of_matches", "expect_part", "result_of"]

_MOST_MATCHES = 4096  # that are asked for at once
_MOST_SCORE = 1e12  # of one side in one game, either way: sums over all games of a league stay far from overflowing


def expect(kind: type | tuple[type, ...], **values: Any) -> None:
    """Before anything is in the log: what only fails when it is done would fail again whenever the log is read."""
    for name, value in values.items():
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kinds):
            raise DataError(
                f"{name}={value!r} must be {' or '.join(each.__name__ for each in kinds)}; nothing was changed"
            )


def expect_number_of_matches(num: int) -> None:
    expect(int, num=num)
    if not 1 <= num <= _MOST_MATCHES:
        raise DataError(f"num={num}: ask for 1 to {_MOST_MATCHES} matches at once")


def expect_names(names: Any) -> None:
    """A list of them. Whether there are such players is another question."""
    expect((list, tuple), names=names)
    expect(str, **{f"name_{number}": name for number, name in enumerate(names)})


def expect_part(part: int, num_parts: int) -> None:
    expect(int, part=part, num_parts=num_parts)
    if not 0 <= part < num_parts:
        raise DataError(f"part={part} of num_parts={num_parts}: parts are numbered from 0 to num_parts - 1")


def result_of(result: Nest) -> tuple[str, list[list[float]]]:
    """A match and its games, as they are given. Raises `DataError`."""
    try:
        match, games = result
        rows = [list(scores) for scores in games]
    except (TypeError, ValueError):
        raise DataError(
            f"{result!r} is no result: a match's id, and for each of its games a list with one number for each side; "
            "nothing was counted"
        ) from None
    expect(str, match=match)
    for scores in rows:
        expect((int, float), **{f"score_{side}": score for side, score in enumerate(scores)})
        if not all(-_MOST_SCORE <= score <= _MOST_SCORE for score in scores):  # false for NaN, too
            raise DataError(
                f"the scores {scores!s:.100} of the match {match!r} are not all from {-_MOST_SCORE:g} to "
                f"{_MOST_SCORE:g}; they were not counted. Report finite numbers, such as 1 for a win and -1 for a loss"
            )
    return match, [[float(score) for score in scores] for scores in rows]

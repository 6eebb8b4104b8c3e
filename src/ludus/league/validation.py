"""What callers send is checked before anything is done with it."""

from __future__ import annotations

from typing import Any

from ludus.data.nest import Nest
from ludus.errors import DataError

__all__ = ["expect", "expect_number_of_matches", "result_of"]

_MOST_MATCHES = 4096  # that are asked for at once


def expect(kind: type | tuple[type, ...], **values: Any) -> None:
    """Before anything is in the log: what only fails when it is done would fail again whenever the log is read."""
    for name, value in values.items():
        if not isinstance(value, kind):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            raise DataError(
                f"{name}={value!r} must be {' or '.join(each.__name__ for each in kinds)}; nothing was changed"
            )


def expect_number_of_matches(num: int) -> None:
    expect(int, num=num)
    if not 1 <= num <= _MOST_MATCHES:
        raise DataError(f"num={num}: ask for 1 to {_MOST_MATCHES} matches at once")


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
    return match, [[float(score) for score in scores] for scores in rows]

"""Small pieces of HTML that several views have: numbers, tables, bars, choices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import htpy as h
from htpy import Node

__all__ = ["bar", "choice", "numbers", "table"]


def numbers(named: Iterable[tuple[str, Node]]) -> Node:
    """A row of numbers with their names."""
    return h.dl(class_="numbers")[(h.div[h.dt[name], h.dd[value]] for name, value in named)]


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Node]],
    *,
    label: str,
    numeric: Iterable[int] = (),
    wide: Iterable[int] = (),
    keys: Sequence[str] | None = None,
) -> Node:
    """The first cell of a row heads it. `numeric`: columns of numbers; `wide`: those that a phone has no room for.

    `keys` know rows again that come and go.
    """
    classes = dict.fromkeys(numeric, "number")
    for at in wide:
        classes[at] = f"{classes.get(at, '')} desktop".strip()
    kind = classes.get

    return h.div(class_="scroll", tabindex="0", role="region", aria_label=label)[
        h.table(class_="plain")[
            h.thead[h.tr[(h.th(scope="col", class_=kind(at))[name] for at, name in enumerate(columns))]],
            h.tbody[
                (
                    h.tr(id=f"row-{keys[number]}" if keys is not None else None)[
                        h.th(scope="row")[cells[0]],
                        (h.td(class_=kind(at))[cell] for at, cell in enumerate(cells[1:], start=1)),
                    ]
                    for number, cells in enumerate(rows)
                )
            ],
        ]
    ]


def bar(share: float, *, is_worst: bool = False) -> Node:
    """A share of 1 as a bar with its number."""
    width = f"{100 * min(1.0, max(0.0, share)):.1f}"
    drawn = h.svg(class_="bar worst" if is_worst else "bar", viewBox="0 0 100 8", preserveAspectRatio="none",
                  aria_hidden="true")[h.rect(width=width, height="8")]  # fmt: skip
    return h.span(class_="with-bar")[drawn, h.span[f"{share:.0%}"]]


def choice(name: str, label: str, texts: Mapping[str, str], chosen: str) -> Node:
    """A labelled list to choose from, for a form with `data-auto`."""
    return h.span(class_="choice")[
        h.label(for_=name)[label],
        h.select(id=name, name=name)[
            (h.option(value=value, selected=value == chosen)[text] for value, text in texts.items())
        ],
    ]

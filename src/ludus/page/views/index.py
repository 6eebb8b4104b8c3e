"""The trials of the project: what they are, how far, and whether they run. The newest first."""

from __future__ import annotations

import time
from collections.abc import Collection
from urllib.parse import urlencode

import htpy as h
from htpy import Node
from starlette.datastructures import QueryParams

from ludus.command_line import command_line
from ludus.page.frame import note
from ludus.page.site import Site
from ludus.page.spell import spell_age, spell_count
from ludus.page.trials import TrialIndex, TrialRow

__all__ = ["EVERY_S", "build"]

EVERY_S = 3.0
_MOST_SHOWN = 100


def build(site: Site, query: QueryParams) -> Node:
    """`query`: `find`, a part of a name, a kind or an env; `all`, not only the newest; `trial`, those ticked."""
    rows = site.part(TrialIndex).rows(site.project)
    wanted = query.get("find", "").strip()
    found = [row for row in rows if wanted.lower() in f"{row.folder.name} {row.kind} {row.env} {row.status}".lower()]
    shown = found if "all" in query else found[:_MOST_SHOWN]
    ticked = query.getlist("trial")
    address = [*([("find", wanted)] if wanted else []), *(("trial", name) for name in ticked), ("all", "1")]
    return [
        h.h1["Trials"],
        h.form("#trials", method="get", action="/", data_auto=True)[
            h.div(class_="row", role="search", data_keep=True)[
                h.label(for_="find")["Find"],
                h.input("#find", type="search", name="find", value=wanted, placeholder="name, kind, env or status"),
                h.button["Find"],
            ],
            h.p(class_="quiet")[_count(len(rows), len(found), wanted), " In ", h.code[str(site.project)], "."],
            _table(site, shown, ticked) if shown else None if rows else _nothing_yet(),
            [
                h.p(class_="row")[
                    h.button(formaction="/compare")["Compare"],
                    h.span(class_="quiet")["draws the learning curves of the trials that are ticked"],
                ],
                h.input(type="hidden", name="all", value="1") if "all" in query else None,
            ]
            if shown
            else None,
        ],
        h.p[h.a(href=f"/?{urlencode(address)}")[f"Show all {len(found)}"]] if len(shown) < len(found) else None,
    ]


def _table(site: Site, rows: list[TrialRow], ticked: Collection[str]) -> Node:
    now = time.time()
    return h.div(class_="scroll", tabindex="0", role="region", aria_label="trials")[
        h.table(class_="trials")[
            h.thead[
                h.tr[
                    h.th(scope="col")[h.span(class_="quiet")["✓"]],
                    (h.th(scope="col")[name] for name in ("Trial", "Status", "Kind", "Env")),
                    h.th(scope="col", class_="number")["Steps"],
                    h.th(scope="col", class_="number")["Started"],
                ]
            ],
            h.tbody[
                (
                    h.tr(id=f"row-{row.folder.name}")[
                        h.td(class_="tick-box")[
                            h.input(
                                type="checkbox",
                                name="trial",
                                value=row.folder.name,
                                checked=row.folder.name in ticked,
                                aria_label=f"compare {row.folder.name}",
                            )
                        ],
                        h.th(scope="row")[h.a(href=site.trial_url(row.folder))[row.folder.name]],
                        h.td[h.span(class_=f"badge {row.status}")[row.status]],
                        h.td[f"{row.kind} {row.algorithm}".strip()],
                        h.td[row.env],
                        h.td(class_="number")[_steps(row)],
                        h.td(class_="number")[spell_age(now - row.started)],
                    ]
                    for row in rows
                )
            ],
        ]
    ]


def _steps(row: TrialRow) -> str:
    if not row.steps:
        return ""
    is_bounded = row.total_steps is not None and row.total_steps < 10**12
    return spell_count(row.steps) + (f" / {spell_count(row.total_steps or 0)}" if is_bounded else "")


def _count(num: int, num_found: int, wanted: str) -> str:
    if wanted:
        return f"{num_found} of {num} trials fit {wanted!r}."
    return f"{num} trials." if num != 1 else "1 trial."


def _nothing_yet() -> Node:
    return note(
        "There are no trials yet. Start one with: ",
        more=h.code[command_line("league", "board:connect_four")],
    )

"""The contract of a view: one subject of one trial, as HTML.

    VIEW = View(name="standings", title="Standings", applies=is_league, build=build)

    def build(visit: Visit) -> Node:
        return h.p[f"{visit.folder.name} has {len(read(visit.folder))} players"]

A view is a file in `views/` that has a `VIEW`, and a line in `views/registry.py`. `build` is called for each look at
it, in a thread, by several browsers at once: it reads files, or what a part of the site keeps (`visit.site.part`), and
is quick. It may raise `LudusError` or `OSError`, which is shown in its place. What a person does is an action: a form
that is posted to `visit.do("pause")`; its fields are given to `actions["pause"]`.

What the browser is given (`static/page.js`): an element with `data-soon="0.2"` has the view refreshed that soon; one
with `data-key="3"` is clicked by that key; a form with `data-auto` is sent when something is chosen; what is in an
element with `data-keep` is never touched by a refresh. Elements that come and go have an `id`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from htpy import Node

if TYPE_CHECKING:
    from ludus.page.site import Site

__all__ = ["Action", "View", "Visit"]


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One look at a view, or one action on it."""

    site: Site
    folder: Path  # of the trial
    view: str
    query: Mapping[str, str]

    def url(self, view: str | None = None, /, **query: object) -> str:
        """The address of a view of this trial; without a name, of this one. A query may have any names."""
        path = f"{self.site.trial_url(self.folder)}/{view or self.view}"
        return f"{path}?{urlencode(query)}" if query else path

    def do(self, action: str) -> str:
        """Where a form posts an action of this view. The view that is shown after it has the same query."""
        path = f"{self.site.trial_url(self.folder)}/{self.view}/do/{quote(action)}"
        return f"{path}?{urlencode(self.query)}" if self.query else path


Action = Callable[[Visit, Mapping[str, str]], "str | None"]
"""Does something, given the fields of a form. Returns the address to show next, `None` for the view as it was.

What it raises as `LudusError` is shown beside the view.
"""


@dataclass(frozen=True, kw_only=True)
class View:
    """`applies` says whether a trial has this view; it looks at names of files only."""

    name: str  # in its address
    title: str
    applies: Callable[[Path], bool]
    build: Callable[[Visit], Node]
    every_s: float = 1.0  # how often it is refreshed while it is looked at
    actions: Mapping[str, Action] = field(default_factory=dict)

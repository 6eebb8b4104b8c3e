"""What is around every view: the head, the way back, the other views, the theme."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources

import htpy as h
from htpy import Node

from ludus.page.view import View, Visit

__all__ = ["asset", "note", "page", "sign_in_page", "trial_page"]

_TYPES = {"page.css": "text/css", "page.js": "text/javascript", "theme.js": "text/javascript"}


def asset(name: str) -> tuple[bytes, str] | None:
    """A file of the page and its media type; `None` if there is none of that name."""
    if name not in _TYPES:
        return None
    return resources.files("ludus.page").joinpath("static", name).read_bytes(), _TYPES[name]


def note(text: str, *, kind: str = "plain", more: Node = None) -> Node:
    """A sentence in the place of a view, or above it. `kind`: plain, warning, error."""
    return h.p(class_=f"note {kind}")[text, more]


def page(title: str, content: Node, *, url: str = "", every_s: float = 0.0, around: Node = None) -> str:
    """A whole page. `content` is refreshed from `url`, if there is one, so often; `around` stays."""
    live: dict[str, str | bool] = {"data-live": url, "data-every": str(every_s)} if url else {}
    return str(
        h.html(lang="en")[
            h.head[
                h.meta(charset="utf-8"),
                h.meta(name="viewport", content="width=device-width, initial-scale=1"),
                h.meta(name="color-scheme", content="light dark"),
                h.title[f"{title} · Ludus"],
                h.link(rel="icon", href="data:,"),
                h.link(rel="stylesheet", href="/static/page.css"),
                h.script(src="/static/theme.js"),
                h.script(src="/static/page.js", type="module"),
            ],
            h.body[
                h.a(class_="skip", href="#view")["Skip to the content"],
                h.header[
                    h.a(class_="home", href="/")["ludus"],
                    h.span("#state", role="status")[""],
                    h.button("#theme", type="button", hidden=True)["Theme: auto"],
                ],
                around,
                h.p("#message", class_="note error", role="alert", hidden=True),
                h.main("#view", live, tabindex="-1")[content],
            ],
        ]
    )


def trial_page(visit: Visit, view: View, views: Iterable[View], content: Node, url: str) -> str:
    """A view with the way to the other views of its trial."""
    tabs = h.nav(aria_label="views")[
        (h.a(href=visit.url(each.name), aria_current="page" if each is view else None)[each.title] for each in views)
    ]
    around = h.div(class_="trial")[h.h1[visit.folder.name], tabs]
    title = f"{view.title}, {visit.folder.name}"
    return page(title, content, url=url, every_s=view.every_s, around=around)


def sign_in_page(*, is_wrong: bool = False) -> str:
    """What somebody without the token sees."""
    return page(
        "Sign in",
        [
            h.h1["Sign in"],
            note("That is not the token.", kind="error") if is_wrong else None,
            h.p["The token is in the address that the page's process has printed."],
            h.form(class_="row", method="post", action="/sign-in")[
                h.label(for_="token")["Token"],
                h.input("#token", type="password", name="token", autocomplete="current-password", required=True),
                h.button["Sign in"],
            ],
        ],
    )

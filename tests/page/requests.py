"""Requests to an application without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str


def ask(app: Any, path: str, *, method: str = "GET", form: Mapping[str, str] | None = None, **headers: str) -> Answer:
    """Header names have underscores here. The host is localhost, and a POST comes from the page, unless they say so."""
    given = {"host": "localhost:8700"} | ({"origin": "http://localhost:8700"} if method == "POST" else {})
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    target, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": target, "raw_path": target.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 8700),
    }  # fmt: skip
    sent: list[dict] = []

    async def receive() -> dict:
        return {"type": "http.request", "body": urlencode(form or {}).encode(), "more_body": False}

    async def send(message: dict) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    start = next(each for each in sent if each["type"] == "http.response.start")
    body = b"".join(each.get("body", b"") for each in sent if each["type"] == "http.response.body")
    return Answer(start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, body.decode())

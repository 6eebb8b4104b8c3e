"""Who may ask the page: its own browser tabs, and nobody else's.

- Without a token only `Host: localhost` and addresses of loopback are answered, so that no name that an attacker
  points at this machine (DNS rebinding) reaches the page.
- With a token a browser shows it once, in the address or in a form, and has a cookie from then on. The cookie is not
  the token: who steals it can use it with this process only.
- What changes something is refused unless it comes from the page itself (`Origin`), so no other site can post a form.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ludus.page.frame import sign_in_page
from ludus.page.listening import is_loopback

__all__ = ["Access", "read_form"]

_MAX_FORM_BYTES = 65536
_SAFE = ("GET", "HEAD")
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Access:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, *, token: str | None, port: int) -> None:
        self._app = app
        self._token = token
        self._cookie = f"ludus_page_{port}"  # browsers share cookies between the ports of a host
        key = secrets.token_bytes(32)
        self._ticket = "" if token is None else hmac.new(key, token.encode(), hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # there is no websocket here, and nothing to start or stop
        with contextlib.suppress(ClientDisconnect):  # there is nobody to answer
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        answer = self._refusal(request) or await self._sign_in(request)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        await (self._app if answer is None else answer)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        headers = request.headers
        host = headers.get("host", "")
        if self._token is None and not _names_loopback(host):
            return _refuse(421, f"this page answers on this machine only, as http://localhost, not as {host[:100]!r}")
        if request.method not in _SAFE and not _is_own(headers, host):
            return _refuse(403, "refused: this does not come from the page itself")
        return None

    async def _sign_in(self, request: Request) -> Response | None:
        """`None` for who may go on."""
        if self._token is None or request.url.path.startswith("/static/"):
            return None
        if request.url.path == "/sign-in" and request.method == "POST":
            return self._checked(dict(await read_form(request)).get("token", ""), "/")
        query = parse_qsl(request.url.query, keep_blank_values=True)
        given = dict(query).get("token")
        if given is not None:  # and out of the address, which others may see
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            return self._checked(given, f"{request.url.path}?{rest}" if rest else request.url.path)
        if hmac.compare_digest(request.cookies.get(self._cookie, "").encode(), self._ticket.encode()):
            return None
        return Response(sign_in_page(), 401, media_type="text/html")

    def _checked(self, given: str, then: str) -> Response:
        assert self._token is not None
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return Response(sign_in_page(is_wrong=True), 401, media_type="text/html")
        answer = RedirectResponse("/" + then.lstrip("/\\"), 303)  # never to another host
        answer.set_cookie(self._cookie, self._ticket, httponly=True, samesite="strict", path="/")
        return answer


async def read_form(request: Request) -> list[tuple[str, str]]:
    """The fields of a form. What is longer than any of ours counts as empty."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_FORM_BYTES:
            return []
    return parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)


def _refuse(status: int, why: str) -> Response:
    return PlainTextResponse(why, status)


def _names_loopback(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def _is_own(headers: Headers, host: str) -> bool:
    origin = headers.get("origin", "")
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    return bool(host) and origin in (f"http://{host}", f"https://{host}")

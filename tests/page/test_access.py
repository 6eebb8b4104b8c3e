from __future__ import annotations

import pytest
from starlette.responses import PlainTextResponse

from ludus.page.access import Access
from ludus.page.listening import is_loopback

from .requests import ask

TOKEN = "a token that nobody guesses"


async def _page(scope, receive, send):
    await PlainTextResponse("the page")(scope, receive, send)


@pytest.fixture
def open_page() -> Access:
    return Access(_page, token=None, port=8700)


@pytest.fixture
def locked_page() -> Access:
    return Access(_page, token=TOKEN, port=8700)


@pytest.mark.parametrize("host", ["localhost:8700", "127.0.0.1:1", "[::1]:8700", "127.3.2.1"])
def test_names_of_this_machine_are_answered(open_page: Access, host: str) -> None:
    assert ask(open_page, "/", host=host).text == "the page"


@pytest.mark.parametrize(
    "host", ["evil.example:8700", "127.0.0.1.evil.example", "192.168.1.7:8700", "", "[::1", "@localhost@x"]
)
def test_a_name_that_somebody_points_at_this_machine_is_refused(open_page: Access, host: str) -> None:
    assert ask(open_page, "/", host=host).status == 421


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "", "http://localhost:9999", "http://localhost:8700.evil"]
)
def test_a_form_of_another_site_is_refused(open_page: Access, origin: str) -> None:
    assert ask(open_page, "/trials/a/play/do/move", method="POST", origin=origin).status == 403
    assert ask(open_page, "/", method="POST", sec_fetch_site="cross-site").status == 403
    assert ask(open_page, "/", method="POST").text == "the page"


def test_without_the_token_nothing_is_shown(locked_page: Access) -> None:
    for path in ("/", "/trials/a/standings", "/?token=", "/?token=wrong", f"/?token={TOKEN}x"):
        answer = ask(locked_page, path, host="10.0.0.1:8700")
        assert answer.status == 401
        assert answer.text != "the page"
    assert "set-cookie" not in answer.headers


def test_the_token_is_exchanged_for_a_cookie_and_leaves_the_address(locked_page: Access) -> None:
    first = ask(locked_page, f"/trials/a?token={TOKEN.replace(' ', '%20')}&all=1", host="10.0.0.1:8700")
    assert first.status == 303
    assert first.headers["location"] == "/trials/a?all=1"
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    assert ask(locked_page, "/trials/a?all=1", host="10.0.0.1:8700", cookie=cookie.split(";")[0]).text == "the page"
    other = Access(_page, token=TOKEN, port=8700)  # the next process
    assert ask(other, "/", host="10.0.0.1:8700", cookie=cookie.split(";")[0]).status == 401


def test_the_token_may_be_typed(locked_page: Access) -> None:
    assert ask(locked_page, "/sign-in", method="POST", form={"token": TOKEN}).status == 303
    wrong = ask(locked_page, "/sign-in", method="POST", form={"token": "wrong"})
    assert (wrong.status, "not the token" in wrong.text) == (401, True)


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example/"])
def test_signing_in_leads_to_no_other_host(locked_page: Access, path: str) -> None:
    location = ask(locked_page, f"{path}?token={TOKEN.replace(' ', '%20')}").headers["location"]
    assert location.startswith("/")
    assert not location.startswith(("//", "/\\"))


def test_a_browser_is_asked_to_load_nothing_from_elsewhere(open_page: Access) -> None:
    headers = ask(open_page, "/").headers
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "unsafe" not in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize(
    ("host", "expected"), [("localhost", True), ("::1", True), ("0.0.0.0", False), ("example.com", False)]
)
def test_only_addresses_of_this_machine_need_no_token(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected

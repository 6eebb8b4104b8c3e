"""Requests → views and actions.

/                                   the trials of the project
/compare?trial=A&trial=B            learning curves of several trials
/newest                             the first view of the trial that was started last
/trials/TRIAL                       its first view
/trials/TRIAL/VIEW                  a page; with the header X-Ludus-Part its changing part alone
/trials/TRIAL/VIEW/do/ACTION        POST: a form of that view
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import htpy as h
from htpy import Node, fragment
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from ludus import errors
from ludus.page import frame
from ludus.page.access import read_form
from ludus.page.site import Site
from ludus.page.trials import TrialIndex
from ludus.page.view import View, Visit
from ludus.page.views import compare, index, registry

__all__ = ["make_app"]

_LOG = logging.getLogger(__name__)
_PART = "x-ludus-part"
_MOST_FAILURES = 100  # that are logged
_Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(site: Site) -> Starlette:
    """The application, open to everybody: `Access` goes around it."""
    app = Starlette(
        routes=[
            Route("/", _in_thread(_index)),
            Route("/compare", _in_thread(_compare)),
            Route("/newest", _in_thread(_newest)),
            Route("/trials/{trial}", _in_thread(_first_view)),
            Route("/trials/{trial}/{view}", _in_thread(_view)),
            Route("/trials/{trial}/{view}/do/{action}", _act, methods=["POST"]),
            Route("/static/{name}", _in_thread(_static)),
        ],
        exception_handlers={404: _unknown},
    )
    app.state.site = site
    return app


def _in_thread(endpoint: Callable[[Request], Response]) -> _Endpoint:
    async def run(request: Request) -> Response:
        return await run_in_threadpool(endpoint, request)

    return run


def _index(request: Request) -> Response:
    content = _build(_site(request), "trials", lambda: index.build(_site(request), request.query_params))
    if _PART in request.headers:
        return _part(request, content)
    return _html(frame.page("Trials", content, url=_own_url(request), every_s=index.EVERY_S))


def _compare(request: Request) -> Response:
    content = _build(_site(request), "compare", lambda: compare.build(_site(request), request.query_params))
    if _PART in request.headers:
        return _part(request, content)
    return _html(frame.page("Compare", content, url=_own_url(request), every_s=compare.EVERY_S))


def _newest(request: Request) -> Response:
    rows = _site(request).part(TrialIndex).rows(_site(request).project)
    return RedirectResponse(_site(request).trial_url(rows[0].folder) if rows else "/", 303)


def _first_view(request: Request) -> Response:
    folder = _folder(request)
    views = registry.views_of(folder) if folder is not None else []
    if folder is None or not views:
        return _missing(request, folder)
    return RedirectResponse(f"{_site(request).trial_url(folder)}/{views[0].name}", 303)


def _view(request: Request) -> Response:
    folder = _folder(request)
    views = registry.views_of(folder) if folder is not None else []
    view = next((each for each in views if each.name == request.path_params["view"]), None)
    if folder is None or view is None:
        return _missing(request, folder)
    return _shown(request, _visit(request, folder, view), view, views)


def _shown(request: Request, visit: Visit, view: View, views: list[View]) -> Response:
    content = _build(visit.site, f"{view.name} of {visit.folder}", lambda: view.build(visit))
    if _PART in request.headers:
        return _part(request, content)
    return _html(frame.trial_page(visit, view, views, content, visit.url(**visit.query)))


def _build(site: Site, what: str, build: Callable[[], Node]) -> Node:
    """A view, or why there is none now. An error of ours is in the log with its traceback, once."""
    try:
        return _Rendered(str(fragment[build()]))  # here and now, so that what it raises is raised here
    except (errors.LudusError, OSError) as error:
        return frame.note(f"{error}", kind="warning")
    except Exception as error:
        if site.part(_Failures).is_new(f"{what} {type(error).__name__} {error}"):
            _LOG.exception("view %s failed", what)
        return frame.note(f"This view failed: {type(error).__name__}: {error}. The log has more.", kind="error")


class _Failures:
    """A part of the site. A view that fails does so once a second in each browser that has it open."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def is_new(self, failure: str) -> bool:
        if failure in self._said or len(self._said) >= _MOST_FAILURES:
            return False
        self._said.add(failure)
        return True


class _Rendered:
    def __init__(self, html: str) -> None:
        self._html = html

    def __html__(self) -> str:
        return self._html


async def _act(request: Request) -> Response:
    """Answers a browser's script with the view as it is now, and a plain form with the way to it."""
    fields = dict(await read_form(request))

    def act() -> Response:
        folder = _folder(request)
        views = registry.views_of(folder) if folder is not None else []
        view = next((each for each in views if each.name == request.path_params["view"]), None)
        action = view.actions.get(request.path_params["action"]) if view is not None else None
        if folder is None or view is None or action is None:
            return PlainTextResponse("There is no such thing to do: the trial or the view has changed.", 404)
        visit = _visit(request, folder, view)
        try:
            then = action(visit, fields) or visit.url(**visit.query)
        except (errors.LudusError, OSError) as error:
            return PlainTextResponse(str(error), 409)
        except Exception as error:
            _LOG.exception("action %s of view %s of %s failed", request.path_params["action"], view.name, folder)
            return PlainTextResponse(f"This failed: {type(error).__name__}: {error}. The log has more.", 500)
        if _PART in request.headers:
            return PlainTextResponse(then)
        return RedirectResponse(then, 303)

    return await run_in_threadpool(act)


def _static(request: Request) -> Response:
    found = frame.asset(request.path_params["name"])
    if found is None:
        return PlainTextResponse("not found", 404)
    return _cached(request, *found)


async def _unknown(request: Request, error: Exception) -> Response:
    del error
    return _html(
        frame.page("Not found", [h.h1["Not found"], frame.note("There is no such page.", kind="warning")]), 404
    )


def _missing(request: Request, folder: Path | None) -> Response:
    name = request.path_params["trial"]
    content = frame.note(
        f"There is no trial {name!r} here: it was removed, or is still being made."
        if folder is None
        else f"Trial {name!r} has nothing to show here.",
        kind="warning",
    )
    if _PART in request.headers:
        return _html(str(content), 404)
    return _html(frame.page(name, content, url=_own_url(request), every_s=2.0), 404)


def _folder(request: Request) -> Path | None:
    return _site(request).trial(request.path_params["trial"])


def _visit(request: Request, folder: Path, view: View) -> Visit:
    return Visit(site=_site(request), folder=folder, view=view.name, query=dict(request.query_params))


def _site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


def _own_url(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/html", headers={"cache-control": "no-store"})


def _part(request: Request, content: Node) -> Response:
    return _cached(request, str(fragment[content]).encode(), "text/html")


def _cached(request: Request, content: bytes, media_type: str) -> Response:
    """Nothing is sent again that the browser has."""
    mark = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
    headers = {"etag": mark, "cache-control": "no-cache", "vary": _PART}
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)

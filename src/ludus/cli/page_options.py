"""What commands have in common that open the page: its address, its token, a page beside a run, a browser.

options.add_options(parser, PageOptions())
with page_beside("trials", "/trials/monday", is_wanted=args.page, port=args.page_port) as url:
    train()                                          # the page is a process of its own, and ends with this block
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.cli import options
from ludus.cli.extras import expect_installed
from ludus.options import option

if TYPE_CHECKING:
    from ludus.page.server import Settings

__all__ = ["PageOptions", "add_page", "open_browser", "page_beside", "settings_of"]

_END_WITHIN_S = 5.0
_NICENESS = 10


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Where the page listens, and who may see it."""

    port: int | None = option(
        None, help="port of the page; none: 8700 or, if that is taken, any free one", minimum=0, maximum=65535
    )
    host: str = option(
        "127.0.0.1", help="host to listen on; beyond loopback a token is needed, and made if none is given"
    )
    token: str | None = option(None, help="what browsers must show once; other users can see it here")
    token_file: str | None = option(None, help="a file that has it; or set LUDUS_PAGE_TOKEN or LUDUS_PAGE_TOKEN_FILE")


def settings_of(
    args: argparse.Namespace, *, project: str, fd: int | None = None, parent: int | None = None
) -> Settings:
    """Of the page of that project. Raises `MissingExtra` if its libraries are not installed."""
    _expect_installed()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # what runs beside the page needs the cores
    from ludus.page.server import Settings

    given = options.given_options(args, PageOptions())
    token = options.find_secret("page token", given.pop("token", None), given.pop("token_file", None))
    return Settings(project=project, token=token, fd=fd, parent=parent, **given)


def add_page(parser: Any) -> None:
    """`--page` and `--page-port`, of commands that run something else."""
    parser.add_argument("--page", action="store_true", help="show it on a page, too: docs/page.md")
    parser.add_argument("--page-port", metavar="N", type=int, help="port of that page (default: 8700, or any free one)")


@contextlib.contextmanager
def page_beside(project: str, path: str, *, is_wanted: bool = True, port: int | None = None) -> Iterator[str | None]:
    """A page in a process of its own; its address, which is also said on standard error. `None` if none is wanted.

    It can neither slow down nor end what runs here; it ends with this block, or when this process is killed.
    """
    if not is_wanted:
        yield None
        return
    _expect_installed()
    from ludus.page.listening import address_of, bind

    host = PageOptions().host
    with bind(host, port) as bound:
        url = address_of(bound, host) + path
        words = ["--fd", str(bound.fileno()), "--parent", str(os.getpid())]
        page = subprocess.Popen(
            [sys.executable, "-m", "ludus", "dashboard", project, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # what it has to say is on standard error
            pass_fds=[bound.fileno()],
            start_new_session=True,  # Ctrl-C is for what runs here
        )
        os.setpriority(os.PRIO_PROCESS, page.pid, _NICENESS)
    print(f"page: {url}", file=sys.stderr, flush=True)
    try:
        yield url
    finally:
        _end(page)


def _end(page: subprocess.Popen[bytes]) -> None:
    if page.poll() is not None:
        print(f"the page had ended by itself, with exit code {page.returncode}", file=sys.stderr)
        return
    page.terminate()
    try:
        page.wait(_END_WITHIN_S)
    except subprocess.TimeoutExpired:
        page.kill()
        page.wait()


def open_browser(url: str) -> bool:
    """Show it in a browser with windows, if there is one. Whether that was tried."""
    has_windows = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return has_windows and webbrowser.open(url)


def _expect_installed() -> None:
    expect_installed("starlette", "uvicorn", "htpy", extra="page")

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ludus import errors
from ludus.cli.main import main
from ludus.page.listening import bind


def start(project: Path, *words: str) -> tuple[subprocess.Popen[str], dict]:
    page = subprocess.Popen(
        [sys.executable, "-m", "ludus", "dashboard", str(project), "--json", "--port", "0", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert page.stdout is not None
    return page, json.loads(page.stdout.readline())


def get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_page_answers_and_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    page, said = start(tmp_path)
    with page:
        assert get(said["port"], "/") == 200
        page.send_signal(signal.SIGTERM)
        _, err = page.communicate(timeout=60)
    assert page.returncode == 0
    assert "the page has ended" in err


def test_beyond_loopback_there_is_a_token_which_is_not_in_the_log(tmp_path: Path) -> None:
    page, said = start(tmp_path, "--host", "0.0.0.0")
    with page:
        token = said["url"].partition("?token=")[2]
        assert len(token) >= 32
        assert get(said["port"], "/") == 401
        assert get(said["port"], f"/?token={token}") == 303
        page.send_signal(signal.SIGINT)
        out, err = page.communicate(timeout=60)
    assert token not in out + err


def test_the_page_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\n"
        "from ludus.cli.page_options import page_beside\n"
        f"with page_beside({str(tmp_path)!r}, '/', port=0) as url:\n"
        "    print(url, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline().rpartition(":")[2].strip("/\n"))
        assert get(port, "/") == 200  # the socket is there before the page is
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60.0
    with pytest.raises(OSError):
        while time.monotonic() < deadline:
            get(port, "/")
            time.sleep(0.05)


def test_a_port_that_is_taken_is_an_error_only_if_it_was_asked_for() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(errors.ConfigError, match=f"cannot listen on 127.0.0.1:{port}.*another --port"):
            bind("127.0.0.1", port)
    with bind("127.0.0.1", None) as one, bind("127.0.0.1", None) as two:
        assert one.getsockname() != two.getsockname()


def test_a_port_that_cannot_be_is_an_error_that_says_so() -> None:
    with pytest.raises(errors.ConfigError, match=r"cannot listen on 127.0.0.1:70000: .*another --port"):
        bind("127.0.0.1", 70000)


def test_playing_a_trial_that_is_no_board_game_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cart").mkdir()
    (tmp_path / "cart" / "config.json").write_text('{"train": {"env": "CartPole-v1"}}')
    assert main(["play", "cart", "--project", str(tmp_path)]) == 2
    assert "'cart' is not of a board game" in capsys.readouterr().err


def test_the_page_starts_without_torch() -> None:
    heavy = ("torch", "gymnasium", "scipy", "openskill")
    code = f"import sys, ludus.page.server; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "[]"

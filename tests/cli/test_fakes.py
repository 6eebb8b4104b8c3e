"""`ludus fake-actor`, `ludus fake-game` and `ludus conformance`, as a person runs them."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from discovery.servers import free_port
from ludus.cli.main import main
from ludus.gateway.client import GameClient, GameError
from ludus.testing.gateways import CountingActor, serving


@contextmanager
def fake_actor(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, and the url that it prints; with a gRPC port the whole line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ludus.cli.main", "fake-actor", "--port", "0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "/step answers" in line, line
        yield process, line.rstrip() if "--grpc-port" in words else line.split("/step")[0]
    finally:
        process.kill()
        process.communicate(timeout=300)


def test_a_fake_actor_serves_until_it_is_interrupted_and_tells_how_much() -> None:
    with fake_actor("--tick-return", "left") as (process, url):
        with GameClient(url) as game:
            game.start()
            assert game.tick(b"x") == b"left"
            game.end()
        assert process.stdout is not None
        while "3 requests in all" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_games_play_against_a_fake_actor_and_its_costs_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_actor("--echo") as (process, url):
        assert main(["fake-game", "--url", url, "--games", "2,4", "--ticks", "50", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert [run["games"] for run in report["runs"]] == [2, 4]
        assert [run["num_requests"] for run in report["runs"]] == [2 * 52, 4 * 52]
        assert report["runs"][0]["server"]["num_processes"] == 1
        assert report["runs"][0]["server"]["memory_mib"] > 5
        assert process.poll() is None
        assert main(["fake-game", "--url", url, "--games", "2", "--ticks", "5"]) == 0
    out = capsys.readouterr().out
    assert "2 games:" in out
    assert "p99" in out
    assert "% CPU" in out
    assert "errors        none" in out


def test_games_that_get_problems_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(CountingActor, token="T") as url:
        assert main(["fake-game", "--url", url, "--games", "2", "--ticks", "2"]) == 1
        assert "unauthorised 2" in capsys.readouterr().out
        assert main(["fake-game", "--url", url, "--games", "2", "--ticks", "2", "--token", "T"]) == 0


def test_games_without_a_server_say_what_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert main(["fake-game", "--url", url, "--games", "1", "--ticks", "1"]) == 2
    assert "ludus fake-actor" in capsys.readouterr().err


@pytest.mark.parametrize("games", ["0", "many", "4,x"])
def test_a_number_of_games_that_is_none_is_refused(games: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fake-game", "--games", games]) == 2
    assert "--games" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "fake-actor --port 99999",
        "fake-actor --port -1",
        "fake-actor --lease-s nan",
        "fake-actor --lease-s 0",
        "fake-actor --delay-ms -5",
        "fake-actor --delay-ms nan",
        "fake-actor --seconds -1",
        "fake-actor --token schlüssel",
        "fake-game --url http://h:99999",
        "fake-game --ca /no/such/file",
        "fake-game --body-bytes -1",
        "fake-game --rate nan",
        "fake-game --token schlüssel",
        "conformance --url http://h:99999",
        "conformance --ca /no/such/file",
        "conformance grpc://h",
        "conformance grpcs://h:1 --ca /no/such/file",
        "conformance --lease-s nan",
    ],
)
def test_an_argument_that_cannot_be_is_refused_in_words(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = line.split()
    assert main([*words, "--seconds", "0"] if words[0] == "fake-actor" and "--seconds" not in words else words) == 2
    output = capsys.readouterr().err
    assert words[1].removeprefix("--").partition("-")[0] in output
    assert "Traceback" not in output


def test_a_port_that_is_taken_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["fake-actor", "--port", str(port), "--seconds", "0.1"]) == 2
        assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err
        assert main(["fake-actor", "--port", "0", "--grpc-port", str(port), "--seconds", "0.1"]) == 2
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in capsys.readouterr().err


def test_a_fake_actor_is_called_by_grpc_and_found_to_conform(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_actor("--echo", "--grpc-port", "0", "--token", "T") as (_process, line):
        url = f"grpc://{line.rpartition('grpc://')[2].split(';')[0]}"
        assert main(["conformance", url, "--token", "T"]) == 0, capsys.readouterr().out
        assert main(["conformance", url, "--url", url]) == 2
    assert "given twice" in capsys.readouterr().err


def test_an_open_host_needs_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fake-actor", "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "token" in capsys.readouterr().err


def test_a_server_that_conforms_passes(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(CountingActor, token="T") as url:
        assert main(["conformance", "--url", url, "--token", "T"]) == 0
    out = capsys.readouterr().out
    assert "ok    repeat " in out
    assert " 0 failed" in out


def test_a_server_with_tls_is_spoken_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    ca, cert, key = tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(ca)
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    with serving(CountingActor, tls_cert=str(cert), tls_key=str(key)) as url:
        assert main(["fake-game", "--url", url, "--games", "2", "--ticks", "3", "--ca", str(ca)]) == 0
        assert main(["conformance", "--url", url, "--ca", str(ca)]) == 0, capsys.readouterr().out


def test_a_server_that_does_not_conform_fails_and_json_tells_why(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(CountingActor) as url:
        assert (
            main(["conformance", "--url", url, "--token", "T", "--only", "token", "--only", "healthz", "--json"]) == 1
        )
    report = json.loads(capsys.readouterr().out)
    assert not report["passed"]
    assert {finding["code"]: finding["outcome"] for finding in report["findings"]} == {
        "token": "fail",
        "healthz": "pass",
    }


def test_conformance_without_a_server_is_an_error_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "--url", f"http://127.0.0.1:{free_port()}"]) == 2
    assert "nothing answers" in capsys.readouterr().err


def test_the_commands_do_not_load_torch() -> None:
    code = (
        "import sys, importlib; [importlib.import_module(f'ludus.cli.{m}') for m in "
        "('fake_actor', 'fake_game', 'conformance')]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0


def test_a_token_may_come_from_a_file_or_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text("T\n")
    file.chmod(0o644)
    play = ["fake-game", "--games", "1", "--ticks", "1", "--url"]
    with serving(CountingActor, token="T") as url:
        assert main([*play, url, "--token-file", str(file)]) == 0
        assert f"warning: other users can read or change {file}" in capsys.readouterr().err
        file.chmod(0o600)
        assert main(["conformance", "--url", url, "--only", "token", "--token-file", str(file)]) == 0
        assert capsys.readouterr().err == ""
        assert main([*play, url]) == 1
        monkeypatch.setenv("LUDUS_TOKEN", "T")
        assert main([*play, url]) == 0
    assert main([*play, url, "--token", "T", "--token-file", str(file)]) == 2
    assert "given twice" in capsys.readouterr().err


def test_secrets_from_files_and_the_environment_are_not_among_the_arguments_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("hidden-from-ps\n")
    file.chmod(0o600)
    monkeypatch.setenv("LUDUS_SECRET", "also-hidden")
    with fake_actor("--token-file", str(file)) as (process, url):
        with GameClient(url, token="hidden-from-ps") as one, GameClient(url, secret="also-hidden") as other:
            assert one.start() == other.start()
        with pytest.raises(GameError, match="unauthorised"), GameClient(url) as stranger:
            stranger.start()
        assert b"hidden" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()

"""The port of a league: games play whole matches by HTTPS, with a token, against the players that the server has."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme

from ludus import envs, errors
from ludus.cli.main import main
from ludus.core import Rules
from ludus.gateway.client import GameClient, GameError
from ludus.league.config import LeagueConfig
from ludus.league.live import open_league
from ludus.league.match_port import match_port
from ludus.page.app import make_app
from ludus.page.site import Site
from page.requests import ask

from .games import GAME

TOKEN = "let-me-play"
SMALL = "--algorithm ppo --num-envs 8 --num-steps 16 --minibatch-size 128 --num-epochs 1 --hidden 16 --threads 1"
PATIENCE_S = 120.0


@dataclass
class Served:
    """A league that runs, as its games and its owner reach it."""

    folder: Path
    url: str
    context: ssl.SSLContext
    league: Any

    def game(self, session: str, token: str | None = TOKEN) -> GameClient:
        return GameClient(self.url, session, token=token, context=self.context, timeout_s=60.0)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        """One request as it is, which nothing sends again."""
        connection = http.client.HTTPSConnection(self.url.removeprefix("https://"), context=self.context, timeout=60.0)
        connection.request(method, path, body, {"authorization": f"Bearer {TOKEN}", **headers})
        answer = connection.getresponse()
        try:
            return answer.status, answer.read()
        finally:
            connection.close()

    def session(self, name: str) -> dict[str, Any]:
        """What `/sessions` says of it."""
        _status, body = self.ask("GET", "/sessions")
        return next(each for each in json.loads(body)["sessions"] if each["session"] == name)

    def standing(self, name: str) -> dict[str, Any]:
        return next(each for each in self.league.standings() if each["player"]["name"] == name)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """As a person types it: with TLS and a token, on any free port."""
    folder = tmp_path_factory.mktemp("served")
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    own.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    own.private_key_pem.write_to_path(folder / "key.pem")
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    words = [*SMALL.split(), "--bots", "random,alphabeta:1", "--turn-updates", "1", "--trial", "ttt", "--serve", "0"]
    files = ["--token-file", "token", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]
    command = [sys.executable, "-m", "ludus", "league", GAME, *words, *files]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            url = url_of(process)
            with open_league(folder / "trials" / "ttt") as league:
                yield Served(folder / "trials" / "ttt", url, context, league)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 130
        finally:
            process.kill()


def url_of(process: subprocess.Popen[str]) -> str:
    """What it says of its port."""
    said = []
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("games play matches at"):
            return line.split()[-1]
        said.append(line)
    raise AssertionError(f"it has opened no port: {''.join(said)}")


def wait_until(is_so: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def say(send: Callable[[bytes], bytes], **body: Any) -> Any:
    return json.loads(send(json.dumps(body).encode()))


def play(game: GameClient, own: frozenset[int] = frozenset()) -> list[float]:
    """A whole game by its own rules; sides in `own` are played here, by the first legal move. The scores."""
    rules = envs.rules(GAME)
    assert isinstance(rules, Rules)
    boards, is_over = rules.start(1), False
    while not is_over:
        side, legal = int(rules.to_move(boards)[0]), rules.legal(boards)[0]
        if side in own:
            action = int(legal.argmax())
        else:
            obs = rules.observe(boards, np.array([side]))[0]
            action = say(game.tick, side=side, obs=obs.tolist(), mask=legal.tolist())["action"]
            assert legal[action]
        boards, scores, over = rules.step(boards, np.array([action]))
        is_over = bool(over[0])
    return [float(score) for score in scores[0]]


def test_a_game_names_a_player_or_a_role_and_the_server_plays_all_sides(served: Served) -> None:
    for number, wanted in enumerate(({"player": "main"}, {"role": "league_exploiter"}, {"player": "random"})):
        with served.game(f"both-{number}") as game:
            answer = say(game.start, **wanted)
            name = "league_exploiter" if "role" in wanted else wanted["player"]
            assert name in answer["players"]
            assert "alphabeta_1" not in answer["players"], "it needs the board"
            assert say(game.end, scores=play(game)) == {"counted": True}
            assert not served.league.report_result(answer["match"], [1.0, -1.0]), "it was counted"


def test_a_person_plays_a_side_and_its_rating_moves_once_however_often_the_end_is_sent(served: Served) -> None:
    with served.game("alices") as game:
        answer = say(game.start, opponent="main", own=[1], **{"as": "alice"})
        assert answer["players"] == ["main", "alice"]
        before = served.standing("alice")
        play(game, frozenset({1}))
        number = str(served.session("alices")["step"] + 1)
        body = json.dumps({"scores": [0.0, 1.0]}).encode()
        ends = [served.ask("POST", "/step", body, session="alices", step_kind="end", step=number) for _ in range(3)]
    assert ends == [(200, b'{"counted":true}')] * 3
    after = served.standing("alice")
    assert (before["games"], after["games"], after["win_rate"]) == (0.0, 1.0, 1.0)
    assert after["mean"] > before["mean"]
    assert after["player"]["role"] == "human"


def test_a_session_that_ends_without_scores_aborts_its_match(served: Served) -> None:
    with served.game("gone") as game:
        match = say(game.start, opponent="random", own=[0], **{"as": "bob"})["match"]
        assert game.end() == b""
    assert not served.league.report_result(match, [1.0, 0.0]), "it is in flight no more"
    assert served.standing("bob")["games"] == 0.0
    with served.game("wrong") as game:
        match = say(game.start, opponent="random", own=[0], **{"as": "bob"})["match"]
        with pytest.raises(GameError, match="2 sides; the match is aborted"):
            say(game.end, scores=[1.0])
    assert not served.league.report_result(match, [1.0, 0.0])


def test_sessions_and_the_page_show_which_versions_are_played(served: Served) -> None:
    wait_until(lambda: served.standing("main")["player"]["step"] > 0)  # then it has a version
    snapshot = served.league.snapshot("main")
    with served.game("watched") as game:
        say(game.start, opponent=snapshot["name"], own=[0], **{"as": "carol"})
        assert game.versions == {snapshot["name"]: snapshot["version"]}
        assert served.session("watched")["versions"] == game.versions
        site = Site(served.folder.parent)
        text = ask(make_app(site), f"/trials/{served.folder.name}/sessions", x_ludus_part="1").text
        site.close()
        assert "watched" in text
        assert f"version {snapshot['version']}" in text
        game.end()


def test_players_that_look_ahead_on_the_board_are_refused_and_so_are_games_without_the_token(served: Served) -> None:
    for number, body in enumerate(({"player": "alphabeta_1"}, {"opponent": "alphabeta_1", "own": [0]})):
        with served.game(f"ahead-{number}") as game, pytest.raises(GameError) as raised:
            say(game.start, **body)
        assert (raised.value.code, raised.value.status) == ("invalid_observation", 422)
        assert "'alphabeta_1' looks ahead on the board itself" in raised.value.detail
        assert "name another player" in raised.value.detail
    with served.game("stranger", token=None) as game, pytest.raises(GameError, match="a bearer token is needed"):
        say(game.start, player="main")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--serve", "0", "--serve-host", "0.0.0.0"], "can be reached from elsewhere: give it a token or a secret"),
        (["--serve", "0", "--token", "schlüssel"], "printable ASCII"),
        (["--serve", "0", "--token-file", "nofile"], "the token cannot be read"),
        (["--serve", "0", "--secret", "S", "--secret-file", "nofile"], "given twice"),
        (["--serve", "0", "--tls-cert", "nofile"], "both a certificate and its key"),
        (["--serve", "0", "--tls-cert", "nofile", "--tls-key", "nofile"], "cannot be used"),
        (["--token", "T"], "--token is for the port where games play matches, and there is none: add --serve PORT"),
    ],
)
def test_a_port_that_cannot_be_is_refused_before_there_is_a_trial(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LUDUS_TOKEN", "LUDUS_TOKEN_FILE", "LUDUS_SECRET", "LUDUS_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert main(["league", GAME, *words, "--project", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_secrets_are_for_one_run_and_files_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUDUS_TOKEN", raising=False)
    file = tmp_path / "token"
    file.write_text("filed")
    file.chmod(0o600)
    kept = LeagueConfig(serve=8000, serve_host="0.0.0.0", token_file=str(file))
    for given, token in (({}, "filed"), ({"token": "own"}, "own")):
        port = match_port(kept, given)
        assert port is not None
        assert (port.port, port.host, port.token) == (8000, "0.0.0.0", token)
        port.check()
        assert token not in repr(port)
    with pytest.raises(errors.ConfigError, match="given twice"):
        match_port(kept, {"token": "own", "token_file": str(file)})
    assert match_port(LeagueConfig(), {}) is None

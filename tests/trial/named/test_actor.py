"""Actors behind a port, in real processes: several workers, kills, versions that change under load, canaries."""

import os
import signal
import socket
import threading
import time
from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

import ludus
from ludus import errors
from ludus.gateway.client import GameClient, GameError
from ludus.gateway.grpc.client import GrpcGameClient
from ludus.gateway.journal import read_journal
from ludus.gateway.ring import owner_of


class Greeter(ludus.Actor):
    def __init__(self, greeting):
        self.greeting = greeting

    def start(self, session, data):
        self.session = session
        return str(os.getpid())

    async def tick(self, data):
        return f"{self.greeting}, {data.decode()} {self.session.end_reason}"


class Asking(ludus.Actor):
    """Its answer is what the model says."""

    def __init__(self, model):
        self.model = ludus.RemoteModel(model, local_mode=True)

    async def tick(self, data):
        out = await self.model.forward(np.frombuffer(data, np.float32))
        return out.tobytes()


@pytest.fixture
def trial(tmp_path):
    made = ludus.init(project=tmp_path, trial="t")
    yield made
    made.close()


def sessions_of(worker, size, count):
    """Ids that belong to a worker."""
    ids = (f"s{number}" for number in range(10_000))
    return [session for session in ids if owner_of(session, size) == worker][:count]


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_worker_that_is_killed_takes_its_own_sessions_along_and_no_others(trial, door):
    actor = ludus.RemoteActor(num_workers=2, grpc_port=0 if door == "grpc" else None)
    actor.serve(Actor=Greeter, greeting="hello")

    def connect(session):
        if door == "grpc":
            return GrpcGameClient(actor.grpc_url, session, retries=50)
        return GameClient(actor.url, session, retries=50)

    games = {}
    for worker in (0, 1):
        for session in sessions_of(worker, 2, 4):
            game = games[session] = connect(session)
            pid = int(game.start())
            assert game.tick(b"Ada") == b"hello, Ada "
            if worker == 0:
                victim = pid
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    for session in sessions_of(0, 2, 4):
        with pytest.raises(GameError) as lost:
            games[session].tick(b"Ada")
        assert lost.value.code == "session_lost"
    assert time.monotonic() - began < 30
    for session in sessions_of(1, 2, 4):
        assert games[session].tick(b"Bob") == b"hello, Bob "
        games[session].end()
    again = connect(sessions_of(0, 2, 1)[0])
    again.start()
    assert again.tick(b"Eve") == b"hello, Eve "
    again.end()
    for game in (*games.values(), again):
        game.close()
    actor.stop()
    journal = trial.folder / "gateway" / f"{actor.port}-0.journal"
    words = Counter(word for sign, _session, word, _time in read_journal(journal) if sign == "-")
    assert words == {"lost": 4, "asked": 1}


def test_a_port_that_was_stopped_can_be_served_again(trial):
    first = ludus.RemoteActor()
    first.serve(Actor=Greeter, greeting="hello")
    first.stop()
    again = ludus.RemoteActor(port=first.port)
    again.serve(Actor=Greeter, greeting="welcome back")
    with GameClient(again.url, "a") as game:
        game.start()
        assert b"welcome back" in game.tick(b"Ada")


def test_a_port_that_is_taken_is_reported_before_anything_starts(trial):
    actor = ludus.RemoteActor()
    actor.serve(Actor=Greeter, greeting="hello")
    with pytest.raises(errors.ConfigError, match=f"port {actor.port} cannot be served"):
        ludus.RemoteActor(port=actor.port).serve(Actor=Greeter, greeting="hello")


def test_a_grpc_port_that_is_taken_is_reported_though_workers_could_share_it(trial):
    with socket.socket() as other:  # as a gRPC server of another trial has it, of the same user
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        for num_workers in (1, 2):
            with pytest.raises(errors.ConfigError, match=f"port {port} cannot be served"):
                ludus.RemoteActor(num_workers=num_workers, grpc_port=port).serve(Actor=Greeter, greeting="hello")
    with pytest.raises(errors.ConfigError, match="no gRPC door"):
        _ = ludus.RemoteActor().grpc_url


def weights_of(number):
    """Those of a version, which its number determines."""
    rng = np.random.default_rng(number)
    return {"weight": rng.normal(size=(3, 4)).astype(np.float32), "bias": rng.normal(size=3).astype(np.float32)}


def test_every_session_plays_one_version_to_its_end_while_others_are_published(trial):
    net = nn.Linear(4, 3)
    model = ludus.RemoteModel("net", net, forward_args=(np.zeros(4, np.float32),))
    actor = ludus.RemoteActor()
    actor.serve(Actor=Asking, model="net")
    stop, faults, seen = threading.Event(), [], set()
    initial = {name: tensor.detach().numpy().copy() for name, tensor in net.state_dict().items()}

    def expected(number, obs):
        with torch.no_grad():
            weights = initial if number == 0 else weights_of(number)
            net = nn.Linear(4, 3)
            net.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
            return net(torch.from_numpy(obs)[None])[0].numpy()

    def publish():
        while not stop.is_set():
            number = model.step + 1
            if model.publish_weights(weights_of(number)) != number:
                faults.append("a number was skipped")
            time.sleep(0.1)

    def play(player):
        rng = np.random.default_rng(player)
        for episode in range(4):
            with GameClient(actor.url, f"g{player}-{episode}") as game:
                game.start()
                versions = set()
                for _ in range(40):
                    obs = rng.normal(size=4).astype(np.float32)
                    answer = np.frombuffer(game.tick(obs.tobytes()), np.float32)
                    versions.add(game.versions["net"])
                    if not np.allclose(answer, expected(game.versions["net"], obs), atol=1e-5):
                        faults.append((player, episode, game.versions, answer))
                    time.sleep(0.005)
                game.end()
                if len(versions) != 1:
                    faults.append(("versions", player, episode, versions))
                seen.update(versions)

    players = [threading.Thread(target=play, args=(player,)) for player in range(8)]
    publisher = threading.Thread(target=publish)
    for thread in (publisher, *players):
        thread.start()
    for thread in players:
        thread.join(120)
    stop.set()
    publisher.join()
    assert not faults, faults[:3]
    assert len(seen) >= 3, "no version was published during the session"


def test_a_game_that_follows_plays_the_newest_and_one_that_asks_gets_what_it_asks_for(trial):
    model = ludus.RemoteModel("net", nn.Linear(4, 3), forward_args=(np.zeros(4, np.float32),))
    model.publish_weights(weights_of(1), tag="champion")
    model.publish_weights(weights_of(2))
    actor = ludus.RemoteActor()
    actor.serve(Actor=Asking, model="net")
    obs = np.zeros(4, np.float32).tobytes()
    played = {}
    for version in ("follow", "champion", 0, None):
        game = GameClient(actor.url, f"v-{version}")
        game.start(version=version)
        game.tick(obs)
        played[version] = [game]
    model.publish_weights(weights_of(3))
    for version, (game,) in list(played.items()):
        game.tick(obs)
        played[version] = game.versions["net"]
        game.end()
        game.close()
    assert played == {"follow": 3, "champion": 1, 0: 0, None: 2}
    with GameClient(actor.url, "v-none") as game:
        game.start(version="nobody")
        with pytest.raises(GameError, match="actor_failed"):
            game.tick(obs)


def test_new_sessions_are_shared_out_exactly(trial):
    model = ludus.RemoteModel("net", nn.Linear(4, 3), forward_args=(np.zeros(4, np.float32),))
    model.publish_weights(weights_of(1), tag="main")
    model.publish_weights(weights_of(2), tag="canary")
    actor = ludus.RemoteActor(num_workers=2, route={"main": 0.9, "canary": 0.1})
    actor.serve(Actor=Asking, model="net")
    counts = Counter()
    for number in range(40):
        with GameClient(actor.url, f"n{number}") as game:
            game.start()
            game.tick(np.zeros(4, np.float32).tobytes())
            counts[game.versions["net"]] += 1
            game.end()
    assert counts == {1: 36, 2: 4}


def test_stateless_ticks_play_what_new_sessions_do(trial):
    model = ludus.RemoteModel("net", nn.Linear(4, 3), forward_args=(np.zeros(4, np.float32),))
    model.publish_weights(weights_of(1), tag="main")
    model.publish_weights(weights_of(2))
    actor = ludus.RemoteActor(route={"main": 1.0})
    actor.serve(Actor=Asking, model="net")
    obs = np.zeros(4, np.float32).tobytes()
    with GameClient(actor.url) as game:
        for number in (1, 2):
            model.tag("main", number)
            np.testing.assert_allclose(np.frombuffer(game.stateless(obs), np.float32), weights_of(number)["bias"])


def test_a_remote_actor_takes_its_secrets_from_files_and_the_environment(trial, tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text("of the file\n")
    file.chmod(0o600)
    monkeypatch.setenv("LUDUS_SECRET", "of the environment")
    made = ludus.RemoteActor(token_file=file)
    assert (made._options.token, made._options.secret) == ("of the file", "of the environment")
    assert "of the" not in repr(made._options), "nor do they get into logs"

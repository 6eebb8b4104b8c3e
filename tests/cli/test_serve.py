"""`ludus serve`, `promote`, `rollback` and `replay` on a trial that was trained, as a person types them."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import gymnasium
import numpy as np
import pytest
import trustme

import ludus
from ludus.cli.main import main
from ludus.cli.serve import parse_canaries, parse_canary
from ludus.data import nest as nests
from ludus.data.spec import ArraySpec
from ludus.errors import ConfigError
from ludus.experiment.step_bodies import decode_body, observation
from ludus.gateway.client import GameClient, GameError
from ludus.gateway.grpc.client import GrpcGameClient
from ludus.models.versions.store import VersionStore
from ludus.serving import promotion
from ludus.serving.example_request import example_curl
from ludus.serving.serve import serve, shares_of

CLIENTS = Path(__file__).parent.parent.parent / "clients"


def play(url, session, *, msgpack=False, steps=20):
    """A few steps of CartPole; the versions that it was played by, and the actions."""
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=1)
    actions = []
    with GameClient(url, session) as game:
        game.start()
        for _ in range(steps):
            if msgpack:
                import msgspec

                answer = msgspec.msgpack.decode(game.tick(msgspec.msgpack.encode({"obs": obs.tobytes()})))
            else:
                answer = json.loads(game.tick(json.dumps(obs.tolist()).encode()))
            actions.append(answer["action"])
            obs, _reward, terminated, _truncated, _ = env.step(answer["action"])
            if terminated:
                break
        versions = dict(game.versions)
        game.end(b'{"terminated": true}')
    return versions["policy"], actions


@pytest.mark.parametrize(("text", "expected"), [("a=10%", ("a", 0.1)), ("b=0.25", ("b", 0.25)), ("c=100%", ("c", 1.0))])
def test_a_canary_is_a_tag_and_its_share(text, expected):
    assert parse_canary(text) == expected


@pytest.mark.parametrize("text", ["a", "a=", "=10%", "a=200%", "a=much", "a=-1%"])
def test_a_canary_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="candidate=10%"):
        parse_canary(text)


def test_a_tag_has_one_share(capsys):
    assert parse_canaries(["a=10%", "b=20%"]) == {"a": 0.1, "b": 0.2}
    assert main(["serve", "t", "--canary", "a=10%", "--canary", "a=20%"]) == 2
    assert "--canary a is given twice" in capsys.readouterr().err


def test_a_canary_is_not_the_rest_as_well():
    with pytest.raises(ConfigError, match="'production' is a canary, and what the rest"):
        shares_of("production", {"production": 0.1})


def test_a_port_that_there_is_not_is_refused(capsys):
    assert main(["serve", "t", "--port", "99999"]) == 2
    assert "the most it can be" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["missing", "no PEM", "not of each other"])
def test_a_certificate_that_cannot_be_used_is_reported_before_anything_starts(what, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    if what == "no PEM":
        cert.write_text("x")
        key.write_text("x")
    elif what == "not of each other":
        authority = trustme.CA()
        authority.issue_cert("127.0.0.1").cert_chain_pems[0].write_to_path(cert)
        authority.issue_cert("127.0.0.1").private_key_pem.write_to_path(key)
    with pytest.raises(ConfigError, match=r"the certificate .*cert\.pem with the key .*key\.pem cannot be used"):
        serve(tmp_path, tls_cert=str(cert), tls_key=str(key))


def test_a_secret_is_looked_for_in_files_before_anything_starts(tmp_path, capsys):
    file = tmp_path / "secret"
    for words, message in (
        (["--token-file", str(file)], "the token cannot be read"),
        (["--secret-file", str(file)], "the secret cannot be read"),
        (["--secret-file", str(file), "--secret", "S"], "given twice"),
    ):
        assert main(["serve", "t", *words]) == 2
        assert message in capsys.readouterr().err


def test_a_token_that_cannot_be_a_header_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="printable ASCII"):
        serve(tmp_path, token="schlüssel")


@pytest.mark.parametrize("version", ["999", "candidat", "²"])
def test_a_version_that_no_model_has_is_refused(version, tmp_path):
    VersionStore(tmp_path / "models").publish("other", {"w": np.zeros(2)}, number=0)
    with pytest.raises(ConfigError, match=f"no version '{version}' .*other: 0"):
        serve(tmp_path, version=version, actor="ludus.fake.actor:FakeActor")
    with pytest.raises(ConfigError, match=f"no version '{version}'"):
        serve(tmp_path, version="0", canary={version: 0.5}, actor="ludus.fake.actor:FakeActor")


@pytest.mark.parametrize("name", ["nofile", "."])
def test_a_recording_that_cannot_be_read_is_reported(name, tmp_path, capsys):
    assert main(["replay", str(tmp_path / name)]) == 2
    assert "cannot be read" in capsys.readouterr().err


def interrupted(process):
    """Its exit code after Ctrl-C; it does not outlive the test, whatever it does."""
    process.send_signal(signal.SIGINT)
    try:
        return process.wait(30)
    finally:
        process.kill()
        process.stdout.close()


def test_a_trained_trial_is_served_promoted_rolled_back_and_played_again(tmp_path, capsys):
    run = ludus.train("ppo", "CartPole-v1", steps=4096, seed=1, eval_episodes=0, project=str(tmp_path), trial="t")
    folder = run.trial_dir
    assert main(["serve", str(folder), "--port", "0", "--version", "999"]) == 2
    assert "no version '999'" in capsys.readouterr().err

    said = {}

    def serve(*more):
        words = [sys.executable, "-m", "ludus.cli.main", "serve", str(folder), "--port", "0", "--json", *more]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        report = process.stdout.readline()
        assert report, "it did not come up"
        said.update(json.loads(report))
        return process, said["url"]

    process, url = serve("--record")
    try:
        version, actions = play(url, "a")
        assert version == 0
        env = gymnasium.make("CartPole-v1")
        obs, _ = env.reset(seed=1)
        for action in actions:  # the very policy that was trained
            assert action == int(run.policy.act(np.asarray(obs, np.float32)))
            obs = env.step(action)[0]
        assert play(url, "b", msgpack=True)[1] == actions

        store = VersionStore(folder / "models")
        _, weights = store.get("policy", 0)
        store.publish("policy", {name: array * 0.5 for name, array in weights.items()}, number=1)
        assert play(url, "c")[0] == 0, "published, not promoted"
        assert main(["promote", str(folder), "1"]) == 0
        assert play(url, "d")[0] == 1
        assert main(["rollback", str(folder)]) == 0
        assert play(url, "e")[0] == 0
        assert promotion.history(folder, "policy") == [0]
    finally:
        assert interrupted(process) == 0

    (log,) = (folder / "recordings").iterdir()
    capsys.readouterr()
    assert main(["replay", str(log), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["sessions"], report["different"]) == (5, 0)
    ludus.trial.current.current().close()

    store.tag("policy", "candidate", 1)
    process, url = serve("--canary", "candidate=25%", "--grpc-port", "0")
    try:
        played = [play(url, f"n{number}", steps=1)[0] for number in range(8)]
        assert (played.count(0), played.count(1)) == (6, 2)
        with GrpcGameClient(said["grpc_url"]) as game:
            game.start(version=1)
            assert json.loads(game.tick(b"[0, 0, 0, 0]"))["action"] in (0, 1)
            assert game.versions == {"policy": 1}
            game.end()
    finally:
        assert interrupted(process) == 0


class ServeCommand:
    """`ludus serve FOLDER` as a process; what it says on standard output before it listens for Ctrl-C."""

    def __init__(self, folder, *more):
        words = [sys.executable, "-m", "ludus", "serve", str(folder), "--port", "0", *more]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.said = ""

    def __enter__(self):
        while "try it: " not in self.said:
            line = self._process.stdout.readline()
            assert line, "it did not come up"
            self.said += line
        self.url = re.search(r"at (http://\S+);", self.said)[1]
        return self

    def __exit__(self, *_exc):
        assert interrupted(self._process) == 0


def stopped_run(project):
    """A training run that was stopped after its first update."""

    def stop(step, values):
        raise KeyboardInterrupt

    every_turn = mock.patch("ludus.experiment.training._METRICS_EVERY_S", 0.0)
    with every_turn, pytest.raises(KeyboardInterrupt):
        ludus.train(
            "ppo",
            "CartPole-v1",
            steps=20_000,
            seed=1,
            eval_episodes=0,
            project=str(project),
            trial="t",
            on_progress=stop,
        )
    return project / "t"


def example_clients(folder, url):
    """The commands of the example games that can be run here."""
    if shutil.which("g++"):
        source, program = CLIENTS / "cpp" / "example.cpp", str(folder / "example")
        subprocess.run(["g++", "-std=c++17", "-O0", str(source), "-o", program, "-pthread"], check=True, timeout=300)
        host, _, port = url.removeprefix("http://").partition(":")
        yield [program, host, port]
    if shutil.which("node"):
        yield ["node", str(CLIENTS / "js" / "example.mjs"), url]


@pytest.mark.timeout(300)
def test_a_resumed_trial_is_served_by_its_newest_version_and_says_how_to_call_it(tmp_path):
    folder = stopped_run(tmp_path)
    with ServeCommand(folder) as first:
        assert "serving t, version 0 (production), at http" in first.said
        assert play(first.url, "a", steps=1)[0] == 0
        curl = first.said.rpartition("try it: ")[2].strip()
        if shutil.which("curl"):
            done = subprocess.run(curl, shell=True, capture_output=True, text=True, timeout=300, check=True)
            assert json.loads(done.stdout)["action"] in (0, 1)
        for number, words in enumerate(example_clients(tmp_path, first.url)):
            done = subprocess.run([*words, f"c{number}", "3"], capture_output=True, text=True, timeout=300, check=False)
            lines = done.stdout.splitlines()
            assert (done.returncode, lines[0], lines[-1]) == (0, "start ", "end "), done.stderr
            assert [json.loads(line.removeprefix("tick "))["action"] in (0, 1) for line in lines[1:-1]] == [True] * 3
        with GameClient(first.url, "b") as game:
            game.start()
            for body in (b"map 7", b"[1, 2, 3]", b'["a", 1, 2, 3]'):
                with pytest.raises(GameError, match=r"obs must be|neither JSON nor msgpack") as raised:
                    game.tick(body)
                assert (raised.value.code, raised.value.status) == ("invalid_observation", 422)
            assert json.loads(game.tick(b"[0, 0, 0, 0]"))["action"] in (0, 1), "the session lives on"

    ludus.resume(folder)
    with ServeCommand(folder) as second:
        assert "serving t, version 1 (production), at http" in second.said
        assert play(second.url, "a", steps=1)[0] == 1
        assert main(["rollback", str(folder)]) == 0
        assert play(second.url, "b", steps=1)[0] == 0
    assert main(["serve", str(folder), "--canary", "candidate=10%"]) == 2
    assert promotion.history(folder, "policy") == [0], "what a person chose stays when it is served again"


def test_a_version_that_was_chosen_stays_and_the_newer_one_is_named(tmp_path, capsys):
    store = VersionStore(tmp_path / "models")
    for number in range(2):
        store.publish("policy", {"w": np.full(2, number)}, number=number)
        promotion.promote(tmp_path, "policy", by_default=True)
    assert not promotion.is_chosen(tmp_path, "policy")
    assert promotion.history(tmp_path, "policy") == [0, 1]
    promotion.promote(tmp_path, "policy", 1)
    assert promotion.is_chosen(tmp_path, "policy")
    assert promotion.history(tmp_path, "policy") == [0, 1]
    assert promotion.rollback(tmp_path, "policy") == 0
    assert promotion.is_chosen(tmp_path, "policy")


def test_a_canary_without_its_tag_is_answered_with_the_command_that_makes_it(tmp_path):
    VersionStore(tmp_path / "models").publish("policy", {"w": np.zeros(2)}, number=0)
    with pytest.raises(ConfigError, match=f"ludus promote {tmp_path.name} --tag candidate"):
        serve(tmp_path, version="0", canary={"candidate": 0.1}, actor="ludus.fake.actor:FakeActor")


def test_a_policy_that_remembers_is_tried_in_a_session(tmp_path):
    small = {"steps": 256, "num_envs": 4, "num_steps": 32, "eval_episodes": 0, "threads": 1}
    folder = ludus.train("ppo", "CartPole-v1", project=str(tmp_path), trial="t", recurrent="gru", **small).trial_dir
    with ServeCommand(folder) as server:
        curl = server.said.rpartition("try it: ")[2].strip()
        assert "step_kind: start" in curl
        if shutil.which("curl"):
            done = subprocess.run(curl, shell=True, capture_output=True, text=True, timeout=300, check=True)
            assert json.loads(done.stdout)["action"] in (0, 1)


@pytest.mark.parametrize(
    "obs",
    [
        ArraySpec((4,), np.float32),
        ArraySpec((), np.int64),
        ArraySpec((4, 84, 84), np.uint8),
        {"a": ArraySpec((2,), np.float32), "b": (ArraySpec((100,), np.int8), ArraySpec((), np.int64))},
    ],
)
def test_the_example_request_has_an_observation_that_fits(obs):
    line = example_curl("http://127.0.0.1:1", obs, has_token=True)
    assert line.endswith(' -H "authorization: Bearer $TOKEN" http://127.0.0.1:1/step')
    words = shlex.split(line)
    if "|" in words:
        made = subprocess.run(words[: words.index("|")], capture_output=True, check=True, timeout=300).stdout
    else:
        made = words[words.index("--data") + 1].encode()
    assert len(line) < 300
    body, is_json = decode_body(made)
    assert is_json
    nests.map(lambda leaf, spec: spec.check(leaf), observation(body["obs"], obs, "obs"), obs)


def test_a_rollback_without_a_promotion_is_refused(tmp_path):
    store = VersionStore(tmp_path / "models")
    store.publish("policy", {"w": np.zeros(2)}, number=0)
    promotion.promote(tmp_path, "policy")
    with pytest.raises(ConfigError, match="no way back"):
        promotion.rollback(tmp_path, "policy")


def test_promotions_form_a_stack(tmp_path):
    store = VersionStore(tmp_path / "models", keep=1)
    for number in range(4):
        store.publish("policy", {"w": np.full(2, number)}, number=number)
        promotion.promote(tmp_path, "policy")
    assert promotion.rollback(tmp_path, "policy") == 2
    assert promotion.promote(tmp_path, "policy", 3) == 3
    assert promotion.rollback(tmp_path, "policy") == 2
    assert promotion.rollback(tmp_path, "policy") == 1
    assert store.resolve("policy", "production") == 1
    assert store.get("policy", "production")[1]["w"].tolist() == [1, 1], "what may be gone back to is kept"

"""`ludus.fake`: each stand-in does what the real thing would, seen from the other side."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ludus
from ludus import errors, fake
from ludus.data.spec import ArraySpec, validate
from ludus.fake.process import UsageMeter, is_here, listeners
from ludus.gateway.actor import Actor
from ludus.gateway.client import GameClient
from ludus.testing.gateways import CountingActor, CuttingProxy, EchoActor, serving

# ---- FakeActor


def test_a_fake_actor_answers_what_it_was_given() -> None:
    made = fake.FakeActor.serve(port=0, tick_return=b"left", end_return="bye", start_return=b"")
    with made as server, GameClient(server.url, "one") as game:
        assert game.start(b"map") == b""
        assert game.tick(b"frame") == b"left"
        assert game.end() == b"bye"


def test_a_fake_actor_takes_the_seeds_config() -> None:
    config = {"fake_actor_tick_return": b"t", "fake_actor_end_return": b"e"}
    actor = fake.FakeActor(config)
    assert (actor.tick(b""), actor.end(b"")) == (b"t", b"e")
    with pytest.raises(errors.ConfigError, match="tock"):
        fake.FakeActor({"fake_actor_tock_return": b""})


def test_a_fake_actor_without_answers_echoes_after_a_while() -> None:
    with serving(lambda: fake.FakeActor(tick_return=None, delay_s=0.05)) as url, GameClient(url) as game:
        game.start()
        began = time.monotonic()
        assert game.tick(b"frame") == b"frame"
        assert time.monotonic() - began >= 0.05


# ---- FakeGamecore


def test_games_play_at_once_and_all_of_it_is_counted() -> None:
    with serving(EchoActor) as url:
        report = fake.FakeGamecore(url, games=8, ticks=10, episodes=2, body_bytes=64).run()
        stats = url.call(url.gateway.stats)
    assert report.num_requests == 8 * 2 * (10 + 2)
    assert report.num_ticks == 8 * 2 * 10
    assert report.errors == {}
    assert 0 < report.p50_ms <= report.p95_ms <= report.p99_ms <= report.max_ms
    assert stats["num_started"] == 16
    assert stats["ended"] == {"asked": 16}
    assert "8 games" in report.text


def test_a_rate_is_kept() -> None:
    with serving(EchoActor) as url:
        report = fake.FakeGamecore(url, games=4, ticks=10, rate=100.0).run()
    assert 0.3 <= report.seconds <= 10.0
    assert report.errors == {}


def test_errors_are_counted_by_their_code() -> None:
    class Failing(CountingActor):
        def tick(self, data: bytes) -> bytes:
            raise RuntimeError("no")

    with serving(Failing) as url:
        report = fake.FakeGamecore(url, games=3, ticks=5, episodes=1).run()
    assert report.errors == {"actor_failed": 3}
    assert report.num_errors == 3
    assert report.num_ticks == 0


def test_a_server_that_is_not_there_is_counted() -> None:
    with serving(EchoActor) as url:
        gone = str(url)
    assert fake.FakeGamecore(gone, games=2, ticks=1, retries=0).run().errors == {"unreachable": 2}


def test_games_survive_cut_connections_and_say_how_often() -> None:
    with serving(CountingActor) as url, CuttingProxy(url.port, every=10, keep=10) as proxy:
        report = fake.FakeGamecore(proxy.url, games=4, ticks=20, retries=8).run()
        steps = url.call(url.gateway.stats)["num_steps"]
    assert report.errors == {}
    assert report.num_retries == proxy.num_cuts > 0
    assert steps == 4 * 21


def test_wrong_answers_are_counted() -> None:
    with serving(EchoActor) as url:
        report = fake.FakeGamecore(url, games=2, ticks=5, body=b"x", check=lambda answer: answer == b"y").run()
    assert report.errors == {"wrong_answer": 10}


@pytest.mark.parametrize("wrong", [{"games": 0}, {"ticks": 0}, {"rate": 0.0}])
def test_a_load_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError):
        fake.FakeGamecore("http://127.0.0.1:1", **wrong)


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="there is no /proc here")
def test_the_server_is_found_by_its_port_and_measured() -> None:
    with serving(EchoActor) as url:
        assert os.getpid() in listeners(url.port)
        report = fake.FakeGamecore(url, games=4, ticks=100).run()
    assert report.server is not None
    assert report.server.num_processes == 1
    assert report.server.memory_mib > 5
    assert report.server.cpu_percent > 0


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="there is no /proc here")
def test_what_a_process_uses_is_measured() -> None:
    meter = UsageMeter([os.getpid()])
    began, used = time.monotonic(), time.process_time()
    while time.process_time() < used + 0.3:
        pass
    usage = meter.read()
    seconds = time.monotonic() - began
    assert usage is not None
    assert usage.cpu_percent / 100 * seconds == pytest.approx(0.3, abs=0.1)
    assert UsageMeter([]).read() is None


def test_this_machine_is_distinguished_from_others() -> None:
    assert is_here("127.0.0.1")
    assert is_here("localhost")
    assert not is_here("192.0.2.1")
    assert listeners(1) == []


# ---- FakeModel


SPECS = {
    "logits": ArraySpec((6,), np.float32),
    "mask": ArraySpec((6,), bool),
    "dice": ArraySpec((100,), np.int64, minimum=1, maximum=6),
    "aim": ArraySpec((50,), np.float64, minimum=-1.0, maximum=1.0),
}


def test_a_fake_model_answers_arrays_of_its_specs() -> None:
    model = fake.FakeModel(outputs=SPECS)

    async def forward() -> Any:
        return await model.forward(np.zeros(4, np.float32))

    first, second = asyncio.run(forward()), asyncio.run(forward())
    validate(first, SPECS)
    validate(second, SPECS)
    assert set(np.unique(first["dice"])) == {1, 2, 3, 4, 5, 6}
    assert not np.array_equal(first["logits"], second["logits"])
    assert model.num_forwards == 2


def test_a_fake_model_takes_examples_and_functions() -> None:
    example = fake.FakeModel(outputs=(np.zeros((2, 3), np.float32), np.int64(1)))
    array, number = asyncio.run(example.forward(1))
    assert (array.shape, array.dtype, number.shape) == ((2, 3), np.float32, ())
    double = fake.FakeModel(outputs=lambda x: x * 2)
    assert asyncio.run(double.forward(21)) == 42


def test_an_actor_is_tested_with_a_fake_model_and_the_game_sees_its_version() -> None:
    model = fake.FakeModel("policy", {"logits": ArraySpec((3,), np.float32)}, step=5)

    class Plays(Actor):
        async def tick(self, data: bytes) -> bytes:
            output = await model.forward(np.frombuffer(data, np.uint8))
            return b"%d" % int(np.argmax(output["logits"]))

    with serving(Plays) as url, GameClient(url) as game:
        game.start()
        assert game.tick(b"abc") in (b"0", b"1", b"2")
        assert game.versions == {"policy": 5}
        model.publish_weights()
        game.tick(b"abc")
        assert game.versions == {"policy": 5}
        game.end()
        game.start(version="follow")
        game.tick(b"abc")
        model.publish_weights()
        game.tick(b"abc")
        assert game.versions == {"policy": model.step}
        game.end()


def test_a_fake_model_is_cloned_as_a_real_one() -> None:
    model = fake.FakeModel("policy", {"logits": ArraySpec((3,), np.float32)}, step=5)
    model.publish_weights(tag="champion")
    clone = model.clone(5)
    assert (clone.name, clone.step, model.clone(name="rival").name) == ("policy-5", 5, "rival")
    assert [model.clone(step).step for step in (-1, 99, "champion", "latest")] == [6] * 4
    with pytest.raises(errors.DataError, match="no version at or before 4"):
        model.clone(4)
    with pytest.raises(errors.DataError, match="no tag 'nobody'"):
        model.clone("nobody")
    validate(asyncio.run(clone.forward_version("latest", 1)), {"logits": ArraySpec((3,), np.float32)})


# ---- FakeBuffer


class KeepingBuffer:
    """What a `RemoteBuffer` is to those who push."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.items: list[Any] = []
        self._is_broken = is_broken

    def push(self, *items: Any, drop: bool = True) -> None:
        if self._is_broken:
            raise errors.Overloaded("no room")
        self.items += items


def test_a_fake_buffer_pushes_items_of_its_spec_at_its_rate() -> None:
    kept = KeepingBuffer()
    began = time.monotonic()
    with fake.FakeBuffer("items", SPECS, rate=200.0, num=40, buffer=kept) as made:
        made.join(10.0)
    assert time.monotonic() - began >= 39 / 200.0
    assert made.num_pushed == len(kept.items) == 40
    for item in kept.items:
        validate(item, SPECS)


def test_a_fake_buffer_takes_a_function_and_stops_when_asked() -> None:
    kept = KeepingBuffer()
    made = fake.FakeBuffer("items", lambda rng: {"x": rng.random()}, rate=500.0, buffer=kept)
    until = time.monotonic() + 10.0
    while len(kept.items) < 5 and time.monotonic() < until:
        time.sleep(0.01)
    made.stop()
    num = len(kept.items)
    assert num >= 5
    time.sleep(0.1)
    assert len(kept.items) == num


def test_a_fake_buffer_fills_the_buffer_of_its_name(tmp_path: Path) -> None:
    with ludus.init(tmp_path, "fakes"):
        buffer = ludus.RemoteBuffer("items")
        with ludus.fake.FakeBuffer("items", SPECS, rate=1000.0, num=20) as made:
            made.join(10.0)
        taken = buffer.take(20, 5.0)
        while len(taken) < 20 and (more := buffer.take(20, 5.0)):
            taken += more
    assert len(taken) == 20
    for item in taken:
        validate(item, SPECS)


def test_what_goes_wrong_with_a_fake_buffer_is_raised() -> None:
    made = fake.FakeBuffer("items", 0.0, buffer=KeepingBuffer(is_broken=True))
    with pytest.raises(errors.Overloaded):
        made.join(10.0)


def test_fakes_for_games_do_not_load_torch() -> None:
    code = "import sys; from ludus.fake import FakeActor, FakeGamecore; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0

"""Another door beside HTTP's: its steps and those of HTTP are of the same sessions."""

import asyncio
import contextlib

from test_http import Echo, connect, run

from ludus.gateway.gateway import Gateway, GatewayOptions
from ludus.gateway.step import Step


class DirectDoor:
    """Its protocol is the call of a function."""

    def __init__(self):
        self.calls = []

    async def open(self, gateway):
        self.gateway = gateway
        self.calls.append("open")

    def sweep(self, now):
        if self.calls[-1] != "sweep":
            self.calls.append("sweep")

    async def close(self):
        self.calls.append("close")

    async def ask(self, *args):
        future = asyncio.get_running_loop().create_future()
        self.gateway.step(Step(*args), future.set_result)
        return await future


@contextlib.asynccontextmanager
async def serving(size, tmp_path):
    doors = [DirectDoor() for _ in range(size)]
    options = GatewayOptions(folder=tmp_path)
    workers = [Gateway(Echo, options, index=i, size=size, doors=[door]) for i, door in enumerate(doors)]
    for worker in workers:
        await worker.start()
    try:
        yield workers, doors
    finally:
        for worker in workers:
            await worker.stop(0.1)


def test_a_session_can_be_played_through_two_doors(tmp_path):
    @run
    async def play():
        async with serving(1, tmp_path) as ((gateway,), (door,)):
            assert (await door.ask("start", "a", b"x", 0)).body == b"x"
            status, headers, body = await (await connect(gateway)).ask("tick", "a", b"y", step=1)
            assert (status, headers["session"], body) == (200, "a", b"y/1")
            repeated, refused = await door.ask("tick", "a", b"y", 1), await door.ask("tick", "a", b"y", 7)
            assert (repeated.body, repeated.session) == (b"y/1", "a")
            assert (refused.code, refused.members) == ("out_of_order", {"expected": 2})
            await asyncio.sleep(0.4)
        assert door.calls == ["open", "sweep", "close"]

    play()


def test_a_door_reaches_the_sessions_of_all_workers(tmp_path):
    @run
    async def play():
        async with serving(2, tmp_path) as (workers, doors):
            for session in "abcdef":
                assert (await doors[0].ask("start", session, b"x", 0)).session == session
                assert (await doors[1].ask("tick", session, b"y", 1)).body == b"y/1"
            assert sum(len(worker.sessions) for worker in workers) == 6
            assert all(worker.stats()["num_forwarded"] for worker in workers)

    play()

"""Sessions that were written down are played again through today's code."""

import asyncio

import pytest

from ludus.errors import DataError
from ludus.gateway.actor import Actor
from ludus.gateway.record import Recorder, read_recording
from ludus.gateway.replay import replay
from ludus.gateway.sessions import Sessions
from ludus.gateway.step import Step


class Counter(Actor):
    """Its answers depend on all that came before."""

    def start(self, session, data):
        self.total = len(data)
        session.pin("m", 7)
        return b"begun"

    async def tick(self, data):
        await asyncio.sleep(0)
        self.total += len(data)
        if data == b"raise":
            raise ValueError("as asked")
        return b"total %d" % self.total

    def end(self, data):
        return b"%d" % self.total


class Other(Counter):
    async def tick(self, data):
        answer = await super().tick(data)
        return answer if self.total < 12 else answer + b"!"


def record(path):
    async def play():
        recorder = Recorder(path, {"note": "of a test"})
        sessions = Sessions(Counter, observer=recorder)

        async def step(*args):
            future = asyncio.get_running_loop().create_future()
            sessions.step(Step(*args), future.set_result)
            return await future

        for session in ("a", "b"):
            await step("start", session, b"xx")
        for data in (b"12345", b"raise", b"", b"678"):
            for session in ("a", "b"):
                await step("tick", session, data)
        await step("end", "a", b"")
        await step("start", "a", b"again")  # the same id, another session
        await step("tick", "a", b"1")
        await sessions.leave(1.0)
        recorder.close()

    asyncio.run(play())


def test_the_same_code_gives_the_same_bytes(tmp_path):
    record(tmp_path / "log")
    head, steps = read_recording(tmp_path / "log")
    assert head["note"] == "of a test"
    report = asyncio.run(replay(steps, Counter))
    assert (report.num_sessions, report.num_steps, report.num_different) == (3, 13, 0)


def test_the_first_byte_that_differs_is_told(tmp_path):
    record(tmp_path / "log")
    report = asyncio.run(replay(read_recording(tmp_path / "log")[1], Other))
    assert report.num_different > 0
    assert (report.first.session, report.first.step, report.first.at) == ("a", 3, len(b"total 12"))
    assert "recorded b'total 12', now b'total 12!'" in str(report.first)


def test_sessions_play_the_versions_they_played_then(tmp_path):
    record(tmp_path / "log")
    wanted = []

    class Asking(Counter):
        def start(self, session, data):
            wanted.append(session.wanted("m"))
            return super().start(session, data)

    asyncio.run(replay(read_recording(tmp_path / "log")[1], Asking))
    assert wanted == [7, 7, 7]


def test_a_recording_that_was_cut_off_is_read_up_to_there(tmp_path):
    record(tmp_path / "log")
    whole = (tmp_path / "log").read_bytes()
    (tmp_path / "cut").write_bytes(whole[:-3])
    assert len(list(read_recording(tmp_path / "cut")[1])) == len(list(read_recording(tmp_path / "log")[1])) - 1
    (tmp_path / "other").write_bytes(b"\x05\0\0\0hello")
    with pytest.raises(DataError, match="not a recording"):
        read_recording(tmp_path / "other")

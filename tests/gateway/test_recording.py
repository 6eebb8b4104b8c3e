"""Sessions that were written down are played again through today's code."""

import asyncio
import json
import resource
from pathlib import Path

import msgspec
import pytest
from house import Clock

from ludus.cli.main import main
from ludus.errors import DataError
from ludus.gateway.actor import Actor
from ludus.gateway.record import Recorder, read_recording
from ludus.gateway.replay import replay
from ludus.gateway.session import FOLLOW, Session, current
from ludus.gateway.session_core import SessionCore, SessionLimits
from ludus.gateway.step import Outcome, Step


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
        sessions = SessionCore(Counter, observer=recorder)

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


def test_a_recording_of_before_there_were_outcomes_is_replayed_equal(tmp_path):
    """`recording_1.log` was made by `record` at that time. It is written the same way today."""
    old = list(read_recording(Path(__file__).parent / "recording_1.log")[1])
    report = asyncio.run(replay(old, Counter))
    assert (report.num_sessions, report.num_steps, report.first) == (3, 13, None)
    record(tmp_path / "log")
    for before, now in zip(old, read_recording(tmp_path / "log")[1], strict=True):
        if before.status != 200:  # its id is another each time
            assert {**json.loads(before.body), "id": ""} == {**json.loads(now.body), "id": ""}
            before, now = msgspec.structs.replace(before, body=b""), msgspec.structs.replace(now, body=b"")
        assert msgspec.structs.replace(before, time=0.0) == msgspec.structs.replace(now, time=0.0)


def test_the_first_byte_that_differs_is_reported(tmp_path):
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


class Versioned(Actor):
    """Answers the life it is of, and the version it plays."""

    newest = 1

    def start(self, session, data):
        self.count = 0
        return f"run {session.run!r}"

    def tick(self, data):
        session = current.get()
        wanted = session.wanted("m")
        if wanted == FOLLOW:
            session.pin("m", Versioned.newest)
        elif "m" not in session.versions:
            session.pin("m", wanted if isinstance(wanted, int) else Versioned.newest)
        self.count = getattr(self, "count", 0) + 1
        return b"version %d" % session.versions["m"]

    def end(self, data):
        return b"%d ticks" % self.count


def test_each_step_is_replayed_in_its_run_with_the_versions_it_played(tmp_path):
    async def play():
        recorder, clock = Recorder(tmp_path / "log"), Clock()
        sessions = SessionCore(Versioned, observer=recorder, limits=SessionLimits(lease_s=10), clock=clock)

        def step(kind, session, **more):
            answers = []
            sessions.step(Step(kind, session, b"", **more), answers.append)
            return answers[0].body

        Versioned.newest = 1
        step("start", "follows", wants={"": FOLLOW})
        step("start", "stays", run="r")
        for newest in (1, 2, 3):
            Versioned.newest = newest
            step("tick", "follows")
            step("tick", "stays")
            step(None, "")
        clock.now += 11
        sessions.sweep()
        assert step("start", "stays", run="r") == b"run 'r'", "the same life again, after its lease"
        assert step("tick", "stays") == b"version 3"
        assert step("end", "stays") == b"1 ticks"
        await sessions.leave(1.0)
        recorder.close()

    asyncio.run(play())
    steps = list(read_recording(tmp_path / "log")[1])
    assert [each.versions["m"] for each in steps if each.session == "follows" and each.kind == "tick"] == [1, 2, 3]
    assert [each.versions for each in steps if each.kind is None] == [{"m": 1}, {"m": 2}, {"m": 3}]
    Versioned.newest = 9
    report = asyncio.run(replay(steps, Versioned))
    assert (report.num_sessions, report.num_steps, report.first) == (3, 14, None)


def test_a_session_whose_end_was_not_recorded_may_begin_again(tmp_path):
    record(tmp_path / "log")
    steps = [each for each in read_recording(tmp_path / "log")[1] if each.kind != "end"]
    report = asyncio.run(replay(steps, Counter))
    assert (report.num_sessions, report.num_steps, report.num_different) == (3, 12, 0)


def test_what_does_not_fit_is_left_out_and_the_rest_can_be_read(tmp_path):
    recorder = Recorder(tmp_path / "log")

    def tell(data):
        recorder(Step("tick", "a", data), Outcome(b""), Session("a"))

    tell(b"first")
    size = (tmp_path / "log").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
    try:
        with pytest.raises(OSError, match="large"):
            tell(b"x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "log").stat().st_size == size
    tell(b"second")
    recorder.close()
    assert [each.data for each in read_recording(tmp_path / "log")[1]] == [b"first", b"second"]


@pytest.mark.parametrize(("actor", "code", "different"), [("Counter", 0, 0), ("Other", 1, 4)])
@pytest.mark.parametrize("as_json", [True, False])
def test_the_command_fails_if_an_answer_differs(actor, code, different, as_json, tmp_path, capsys):
    record(tmp_path / "log")
    words = ["replay", str(tmp_path / "log"), "--actor", f"{__file__}:{actor}"]
    assert main([*words, "--json"] if as_json else words) == code
    out = capsys.readouterr().out
    if as_json:
        report = json.loads(out)
        assert (report["sessions"], report["different"]) == (3, different)
        assert (report["first_difference"] is None) == (code == 0)
    else:
        assert f"3 sessions, 13 steps: {different} answers differ" in out

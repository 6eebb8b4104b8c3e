"""Gateway workers that hang, in real processes: stopped by a signal, or held up by an actor that blocks."""

import contextlib
import http.client
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

import ludus
from ludus.gateway.client import GameClient, GameError
from ludus.gateway.ring import owner_of
from ludus.launch import vitals


def sessions_of(worker, size, count):
    """Ids that belong to a worker."""
    ids = (f"s{number}" for number in range(10_000))
    return [session for session in ids if owner_of(session, size) == worker][:count]


class Sleeper(ludus.Actor):
    """Says in which process it is; without a session, that is the one that has the connection."""

    def start(self, session, data):
        return str(os.getpid())

    def tick(self, data):
        if data.startswith(b"hang in "):
            Path(data[8:].decode()).touch()
            time.sleep(1000)
        return str(os.getpid())


@contextlib.contextmanager
def connected(actor, pid):
    """A connection that this process has accepted."""
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            connection = http.client.HTTPConnection("127.0.0.1", actor.port, timeout=60)
            stack.callback(connection.close)
            if ask(connection)[1] == str(pid).encode():
                yield connection
                return
        raise AssertionError(f"no connection reached process {pid}")


def ask(connection, data=b"", **headers):
    """One step: its problem, if it has one, and its body."""
    connection.request("POST", "/step", data, headers)
    response = connection.getresponse()
    body = response.read()
    return (json.loads(body)["code"] if response.status != 200 else ""), body


def begin(actor, worker):
    """A session of that worker, and the process."""
    game = GameClient(actor.url, sessions_of(worker, 2, 1)[0], retries=50, timeout_s=60)
    return game, int(game.start())


def wait_for(condition, otherwise):
    until = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < until, otherwise
        time.sleep(0.05)
    return found


def wait_for_restart(trial, actor, worker):
    name = f"{actor.node}/{worker}"
    return wait_for(
        lambda: next((each for each in trial.workers() if each.name == name and each.restarts), None),
        "a worker that hangs is not replaced",
    )


def test_a_worker_that_is_stopped_is_replaced_and_deadlines_hold_until_then(trial, monkeypatch):
    actor = ludus.RemoteActor(num_workers=2)
    actor.serve(Actor=Sleeper)
    (lost, victim), (kept, other) = begin(actor, 0), begin(actor, 1)
    answered = []

    def play():  # as the others do at the same time
        until = time.monotonic() + 60
        while not done.is_set() and time.monotonic() < until:
            answered.append(int(kept.tick(b"")))

    done = threading.Event()
    with lost, kept, connected(actor, other) as connection:
        load = threading.Thread(target=play)
        load.start()
        monkeypatch.setattr(vitals, "STOPPED_S", 60.0)  # a busy machine may take more than two seconds to see the rest
        os.kill(victim, signal.SIGSTOP)
        try:
            session = sessions_of(0, 2, 1)[0]
            code, _ = ask(connection, session=session, step_kind="tick", step="1", deadline_ms="50")
            assert code == "deadline_exceeded", "before the process is killed, which would answer session_lost"
            fresh = [http.client.HTTPConnection("127.0.0.1", actor.port, timeout=60) for _ in range(8)]
            for each in fresh:
                with contextlib.closing(each):
                    assert ask(each) == ("", str(other).encode()), "none waits for the process that is stopped"
            monkeypatch.undo()
            wait_for_restart(trial, actor, 0)
            with pytest.raises(GameError) as refused:
                lost.tick(b"")
            assert refused.value.code == "session_lost"
        finally:
            done.set()
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        load.join(60)
        assert answered
        assert set(answered) == {other}
        again, successor = begin(actor, 0)
        with again:
            assert successor not in (victim, other)


def test_a_tick_that_blocks_holds_up_no_new_connection_and_its_worker_is_replaced(trial):
    actor = ludus.RemoteActor(num_workers=2)
    actor.serve(Actor=Sleeper)
    (game, victim), (kept, other) = begin(actor, 0), begin(actor, 1)
    codes, mark = [], trial.folder / "hanging"

    def hang():
        with game:
            try:
                game.tick(b"hang in " + bytes(mark))
            except GameError as error:
                codes.append(error.code)

    with kept:
        hanging = threading.Thread(target=hang)
        hanging.start()
        wait_for(mark.exists, "the tick has not started")
        fresh = [http.client.HTTPConnection("127.0.0.1", actor.port, timeout=60) for _ in range(12)]
        for each in fresh:
            each.request("POST", "/step", b"")
        assert {each.getresponse().read() for each in fresh} == {str(other).encode()}
        for each in fresh:
            each.close()
        record = wait_for_restart(trial, actor, 0)
        hanging.join(60)
        assert codes == ["session_lost"]
        assert int(kept.tick(b"")) == other
        assert "held up" in record.last_end.reason
        assert "time.sleep(1000)" in record.last_end.reason
        again, successor = begin(actor, 0)
        with again:
            assert successor not in (victim, other)

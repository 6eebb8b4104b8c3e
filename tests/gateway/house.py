"""Sessions without HTTP, and the actors that play in them. Time is a counter."""

import asyncio
import contextlib
import os

from ludus.gateway.actor import Actor
from ludus.gateway.session import current
from ludus.gateway.session_core import SessionCore, SessionLimits
from ludus.gateway.step import Outcome, Step


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Echo(Actor):
    """Notes everything that it was called for."""

    def __init__(self, log):
        self.log = log

    def start(self, session, data):
        self.session = session
        self.log.append(("start", str(session), data))
        return b"s" + data

    def tick(self, data):
        self.log.append(("tick", str(self.session), data))
        if data == b"raise":
            raise ValueError("as asked")
        if data == b"dict":
            return {"a": 1}
        return b"t" + data

    def end(self, data, reason):
        self.log.append(("end", str(self.session), data, reason))
        return b"e" + data


class Slow(Echo):
    """Each tick waits until it is let go."""

    gates: dict = {}  # noqa: RUF012 - the test's own

    async def tick(self, data):
        assert current.get() is self.session
        gate = self.gates.setdefault(data, asyncio.Event())
        await gate.wait()
        return Echo.tick(self, data)


class Hasty(Slow):
    def fallback(self, data):
        return b"f" + data


class House:
    """Sessions, and the answers of every step."""

    def __init__(self, cls=Echo, journal=None, more=None, **limits):
        self.log = []
        self.clock = Clock()
        Slow.gates = {}
        self.sessions = SessionCore(
            lambda: cls(self.log), limits=SessionLimits(**limits), clock=self.clock, journal=journal, **(more or {})
        )

    def send(self, kind, session="a", data=b"", number=None, **more) -> asyncio.Future[Outcome]:
        future = asyncio.get_running_loop().create_future()
        self.sessions.step(Step(kind, session, data, number, **more), future.set_result)
        return future

    def now(self, *args, **kwargs) -> Outcome:
        future = self.send(*args, **kwargs)
        assert future.done(), "an ordinary method is answered at once"
        return future.result()


def run(test):
    """An async test as an ordinary one."""

    def wrapped():
        asyncio.run(asyncio.wait_for(test(), 20))

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


@contextlib.contextmanager
def full(fd):
    """Nothing can be written to it."""
    kept, nowhere = os.dup(fd), os.open("/dev/full", os.O_WRONLY)
    os.dup2(nowhere, fd)
    try:
        yield
    finally:
        os.dup2(kept, fd)
        os.close(kept)
        os.close(nowhere)

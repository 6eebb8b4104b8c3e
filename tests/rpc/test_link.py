"""What a caller does about connections that break: it sends again only what is known not to have started."""

import threading
import time

import numpy as np
import pytest

from ludus import errors
from ludus.data import codec
from ludus.rpc import messages
from ludus.rpc.address import parse
from ludus.rpc.call import Caller, new_call
from ludus.rpc.client import RpcClient
from ludus.rpc.link import Link
from ludus.rpc.opening import nearest
from ludus.rpc.server import RpcServer
from ludus.rpc.transport import ChannelClosed
from ludus.testing.serving import ServerThread

WAIT_S = 60.0


def open_channel(address, timeout_s=WAIT_S):
    return nearest(parse(str(address)), transport=None, secret=None, timeout_s=timeout_s, max_bytes=1 << 30)


class Cut:
    """A connection that breaks on request. Like tcp, it does not know what the server has started."""

    same_host = True

    def __init__(self, inner, num_lost=0):
        self.instance = inner.instance
        self.is_cut = False
        self._inner = inner
        self._num_lost = num_lost  # answers that get lost on the way, the first ones

    def send(self, frames, timeout_s):
        if self.is_cut:
            raise ChannelClosed("cut")
        self._inner.send(frames, timeout_s)

    def receive(self, timeout_s):
        if self.is_cut:
            raise ChannelClosed("cut")
        answers = self._inner.receive(min(timeout_s, 0.05))
        lost, self._num_lost = answers[: self._num_lost], max(0, self._num_lost - len(answers))
        return answers[len(lost) :]

    def began(self, slot, seq):
        return None

    def fileno(self):
        return self._inner.fileno()

    def close(self):
        self._inner.close()


class Replica:
    """A server whose call `work` can be held up."""

    def __init__(self):
        self.ran = []
        self.began, self.go = threading.Event(), threading.Event()
        self.thread = ServerThread(RpcServer(transports=("unix",)), work=self.work)

    def work(self, x):
        self.ran.append(x)
        self.began.set()
        self.go.wait(WAIT_S)
        return x

    def __enter__(self):
        self.thread.__enter__()
        return self

    def __exit__(self, *exc):
        self.go.set()
        self.thread.__exit__(*exc)


def submit(first, doors, offered):
    """A call over a connection that can be cut; connections after it are what `doors` open, one after the other."""
    address = parse(first.thread.address)
    cut = Cut(open_channel(address))
    doors = iter([lambda: cut, *doors])

    def take_over(pending, error):
        offered.append(error)
        return False

    link = Link(address, Caller(), opener=lambda to, timeout_s: next(doors)(), on_not_run=take_over)
    pending = new_call(link._caller, "work", (1,), {}, WAIT_S, codec.DEFAULT_LIMITS)
    link.send(pending)
    assert first.began.wait(WAIT_S)
    return link, cut, pending


def refused():
    raise errors.Unreachable("nobody listens")


def test_a_call_that_may_have_started_is_not_offered_to_others_when_its_server_is_gone():
    offered = []
    with Replica() as first:
        link, cut, pending = submit(first, [refused], offered)
        cut.is_cut = True
        with pytest.raises(errors.OutcomeUnknown, match="may have run"):
            pending.result()
        link.close()
    assert offered == []
    assert first.ran == [1]


def test_a_call_that_may_have_started_is_not_sent_to_the_server_that_took_the_place():
    offered = []
    with Replica() as first, Replica() as second:
        link, cut, pending = submit(first, [lambda: Cut(open_channel(second.thread.address))], offered)
        cut.is_cut = True
        second.go.set()
        with pytest.raises(errors.OutcomeUnknown):
            pending.result()
        link.close()
        with RpcClient(second.thread.address) as client:
            assert client.call("work", (2,), timeout_s=WAIT_S) == 2
        assert second.ran == [2]
    assert offered == []


def test_after_a_broken_connection_the_same_server_is_asked_for_the_answer_and_runs_nothing_twice():
    offered = []
    with Replica() as first:
        link, cut, pending = submit(first, [lambda: Cut(open_channel(first.thread.address))], offered)
        cut.is_cut = True
        first.go.set()
        assert pending.result() == 1
        assert link.statistics().num_probes >= 1
        assert link.statistics().num_resent == 0
        link.close()
    assert first.ran == [1]
    assert offered == []


def test_a_large_answer_that_got_lost_ends_the_call_at_once_and_it_does_not_run_again():
    """It is too large to keep, so it cannot be given again; the caller learns that the call ran."""
    ran = []

    def make(size):
        ran.append(size)
        return np.zeros(size, np.uint8)

    def opener(address, timeout_s):
        return Cut(open_channel(address), num_lost=1)

    began = time.monotonic()
    with (
        ServerThread(RpcServer(transports=("unix",)), make=make) as server,
        RpcClient(server.address, opener=opener) as client,
    ):
        with pytest.raises(errors.OutcomeUnknown, match="too large to keep"):
            client.call("make", (1 << 20,), timeout_s=40.0)
        assert time.monotonic() - began < 39.0
        assert client.call("make", (3,), timeout_s=WAIT_S).shape == (3,)
    assert ran == [1 << 20, 3]


def test_a_small_answer_that_got_lost_is_given_again():
    ran = []

    def note(x):
        ran.append(x)
        return x

    with (
        ServerThread(RpcServer(transports=("unix",)), note=note) as server,
        RpcClient(server.address, opener=lambda to, timeout_s: Cut(open_channel(to), num_lost=1)) as client,
    ):
        assert client.call("note", (5,), timeout_s=WAIT_S) == 5
    assert ran == [5]


@pytest.mark.parametrize("is_same", [True, False])
def test_a_server_says_not_seen_only_of_calls_that_were_sent_to_itself(is_same):
    """A successor cannot know what became of its predecessor's calls: sending one again could run it twice."""
    with ServerThread(RpcServer(transports=("unix",)), echo=lambda x: x) as server:
        channel = open_channel(server.address)
        instance = parse(server.address).instance if is_same else "of the one before"
        channel.send([messages.encode(messages.Probe(b"c" * 16, 1, instance))], WAIT_S)
        answers = []
        while not answers:
            answers = channel.receive(WAIT_S)
        failure = messages.decode_from_server(answers[0][0])
        channel.close()
    assert type(failure) is messages.Failure
    assert (failure.kind == messages.NOT_SEEN) is is_same
    assert ("OutcomeUnknown" in failure.kind) is not is_same


def test_a_link_is_closed_for_being_idle_only_if_it_is() -> None:
    gate = threading.Event()
    with ServerThread(RpcServer(), wait=lambda: gate.wait(60.0)) as server:
        client = RpcClient(server.address)
        pending = client.submit("wait")
        assert not client.link.close_if_idle()
        gate.set()
        assert pending.result() is True
        assert client.link.close_if_idle()
        with pytest.raises(errors.Unreachable, match="closed"):
            client.request("wait")

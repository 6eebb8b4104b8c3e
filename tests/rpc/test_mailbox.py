"""Slots and boards: nothing gets lost between a sender that writes and a receiver that falls asleep."""

import mmap
import threading

import pytest

from ludus.rpc import mailbox
from ludus.rpc.client import RpcClient
from ludus.rpc.mailbox import SLOT_BYTES, Board, Slot
from ludus.rpc.server import RpcServer
from ludus.testing.serving import ServerThread

pytestmark = pytest.mark.skipif(not mailbox.is_supported, reason="slots need x86's order of stores")


@pytest.fixture
def slot():
    memory = mmap.mmap(-1, SLOT_BYTES + 4096)
    return Slot(memory, 4096, full=(memory, 0), awake=(memory, 1))


def test_a_slot_takes_a_message_only_for_a_receiver_that_is_awake(slot):
    rung = []
    assert not slot.put([b"hello"], 5, lambda: rung.append(1))
    slot.wake_up()
    assert slot.put([b"he", memoryview(b"llo")], 5, lambda: rung.append(1))
    assert not slot.put([b"again"], 5, lambda: rung.append(1))
    assert bytes(slot.take()) == b"hello"
    assert slot.put([b"again"], 5, lambda: rung.append(1))
    assert not rung


def test_a_receiver_does_not_fall_asleep_over_a_message(slot):
    slot.wake_up()
    assert slot.fall_asleep()
    slot.wake_up()
    slot.put([b"x"], 1, lambda: None)
    assert not slot.fall_asleep()


def test_what_is_too_large_is_refused_and_a_lying_length_gives_nothing(slot):
    slot.wake_up()
    assert not slot.put([bytes(SLOT_BYTES)], SLOT_BYTES, lambda: None)
    slot.put([b"x"], 1, lambda: None)
    slot._memory[4096:4104] = (1 << 40).to_bytes(8, "little")
    assert slot.take() is None


def test_a_board_has_each_message_read_and_forgets_who_left():
    board = Board()
    read = []
    first = board.enter(lambda: (read.append(1), board.memory.__setitem__(first, 0)))
    second = board.enter(lambda: (read.append(2), board.memory.__setitem__(second, 0)))
    assert not board.read()
    board.memory[second] = 1
    assert not board.fall_asleep()
    board.wake_up()
    assert board.read()
    assert read == [2]
    board.leave(first)
    board.memory[first] = 1
    assert board.read()
    assert not board.has_mail()
    board.close()


def test_no_call_is_lost_between_waking_and_sleeping():
    """Bursts and pauses of every length, so that both ends are found awake, looking, falling asleep and asleep."""
    server = ServerThread(RpcServer(transports=("unix",)), echo=lambda x: x)
    slow = []
    with server:

        def work(seed):
            pause = threading.Event()
            with RpcClient(server.address) as client:
                for i in range(400):
                    assert client.call("echo", (i,), timeout_s=20.0) == i
                    if i % 7 == seed:
                        pause.wait(0.00005 * (i % 13))
                slow.append(client.statistics().num_probes)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(slow) == 3
        assert sum(slow) == 0, "an answer came only after it was asked for again"

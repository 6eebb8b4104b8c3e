from __future__ import annotations

import os
import signal
import threading

import pytest

from ludus.launch.signals import Interrupts


@pytest.fixture
def interrupts() -> Interrupts:
    return Interrupts()


def test_the_first_signal_unwinds_and_the_handlers_come_back(interrupts: Interrupts) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    interrupts.install()
    try:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(SystemExit) as end:
            os.kill(os.getpid(), signal.SIGTERM)
        assert end.value.code == 143
    finally:
        interrupts.restore()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_signal_while_draining_hurries_instead_of_raising(interrupts: Interrupts) -> None:
    interrupts.install()
    try:
        interrupts.is_draining = True
        assert not interrupts.is_hurried
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.is_hurried
    finally:
        interrupts.restore()


def test_handlers_are_left_alone_outside_the_main_thread(interrupts: Interrupts) -> None:
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=interrupts.install)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) == before


def test_an_ignored_signal_stays_ignored(interrupts: Interrupts) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupts.install()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        interrupts.restore()
        signal.signal(signal.SIGINT, before)


def test_a_handler_set_by_somebody_else_since_is_kept(interrupts: Interrupts) -> None:
    before = signal.getsignal(signal.SIGINT)
    interrupts.install()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupts.restore()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)

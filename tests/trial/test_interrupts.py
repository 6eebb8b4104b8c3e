"""Ctrl-C that waits for the end of what is under way."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from ludus.trial import interrupts


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_asks_and_the_second_raises() -> None:
    asked: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts.deferred_to(lambda: asked.append(1)):
        interrupt()
        assert asked == [1]
        interrupt()
        threading.Event().wait(5)
    assert asked == [1]
    assert signal.getsignal(signal.SIGINT) is before


def test_afterwards_it_raises_as_before() -> None:
    with interrupts.deferred_to(lambda: None):
        pass
    with pytest.raises(KeyboardInterrupt):
        interrupt()
        threading.Event().wait(5)


def test_where_it_is_ignored_it_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asked: list[int] = []
        with interrupts.deferred_to(lambda: asked.append(1)):
            interrupt()
        assert asked == []
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_than_the_main_one_changes_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def run() -> None:
        with interrupts.deferred_to(lambda: None):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]

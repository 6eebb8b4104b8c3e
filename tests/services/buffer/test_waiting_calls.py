from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from ludus import errors
from ludus.rpc.deferred import Deferred
from ludus.services.buffer.waiting_calls import WaitingCalls

from .segments import wait_until


def outcome(answer: object) -> list[object]:
    """What becomes of a call, once it is answered."""
    found: list[object] = []
    assert isinstance(answer, Deferred)
    answer.bind(lambda value, error: found.append(error or value))
    return found


def test_calls_are_answered_in_their_order_and_none_overtakes_another() -> None:
    calls = WaitingCalls(threading.RLock())
    stock = [1]
    assert calls.answer(lambda: stock and stock.pop(), lambda: 0, 10.0) == 1
    first = outcome(calls.answer(lambda: len(stock) >= 2 and [stock.pop(0), stock.pop(0)], lambda: [], 10.0))
    second = outcome(calls.answer(lambda: stock and stock.pop(0), lambda: 0, 10.0))
    stock.append(2)
    calls.serve()
    assert first == second == [], "the second could be answered, but is not the first in line"
    stock.append(3)
    stock.append(4)
    calls.serve()
    assert (first, second) == ([[2, 3]], [4])


def test_a_call_whose_time_is_up_leaves_the_line_and_those_behind_it_are_looked_at() -> None:
    calls = WaitingCalls(threading.RLock())
    assert calls.answer(lambda: "", lambda: "late", 0.0) == "late"
    answered = threading.Event()
    never = outcome(calls.answer(lambda: None, lambda: "late", 0.01))
    behind = calls.answer(lambda: "there" if not len(calls) > 1 else "", lambda: "late", 60.0)
    assert isinstance(behind, Deferred)
    behind.bind(lambda value, error: answered.set() if value == "there" else None)
    assert answered.wait(20)
    assert never == ["late"]


def test_what_an_attempt_raises_is_the_answer_of_its_call_alone() -> None:
    calls = WaitingCalls(threading.RLock())
    with pytest.raises(errors.ConfigError):
        calls.answer(lambda: refuse(True), lambda: 0, 1.0)
    is_refusing: list[bool] = []
    first = outcome(calls.answer(lambda: refuse(bool(is_refusing)), lambda: 0, 10.0))
    second = outcome(calls.answer(lambda: len(is_refusing), lambda: 0, 10.0))
    is_refusing.append(True)
    calls.serve()
    assert isinstance(first[0], errors.ConfigError)
    assert second == [1]


def test_closing_answers_all_as_if_their_time_were_up() -> None:
    calls = WaitingCalls(threading.RLock())
    waiting = [outcome(calls.answer(lambda: None, lambda: "late", 60.0)) for _ in range(3)]
    calls.close()
    calls.close()
    assert waiting == [["late"]] * 3
    assert len(calls) == 0


def refuse(is_refusing: bool) -> int:
    if is_refusing:
        raise errors.ConfigError("never")
    return 0


def test_a_call_that_fails_in_any_way_does_not_hold_up_those_behind_it() -> None:
    calls = WaitingCalls(threading.RLock())
    stock: list[int] = []
    first = outcome(calls.answer(lambda: stock and stock.pop(), lambda: 0, 10.0))
    broken = outcome(calls.answer(lambda: len(stock) + "1", lambda: 0, 10.0))  # type: ignore[operator]
    behind = outcome(calls.answer(lambda: stock and stock.pop(), lambda: 0, 10.0))
    stock += [2, 1]
    calls.serve()
    assert (first, behind) == ([1], [2])
    assert isinstance(broken[0], TypeError)


def test_no_wait_is_too_long_and_what_is_no_number_is_no_wait() -> None:
    calls = WaitingCalls(threading.RLock())
    assert calls.answer(lambda: "", lambda: "late", float("nan")) == "late"
    answer = outcome(calls.answer(lambda: "", lambda: "late", float("inf")))
    (call,) = calls._calls
    assert call.timer is not None
    assert call.timer.interval <= threading.TIMEOUT_MAX
    calls.close()
    assert answer == ["late"]


def test_what_was_answered_is_let_go_at_once() -> None:
    calls = WaitingCalls(threading.RLock())
    stock: list[int] = []

    def call() -> tuple[object, weakref.ref[Any]]:
        array = np.zeros(3)
        return calls.answer(lambda: len(array) * len(stock), lambda: 0, 60.0), weakref.ref(array)

    answer, is_there = call()
    gc.disable()
    try:
        stock.append(1)
        calls.serve()
        assert outcome(answer) == [3]
        wait_until(lambda: is_there() is None)  # the thread of its timer is on its way out
    finally:
        gc.enable()

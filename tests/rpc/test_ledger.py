"""The ledger against a model: messages that are late, doubled and overtaken run nothing twice and lose no answer."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ludus import errors
from ludus.rpc.arena import CALL_WINDOW
from ludus.rpc.call import Caller
from ludus.rpc.ledger import Ledger, Seen

MAX_KEPT, MAX_ALL = 100, 250
WHO = st.sampled_from([0, 0, 0, 1])


@dataclass
class Call:
    """What is true of one call."""

    message: tuple[int, int, list[int]]  # its number, and what its caller said was settled
    state: str = "unseen"  # running, done
    answer: list[bytes] = field(default_factory=list)
    is_settled: bool = False  # its caller has its outcome, or has given up
    num_runs: int = 0

    @property
    def size(self) -> int:
        return sum(map(len, self.answer))


class LedgerMachine(RuleBasedStateMachine):
    """Two callers number their calls as real ones do. The network delivers any message, any number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(max_kept_bytes=MAX_KEPT, max_answer_bytes=MAX_ALL)
        self.callers = [Caller(), Caller()]
        self.calls: list[dict[int, Call]] = [{}, {}]
        self.acked = [0, 0]  # the highest that was sent to the ledger
        self.num_bytes = 0  # of all answers that could ever have been kept

    def pick(self, data: st.DataObject, who: int, state: str | None = None) -> Call | None:
        numbers = [seq for seq, call in self.calls[who].items() if state in (None, call.state)]
        return self.calls[who][data.draw(st.sampled_from(numbers))] if numbers else None

    def check(self, call: Call, found: object) -> None:
        if call.is_settled and found is Seen.SETTLED:
            return
        if call.state == "unseen":
            assert found is Seen.NEW
        elif call.state == "running":
            assert found is Seen.RUNNING
        elif call.size > MAX_KEPT:
            assert found is Seen.GONE
        elif self.num_bytes > MAX_ALL:  # it may have made way for others
            assert found is Seen.GONE or found == call.answer
        else:
            assert found == call.answer

    @rule(who=WHO)
    def begin(self, who: int) -> None:
        seq, _slot, acked, slow = self.callers[who].begin()
        self.calls[who][seq] = Call((seq, acked, list(slow)))

    @rule(who=WHO)
    def call(self, who: int) -> None:
        """The usual case: it is started, and arrives at once."""
        self.begin(who)
        self._deliver(who, self.calls[who][max(self.calls[who])])

    @rule(who=WHO)
    def make_so_many_others_that_the_unsettled_become_exceptions(self, who: int) -> None:
        for _ in range(CALL_WINDOW):
            self.callers[who].settle(self.callers[who].begin()[0])

    @rule(who=WHO, data=st.data())
    def deliver(self, who: int, data: st.DataObject) -> None:
        call = self.pick(data, who)
        if call is not None:
            self._deliver(who, call)

    def _deliver(self, who: int, call: Call) -> None:
        found = self.ledger.arrive(self.callers[who].client, *call.message)
        self.acked[who] = max(self.acked[who], call.message[1])
        self.check(call, found)
        if found is Seen.NEW:
            call.state = "running"
            call.num_runs += 1

    @rule(who=WHO, data=st.data(), sizes=st.sampled_from([[], [1], [40, 50], [99], [100], [60, 41]]))
    def finish(self, who: int, data: st.DataObject, sizes: list[int]) -> None:
        call = self.pick(data, who, "running")
        if call is None:
            return
        call.state = "done"
        call.answer = [bytes([65 + who]) * size for size in sizes]
        if call.size <= MAX_KEPT:
            self.num_bytes += call.size
        shared = [bytearray(frame) for frame in call.answer]
        self.ledger.finish(self.callers[who].client, call.message[0], [memoryview(frame) for frame in shared])
        for frame in shared:
            frame[:] = bytes(len(frame))  # the handler's arrays change; what is kept does not

    @rule(who=WHO, data=st.data())
    def abandon(self, who: int, data: st.DataObject) -> None:
        """It had arrived and was not started: its caller may send it again."""
        call = self.pick(data, who, "running")
        if call is not None:
            self.ledger.abandon(self.callers[who].client, call.message[0])
            call.state = "unseen"
            call.num_runs -= 1

    @rule(who=WHO, data=st.data())
    def settle(self, who: int, data: st.DataObject) -> None:
        call = self.pick(data, who)
        if call is not None:
            self.callers[who].settle(call.message[0])
            call.is_settled = True

    @invariant()
    def every_call_is_found_as_it_is(self) -> None:
        for caller, calls in zip(self.callers, self.calls, strict=True):
            for seq, call in calls.items():
                self.check(call, self.ledger.find(caller.client, seq))

    @invariant()
    def nothing_runs_twice(self) -> None:
        assert all(call.num_runs <= 1 for calls in self.calls for call in calls.values())

    @invariant()
    def it_is_bounded(self) -> None:
        stats = self.ledger.statistics()
        assert 0 <= stats.answer_bytes <= MAX_ALL
        assert stats.num_callers <= 2

    @precondition(lambda self: any(call.is_settled for calls in self.calls for call in calls.values()))
    @rule(who=WHO)
    def forget_what_is_settled(self, who: int) -> None:
        """A new call tells what is settled; from then on nothing of that may begin.

        Exceptions are sent together with a higher number, so one that is settled without that is not forgotten yet.
        """
        seq, _slot, acked, slow = self.callers[who].begin()
        is_news = acked > self.acked[who]
        self.calls[who][seq] = Call((seq, acked, list(slow)))
        self._deliver(who, self.calls[who][seq])
        for number, call in self.calls[who].items():
            if is_news and call.is_settled and number < acked:
                assert self.ledger.arrive(self.callers[who].client, *call.message) is Seen.SETTLED


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_with_too_many_callers_a_new_one_is_refused_until_others_are_idle() -> None:
    ledger = Ledger(max_callers=2, idle_s=1e9)
    for client in (b"a", b"b"):
        assert ledger.arrive(client, 1, 1, []) is Seen.NEW
    with pytest.raises(errors.Overloaded, match="not run"):
        ledger.arrive(b"c", 1, 1, [])
    assert ledger.arrive(b"a", 1, 1, []) is Seen.RUNNING
    eager = Ledger(max_callers=2, idle_s=-1.0)
    for client in (b"a", b"b", b"c"):
        assert eager.arrive(client, 1, 1, []) is Seen.NEW

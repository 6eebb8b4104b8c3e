"""The contract of `core.Names` as tests, for our backends and for yours.

    class TestMyNames(NamesConformance):
        connector = "mypackage.names:connect"       # takes the url; imported by name in the test's child processes

        @pytest.fixture
        def url(self, my_server):
            return my_server.url

Every test uses names of its own, so the backend behind the url may be shared by the whole class.
"""

from __future__ import annotations

import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from ludus import core, errors
from ludus.testing import lease_holder
from ludus.testing.lease_holder import LeaseHolder

__all__ = ["NamesConformance", "Recorder", "eventually"]

Opener = Callable[[], core.Names]
Starter = Callable[..., LeaseHolder]

_PATIENCE_S = 10.0
_NOTIFIED_WITHIN_S = 0.5
_SILENCE_S = 0.25  # a change not reported by then is not reported


class NamesConformance:
    """Subclass it, give the fixture `url`, and set these if the defaults are not right."""

    connector: ClassVar[str] = "ludus.discovery:connect"  # module:function that makes a `Names` of the url
    ttl: ClassVar[float] = 1.0  # a short lease, but none shorter than the backend can hold
    spans_processes: ClassVar[bool] = True  # False: the url means something else in every process

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError("a subclass of NamesConformance gives the fixture `url`")

    @pytest.fixture
    def root(self) -> str:
        """A subtree that no other test uses."""
        return f"conformance/{uuid.uuid4().hex}"

    @pytest.fixture
    def open_names(self, url: str) -> Iterator[Opener]:
        """Opens one more connection to the same backend at each call."""
        opened: list[core.Names] = []

        def open_one() -> core.Names:
            opened.append(lease_holder.connect(self.connector, url))
            return opened[-1]

        yield open_one
        for names in opened:
            names.close()

    @pytest.fixture
    def names(self, open_names: Opener) -> core.Names:
        return open_names()

    @pytest.fixture
    def child(self, url: str) -> Iterator[Starter]:
        """Starts a process that adds a lease and keeps it: `child(name, value)`."""
        if not self.spans_processes:
            pytest.skip("this backend lives within one process, so no other process can hold a lease in it")
        started: list[LeaseHolder] = []

        def start(name: str, value: str, *, go: str = "") -> LeaseHolder:
            started.append(LeaseHolder(self.connector, url, name, value, ttl=self.ttl, go=go))
            return started[-1]

        yield start
        for each in started:
            each.kill()

    # ── add, get, delete ──────────────────────────────────────────────────────────────────────────────────────────

    def test_is_names(self, names: core.Names) -> None:
        assert isinstance(names, core.Names)

    def test_get_gives_what_add_set(self, names: core.Names, root: str) -> None:
        names.add(f"{root}/a", "1")
        assert names.get(f"{root}/a") == "1"

    def test_another_connection_sees_it(self, open_names: Opener, root: str) -> None:
        one, other = open_names(), open_names()
        one.add(f"{root}/a", "1")
        assert other.get(f"{root}/a") == "1"

    def test_get_of_what_is_not_there_raises(self, names: core.Names, root: str) -> None:
        with pytest.raises(errors.NameNotFound, match="nobody"):
            names.get(f"{root}/nobody")

    def test_a_name_is_taken_once(self, open_names: Opener, root: str) -> None:
        one, other = open_names(), open_names()
        one.add(f"{root}/a", "1")
        for each in (one, other):
            with pytest.raises(errors.NameTaken):
                each.add(f"{root}/a", "2")
        assert one.get(f"{root}/a") == "1"

    def test_replace_takes_a_name_over(self, open_names: Opener, root: str) -> None:
        one, other = open_names(), open_names()
        one.add(f"{root}/a", "1")
        other.add(f"{root}/a", "2", replace=True)
        assert one.get(f"{root}/a") == "2"

    def test_replace_of_what_is_not_there_adds_it(self, names: core.Names, root: str) -> None:
        names.add(f"{root}/a", "1", replace=True)
        assert names.get(f"{root}/a") == "1"

    def test_delete_removes(self, names: core.Names, root: str) -> None:
        names.add(f"{root}/a", "1")
        names.delete(f"{root}/a")
        with pytest.raises(errors.NameNotFound):
            names.get(f"{root}/a")
        with pytest.raises(errors.NameNotFound):
            names.delete(f"{root}/a")

    def test_a_deleted_name_can_be_added_again(self, names: core.Names, root: str) -> None:
        names.add(f"{root}/a", "1", ttl=self.ttl)
        names.delete(f"{root}/a")
        names.add(f"{root}/a", "2")
        assert names.get(f"{root}/a") == "2"

    def test_anyone_may_delete_a_name_without_a_lease(self, open_names: Opener, root: str) -> None:
        one, other = open_names(), open_names()
        one.add(f"{root}/a", "1")
        other.delete(f"{root}/a")
        assert one.find_subtree(root) == []

    def test_delete_spares_what_somebody_else_put_there_since(self, open_names: Opener, root: str) -> None:
        one, other = open_names(), open_names()
        one.add(f"{root}/lease", "1", ttl=self.ttl)
        one.add(f"{root}/plain", "1")
        for name in (f"{root}/lease", f"{root}/plain"):
            other.add(name, "2", replace=True)
            with pytest.raises(errors.NameNotFound):
                one.delete(name)
            assert other.get(name) == "2"

    @pytest.mark.parametrize("name", ["", "/", "/a", "a/", "a//b", "a\nb"])
    def test_a_malformed_name_is_refused(self, names: core.Names, name: str) -> None:
        with pytest.raises(errors.DiscoveryError, match="is not a name"):
            names.add(name, "1")
        with pytest.raises(errors.DiscoveryError, match="is not a name"):
            names.get(name)

    def test_a_value_that_is_no_string_is_refused(self, names: core.Names, root: str) -> None:
        with pytest.raises(errors.DiscoveryError, match="must be a string"):
            names.add(f"{root}/a", 5555)  # type: ignore[arg-type]

    @pytest.mark.parametrize("ttl", [0.0, -1.0, float("nan"), float("inf")])
    def test_a_ttl_that_is_no_time_is_refused(self, names: core.Names, root: str, ttl: float) -> None:
        with pytest.raises(errors.DiscoveryError, match="ttl"):
            names.add(f"{root}/a", "1", ttl=ttl)

    @pytest.mark.parametrize(
        "part", ["ünïcode", "棋", "with space", "per%25cent", "@", "..", ".hidden", "q?x=1&y#z", "*[a]"]
    )
    def test_any_printable_part_is_a_name(self, names: core.Names, root: str, part: str) -> None:
        names.add(f"{root}/{part}/0", "1")
        names.add(f"{root}/{part}", "2")
        assert names.get(f"{root}/{part}/0") == "1"
        assert names.find_subtree(root) == [f"{root}/{part}", f"{root}/{part}/0"]

    @pytest.mark.parametrize(
        "value", ["", "ünïcode 棋 🎲", "two\nlines\t\x00", "x" * 100_000], ids=["empty", "unicode", "control", "long"]
    )
    def test_any_value_comes_back_as_it_was(self, names: core.Names, root: str, value: str) -> None:
        names.add(f"{root}/a", value)
        assert names.get(f"{root}/a") == value
        assert names.get_subtree(root) == [value]

    # ── subtrees ──────────────────────────────────────────────────────────────────────────────────────────────────

    def test_a_subtree_is_the_root_and_what_is_below_in_order(self, names: core.Names, root: str) -> None:
        for name, value in [("a/c", "3"), ("a", "1"), ("ab", "no"), ("a/b/x", "2"), ("a-", "no"), ("a0", "no")]:
            names.add(f"{root}/{name}", value)
        assert names.find_subtree(f"{root}/a") == [f"{root}/a", f"{root}/a/b/x", f"{root}/a/c"]
        assert names.get_subtree(f"{root}/a") == ["1", "2", "3"]

    def test_an_empty_subtree_is_empty(self, names: core.Names, root: str) -> None:
        assert names.find_subtree(root) == []
        assert names.get_subtree(root) == []

    def test_clear_subtree_removes_the_root_and_what_is_below_and_nothing_else(
        self, open_names: Opener, root: str
    ) -> None:
        one, other = open_names(), open_names()
        for name in ["a", "a/b", "a/b/c", "ab"]:
            one.add(f"{root}/{name}", "1")
        other.clear_subtree(f"{root}/a")
        assert one.find_subtree(root) == [f"{root}/ab"]
        other.clear_subtree(f"{root}/a")

    def test_clear_subtree_ends_the_leases_of_its_own_object(self, names: core.Names, root: str) -> None:
        names.add(f"{root}/a", "1", ttl=self.ttl)
        names.clear_subtree(root)
        time.sleep(0.7 * self.ttl)
        assert names.find_subtree(root) == []

    # ── many at once ──────────────────────────────────────────────────────────────────────────────────────────────

    def test_of_many_threads_one_gets_the_name(self, open_names: Opener, root: str) -> None:
        connections = [open_names() for _ in range(4)]
        start = threading.Barrier(8)

        def race(number: int) -> bool:
            start.wait()
            try:
                connections[number % 4].add(f"{root}/prize", str(number), ttl=self.ttl)
            except errors.NameTaken:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(race, range(8)))
        assert won.count(True) == 1
        assert connections[0].get(f"{root}/prize") == str(won.index(True))

    def test_adds_from_many_threads_all_arrive(self, names: core.Names, root: str) -> None:
        def add_some(number: int) -> None:
            for each in range(5):
                names.add(f"{root}/{number}/{each}", f"{number}.{each}")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(add_some, range(8)))
        expected = {f"{root}/{number}/{each}": f"{number}.{each}" for number in range(8) for each in range(5)}
        assert names.find_subtree(root) == sorted(expected)
        assert names.get_subtree(root) == [expected[name] for name in sorted(expected)]

    def test_of_many_processes_one_gets_the_name(self, names: core.Names, child: Starter, root: str) -> None:
        racers = [child(f"{root}/prize", str(number), go=f"{root}/go") for number in range(2)]
        for racer in racers:
            racer.expect("waiting")
        names.add(f"{root}/go", "")
        assert sorted(racer.line() for racer in racers) == ["added", "taken"]

    # ── wait ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def test_wait_gives_what_is_there(self, names: core.Names, root: str) -> None:
        names.add(f"{root}/a", "1")
        assert names.wait(f"{root}/a", timeout=0.0) == "1"

    def test_wait_gives_what_appears_later(self, open_names: Opener, root: str) -> None:
        one, other = open_names(), open_names()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(one.wait, f"{root}/a", _PATIENCE_S)
            time.sleep(0.1)
            assert not waiting.done()
            other.add(f"{root}/a", "1")
            added_at = time.monotonic()
            assert waiting.result() == "1"
        assert time.monotonic() - added_at < _NOTIFIED_WITHIN_S

    def test_wait_times_out(self, names: core.Names, root: str) -> None:
        began = time.monotonic()
        with pytest.raises(errors.NameTimeout, match="nobody"):
            names.wait(f"{root}/nobody", timeout=0.1)
        assert 0.1 <= time.monotonic() - began < 0.1 + _NOTIFIED_WITHIN_S

    # ── watch ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def test_a_watch_tells_the_present_state_first(self, names: core.Names, root: str) -> None:
        names.add(f"{root}/a", "1")
        recorder = Recorder()
        names.watch_names([f"{root}/a", f"{root}/b"], recorder)
        recorder.expect({f"{root}/a": "1", f"{root}/b": None})

    def test_a_watch_tells_of_appearance_change_and_end(self, open_names: Opener, root: str) -> None:
        one, other = open_names(), open_names()
        recorder = Recorder()
        one.watch_names(f"{root}/a", recorder)
        recorder.expect({f"{root}/a": None})
        other.add(f"{root}/a", "1")
        recorder.expect({f"{root}/a": "1"}, within_s=_NOTIFIED_WITHIN_S)
        other.add(f"{root}/a", "2", replace=True)
        recorder.expect({f"{root}/a": "2"}, within_s=_NOTIFIED_WITHIN_S)
        other.delete(f"{root}/a")
        recorder.expect({f"{root}/a": None}, within_s=_NOTIFIED_WITHIN_S)
        assert [value for _, value in recorder.calls] == [None, "1", "2", None]

    def test_a_watch_of_a_subtree_tells_of_all_below(self, open_names: Opener, root: str) -> None:
        one, other = open_names(), open_names()
        other.add(f"{root}/a/0", "0")
        for name in ["a", "ab"]:
            other.add(f"{root}/{name}", "not below")
        recorder = Recorder()
        one.watch_names(f"{root}/a/", recorder)
        recorder.expect({f"{root}/a/0": "0"})
        other.add(f"{root}/a/1/x", "1")
        recorder.expect({f"{root}/a/0": "0", f"{root}/a/1/x": "1"}, within_s=_NOTIFIED_WITHIN_S)
        other.clear_subtree(f"{root}/a")
        recorder.expect({f"{root}/a/0": None, f"{root}/a/1/x": None}, within_s=_NOTIFIED_WITHIN_S)
        assert {name for name, _ in recorder.calls} == {f"{root}/a/0", f"{root}/a/1/x"}

    def test_a_callback_that_raises_does_not_end_the_watch(self, names: core.Names, root: str) -> None:
        recorder = Recorder(raises=True)
        names.watch_names(f"{root}/", recorder)
        names.add(f"{root}/a", "1")
        recorder.expect({f"{root}/a": "1"})
        names.add(f"{root}/b", "2")
        recorder.expect({f"{root}/a": "1", f"{root}/b": "2"})

    def test_a_closed_watch_tells_nothing(self, names: core.Names, root: str) -> None:
        recorder = Recorder()
        watch = names.watch_names(f"{root}/a", recorder)
        recorder.expect({f"{root}/a": None})
        watch.close()
        names.add(f"{root}/a", "1")
        time.sleep(_SILENCE_S)
        assert recorder.calls == [(f"{root}/a", None)]
        watch.close()

    def test_a_watch_can_be_closed_by_its_own_callback(self, names: core.Names, root: str) -> None:
        watches: list[core.Watch] = []
        calls = []

        def close_it(name: str, value: str | None) -> None:
            calls.append((name, value))
            if value is not None:
                watches[0].close()

        watches.append(names.watch_names(f"{root}/a", close_it))
        names.add(f"{root}/a", "1")
        eventually(lambda: calls[-1:] == [(f"{root}/a", "1")])
        names.add(f"{root}/a", "2", replace=True)
        time.sleep(_SILENCE_S)
        assert calls[-1] == (f"{root}/a", "1")

    # ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────

    def test_a_lease_is_kept_alive_without_a_gap_or_a_change(self, open_names: Opener, root: str) -> None:
        one, other = open_names(), open_names()
        recorder = Recorder()
        other.watch_names(f"{root}/", recorder)
        one.add(f"{root}/a", "1", ttl=self.ttl)
        end = time.monotonic() + 2.0 * self.ttl
        while time.monotonic() < end:
            assert other.get(f"{root}/a") == "1"
            with pytest.raises(errors.NameTaken):
                other.add(f"{root}/a", "2")
            time.sleep(0.05)
        assert recorder.calls == [(f"{root}/a", "1")]

    def test_a_lost_lease_is_put_back(self, open_names: Opener, root: str) -> None:
        one, other = open_names(), open_names()
        one.add(f"{root}/a", "1", ttl=self.ttl)
        other.delete(f"{root}/a")
        assert other.wait(f"{root}/a", timeout=self.ttl) == "1"

    def test_a_lease_that_was_replaced_is_let_go(self, open_names: Opener, root: str) -> None:
        one, other = open_names(), open_names()
        one.add(f"{root}/a", "1", ttl=self.ttl)
        other.add(f"{root}/a", "2", ttl=self.ttl, replace=True)
        time.sleep(0.7 * self.ttl)
        one.close()
        assert other.get(f"{root}/a") == "2"

    def test_a_lease_can_be_made_permanent(self, open_names: Opener, root: str) -> None:
        one, other = open_names(), open_names()
        one.add(f"{root}/a", "1", ttl=self.ttl)
        one.add(f"{root}/a", "2", replace=True)
        one.close()
        assert other.get(f"{root}/a") == "2"
        other.delete(f"{root}/a")

    def test_close_removes_leases_and_ends_watches(self, open_names: Opener, root: str) -> None:
        one, other = open_names(), open_names()
        recorder = Recorder()
        one.add(f"{root}/lease", "1", ttl=self.ttl)
        one.add(f"{root}/plain", "2")
        one.watch_names(f"{root}/", recorder)
        recorder.expect({f"{root}/lease": "1", f"{root}/plain": "2"})
        one.close()
        assert other.find_subtree(root) == [f"{root}/plain"]
        other.add(f"{root}/lease", "3")
        time.sleep(_SILENCE_S)
        assert len(recorder.calls) == 2
        one.close()
        with pytest.raises(errors.DiscoveryError, match="closed"):
            one.get(f"{root}/plain")

    def test_a_killed_owner_is_gone_within_its_ttl_and_watchers_are_notified(
        self, names: core.Names, child: Starter, root: str
    ) -> None:
        recorder = Recorder()
        names.watch_names(f"{root}/", recorder)
        owner = child(f"{root}/owner", "1")
        owner.expect("added")
        recorder.expect({f"{root}/owner": "1"}, within_s=_NOTIFIED_WITHIN_S)
        time.sleep(0.6 * self.ttl)  # so that it lives by renewals, not by its first breath
        assert names.get(f"{root}/owner") == "1"
        owner.kill()
        killed_at = time.monotonic()
        recorder.expect({f"{root}/owner": None}, within_s=self.ttl + _NOTIFIED_WITHIN_S)
        assert time.monotonic() - killed_at > 0.1 * self.ttl, "the lease ended without having lapsed"
        names.add(f"{root}/owner", "2")

    def test_an_owner_that_was_stopped_too_long_does_not_take_its_name_back(
        self, names: core.Names, child: Starter, root: str
    ) -> None:
        owner = child(f"{root}/owner", "old")
        owner.expect("added")
        owner.signal(signal.SIGSTOP)
        eventually(lambda: names.find_subtree(root) == [])
        names.add(f"{root}/owner", "new")
        owner.signal(signal.SIGCONT)
        owner.signal(signal.SIGTERM)  # it closes its names and ends
        owner.expect("closed")
        assert names.get(f"{root}/owner") == "new"


class Recorder:
    """A callback that remembers: `calls` in order, and through them the state as the watcher knows it."""

    def __init__(self, *, raises: bool = False) -> None:
        self.calls: list[tuple[str, str | None]] = []
        self._raises = raises

    def __call__(self, name: str, value: str | None) -> None:
        self.calls.append((name, value))
        if self._raises:
            raise RuntimeError("this callback always raises; the test wants it so")

    def expect(self, state: dict[str, str | None], *, within_s: float = _PATIENCE_S) -> None:
        """Wait until the watcher was notified of exactly this."""
        deadline = time.monotonic() + within_s
        while dict(self.calls) != state:
            assert time.monotonic() < deadline, f"notified of {self.calls} within {within_s:g} s, not of {state}"
            time.sleep(0.01)


def eventually(condition: Callable[[], bool], *, within_s: float = _PATIENCE_S) -> None:
    """Wait until `condition` holds."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {within_s:g} s"
        time.sleep(0.01)

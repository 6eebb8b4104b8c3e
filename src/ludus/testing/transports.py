"""The conformance kit of transports: what every way of moving messages must do. Subclass it and name the transport.

class TestMine(TransportConformance):
    transport = "unix"
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, ClassVar

import numpy as np
import pytest

from ludus import errors
from ludus.rpc.aio import AsyncRpcClient
from ludus.rpc.batching import Batching
from ludus.rpc.client import RpcClient, wait_any
from ludus.rpc.server import Deferred, RpcServer
from ludus.testing.serving import ServerThread

__all__ = ["TransportConformance"]


class TransportConformance:
    """Runs a server over `transport` in a thread and calls it."""

    transport: ClassVar[str]

    def make_server(self) -> RpcServer:
        return RpcServer(0 if self.transport == "zmq" else None, transports=(self.transport,))

    def make_client(self, address: str, **options: Any) -> RpcClient:
        return RpcClient(address, transport=self.transport, **options)

    def test_a_nest_is_echoed(self) -> None:
        with ServerThread(self.make_server(), echo=lambda x: x) as server, self.make_client(server.address) as client:
            nest = {"obs": np.arange(12, dtype=np.float32).reshape(3, 4), "info": [1, 2.5, "three", None, (True, b"5")]}
            got = client.request("echo", x=nest)
            np.testing.assert_array_equal(got["obs"], nest["obs"])
            assert got["obs"].dtype == np.float32
            assert got["info"] == nest["info"]

    @pytest.mark.parametrize("size", [0, 1, 8191, 8192, 100_000, 1 << 20, 5_000_000])
    def test_arrays_of_every_size_arrive_whole(self, size: int) -> None:
        with ServerThread(self.make_server(), echo=lambda x: x) as server, self.make_client(server.address) as client:
            array = np.random.default_rng(size).integers(0, 255, size, dtype=np.uint8)
            for _ in range(3):
                np.testing.assert_array_equal(client.request("echo", x=array), array)

    def test_results_stay_what_they_were_while_more_calls_are_made(self) -> None:
        with ServerThread(self.make_server(), echo=lambda x: x) as server, self.make_client(server.address) as client:
            kept = [client.request("echo", x=np.full(50_000, i)) for i in range(20)]
            for i, array in enumerate(kept):
                assert (array == i).all()

    def test_results_that_are_kept_for_long_do_not_block_the_way(self) -> None:
        """More than any shared memory holds: what does not fit takes another way and is as right."""
        server = self.make_server()
        with (
            ServerThread(server, make=lambda i: np.full(1 << 17, i)) as served,
            self.make_client(served.address) as client,
        ):
            kept = [client.request("make", i) for i in range(80)]
            assert all((array == i).all() for i, array in enumerate(kept))
            del kept
            assert client.request("make", 7)[-1] == 7

    def test_a_message_of_very_many_arrays_arrives(self) -> None:
        with ServerThread(self.make_server(), count=len) as server, self.make_client(server.address) as client:
            assert client.request("count", [np.zeros(1, np.int8)] * 70_000) == 70_000

    def test_positional_and_keyword_arguments(self) -> None:
        def add(a: int, b: int = 0, *, c: int = 0) -> int:
            return a + 10 * b + 100 * c

        with ServerThread(self.make_server(), add=add) as server, self.make_client(server.address) as client:
            assert client.request("add", 1, 2, c=3) == 321

    def test_an_error_is_raised_at_the_caller_with_the_remote_traceback(self) -> None:
        def fail(x: int) -> None:
            raise ValueError(f"bad {x}")

        with ServerThread(self.make_server(), fail=fail) as server, self.make_client(server.address) as client:
            with pytest.raises(errors.RemoteError) as caught:
                client.request("fail", x=7)
            assert isinstance(caught.value, ValueError)
            assert caught.value.remote_type == "ValueError"
            assert "bad 7" in str(caught.value)
            assert "in fail" in caught.value.remote_traceback

    def test_an_unknown_command_is_answered_with_the_nearest(self) -> None:
        with ServerThread(self.make_server(), forward=lambda: 1) as server, self.make_client(server.address) as client:
            with pytest.raises(errors.UnknownCommand, match="forward"):
                client.request("froward")
            assert client.request("forward") == 1

    def test_a_result_that_cannot_be_encoded_is_an_error_not_a_hang(self) -> None:
        server = self.make_server()
        with (
            ServerThread(server, unencodable=lambda: {1, 2}) as served,
            self.make_client(served.address) as client,
            pytest.raises(errors.CodecError),
        ):
            client.request("unencodable")

    def test_arguments_that_cannot_be_encoded_send_nothing(self) -> None:
        with ServerThread(self.make_server(), echo=lambda x: x) as server, self.make_client(server.address) as client:
            with pytest.raises(errors.CodecError):
                client.request("echo", x=object())
            assert client.request("echo", x=1) == 1

    def test_a_slow_call_ends_at_its_deadline(self) -> None:
        release = threading.Event()
        with (
            ServerThread(self.make_server(), slow=lambda: release.wait(60)) as server,
            self.make_client(server.address) as client,
        ):
            began = time.monotonic()
            with pytest.raises(errors.DeadlineExceeded):
                client.call("slow", timeout_s=0.2)
            assert 0.1 < time.monotonic() - began < 30.0
            release.set()

    def test_a_call_that_waited_past_its_deadline_is_not_run(self) -> None:
        ran: list[int] = []
        release = threading.Event()
        with (
            ServerThread(self.make_server(), slow=lambda: release.wait(10), note=ran.append) as server,
            self.make_client(server.address) as client,
        ):
            slow = client.submit("slow")
            late = client.submit("note", (1,), timeout_s=0.1)
            with pytest.raises(errors.DeadlineExceeded):
                late.result()
            time.sleep(0.05)
            release.set()
            slow.result()
            client.request("note", 2)
            # Between hosts the clocks cannot be compared, and time spent in the network's queues does not count.
            assert ran == [2] or (self.transport == "zmq" and ran == [1, 2])

    def test_many_calls_may_be_on_the_way(self) -> None:
        with ServerThread(self.make_server(), echo=lambda x: x) as server, self.make_client(server.address) as client:
            pendings = [client.submit("echo", (i,)) for i in range(300)]
            assert [pending.result() for pending in pendings] == list(range(300))

    def test_too_many_calls_on_the_way_are_refused(self) -> None:
        deferred: list[Deferred] = []

        def later() -> Deferred:
            deferred.append(Deferred())
            return deferred[-1]

        with ServerThread(self.make_server(), later=later) as server, self.make_client(server.address) as client:
            for _ in range(1024):
                client.submit("later", timeout_s=5.0)
            with pytest.raises(errors.Overloaded):
                client.submit("later")

    def test_a_deferred_call_is_answered_from_another_thread(self) -> None:
        def later(x: int) -> Deferred:
            deferred = Deferred()
            threading.Timer(0.05, deferred.set_result, (x + 1,)).start()
            return deferred

        with ServerThread(self.make_server(), later=later) as server, self.make_client(server.address) as client:
            assert client.request("later", x=1) == 2

    def test_threads_share_a_client(self) -> None:
        with ServerThread(self.make_server(), echo=lambda x: x) as server, self.make_client(server.address) as client:
            wrong: list[tuple[int, int]] = []

            def work(base: int) -> None:
                for i in range(100):
                    got = client.request("echo", x=base + i)
                    if got != base + i:
                        wrong.append((base + i, got))

            threads = [threading.Thread(target=work, args=(1000 * k,)) for k in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert not wrong
            assert server.server.statistics().num_run == 800

    def test_wait_any_gives_what_is_done(self) -> None:
        with ServerThread(self.make_server(), echo=lambda x: x) as server:
            clients = [self.make_client(server.address) for _ in range(5)]
            waiting = {clients[i].submit("echo", (i,)): i for i in range(5)}
            results = []
            while waiting:
                for pending in wait_any(waiting, 5.0):
                    results.append(pending.result())
                    assert results[-1] == waiting.pop(pending)
            assert sorted(results) == [0, 1, 2, 3, 4]
            for client in clients:
                client.close()

    def test_a_notification_is_run_and_not_answered(self) -> None:
        got: list[int] = []
        with (
            ServerThread(self.make_server(), note=got.append, sync=lambda: None) as server,
            self.make_client(server.address) as client,
        ):
            client.notify("note", 5)
            client.notify("nothing-of-that-name")
            client.request("sync")
            assert got == [5]

    def test_a_fire_and_forget_command_is_answered_before_it_runs(self) -> None:
        release = threading.Event()
        server = self.make_server()
        server.register_handler("slow", lambda: release.wait(120), response=False)
        with ServerThread(server) as served, self.make_client(served.address) as client:
            assert client.call("slow", timeout_s=60.0) is None
            release.set()

    def test_batch_gathers_its_callers_and_runs_once(self) -> None:
        sizes: list[int] = []

        def double(x: Any) -> Any:
            sizes.append(len(x))
            return {"y": x * 2}

        server = self.make_server()
        server.register_handler("double", double, batching=Batching(batch=4, straggler_s=5.0))
        with ServerThread(server) as served, self.make_client(served.address) as client:
            pendings = [client.submit("double", (np.full(3, i),)) for i in range(4)]
            for i, pending in enumerate(pendings):
                np.testing.assert_array_equal(pending.result()["y"], np.full(3, 2 * i))
            assert sizes == [4]

    def test_stragglers_do_not_hold_a_batch_for_ever(self) -> None:
        server = self.make_server()
        server.register_handler("double", lambda x: x * 2, batching=Batching(batch=4, straggler_s=0.1))
        with ServerThread(server) as served, self.make_client(served.address) as client:
            assert client.call("double", (np.int64(3),), timeout_s=5.0) == 6
            assert served.server.statistics().batches["double"].num_straggling == 1

    def test_max_batch_takes_what_is_pending(self) -> None:
        sizes: list[int] = []
        release = threading.Event()

        def double(x: Any) -> Any:
            sizes.append(len(x))
            if len(sizes) == 1:
                release.wait(10)
            return x * 2

        server = self.make_server()
        server.register_handler("double", double, batching=Batching(max_batch=64))
        with ServerThread(server) as served, self.make_client(served.address) as client:
            first = client.submit("double", (0,))
            while not sizes:
                time.sleep(0.001)
            rest = [client.submit("double", (i,)) for i in range(1, 33)]
            time.sleep(0.05)
            release.set()
            assert first.result() == 0
            assert [pending.result() for pending in rest] == [2 * i for i in range(1, 33)]
            assert sizes[0] == 1
            assert max(sizes) > 16

    def test_a_misfit_in_a_batch_fails_alone(self) -> None:
        server = self.make_server()
        server.register_handler("double", lambda x: x * 2, batching=Batching(batch=3, straggler_s=5.0))
        with ServerThread(server) as served, self.make_client(served.address) as client:
            good = client.submit("double", (np.zeros(2),))
            bad = client.submit("double", (np.zeros(3),))
            also_good = client.submit("double", (np.ones(2),))
            assert good.result().shape == (2,)
            assert also_good.result()[0] == 2.0
            with pytest.raises(errors.DataError):
                bad.result()

    def test_a_deadline_travels_with_nested_calls(self) -> None:
        inner = self.make_server()
        seen: list[float] = []
        release = threading.Event()
        with ServerThread(inner, slow=lambda: release.wait(120)) as low, self.make_client(low.address) as low_client:

            def outer() -> None:
                began = time.monotonic()
                try:
                    low_client.call("slow", timeout_s=90.0)
                finally:
                    seen.append(time.monotonic() - began)

            with ServerThread(self.make_server(), outer=outer) as high, self.make_client(high.address) as client:
                with pytest.raises(errors.DeadlineExceeded):
                    client.call("outer", timeout_s=0.3)
                deadline = time.monotonic() + 60
                while not seen and time.monotonic() < deadline:
                    time.sleep(0.01)
            release.set()
        assert seen
        assert seen[0] < 30.0

    def test_a_closed_server_is_unreachable(self) -> None:
        with ServerThread(self.make_server(), echo=lambda x: x) as server:
            client = self.make_client(server.address)
            assert client.request("echo", x=1) == 1
            address = server.address
        with pytest.raises(errors.RpcError):
            client.call("echo", (1,), timeout_s=1.0)
        with pytest.raises(errors.RpcError):
            self.make_client(address).call("echo", (1,), timeout_s=1.0)
        client.close()

    def test_a_call_is_never_run_twice(self) -> None:
        """The same call id sent again, and again after its answer, runs once."""
        ran: list[int] = []
        server = self.make_server()

        def note(x: int) -> int:
            ran.append(x)
            return x

        with ServerThread(server, note=note) as served, self.make_client(served.address) as client:
            pending = client.submit("note", (1,))
            client.link.send(pending)
            assert pending.result() == 1
            again = client.submit("note", (2,))
            again.result()
            client.request("note", 3)
            assert ran == [1, 2, 3]
            assert served.server.statistics().num_duplicates == 1

    def test_the_asyncio_client_makes_many_calls_at_once(self) -> None:
        async def main(address: str) -> list[Any]:
            async with AsyncRpcClient(address, transport=self.transport) as client:
                results = await asyncio.gather(*(client.request("echo", x=i) for i in range(100)))
                with pytest.raises(errors.RemoteError):
                    await client.request("fail")
                with pytest.raises(errors.DeadlineExceeded):
                    await client.call("never", timeout_s=0.2)
                return list(results)

        def fail() -> None:
            raise RuntimeError("no")

        with ServerThread(self.make_server(), echo=lambda x: x, fail=fail, never=Deferred) as server:
            assert asyncio.run(main(server.address)) == list(range(100))

"""The gRPC door: round trips per second of a game's ticks, against hand-written grpcio servers of the same service.

    python benchmarks/grpc_door.py
    python benchmarks/grpc_door.py --rounds 7 --seconds 3 --json

Each server is a process of its own and answers a tick with the bytes that it got: ours as any gateway does, with
sessions, numbers, leases and metrics; `aio` and `sync` as one would write them by hand on grpcio, on the same stubs,
with nothing but the copy. HTTP is the same gateway's other door, `native` a call of ludus.rpc with the same bytes. One
client process plays all sessions against one server at a time, and the servers take turns in every round; medians of
their rounds are compared. `unary_vs_grpcio` and `stream_vs_grpcio` are ours ÷ the faster of `aio` and `sync`. What the
client costs is in all of them alike; the processor time that each server takes for a round trip is beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from multiprocessing.connection import Connection
from typing import Any

import grpc
import grpc.aio

from ludus.grpc.protos import game_pb2, game_pb2_grpc

BARS = {"unary_vs_grpcio": 0.8, "stream_vs_grpcio": 0.8}
WARM_UP_S = 0.3
START_S = 60.0


# --- servers: each sends its port, and ends when the pipe does


class AioService(game_pb2_grpc.GameServiceServicer):
    async def Tick(self, request: Any, context: Any) -> Any:
        return game_pb2.StepReply(data=request.data, session=request.session)

    Start = End = Tick

    async def Play(self, requests: Any, context: Any) -> Any:
        async for request in requests:
            yield game_pb2.StepReply(data=request.data, session=request.session)


class SyncService(game_pb2_grpc.GameServiceServicer):
    def Tick(self, request: Any, context: Any) -> Any:
        return game_pb2.StepReply(data=request.data, session=request.session)

    Start = End = Tick

    def Play(self, requests: Any, context: Any) -> Any:
        for request in requests:
            yield game_pb2.StepReply(data=request.data, session=request.session)


def serve_aio(pipe: Connection, num_games: int) -> None:
    async def serve() -> None:
        server = grpc.aio.server()
        game_pb2_grpc.add_GameServiceServicer_to_server(AioService(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        pipe.send({"aio": port})
        await asyncio.get_running_loop().run_in_executor(None, wait_for_end, pipe)
        await server.stop(0)

    asyncio.run(serve())


def serve_sync(pipe: Connection, num_games: int) -> None:
    server = grpc.server(ThreadPoolExecutor(num_games + 4))
    game_pb2_grpc.add_GameServiceServicer_to_server(SyncService(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    pipe.send({"sync": port})
    wait_for_end(pipe)
    server.stop(0)


def serve_ludus(pipe: Connection, num_games: int) -> None:
    from ludus.gateway.gateway import GatewayOptions
    from ludus.gateway.thread import GatewayThread
    from ludus.testing.gateways import EchoActor

    with GatewayThread(EchoActor, GatewayOptions(grpc_port=0)) as gateway:
        pipe.send({"ludus": gateway.gateway.grpc_port, "http": gateway.port})
        wait_for_end(pipe)


def serve_native(pipe: Connection, num_games: int) -> None:
    import ludus

    with ludus.RpcServer(0) as server:
        server.register_handler("tick", lambda data: data)
        pipe.send({"native": server.port})
        while not pipe.poll():
            server.handle_requests(timeout_s=0.1)


def wait_for_end(pipe: Connection) -> None:
    with contextlib.suppress(EOFError):
        pipe.recv()


SERVERS: dict[str, Callable[[Connection, int], None]] = {
    "ludus": serve_ludus, "aio": serve_aio, "sync": serve_sync, "native": serve_native,
}  # fmt: skip


# --- the client: round trips of one way of playing, against one port


class Count:
    """Round trips between two instants."""

    def __init__(self, seconds: float) -> None:
        self.began = time.monotonic() + WARM_UP_S
        self.until = self.began + seconds
        self.number = 0

    def add(self) -> bool:
        """One more; whether to go on."""
        now = time.monotonic()
        self.number += now >= self.began
        return now < self.until


def play(way: str, port: int, *, num_games: int, num_bytes: int, seconds: float) -> float:
    count = Count(seconds)
    if way == "native":
        play_native(port, count, num_games, bytes(num_bytes))
    else:
        asyncio.run(play_all(way, port, count, num_games, bytes(num_bytes)))
    return count.number / seconds


async def play_all(way: str, port: int, count: Count, num_games: int, data: bytes) -> None:
    if way == "http":
        await asyncio.gather(*(play_http(port, count, data) for _ in range(num_games)))
        return
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with contextlib.AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options))
            for _ in range(4)
        ]
        games = [
            play_grpc(way, game_pb2_grpc.GameServiceStub(channels[index % len(channels)]), count, data)
            for index in range(num_games)
        ]
        await asyncio.gather(*games)


async def play_grpc(way: str, stub: Any, count: Count, data: bytes) -> None:
    session = f"bench-{os.urandom(8).hex()}"
    await stub.Start(game_pb2.StepRequest(session=session, step=0, data=data))
    number = 0
    if way == "unary":
        go_on = True
        while go_on:
            number += 1
            reply = await stub.Tick(game_pb2.StepRequest(session=session, step=number, data=data))
            check(reply, data)
            go_on = count.add()
    else:
        stream = stub.Play()
        go_on = True
        while go_on:
            number += 1
            request = game_pb2.StepRequest(session=session, kind=game_pb2.TICK, step=number, data=data)
            await stream.write(request)
            check(await stream.read(), data)
            go_on = count.add()
        await stream.done_writing()
    await stub.End(game_pb2.StepRequest(session=session, step=number + 1))


def check(reply: Any, data: bytes) -> None:
    if reply.data != data:
        raise SystemExit(f"a wrong answer: {reply}")


async def play_http(port: int, count: Count, data: bytes) -> None:
    from ludus.gateway.client.aio import AsyncGameClient

    game = AsyncGameClient(f"http://127.0.0.1:{port}")
    await game.start(data)
    while await game.tick(data) == data and count.add():
        pass
    await game.end()
    game.close()


def play_native(port: int, count: Count, num_games: int, data: bytes) -> None:
    """One after another: a native client's calls are synchronous."""
    import ludus

    with ludus.RpcClient("127.0.0.1", port) as client:
        while client.request("tick", data) == data and count.add():
            pass


# --- rounds


class Server:
    def __init__(self, name: str, num_games: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=SERVERS[name], args=(other, num_games), name=name)
        self._process.start()
        other.close()
        if not self._pipe.poll(START_S):
            raise SystemExit(f"the server {name} did not start in {START_S:g} s")
        self.ports: dict[str, int] = self._pipe.recv()

    def cpu_s(self) -> float:
        """Of all its threads."""
        path = f"/proc/{self._process.pid}/schedstat"
        tasks = f"/proc/{self._process.pid}/task"
        total = 0
        for task in os.listdir(tasks):
            with contextlib.suppress(OSError), open(path.replace("/schedstat", f"/task/{task}/schedstat")) as file:
                total += int(file.read().split()[0])
        return total / 1e9

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send("end")
        self._process.join(10.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


CONTESTANTS = (  # what is measured, the server's port, the way of playing
    ("unary ludus", "ludus", "unary"),
    ("unary aio", "aio", "unary"),
    ("unary sync", "sync", "unary"),
    ("stream ludus", "ludus", "stream"),
    ("stream aio", "aio", "stream"),
    ("stream sync", "sync", "stream"),
    ("http ludus", "http", "http"),
    ("native ludus", "native", "native"),
)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    rates: dict[str, list[float]] = {name: [] for name, _, _ in CONTESTANTS}
    micros: dict[str, list[float]] = {name: [] for name, _, _ in CONTESTANTS}
    servers = {}
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        for name in SERVERS:
            server = Server(name, args.games)
            stack.callback(server.stop)
            servers.update({port: (server, number) for port, number in server.ports.items()})
        pool = stack.enter_context(contextlib.closing(context.Pool(1)))
        for number in range(args.rounds):
            turn = CONTESTANTS[number % len(CONTESTANTS) :] + CONTESTANTS[: number % len(CONTESTANTS)]
            for name, port, way in turn:
                server, where = servers[port]
                before = server.cpu_s()
                options = {"num_games": args.games, "num_bytes": args.bytes, "seconds": args.seconds}
                rate = pool.apply(play, (way, where), options)
                rates[name].append(rate)
                used = server.cpu_s() - before
                micros[name].append(1e6 * used / max(1.0, rate * (args.seconds + WARM_UP_S)))
                print(f"  round {number + 1}/{args.rounds}  {name:<13} {rate:>9,.0f}/s", file=sys.stderr, flush=True)
        pool.terminate()
    medians = {name: statistics.median(values) for name, values in rates.items()}
    ratios = {
        f"{way}_vs_grpcio": medians[f"{way} ludus"] / max(medians[f"{way} aio"], medians[f"{way} sync"])
        for way in ("unary", "stream")
    }
    ratios |= {f"{way}_vs_{peer}": medians[f"{way} ludus"] / medians[f"{way} {peer}"]
               for way in ("unary", "stream") for peer in ("aio", "sync")}  # fmt: skip
    ratios["stream_vs_http"] = medians["stream ludus"] / medians["http ludus"]
    return {
        "ratios": ratios,
        "medians": medians,
        "server_us": {name: statistics.median(values) for name, values in micros.items()},
        "versions": {
            "grpcio": metadata.version("grpcio"),
            "protobuf": metadata.version("protobuf"),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
        },
    }


def report(result: dict[str, Any]) -> None:
    print(f"{'':<14} {'round trips/s':>14} {'server µs each':>15}")
    for name, rate in result["medians"].items():
        print(f"{name:<14} {rate:>14,.0f} {result['server_us'][name]:>15,.0f}")
    for name, ratio in result["ratios"].items():
        bar = BARS.get(name)
        verdict = "" if bar is None else f"   bar {bar:g}: {'held' if ratio >= bar else 'MISSED'}"
        print(f"{name:<18} {ratio:5.2f}{verdict}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Round trips through the gRPC door.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each contestant in a round")
    parser.add_argument("--games", type=int, default=16, help="sessions at a time")
    parser.add_argument("--bytes", type=int, default=64, help="that a tick sends, and gets back")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    args = parser.parse_args()
    result = measure(args)
    report(result)
    if args.json:
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`ludus fake-actor`: a server for a game to call before there is an agent; it tells how many requests come.

ludus fake-actor --port 8000 --tick-return left
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from ludus.cli import options
from ludus.fake.actor import FakeActor
from ludus.gateway.client import check_header
from ludus.gateway.gateway import GatewayOptions
from ludus.gateway.session_core import SessionLimits
from ludus.options import option

__all__ = ["add_arguments", "run"]

_TELL_EVERY_S = 2.0


@dataclass(frozen=True, kw_only=True)
class _Server:
    port: int = option(8000, help="port to listen on; 0: any free port", minimum=0, maximum=65535)
    grpc_port: int | None = option(None, help="port for gRPC; 0: any free port", minimum=0, maximum=65535)
    host: str = option("127.0.0.1", help="beyond 127.0.0.1 a token or a secret is needed")
    delay_ms: float = option(0.0, help="how long a tick takes", minimum=0, maximum=600_000)
    lease_s: float = option(60.0, help="seconds that a session lives without a step", minimum=0.1)
    seconds: float | None = option(None, help="end after this time, if not at Ctrl-C", minimum=0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_options(parser, _Server())
    for kind in ("start", "tick", "end"):
        default = f"fake_actor_{kind}_return"
        parser.add_argument(
            f"--{kind}-return", metavar="TEXT", default=default, help=f"answer to {kind} (default: {default})"
        )
    parser.add_argument("--echo", action="store_true", help="answer with the request's body")
    options.add_secrets(parser, token="bearer token that games must send", secret="secret that games must sign with")


def run(args: argparse.Namespace) -> int:
    chosen = _Server(**(asdict(_Server()) | options.given_options(args, _Server())))
    token = options.find_secret("token", args.token, args.token_file)
    secret = options.find_secret("secret", args.secret, args.secret_file)
    check_header("token", token)
    gateway = GatewayOptions(
        host=chosen.host,
        port=chosen.port,
        grpc_port=chosen.grpc_port,
        token=token,
        secret=secret,
        sessions=SessionLimits(lease_s=chosen.lease_s),
    )
    kinds = ("start", "tick", "end")
    returns: dict[str, Any] = {
        f"{kind}_return": None if args.echo else getattr(args, f"{kind}_return") for kind in kinds
    }
    server = FakeActor.serve(options=gateway, delay_s=chosen.delay_ms / 1e3, **returns)
    try:
        server.start()
    except OSError as error:
        print(f"ludus fake-actor: {error.strerror}. Give another port with --port.", file=sys.stderr)
        return 2
    try:
        by_grpc = "" if chosen.grpc_port is None else f", and so does {server.grpc_url}"
        print(f"{server.url}/step answers{by_grpc}; Ctrl-C ends it.", flush=True)
        until = time.monotonic() + chosen.seconds if chosen.seconds is not None else None
        before = _num_steps(server.call(server.gateway.stats))
        while until is None or time.monotonic() < until:
            began = time.monotonic()
            time.sleep(_TELL_EVERY_S if until is None else min(_TELL_EVERY_S, max(until - began, 0.0)))
            stats = server.call(server.gateway.stats)
            now = _num_steps(stats)
            rate = (now - before) / max(time.monotonic() - began, 1e-9)
            before = now
            print(f"{rate:,.0f} requests/s, {stats['num_sessions']} sessions, {now:,} requests in all", flush=True)
    except KeyboardInterrupt:
        print()
    finally:
        server.stop()
    return 0


def _num_steps(stats: dict[str, Any]) -> int:
    return sum(count for _kind, _code, count in stats["steps"]["counts"])

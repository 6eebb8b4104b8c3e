"""Granian: an RSGI application (its own interface, its fastest), one worker, uvloop; a counter for each session.

    with_granian.py st|mt

`st`: single-threaded Rust runtimes, `mt`: a multi-threaded one.
"""

from __future__ import annotations

import sys
from typing import Any

from announce import Announcer, call_when_listening, die_with_parent, free_port

steps: dict[str, int] = {}
HEADERS = [("content-type", "application/octet-stream")]


async def app(scope: Any, protocol: Any) -> None:
    body = await protocol()
    session = scope.headers.get("session", "")
    steps[session] = steps.get(session, 0) + 1
    protocol.response_bytes(200, HEADERS, body)


if __name__ == "__main__":
    from granian import Granian
    from granian.constants import HTTPModes, Interfaces, Loops, RuntimeModes

    announcer = Announcer()
    port = free_port()
    call_when_listening(port, lambda: announcer.hello("granian", "uvloop", port=port))
    Granian(
        "with_granian:app",
        address="127.0.0.1",
        port=port,
        interface=Interfaces.RSGI,
        workers=1,
        loop=Loops.uvloop,
        http=HTTPModes.http1,
        runtime_mode=RuntimeModes(sys.argv[1]),
        websockets=False,
        log_enabled=False,
    ).serve()
else:
    die_with_parent()  # in Granian's worker, which imports this

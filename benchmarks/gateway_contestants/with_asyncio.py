"""The ceiling in Python: an asyncio Protocol with httptools on uvloop, and a counter. Nothing else.

    with_asyncio.py bare|sessions

No limits, checks, numbers, leases or metrics: what is left of a gateway when all that it is for is taken away.
`bare` counts by path and never looks at a header; `sessions` counts by the header `session`, as it would have to.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import httptools
import uvloop
from announce import Announcer

steps: dict[bytes, int] = {}


class Bare(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.body = b""

    def on_url(self, url: bytes) -> None:
        self.key = url

    def on_body(self, body: bytes) -> None:
        self.body = self.body + body if self.body else body

    def on_message_complete(self) -> None:
        steps[self.key] = steps.get(self.key, 0) + 1
        body = self.body
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )


class WithSessions(Bare):
    def on_header(self, name: bytes, value: bytes) -> None:
        if name == b"session":
            self.key = value


async def main() -> None:
    announcer = Announcer()
    protocol = {"bare": Bare, "sessions": WithSessions}[sys.argv[1]]
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, backlog=1024)
    announcer.hello("uvloop", "httptools", port=server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())

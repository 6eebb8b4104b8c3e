"""FastAPI on uvicorn: one process, uvloop, httptools, no access log; a counter for each session."""

from __future__ import annotations

import socket

import uvicorn
from announce import Announcer
from fastapi import FastAPI, Request, Response

app = FastAPI()
steps: dict[str, int] = {}


@app.post("/step")
async def step(request: Request) -> Response:
    body = await request.body()
    session = request.headers.get("session", "")
    steps[session] = steps.get(session, 0) + 1
    return Response(body, media_type="application/octet-stream")


class Server(uvicorn.Server):
    """Says hello when it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if sockets is not None:
            announcer.hello("fastapi", "uvicorn", "starlette", "uvloop", "httptools", port=sockets[0].getsockname()[1])


if __name__ == "__main__":
    announcer = Announcer()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="error", backlog=1024)
    Server(config).run(sockets=[listener])

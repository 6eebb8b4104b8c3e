"""An imitation of Consul's key-value API, written from its documentation, for machines without a Consul.

It has what `ludus.discovery.consul` uses: GET (with `recurse`), PUT and DELETE with `cas`, DELETE with `recurse`, a
`Date` on every answer, 404 for what is not there. It proves that the client does what it means to; whether Consul
agrees is proved only by `TestConsul`, where there is one.
"""

from __future__ import annotations

import base64
import email.utils
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


class ConsulTwin:
    """Serves from `with` to its end. `clock_offset_s` is how far its clock is ahead of this machine's."""

    def __init__(self, *, clock_offset_s: float = 0.0, token: str | None = None) -> None:
        self.keys: dict[str, tuple[bytes, int]] = {}  # key → value, ModifyIndex
        self.index = 10
        self.lock = threading.Lock()
        self.clock_offset_s = clock_offset_s
        self.token = token
        twin = self

        class Handler(_Handler):
            server_state = twin

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> ConsulTwin:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_state: ConsulTwin

    def do_GET(self) -> None:
        key, query = self._key()
        with self.server_state.lock:
            keys = dict(self.server_state.keys)
        found = [each for each in sorted(keys) if each == key or ("recurse" in query and each.startswith(key))]
        entries = [
            {
                "LockIndex": 0,
                "Key": each,
                "Flags": 0,
                "Value": base64.b64encode(keys[each][0]).decode() or None,
                "CreateIndex": 1,
                "ModifyIndex": keys[each][1],
            }
            for each in found
        ]
        self._answer(200 if entries else 404, json.dumps(entries).encode() if entries else b"")

    def do_PUT(self) -> None:
        key, query = self._key()
        value = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server_state.lock:
            done = self._matches(key, query)
            if done:
                self.server_state.index += 1
                self.server_state.keys[key] = (value, self.server_state.index)
        self._answer(200, json.dumps(done).encode())

    def do_DELETE(self) -> None:
        key, query = self._key()
        with self.server_state.lock:
            keys = self.server_state.keys
            # Consul takes a check-and-set deletion of what is not there as done.
            done = key not in keys or self._matches(key, query)
            if done:
                self.server_state.index += 1
                for each in [each for each in keys if each == key or ("recurse" in query and each.startswith(key))]:
                    del keys[each]
        self._answer(200, json.dumps(done).encode())

    def _matches(self, key: str, query: dict[str, list[str]]) -> bool:
        """Whether `cas`, if given, is the key's index; 0 stands for no key."""
        return "cas" not in query or int(query["cas"][0]) == self.server_state.keys.get(key, (b"", 0))[1]

    def _key(self) -> tuple[str, dict[str, list[str]]]:
        url = urlsplit(self.path)
        return unquote(url.path).removeprefix("/v1/kv/"), parse_qs(url.query, keep_blank_values=True)

    def _answer(self, status: int, body: bytes) -> None:
        if self.server_state.token not in (None, self.headers.get("X-Consul-Token")):
            status, body = 403, b"Permission denied"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        now = time.time() if timestamp is None else timestamp
        return email.utils.formatdate(now + self.server_state.clock_offset_s, usegmt=True)

    def log_message(self, format: str, *args: object) -> None:
        pass

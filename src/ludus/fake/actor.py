"""An actor that answers given bytes, for a game that is made before its agent.

with FakeActor.serve(port=8000, tick_return=b"left") as server:
    print(server.url)

It can also be given to `RemoteActor.serve(Actor=FakeActor, tick_return=b"left")`.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

from ludus import errors
from ludus.gateway.actor import Actor
from ludus.gateway.gateway import GatewayOptions
from ludus.gateway.session import Session
from ludus.gateway.thread import GatewayThread

__all__ = ["FakeActor"]

_SEED_NAMES = {f"fake_actor_{kind}_return": f"{kind}_return" for kind in ("start", "tick", "end")}


class FakeActor(Actor):
    """Answers each step with the bytes given for its kind; `None` answers what was sent.

    `delay_s` is how long a tick takes, as if a model ran. `config` may have the same under the seed's names:
    `fake_actor_tick_return`, `fake_actor_end_return`.
    """

    def __init__(
        self,
        config: dict[str, Any] | None = None,
        *,
        start_return: bytes | str | None = b"fake_actor_start_return",
        tick_return: bytes | str | None = b"fake_actor_tick_return",
        end_return: bytes | str | None = b"fake_actor_end_return",
        delay_s: float = 0.0,
    ) -> None:
        returns = {"start_return": start_return, "tick_return": tick_return, "end_return": end_return}
        for name, value in (config or {}).items():
            known = _SEED_NAMES.get(name, name)
            if known not in returns:
                raise errors.ConfigError(f"{name!r} is no setting of FakeActor; there are {', '.join(_SEED_NAMES)}")
            returns[known] = value
        self._start = _bytes(returns["start_return"])
        self._tick = _bytes(returns["tick_return"])
        self._end = _bytes(returns["end_return"])
        if not 0.0 <= delay_s < math.inf:
            raise errors.ConfigError(f"delay_s is {delay_s}; it must be a number of seconds, 0 or more")
        self._delay_s = delay_s

    def start(self, session: Session, data: bytes) -> bytes:
        return data if self._start is None else self._start

    def tick(self, data: bytes) -> Any:
        answer = data if self._tick is None else self._tick
        return self._later(answer) if self._delay_s else answer

    def end(self, data: bytes) -> bytes:
        return data if self._end is None else self._end

    async def _later(self, answer: bytes) -> bytes:
        await asyncio.sleep(self._delay_s)
        return answer

    @classmethod
    def serve(
        cls, port: int = 8000, *, options: GatewayOptions | None = None, host: str = "127.0.0.1", **config: Any
    ) -> GatewayThread:
        """A server of it in a thread of this process, to be used by `with`, or by `start` and `stop`."""
        cls(**config)  # an error is raised here, not to the first game
        return GatewayThread(lambda: cls(**config), options or GatewayOptions(host=host, port=port))


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value

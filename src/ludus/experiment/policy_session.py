"""A policy behind a session: bodies in, actions out, episodes kept. What serves and what trains are made of it.

The game sends JSON or msgpack, and gets the same back. A step's body is the observation, or an object with more:

    start, tick   [0.1, -0.2, 0.0, 0.3]
                  {"obs": …, "reward": 1.0, "mask": [true, false]}     reward: what the last action brought
    answer        {"action": 1}
    end           {"obs": …, "reward": 1.0, "terminated": true}        or nothing: then the episode was cut off

An observation that is a dict is given as {"obs": {…}}. In msgpack an array may be its bytes. `start` may carry the
first observation and is then answered with the first action; with an empty body it is answered with nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable
from typing import Any, Protocol

import msgspec
import numpy as np

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.data.trajectory import TrajectoryWriter
from ludus.errors import InvalidObservation
from ludus.experiment.step_bodies import decode_body, expect_finite, mask_of, observation, reward_of
from ludus.gateway.actor import Actor
from ludus.gateway.session import Session
from ludus.learn.policies.served import ServedPolicy

__all__ = ["PolicySession", "SessionModel"]


class SessionModel(Protocol):
    """What computes: outputs for one row, by the version that the session plays, which `Session.versions` then has."""

    name: str

    def forward(self, *args: Any) -> Awaitable[Nest]: ...


class PolicySession(Actor):
    """Plays `policy`, whose weights are `model`'s. With a `writer` the episode is kept: `keep` gets its segments.

    Actions are the likeliest ones (`greedy`), or sampled by the session's own generator, which `seed` and the session's
    id begin, so that a recording can be played again.
    """

    def __init__(
        self,
        policy: ServedPolicy,
        model: SessionModel,
        *,
        writer: TrajectoryWriter | None = None,
        greedy: bool,
        seed: int = 0,
    ) -> None:
        self._policy = policy
        self._model = model
        self._writer = writer
        self._is_greedy = greedy
        self._seed = seed
        self._state: Nest = nests.map(lambda leaf: None if leaf is None else leaf.allocate(()), policy.state_spec)
        self._is_first = True
        self._session = Session("stateless")
        self._rng = np.random.default_rng(seed)

    # -- for subclasses -------------------------------------------------------------------------------------------

    async def keep(self, segment: Segment) -> None:
        """A segment is full, or the last of its episode."""
        raise NotImplementedError(f"{type(self).__name__} must define keep")

    def on_episode(self, total: float, length: int) -> None:
        """The episode is over, and something was done in it."""

    # -- the actor ------------------------------------------------------------------------------------------------

    async def start(self, session: Session, data: bytes) -> bytes:
        self._session = session
        self._rng = np.random.default_rng([self._seed, zlib.crc32(f"{session}/{session.run}".encode())])
        return await self.tick(data) if data else b""

    async def tick(self, data: bytes) -> bytes:
        body, is_json = decode_body(data)
        if body.get("obs") is None:
            raise InvalidObservation(
                f"the body has no obs, only {sorted(map(str, body))}. An observation that is a dict goes there"
            )
        obs, mask = self._observation(body["obs"]), self._mask(body)
        if self._writer is not None:
            full = self._writer.see(obs, reward=reward_of(body), mask=mask, state=self._state)
            if full is not None:
                await self.keep(full)
        out = await self._forward(obs)
        params = np.asarray(out["params"])[None]
        self._is_first = False
        masks = None if mask is None else mask[None]
        action, logp = self._policy.head.choose(params, self._rng, masks, greedy=self._is_greedy)
        if self._writer is not None:
            self._writer.act(action[0], float(logp[0]), self._session.versions.get(self._model.name, 0))
        answer = {"action": action[0].tolist()}
        return msgspec.json.encode(answer) if is_json else msgspec.msgpack.encode(answer)

    async def end(self, data: bytes) -> bytes:
        writer = self._writer
        if writer is None:
            return b""
        body = decode_body(data)[0] if data else {}
        obs = self._observation(body["obs"]) if body.get("obs") is not None else None
        last = writer.end(obs, reward=reward_of(body), terminated=bool(body.get("terminated", bool(data))))
        if last is not None:
            await self.keep(last)
        if writer.num_active:
            self.on_episode(writer.total_reward, writer.num_active)
        return b""

    async def _forward(self, obs: Nest) -> dict[str, Any]:
        if not self._policy.is_recurrent:
            out: dict[str, Any] = await self._model.forward(obs)
            return out
        out = await self._model.forward(obs, self._state, np.bool_(self._is_first))
        self._state = out["state"]
        return out

    def _observation(self, value: Any) -> Nest:
        obs = observation(value, self._policy.spec.obs, "obs")
        if self._writer is not None:
            expect_finite(obs)
        return obs

    def _mask(self, body: dict[str, Any]) -> Any:
        return None if body.get("mask") is None else mask_of(body, self._policy.spec.action.mask_size)

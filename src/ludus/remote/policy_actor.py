"""An actor for policies: a Gym-like game needs no actor code.

The game sends JSON or msgpack, and gets the same back. A step's body is the observation, or an object with more:

    start, tick   [0.1, -0.2, 0.0, 0.3]
                  {"obs": …, "reward": 1.0, "mask": [true, false]}     reward: what the last action brought
    answer        {"action": 1}
    end           {"obs": …, "reward": 1.0, "terminated": true}        or nothing: then the episode was cut off

An observation that is a dict is given as {"obs": {…}}. In msgpack an array may be its bytes. `start` may carry the
first observation and is then answered with the first action; with an empty body it is answered with nothing.
"""

from __future__ import annotations

import functools
import zlib
from typing import Any

import msgspec
import numpy as np

from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.data.trajectory import TrajectoryWriter
from ludus.errors import DataError, InvalidObservation
from ludus.gateway.actor import Actor
from ludus.gateway.session import Session
from ludus.learn.policies.served import ServedPolicy
from ludus.remote.buffer import RemoteBuffer
from ludus.remote.merge import merge
from ludus.remote.model import RemoteModel

__all__ = ["PolicyActor", "decode_body"]

_from_json = msgspec.json.Decoder().decode
_from_msgpack = msgspec.msgpack.Decoder().decode
_JSON_BEGINS = frozenset(b'{["tfn-0123456789 \t\r\n')


class PolicyActor(Actor):
    """Plays the policy `model`. With a `buffer` its episodes are kept there, in segments of `num_steps`, to learn from.

    `greedy`: take the likeliest action; by default it does so where nothing is kept. Otherwise actions are sampled by
    the session's own generator, which `seed` and the session's id begin, so that a recording can be played again.
    """

    def __init__(
        self,
        model: str,
        buffer: str | None = None,
        *,
        num_steps: int = 32,
        greedy: bool | None = None,
        seed: int = 0,
        local_mode: bool = True,
    ) -> None:
        self._model = _model(model, local_mode)
        self._policy = _policy(model, local_mode)
        self._buffer = _buffer(buffer) if buffer is not None else None
        self._is_greedy = self._buffer is None if greedy is None else greedy
        self._seed = seed
        spec = self._policy.spec
        self._writer: TrajectoryWriter | None = None
        if self._buffer is not None:
            self._writer = TrajectoryWriter(
                num_steps=num_steps,
                obs=spec.obs,
                action=spec.action,
                memory=self._policy.memory_spec,
                has_mask=self._policy.has_mask,
            )
        self._memory: Nest = nests.map(
            lambda leaf: None if leaf is None else leaf.allocate(()), self._policy.memory_spec
        )
        self._is_first = True
        self._session = Session("stateless")
        self._rng = np.random.default_rng(seed)

    async def start(self, session: Session, data: bytes) -> bytes:
        self._session = session
        self._rng = np.random.default_rng([self._seed, zlib.crc32(f"{session}/{session.run}".encode())])
        return await self.tick(data) if data else b""

    async def tick(self, data: bytes) -> bytes:
        told, is_json = decode_body(data)
        if told.get("obs") is None:
            raise InvalidObservation(
                f"the body has no obs, only {sorted(map(str, told))}. An observation that is a dict goes there"
            )
        obs, mask = self._observation(told["obs"]), self._mask(told)
        if self._writer is not None:
            full = self._writer.see(obs, reward=_reward(told), mask=mask, memory=self._memory)
            if full is not None:
                await self._push(full)
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
        if self._writer is None:
            return b""
        told = decode_body(data)[0] if data else {}
        obs = self._observation(told["obs"]) if told.get("obs") is not None else None
        last = self._writer.end(obs, reward=_reward(told), terminated=bool(told.get("terminated", bool(data))))
        if last is not None:
            await self._push(last)
            merge("episode/return", self._writer.total_reward)
            merge("episode/length", self._writer.num_active)
        return b""

    async def _forward(self, obs: Nest) -> dict[str, Any]:
        if not self._policy.is_recurrent:
            out: dict[str, Any] = await self._model.forward(obs)
            return out
        out = await self._model.forward(obs, self._memory, np.bool_(self._is_first))
        self._memory = out["memory"]
        return out

    async def _push(self, segment: Segment) -> None:
        assert self._buffer is not None
        await self._buffer.push_async(segment.to_nest(), drop=False)

    def _observation(self, value: Any) -> Nest:
        return _as_spec(value, self._policy.spec.obs, "obs")

    def _mask(self, told: dict[str, Any]) -> Any:
        if told.get("mask") is None:
            return None
        size = self._policy.spec.action.mask_size
        try:
            mask = np.asarray(told["mask"], np.bool_)
            is_mask = mask.shape == (size,) and mask.any()
        except ValueError:  # lists of several lengths
            is_mask = False
        if not is_mask:
            raise InvalidObservation(
                f"a mask has {size} booleans, of which one is true at least; this one is {told['mask']!r}"
            )
        return mask


def decode_body(data: bytes) -> tuple[dict[str, Any], bool]:
    """What a body says, and whether it is JSON; a bare observation becomes {"obs": …}. Raises `InvalidObservation`."""
    is_json = bool(data) and data[0] in _JSON_BEGINS
    try:
        told = _from_json(data) if is_json else _from_msgpack(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidObservation(f"the body is neither JSON nor msgpack: {error}") from None
    return (told if isinstance(told, dict) else {"obs": told}), is_json


def _reward(told: dict[str, Any]) -> float:
    try:
        return float(told.get("reward", 0.0))
    except (TypeError, ValueError):
        raise InvalidObservation(f"a reward is a number; this one is {told['reward']!r}") from None


def _as_spec(value: Any, spec: Nest, path: str) -> Nest:
    """Plain lists and bytes as the arrays that the policy takes. Raises `InvalidObservation`, which names the leaf."""
    if isinstance(spec, dict):
        if not isinstance(value, dict) or value.keys() != spec.keys():
            raise InvalidObservation(f"{path} must have the keys {sorted(spec)}")
        return {key: _as_spec(value[key], spec[key], f"{path}/{key}") for key in spec}
    if isinstance(spec, list | tuple):
        if not isinstance(value, list) or len(value) != len(spec):
            raise InvalidObservation(f"{path} must have {len(spec)} entries")
        return type(spec)(_as_spec(v, s, f"{path}/{i}") for i, (v, s) in enumerate(zip(value, spec, strict=True)))
    assert isinstance(spec, ArraySpec)
    try:
        if isinstance(value, bytes):
            return np.frombuffer(value, spec.dtype).reshape(spec.shape)
        array = _as_array(value, spec.dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidObservation(f"{path} must be an array of shape {spec.shape} and {spec.dtype}: {error}") from None
    if array.shape != spec.shape:
        raise InvalidObservation(
            f"{path} must be an array of shape {spec.shape} and {spec.dtype}; this one has the shape {array.shape}"
        )
    return array


def _as_array(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """Plain numbers as an array. Raises `ValueError` for what is no number, or no integer where one is needed."""
    given = np.asarray(value)
    if given.dtype.kind not in "biuf":  # NumPy would take a null for NaN
        raise ValueError("it is not made of numbers only")
    if dtype.kind == "f":
        return given.astype(dtype)
    with np.errstate(invalid="ignore"):  # what does not fit is found right below
        array = given.astype(dtype)
    if not np.array_equal(array, given):
        raise ValueError(f"{given[array != given].flat[0]} is no {dtype}")
    return array


@functools.cache
def _model(name: str, local_mode: bool) -> RemoteModel:
    return RemoteModel(name, local_mode=local_mode)


@functools.cache
def _policy(name: str, local_mode: bool) -> ServedPolicy:
    """The definition, for its specs; its weights are not used."""
    policy = _model(name, local_mode).get_model()
    if not isinstance(policy, ServedPolicy):
        raise DataError(f"the model {name!r} is a {type(policy).__name__}; a PolicyActor plays a ServedPolicy")
    return policy


@functools.cache
def _buffer(name: str) -> RemoteBuffer:
    return RemoteBuffer(name)

"""An actor for policies: a Gym-like game needs no actor code. `experiment/policy_session.py` says what a step holds."""

from __future__ import annotations

import functools

from ludus.data.segment import Segment
from ludus.data.trajectory import TrajectoryWriter
from ludus.errors import DataError
from ludus.experiment.policy_session import PolicySession
from ludus.learn.policies.served import ServedPolicy
from ludus.trial.named.buffer import RemoteBuffer
from ludus.trial.named.merge import merge
from ludus.trial.named.model import RemoteModel

__all__ = ["PolicyActor"]


class PolicyActor(PolicySession):
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
        policy = _policy(model, local_mode)
        self._buffer = _buffer(buffer) if buffer is not None else None
        writer = None
        if self._buffer is not None:
            writer = TrajectoryWriter(
                num_steps=num_steps,
                obs=policy.spec.obs,
                action=policy.spec.action,
                state=policy.state_spec,
                has_mask=policy.has_mask,
            )
        super().__init__(
            policy,
            _model(model, local_mode),
            writer=writer,
            greedy=self._buffer is None if greedy is None else greedy,
            seed=seed,
        )

    async def keep(self, segment: Segment) -> None:
        assert self._buffer is not None
        await self._buffer.push_async(segment.to_nest(), drop=False)

    def on_episode(self, total: float, length: int) -> None:
        merge("episode/return", total)
        merge("episode/length", length)


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

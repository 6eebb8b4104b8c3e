"""One agent's episode, or a part of one, as a dataset holds it: what was seen, done and earned, without gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import EnvSpec
from ludus.data import nest as nests
from ludus.data.nest import Nest
from ludus.data.segment import Segment
from ludus.errors import DataError

__all__ = ["EpisodeBuilder", "RecordedEpisode"]


@dataclass(frozen=True, kw_only=True)
class RecordedEpisode:
    """T actions, at least one. What is seen has one entry more: the final observation is the last."""

    obs: Nest  # [T + 1, ...]
    action: NDArray[Any]  # [T, ...]
    reward: NDArray[np.float32]  # [T]
    terminated: bool  # it ended by the rules; else it was cut off, and the value of the final observation counts
    mask: NDArray[np.bool_] | None = None  # [T + 1, choices]

    @property
    def num_steps(self) -> int:
        return len(self.reward)

    @property
    def total(self) -> float:
        return float(self.reward.sum(dtype=np.float64))

    def to_nest(self) -> dict[str, Nest]:
        """For the codec; arrays are shared."""
        fields = {"obs": self.obs, "action": self.action, "reward": self.reward, "terminated": self.terminated}
        return {**fields, "mask": self.mask}

    def check(self, spec: EnvSpec) -> None:
        """Raise `DataError` unless it is an episode of this spec, of finite numbers."""
        num = self.num_steps
        if num < 1:
            raise DataError("an episode without an action: there is nothing to learn from")
        _expect("action", self.action, (num, *spec.action.array.shape), spec.action.array.dtype)
        _expect("reward", self.reward, (num,), np.dtype(np.float32))
        try:
            arrays = nests.leaves(nests.map(lambda _, array: array, spec.obs, self.obs))
        except DataError as error:
            raise DataError(f"the observations have another structure than the spec: {error}") from None
        for path, leaf, array in zip(nests.paths(spec.obs), nests.leaves(spec.obs), arrays, strict=True):
            _expect(f"obs/{path}" if path else "obs", array, (num + 1, *leaf.shape), leaf.dtype)
        if self.mask is not None:
            _expect("mask", self.mask, (num + 1, spec.action.mask_size), np.dtype(np.bool_))
        low, high = spec.action.array.minimum, spec.action.array.maximum
        if self.action.dtype.kind == "i" and not (np.all(self.action >= low) and np.all(self.action <= high)):
            raise DataError(f"an action is not between {low} and {high}: {self.action.min()} … {self.action.max()}")

    def segment(self) -> Segment:
        """As one row of a segment; arrays are shared. How likely the actions were is not known: `logp` is 0."""
        num = self.num_steps
        first, active = np.zeros((num + 1, 1), np.bool_), np.ones((num + 1, 1), np.bool_)
        first[0], active[-1] = True, False
        terminated, truncated = np.zeros((num, 1), np.bool_), np.zeros((num, 1), np.bool_)
        terminated[-1], truncated[-1] = self.terminated, not self.terminated
        return Segment(
            obs=nests.map(lambda leaf: leaf[:, None], self.obs),
            first=first,
            active=active,
            action=self.action[:, None],
            logp=np.zeros((num, 1), np.float32),
            reward=self.reward[:, None],
            terminated=terminated,
            truncated=truncated,
            version=np.zeros(num, np.int64),
            mask=None if self.mask is None else self.mask[:, None],
        )


class EpisodeBuilder:
    """Made step by step: `see`, then `act`, in turn, with `earn` whenever a reward comes; `end` gives the episode."""

    def __init__(self, spec: EnvSpec) -> None:
        self._spec = spec
        self._obs: list[Nest] = []
        self._masks: list[Any] = []
        self._actions: list[Any] = []
        self._rewards: list[float] = []

    def see(self, obs: Nest, mask: Any = None) -> None:
        """What is seen now. Seen twice without an action in between, the later one counts."""
        if len(self._obs) > len(self._actions):
            self._obs.pop()
            self._masks.pop()
        self._obs.append(obs)
        self._masks.append(mask)

    def act(self, action: Any) -> None:
        """What is done at the last observation."""
        if len(self._obs) != len(self._actions) + 1:
            raise DataError("an action without an observation before it")
        self._actions.append(action)
        self._rewards.append(0.0)

    def earn(self, reward: float) -> None:
        """For the last action; before the first one it is for nothing that was done, and dropped."""
        if self._rewards:
            self._rewards[-1] += reward

    def end(self, *, terminated: bool) -> RecordedEpisode | None:
        """The episode, or `None` if nothing was done in it.

        If nothing was seen since the last action, the observation before it stands for the final one.
        """
        num = len(self._actions)
        if not num:
            return None
        spec, seen = self._spec, self._obs if len(self._obs) > num else [*self._obs, self._obs[-1]]
        mask: NDArray[np.bool_] | None = None
        if spec.has_mask:
            mask = np.ones((num + 1, spec.action.mask_size), np.bool_)
            for step, given in enumerate(self._masks):
                if given is not None:
                    mask[step] = given
        return RecordedEpisode(
            obs=nests.map(lambda leaf, *each: np.stack(each).astype(leaf.dtype, copy=False), spec.obs, *seen),
            action=np.asarray(self._actions, spec.action.array.dtype).reshape(num, *spec.action.array.shape),
            reward=np.asarray(self._rewards, np.float32),
            terminated=terminated,
            mask=mask,
        )


def _expect(name: str, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise DataError(f"{name} must be {dtype} of shape {shape}; it is {found}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(f"{name} has a number that is not finite: nothing can be learnt from it")

"""What is learnt from a search: each new segment, some earlier ones again, and how they look in a mirror, or turned.

    experience = Experience(rules, num_past=3, seed=1)
    segment = experience.with_past(segment)

The moves that a search chose stay worth imitating while a policy gets better, and games that look alike in a mirror
teach the same. Neither holds for what a policy drew itself: its log-probabilities are those of that policy, in that
position.
"""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
from numpy.typing import NDArray

from ludus.core import HasSymmetries, Rules
from ludus.data import nest as nests
from ludus.data.segment import Segment

__all__ = ["Experience"]

_KEPT = 32  # segments


class Experience:
    """The last segments, of which `num_past` are drawn each time; each is seen by any one of the rules' symmetries.

    It is not in checkpoints: a learner that is started again collects new segments first.
    """

    def __init__(self, rules: Rules, *, num_past: int, seed: int) -> None:
        same = np.arange(int(np.prod(rules.obs.shape))), np.arange(rules.num_actions)
        self._symmetries = [same, *(rules.symmetries if isinstance(rules, HasSymmetries) else ())]
        self._num_past = num_past
        self._kept: collections.deque[Segment] = collections.deque(maxlen=_KEPT)
        self._rng = np.random.default_rng([seed, 0x3177])

    def with_past(self, segment: Segment) -> Segment:
        """Its rows, as they are, and those of `num_past` others; while there are fewer, all there are."""
        num = min(self._num_past, len(self._kept))
        past = [self._seen(self._kept[number]) for number in self._rng.permutation(len(self._kept))[:num]]
        slim = dataclasses.replace(segment, global_state=None)  # of the boards nothing is learnt
        if self._num_past:
            self._kept.append(_copied(slim))
        return Segment.concat([slim, *past])

    def _seen(self, segment: Segment) -> Segment:
        """By one of the symmetries."""
        assert segment.mask is not None
        places, actions = self._symmetries[int(self._rng.integers(len(self._symmetries)))]
        names = np.argsort(actions)  # an action → what it is called then
        return dataclasses.replace(
            segment,
            obs=segment.obs[..., places],
            action=names[segment.action],
            mask=segment.mask[..., actions],
            extra=segment.extra[..., actions],
        )


def _copied(segment: Segment) -> Segment:
    return Segment(**{name: nests.map(_copy, value) for name, value in segment.to_nest().items()})


def _copy(leaf: NDArray[np.generic] | None) -> NDArray[np.generic] | None:
    return None if leaf is None else leaf.copy()

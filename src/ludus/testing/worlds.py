"""The contract of `core.Worlds` as tests, for our adapters and for yours.

    class TestMyWorlds(WorldsConformance):
        def make(self, num_worlds):
            return envs.make("my_module:make_game", num_worlds)

        def raw(self, seed):                             # optional: what the library itself shows
            return RawEnv(MyGame(), seed)

The worlds are played at random for `num_steps`; choose settings that let an episode end within them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from ludus import core, data, errors
from ludus.data import nest as nests
from ludus.testing.raw_envs import Raw, RawStep, assert_seen

__all__ = ["RandomPlayer", "WorldsConformance", "assert_same", "copied"]

Opener = Callable[[int], core.Worlds]
Moment = dict[str, Any]


class WorldsConformance:
    """Subclass it, write `make`, and set these if the defaults are not right."""

    num_worlds: ClassVar[int] = 3
    num_steps: ClassVar[int] = 120
    ends: ClassVar[bool] = True  # False: no episode ends within `num_steps` of random play

    def make(self, num_worlds: int) -> core.Worlds:
        raise NotImplementedError("a subclass of WorldsConformance writes `make`")

    def raw(self, seed: int) -> Raw | None:
        """Env 0 of a group of one that is reset with `seed`, as its library plays it; `None`: it is not compared."""
        return None

    @pytest.fixture
    def open_worlds(self) -> Iterator[Opener]:
        """Makes one more group at each call."""
        opened: list[core.Worlds] = []

        def open_some(num_worlds: int) -> core.Worlds:
            opened.append(self.make(num_worlds))
            return opened[-1]

        yield open_some
        for worlds in opened:
            worlds.close()

    @pytest.fixture
    def worlds(self, open_worlds: Opener) -> core.Worlds:
        return open_worlds(self.num_worlds)

    # ── shapes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def test_there_is_a_row_for_every_agent_of_every_world(self, open_worlds: Opener) -> None:
        for num_worlds in (1, 2):
            worlds = open_worlds(num_worlds)
            assert worlds.num_worlds == num_worlds
            assert worlds.num_rows == num_worlds * len(worlds.spec.agents)

    def test_every_array_has_the_shape_and_dtype_of_the_spec(self, worlds: core.Worlds) -> None:
        for now in self._moments(worlds):
            _check_nest(now["obs"], worlds.spec.obs, worlds.num_rows)
            _check_nest(now["state"], worlds.spec.state, worlds.num_worlds)
            assert now["reward"].dtype == np.float32
            for name in ("reward", "terminated", "truncated", "first", "active", "failed"):
                assert now[name].shape == (worlds.num_rows,), name
                assert name == "reward" or now[name].dtype == np.bool_, name

    def test_observations_are_contiguous(self, worlds: core.Worlds) -> None:
        player = RandomPlayer(worlds.spec, seed=0)
        now = worlds.reset(seed=1)
        for _ in range(3):
            assert all(leaf.flags.c_contiguous for leaf in nests.leaves(now.obs))
            now = worlds.step(player(now))

    def test_a_mask_is_as_wide_as_the_choices_and_always_allows_one(self, worlds: core.Worlds) -> None:
        for now in self._moments(worlds):
            if not worlds.spec.has_mask:
                assert now["mask"] is None
                continue
            assert now["mask"].shape == (worlds.num_rows, worlds.spec.action.mask_size)
            assert now["mask"].dtype == np.bool_
            assert now["mask"].any(axis=1).all()

    # ── episodes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def test_reset_begins_an_episode_in_every_world(self, worlds: core.Worlds) -> None:
        now = worlds.reset(seed=1)
        assert now.first.all()
        assert self._by_world(worlds, now.active).any(axis=1).all()
        assert not (now.terminated | now.truncated | now.failed).any()
        assert not now.reward.any()

    def test_an_episode_ends_with_a_step_that_nobody_can_act_in(self, worlds: core.Worlds) -> None:
        moments = self._moments(worlds)
        for before, now in itertools.pairwise(moments):
            over = ~self._by_world(worlds, before["active"]).any(axis=1)
            begun = self._by_world(worlds, now["first"])
            assert np.array_equal(begun.all(axis=1), over), "the step after the last is the first of the next"
            assert np.array_equal(begun.any(axis=1), over), "an episode begins for all agents of a world at once"
            assert self._by_world(worlds, now["active"])[over].any(axis=1).all(), "somebody can act in the first step"
        if self.ends:
            assert any(not self._by_world(worlds, now["active"]).any(axis=1).all() for now in moments)

    def test_the_first_step_of_an_episode_brings_nothing(self, worlds: core.Worlds) -> None:
        for now in self._moments(worlds):
            first = now["first"]
            assert not now["reward"][first].any()
            assert not (now["terminated"] | now["truncated"])[first].any()

    def test_a_row_ends_once_and_then_does_not_act(self, worlds: core.Worlds) -> None:
        ended = np.zeros(worlds.num_rows, np.bool_)
        num_ends = 0
        for now in self._moments(worlds):
            ended[now["first"]] = False
            ends = now["terminated"] | now["truncated"]
            assert not (ends & ended).any(), "it had ended before"
            ended |= ends
            num_ends += int(ends.sum())
            assert not (now["active"] & ended).any(), "it acts after its end"
            over = ~self._by_world(worlds, now["active"]).any(axis=1)
            assert self._by_world(worlds, ended)[over].any(axis=1).all(), "a world is over, but nobody's episode ended"
        assert num_ends or not self.ends

    def test_what_is_seen_is_what_the_library_shows_and_an_episode_ends_with_its_final_observation(
        self, open_worlds: Opener
    ) -> None:
        raw = self.raw(seed=1)
        if raw is None:
            pytest.skip("there is no raw env to compare with: write `raw`")
        worlds = open_worlds(1)
        player = RandomPlayer(worlds.spec, seed=0)
        now, seen, num_episodes = worlds.reset(seed=1), raw.begin(0), 0
        try:
            for step in range(10 * self.num_steps):  # one env may need longer to end than the first of several
                if step >= self.num_steps and (num_episodes or not self.ends):
                    break
                for row, obs in seen.items():
                    assert_seen(now.obs, row, obs, f"step {step}: obs")
                action, is_over = player(now), not now.active.any()
                now = worlds.step(action)
                if is_over:
                    num_episodes += 1
                    seen = raw.begin(num_episodes)
                else:
                    told = raw.step(action)
                    seen = told.seen
                    assert told.is_over == (not now.active.any()), f"step {step}: over for the one, not for the other"
                    _check_told(now, told, f"after step {step}")
        finally:
            raw.close()
        assert num_episodes or not self.ends

    def test_nothing_fails(self, worlds: core.Worlds) -> None:
        assert not any(now["failed"].any() for now in self._moments(worlds))
        assert worlds.statistics().num_failures == 0

    def test_statistics_count_steps_and_episodes(self, worlds: core.Worlds) -> None:
        moments = self._moments(worlds)
        over = [~self._by_world(worlds, now["active"]).any(axis=1) for now in moments]
        told = worlds.statistics()
        assert told.num_episodes == sum(int(each.sum()) for each in over)
        assert told.num_steps == sum(int((~each).sum()) for each in over[:-1])

    # ── the same again ────────────────────────────────────────────────────────────────────────────────────────────

    def test_the_same_seed_and_actions_give_the_same_steps(self, open_worlds: Opener) -> None:
        one, other = open_worlds(self.num_worlds), open_worlds(self.num_worlds)
        moments = self._moments(one)
        assert_same(moments, self._moments(other))
        assert_same(moments, self._moments(one))

    def test_actions_of_rows_that_cannot_act_are_ignored(self, open_worlds: Opener) -> None:
        one, other = open_worlds(self.num_worlds), open_worlds(self.num_worlds)
        player, whim = RandomPlayer(one.spec, seed=0), RandomPlayer(one.spec, seed=99)
        now, then = one.reset(seed=1), other.reset(seed=1)
        for _ in range(self.num_steps):
            action = player(now)
            changed = np.where(_widened(then.active, action), action, whim(then))
            now, then = one.step(action), other.step(changed)
            assert_same([copied(now)], [copied(then)])

    def test_worlds_do_not_mix(self, open_worlds: Opener) -> None:
        """Whatever the others do, world 0 goes its way, up to the first end (generators may be shared after that)."""
        one, other = open_worlds(self.num_worlds), open_worlds(self.num_worlds)
        player, whim = RandomPlayer(one.spec, seed=0), RandomPlayer(one.spec, seed=99)
        now, then = one.reset(seed=1), other.reset(seed=1)
        own = slice(0, len(one.spec.agents))
        for _ in range(self.num_steps):
            action, changed = player(now), whim(then)
            changed[own] = action[own]
            now, then = one.step(action), other.step(changed)
            seen, also = ({**copied(each), "state": None} for each in (now, then))
            assert_same([nests.take(seen, own)], [nests.take(also, own)])
            if any(not self._by_world(one, each.active).any(axis=1).all() for each in (now, then)):
                break

    def test_send_and_recv_are_step(self, open_worlds: Opener) -> None:
        one, other = open_worlds(self.num_worlds), open_worlds(self.num_worlds)
        player = RandomPlayer(one.spec, seed=0)
        now = one.reset(seed=1)
        other.reset(seed=1)
        for _ in range(10):
            action = player(now)
            now = one.step(action)
            other.send(action)
            assert_same([copied(now)], [copied(other.recv())])

    # ── save and restore ──────────────────────────────────────────────────────────────────────────────────────────

    @pytest.mark.parametrize("share", [0.0, 0.5, 0.8])
    def test_what_is_restored_goes_on_exactly(self, open_worlds: Opener, share: float) -> None:
        one = open_worlds(self.num_worlds)
        player = RandomPlayer(one.spec, seed=0)
        now = one.reset(seed=1)
        if one.save() is None:
            pytest.skip("these worlds cannot tell where they are")
        for _ in range(int(share * self.num_steps)):
            now = one.step(player(now))
        saved = one.save()
        assert saved is not None, "they could be saved at the beginning, and now they cannot"
        other = open_worlds(self.num_worlds)
        saved = data.decode([bytes(frame) for frame in data.encode(saved)])
        before = copied(now)
        moments = self._go_on(one, now, RandomPlayer(one.spec, seed=2))
        then = other.restore(saved)
        assert_same([before], [copied(then)])
        assert_same(moments, self._go_on(other, then, RandomPlayer(one.spec, seed=2)))
        assert other.statistics().num_steps == one.statistics().num_steps

    def test_what_was_saved_elsewhere_is_refused(self, worlds: core.Worlds) -> None:
        worlds.reset(seed=1)
        with pytest.raises(errors.EnvError):
            worlds.restore({"something": "else"})

    def test_close_may_be_called_twice(self, worlds: core.Worlds) -> None:
        worlds.reset(seed=1)
        worlds.close()
        worlds.close()

    # ── playing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _moments(self, worlds: core.Worlds) -> list[Moment]:
        now = worlds.reset(seed=1)
        return [copied(now), *self._go_on(worlds, now, RandomPlayer(worlds.spec, seed=0))]

    def _go_on(self, worlds: core.Worlds, now: core.TimeStep, player: RandomPlayer) -> list[Moment]:
        moments = []
        for _ in range(self.num_steps):
            now = worlds.step(player(now))
            moments.append(copied(now))
        return moments

    @staticmethod
    def _by_world(worlds: core.Worlds, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return flags.reshape(worlds.num_worlds, -1)


class RandomPlayer:
    """Any action that is allowed: `player(now)` has one for each row. The same seed plays the same."""

    def __init__(self, spec: core.WorldSpec, *, seed: int) -> None:
        self._spec = spec
        self._rng = np.random.default_rng(seed)

    def __call__(self, now: core.TimeStep) -> NDArray[Any]:
        num_rows = len(now.reward)
        match self._spec.action:
            case data.Discrete(num_choices):
                mask = np.ones((num_rows, num_choices), np.bool_) if now.mask is None else now.mask
                chosen: NDArray[Any] = np.argmax(mask * (self._rng.random(mask.shape) + 0.01), axis=1)
                return chosen
            case data.MultiDiscrete(choices):
                return self._rng.integers(0, choices, (num_rows, len(choices)))
            case data.Continuous(low, high):
                bounds = np.clip(low, -1e3, 1e3), np.clip(high, -1e3, 1e3)
                return self._rng.uniform(*bounds, (num_rows, len(low))).astype(np.float32)


def copied(now: core.TimeStep) -> Moment:
    """All of a step as a dict of arrays that no later step writes to."""
    fields = {field.name: getattr(now, field.name) for field in dataclasses.fields(now)}
    copies: Moment = nests.map(lambda leaf: None if leaf is None else leaf.copy(), fields)
    return copies


def assert_same(some: list[Moment], others: list[Moment]) -> None:
    """Fail at the first step, and name the first array, that is different in any bit."""
    assert len(some) == len(others)
    for step, (one, other) in enumerate(zip(some, others, strict=True)):
        for path, a, b in zip(nests.paths(one), nests.leaves(one), nests.leaves(other), strict=True):
            assert (a is None) == (b is None), f"step {step}: {path}"
            if a is not None:
                np.testing.assert_array_equal(a, b, err_msg=f"step {step}: {path}", strict=True)


def _check_nest(values: Any, spec: Any, num: int) -> None:
    def check(path: str, leaf_spec: Any, leaf: Any) -> None:
        if leaf_spec is None:
            assert leaf is None, path
            return
        assert leaf.shape == (num, *leaf_spec.shape), path
        assert leaf.dtype == leaf_spec.dtype, path

    nests.map_with_path(check, spec, values)


def _check_told(now: core.TimeStep, told: RawStep, when: str) -> None:
    """Fail unless rewards, ends and masks are the library's; rows of which it tells nothing have none."""
    for name in ("reward", "terminated", "truncated"):
        got, expected = getattr(now, name), np.zeros_like(getattr(now, name))
        for row, value in getattr(told, name).items():
            expected[row] = value
        np.testing.assert_array_equal(got, expected, err_msg=f"{when}: {name}")
    for row, mask in told.mask.items():
        assert now.mask is not None, f"{when}: the library has a mask, the worlds have none"
        np.testing.assert_array_equal(now.mask[row, : len(mask)], mask, err_msg=f"{when}: mask of row {row}")
        assert not now.mask[row, len(mask) :].any(), f"{when}: row {row} may do what it has no choice for"


def _widened(flags: NDArray[np.bool_], like: NDArray[Any]) -> NDArray[np.bool_]:
    return flags.reshape(-1, *[1] * (like.ndim - 1))

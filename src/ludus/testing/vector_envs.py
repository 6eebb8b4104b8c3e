"""The contract of `core.VectorEnv` as tests, for our adapters and for yours.

    class TestMyEnv(VectorEnvConformance):
        def make(self, num_envs):
            return envs.make("my_module:make_game", num_envs)

        def raw(self, seed):                             # optional: what the library itself shows
            return RawEnv(MyGame(), seed)

The envs are played at random for `num_steps`; choose settings that let an episode end within them.
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

__all__ = ["RandomPlayer", "VectorEnvConformance", "assert_same", "copied"]

Opener = Callable[[int], core.VectorEnv]
Moment = dict[str, Any]


class VectorEnvConformance:
    """Subclass it, write `make`, and set these if the defaults are not right."""

    num_envs: ClassVar[int] = 3
    num_steps: ClassVar[int] = 120
    ends: ClassVar[bool] = True  # False: no episode ends within `num_steps` of random play

    def make(self, num_envs: int) -> core.VectorEnv:
        raise NotImplementedError("a subclass of VectorEnvConformance writes `make`")

    def raw(self, seed: int) -> Raw | None:
        """Env 0 of a group of one that is reset with `seed`, as its library plays it; `None`: it is not compared."""
        return None

    @pytest.fixture
    def open_vector_env(self) -> Iterator[Opener]:
        """Makes one more group at each call."""
        opened: list[core.VectorEnv] = []

        def open_some(num_envs: int) -> core.VectorEnv:
            opened.append(self.make(num_envs))
            return opened[-1]

        yield open_some
        for vector_env in opened:
            vector_env.close()

    @pytest.fixture
    def vector_env(self, open_vector_env: Opener) -> core.VectorEnv:
        return open_vector_env(self.num_envs)

    # ── shapes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def test_there_is_a_row_for_every_agent_of_every_env(self, open_vector_env: Opener) -> None:
        for num_envs in (1, 2):
            vector_env = open_vector_env(num_envs)
            assert vector_env.num_envs == num_envs
            assert vector_env.num_rows == num_envs * len(vector_env.spec.agents)

    def test_every_array_has_the_shape_and_dtype_of_the_spec(self, vector_env: core.VectorEnv) -> None:
        for now in self._moments(vector_env):
            _check_nest(now["obs"], vector_env.spec.obs, vector_env.num_rows)
            _check_nest(now["global_state"], vector_env.spec.global_state, vector_env.num_envs)
            assert now["reward"].dtype == np.float32
            for name in ("reward", "terminated", "truncated", "first", "active", "failed"):
                assert now[name].shape == (vector_env.num_rows,), name
                assert name == "reward" or now[name].dtype == np.bool_, name

    def test_observations_are_contiguous(self, vector_env: core.VectorEnv) -> None:
        player = RandomPlayer(vector_env.spec, seed=0)
        now = vector_env.reset(seed=1)
        for _ in range(3):
            assert all(leaf.flags.c_contiguous for leaf in nests.leaves(now.obs))
            now = vector_env.step(player(now))

    def test_a_mask_is_as_wide_as_the_choices_and_always_allows_one(self, vector_env: core.VectorEnv) -> None:
        for now in self._moments(vector_env):
            if not vector_env.spec.has_mask:
                assert now["mask"] is None
                continue
            assert now["mask"].shape == (vector_env.num_rows, vector_env.spec.action.mask_size)
            assert now["mask"].dtype == np.bool_
            assert now["mask"].any(axis=1).all()

    # ── episodes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def test_reset_begins_an_episode_in_every_env(self, vector_env: core.VectorEnv) -> None:
        now = vector_env.reset(seed=1)
        assert now.first.all()
        assert self._by_env(vector_env, now.active).any(axis=1).all()
        assert not (now.terminated | now.truncated | now.failed).any()
        assert not now.reward.any()

    def test_an_episode_ends_with_a_step_that_nobody_can_act_in(self, vector_env: core.VectorEnv) -> None:
        moments = self._moments(vector_env)
        for before, now in itertools.pairwise(moments):
            over = ~self._by_env(vector_env, before["active"]).any(axis=1)
            started = self._by_env(vector_env, now["first"])
            assert np.array_equal(started.all(axis=1), over), "the step after the last is the first of the next"
            assert np.array_equal(started.any(axis=1), over), "an episode begins for all agents of an env at once"
            assert self._by_env(vector_env, now["active"])[over].any(axis=1).all(), "somebody can act in the first step"
        if self.ends:
            assert any(not self._by_env(vector_env, now["active"]).any(axis=1).all() for now in moments)

    def test_the_first_step_of_an_episode_brings_nothing(self, vector_env: core.VectorEnv) -> None:
        for now in self._moments(vector_env):
            first = now["first"]
            assert not now["reward"][first].any()
            assert not (now["terminated"] | now["truncated"])[first].any()

    def test_a_row_ends_once_and_then_does_not_act(self, vector_env: core.VectorEnv) -> None:
        ended = np.zeros(vector_env.num_rows, np.bool_)
        num_ends = 0
        for now in self._moments(vector_env):
            ended[now["first"]] = False
            ends = now["terminated"] | now["truncated"]
            assert not (ends & ended).any(), "it had ended before"
            ended |= ends
            num_ends += int(ends.sum())
            assert not (now["active"] & ended).any(), "it acts after its end"
            over = ~self._by_env(vector_env, now["active"]).any(axis=1)
            assert self._by_env(vector_env, ended)[over].any(axis=1).all(), "an env is over, but nobody's episode ended"
        assert num_ends or not self.ends

    def test_what_is_seen_is_what_the_library_shows_and_an_episode_ends_with_its_final_observation(
        self, open_vector_env: Opener
    ) -> None:
        raw = self.raw(seed=1)
        if raw is None:
            pytest.skip("there is no raw env to compare with: write `raw`")
        vector_env = open_vector_env(1)
        player = RandomPlayer(vector_env.spec, seed=0)
        now, seen, num_episodes = vector_env.reset(seed=1), raw.begin(0), 0
        try:
            for step in range(10 * self.num_steps):  # one env may need longer to end than the first of several
                if step >= self.num_steps and (num_episodes or not self.ends):
                    break
                for row, obs in seen.items():
                    assert_seen(now.obs, row, obs, f"step {step}: obs")
                action, is_over = player(now), not now.active.any()
                now = vector_env.step(action)
                if is_over:
                    num_episodes += 1
                    seen = raw.begin(num_episodes)
                else:
                    raw_step = raw.step(action)
                    seen = raw_step.seen
                    assert raw_step.is_over == (not now.active.any()), (
                        f"step {step}: over for the one, not for the other"
                    )
                    _check_step(now, raw_step, f"after step {step}")
        finally:
            raw.close()
        assert num_episodes or not self.ends

    def test_nothing_fails(self, vector_env: core.VectorEnv) -> None:
        assert not any(now["failed"].any() for now in self._moments(vector_env))
        assert vector_env.statistics().num_failures == 0

    def test_statistics_count_steps_and_episodes(self, vector_env: core.VectorEnv) -> None:
        moments = self._moments(vector_env)
        over = [~self._by_env(vector_env, now["active"]).any(axis=1) for now in moments]
        stats = vector_env.statistics()
        assert stats.num_episodes == sum(int(each.sum()) for each in over)
        assert stats.num_steps == sum(int((~each).sum()) for each in over[:-1])

    # ── the same again ────────────────────────────────────────────────────────────────────────────────────────────

    def test_the_same_seed_and_actions_give_the_same_steps(self, open_vector_env: Opener) -> None:
        one, other = open_vector_env(self.num_envs), open_vector_env(self.num_envs)
        moments = self._moments(one)
        assert_same(moments, self._moments(other))
        assert_same(moments, self._moments(one))

    def test_actions_of_rows_that_cannot_act_are_ignored(self, open_vector_env: Opener) -> None:
        one, other = open_vector_env(self.num_envs), open_vector_env(self.num_envs)
        player, whim = RandomPlayer(one.spec, seed=0), RandomPlayer(one.spec, seed=99)
        now, then = one.reset(seed=1), other.reset(seed=1)
        for _ in range(self.num_steps):
            action = player(now)
            changed = np.where(_widened(then.active, action), action, whim(then))
            now, then = one.step(action), other.step(changed)
            assert_same([copied(now)], [copied(then)])

    def test_envs_do_not_mix(self, open_vector_env: Opener) -> None:
        """Whatever the others do, env 0 goes its way, up to the first end (generators may be shared after that)."""
        one, other = open_vector_env(self.num_envs), open_vector_env(self.num_envs)
        player, whim = RandomPlayer(one.spec, seed=0), RandomPlayer(one.spec, seed=99)
        now, then = one.reset(seed=1), other.reset(seed=1)
        own = slice(0, len(one.spec.agents))
        for _ in range(self.num_steps):
            action, changed = player(now), whim(then)
            changed[own] = action[own]
            now, then = one.step(action), other.step(changed)
            seen, also = ({**copied(each), "global_state": None} for each in (now, then))
            assert_same([nests.take(seen, own)], [nests.take(also, own)])
            if any(not self._by_env(one, each.active).any(axis=1).all() for each in (now, then)):
                break

    def test_send_and_recv_are_step(self, open_vector_env: Opener) -> None:
        one, other = open_vector_env(self.num_envs), open_vector_env(self.num_envs)
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
    def test_what_is_restored_goes_on_exactly(self, open_vector_env: Opener, share: float) -> None:
        one = open_vector_env(self.num_envs)
        player = RandomPlayer(one.spec, seed=0)
        now = one.reset(seed=1)
        if one.save() is None:
            pytest.skip("these envs cannot tell where they are")
        for _ in range(int(share * self.num_steps)):
            now = one.step(player(now))
        saved = one.save()
        assert saved is not None, "they could be saved at the beginning, and now they cannot"
        other = open_vector_env(self.num_envs)
        saved = data.decode([bytes(frame) for frame in data.encode(saved)])
        before = copied(now)
        moments = self._go_on(one, now, RandomPlayer(one.spec, seed=2))
        then = other.restore(saved)
        assert_same([before], [copied(then)])
        assert_same(moments, self._go_on(other, then, RandomPlayer(one.spec, seed=2)))
        assert other.statistics().num_steps == one.statistics().num_steps

    def test_what_was_saved_elsewhere_is_refused(self, vector_env: core.VectorEnv) -> None:
        vector_env.reset(seed=1)
        with pytest.raises(errors.EnvError):
            vector_env.restore({"something": "else"})

    def test_close_may_be_called_twice(self, vector_env: core.VectorEnv) -> None:
        vector_env.reset(seed=1)
        vector_env.close()
        vector_env.close()

    # ── playing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _moments(self, vector_env: core.VectorEnv) -> list[Moment]:
        now = vector_env.reset(seed=1)
        return [copied(now), *self._go_on(vector_env, now, RandomPlayer(vector_env.spec, seed=0))]

    def _go_on(self, vector_env: core.VectorEnv, now: core.TimeStep, player: RandomPlayer) -> list[Moment]:
        moments = []
        for _ in range(self.num_steps):
            now = vector_env.step(player(now))
            moments.append(copied(now))
        return moments

    @staticmethod
    def _by_env(vector_env: core.VectorEnv, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return flags.reshape(vector_env.num_envs, -1)


class RandomPlayer:
    """Any action that is allowed: `player(now)` has one for each row. The same seed plays the same."""

    def __init__(self, spec: core.EnvSpec, *, seed: int) -> None:
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


def _check_step(now: core.TimeStep, raw_step: RawStep, when: str) -> None:
    """Fail unless rewards, ends and masks are the library's; rows of which it tells nothing have none."""
    for name in ("reward", "terminated", "truncated"):
        got, expected = getattr(now, name), np.zeros_like(getattr(now, name))
        for row, value in getattr(raw_step, name).items():
            expected[row] = value
        np.testing.assert_array_equal(got, expected, err_msg=f"{when}: {name}")
    for row, mask in raw_step.mask.items():
        assert now.mask is not None, f"{when}: the library has a mask, the envs have none"
        np.testing.assert_array_equal(now.mask[row, : len(mask)], mask, err_msg=f"{when}: mask of row {row}")
        assert not now.mask[row, len(mask) :].any(), f"{when}: row {row} may do what it has no choice for"


def _widened(flags: NDArray[np.bool_], like: NDArray[Any]) -> NDArray[np.bool_]:
    return flags.reshape(-1, *[1] * (like.ndim - 1))

"""Teams: joining the agents of an env loses nothing, and ends an episode where its last agent ends it."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.data import team
from ludus.data.nest import Nest
from ludus.data.spec import ArraySpec
from ludus.errors import DataError

from .team_segments import NUM_CHOICES, play

GLOBAL_STATE = ArraySpec((5,), np.float32)
STATE = {"hidden": ArraySpec((6,), np.float32)}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("num_agents", [1, 2, 3])
def test_a_joined_segment_has_all_that_its_rows_have(num_agents: int, seed: int) -> None:
    played = play(num_agents=num_agents, seed=seed, global_state=GLOBAL_STATE, state=STATE)
    segment, joined = played.segment, team.join_agents(played.segment, num_agents)
    assert (joined.num_steps, joined.num_rows) == (12, 3)
    num_final = 0
    for env in range(3):
        for agent in range(num_agents):
            row = env * num_agents + agent
            assert np.array_equal(joined.obs["obs"][:, env, agent], segment.obs[:, row])
            assert np.array_equal(joined.action[:, env, agent], segment.action[:, row])
            choices = slice(agent * NUM_CHOICES, (agent + 1) * NUM_CHOICES)
            assert np.array_equal(joined.mask[:, env, choices], segment.mask[:, row])
            assert np.array_equal(joined.state["hidden"][env, agent], segment.state["hidden"][row])
            for step in range(13):
                counts = segment.active[step, row] or played.cut_off[step, env, agent]
                assert joined.obs["active"][step, env, agent] == counts
                num_final += bool(played.cut_off[step, env, agent])
        rows = slice(env * num_agents, (env + 1) * num_agents)
        for step in range(12):
            assert joined.active[step, env] == any(segment.active[step, rows])
            np.testing.assert_allclose(joined.reward[step, env], sum(segment.reward[step, rows]) / num_agents, 1e-4)
            logp = sum(segment.logp[step, rows] * segment.active[step, rows])
            np.testing.assert_allclose(joined.logp[step, env], logp, 1e-4, 1e-6)
            assert joined.first[step, env] == segment.first[step, rows][0]
    assert np.array_equal(joined.obs["global_state"], segment.global_state)
    assert np.array_equal(joined.terminated, played.terminated)
    assert np.array_equal(joined.truncated, played.truncated)
    assert joined.num_env_steps(1) == segment.num_env_steps(num_agents)
    assert seed or num_final or num_agents == 1, "the first seed should have episodes that are cut off"


def test_an_agent_that_leaves_ends_nothing_for_the_others() -> None:
    segment = play(num_agents=3, num_envs=1, leave=0.0, end=0.0).segment
    segment.terminated[4, 1] = True
    segment.active[5:, 1] = False
    joined = team.join_agents(segment, 3)
    assert not joined.terminated.any()
    assert joined.active.all()
    assert joined.obs["active"][:, 0, 1].tolist() == [True] * 5 + [False] * 8
    segment.truncated[8] = segment.active[8]
    segment.active[9:] = False
    joined = team.join_agents(segment, 3)
    assert joined.truncated[:, 0].tolist() == [False] * 8 + [True] + [False] * 3
    assert joined.obs["active"][9, 0].tolist() == [True, False, True], "the one that left earlier has no value"
    segment.terminated[8], segment.truncated[8] = segment.truncated[8].copy(), False
    joined = team.join_agents(segment, 3)
    assert joined.terminated[8, 0]
    assert not joined.obs["active"][9].any()


def test_a_reward_may_be_the_sum_and_may_stay_in_the_rows() -> None:
    segment = play(num_agents=3, seed=1).segment
    total = team.join_agents(segment, 3, reward="sum").reward
    np.testing.assert_allclose(total, 3 * team.join_agents(segment, 3).reward, 1e-5, 1e-6)
    shared = team.share_reward(segment, 3, reward="sum")
    assert np.array_equal(shared.reward, total.repeat(3, 1))
    assert shared.obs is segment.obs


@pytest.mark.parametrize("global_state", [None, GLOBAL_STATE, {"map": ArraySpec((2, 2), np.float32)}])
def test_the_spec_is_that_of_joined_segments(global_state: Nest) -> None:
    obs = {"image": ArraySpec((2, 3), np.float32), "speed": ArraySpec((), np.float32)}
    segment = play(num_agents=2, obs=obs, global_state=global_state, state=STATE).segment
    joined = team.join_agents(segment, 2)
    spec = team.joined_spec(
        obs=obs,
        action=ArraySpec((), np.int64),
        num_agents=2,
        mask_size=NUM_CHOICES,
        global_state=global_state,
        state=STATE,
    )

    def check(found: Nest, wanted: Nest, num_leading: int) -> None:
        if isinstance(wanted, dict):
            assert list(found) == list(wanted)
            for name, child in wanted.items():
                check(found[name], child, num_leading)
        else:
            assert found.shape[num_leading:] == wanted.shape
            assert found.dtype == wanted.dtype

    check(joined.obs, spec["obs"], 2)
    check(joined.action, spec["action"], 2)
    check(joined.state, spec["state"], 1)
    assert joined.mask.shape[2] == spec["mask_size"]
    assert team.joined_spec(obs=obs, action=ArraySpec((), np.int64), num_agents=2)["state"] is None


def test_rows_that_are_not_those_of_whole_envs_are_refused() -> None:
    with pytest.raises(DataError, match="6 rows are not those of whole envs with 4 agents"):
        team.join_agents(play().segment, 4)

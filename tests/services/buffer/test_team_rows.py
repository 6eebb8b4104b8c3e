"""Joined segments in a store of trajectories: what is drawn of a team is what its agents saw, did and got."""

from __future__ import annotations

import numpy as np
import pytest

from data.team_segments import play
from ludus.data import team
from ludus.data.spec import ArraySpec
from ludus.services.buffer.table import TableSettings
from ludus.services.buffer.trajectories import TrajectoryStore
from ludus.services.buffer.trajectory_spec import TrajectorySpec

NUM_AGENTS, LENGTH = 3, 4


@pytest.mark.parametrize("state", [None, {"hidden": ArraySpec((2,), np.float32)}])
@pytest.mark.parametrize("seed", range(3))
def test_sequences_of_teams_are_those_that_were_played(seed: int, state: object) -> None:
    global_state = ArraySpec((2,), np.float32)
    segment = play(
        num_agents=NUM_AGENTS, num_envs=4, num_steps=30, seed=seed, global_state=global_state, state=state
    ).segment
    segment.global_state[..., 0] = np.arange(31)[:, None]
    segment.global_state[..., 1] = np.arange(4)
    joined = team.join_agents(segment, NUM_AGENTS)
    spec = TrajectorySpec(
        **team.joined_spec(
            obs=ArraySpec((4,), np.float32), action=ArraySpec((), np.int64), num_agents=NUM_AGENTS, mask_size=3,
            global_state=global_state, state=state,
        )
    )  # fmt: skip
    store = TrajectoryStore(spec, num_entries=200)
    store.add_table("replay", TableSettings(), kind="sequence", length=LENGTH)
    store.insert(joined, "0")
    found = store.sample_sequences("replay", 64, np.random.default_rng(seed)).batch
    num_ends = num_gone = 0
    for row in range(64):
        step, env = found.obs["global_state"][0, row].astype(int)
        if state is not None:
            is_start = step == 0 or joined.first[step, env]
            assert is_start
            if step == 0:
                assert np.array_equal(found.state["hidden"][row], joined.state["hidden"][env])
        for at in range(LENGTH + 1):
            if at and found.first[at, row] and not found.active[at, row] and found.active[:at, row].any():
                break  # filled up: nothing follows
            now = int(found.obs["global_state"][at, row, 0])
            assert np.array_equal(found.obs["obs"][at, row], joined.obs["obs"][now, env])
            assert np.array_equal(found.obs["active"][at, row], joined.obs["active"][now, env])
            assert np.array_equal(found.mask[at, row], joined.mask[now, env])
            if at < LENGTH and found.active[at, row]:
                assert now == step + at
                assert np.array_equal(found.action[at, row], joined.action[now, env])
                for name in ("reward", "terminated", "truncated"):
                    assert getattr(found, name)[at, row] == getattr(joined, name)[now, env]
                num_ends += bool(found.terminated[at, row] | found.truncated[at, row])
                num_gone += not found.obs["active"][at, row].all()
    assert num_ends
    assert num_gone

"""Seeds: every env, and every episode of it, begins differently; the same seed begins all of them alike."""

import numpy as np

from ludus import envs
from ludus.envs.seeds import derived, derived_arrays


def beginnings(seed):
    """What the first episodes of two envs begin with."""
    vector_env = envs.make("CartPole-v1", 2, vectorization="loop")
    try:
        now = vector_env.reset(seed)
        found = [tuple(row) for row in now.obs.tolist()]
        while len(found) < 8:
            now = vector_env.step(np.zeros(2, np.int64))  # always to the left: it falls soon
            found += [tuple(row) for row in now.obs[now.first].tolist()]
        return found
    finally:
        vector_env.close()


def test_no_two_episodes_begin_alike_and_the_same_seed_begins_them_the_same():
    one, same, other = beginnings(1), beginnings(1), beginnings(2)
    assert len(set(one)) == len(one)
    assert one == same
    assert not set(one) & set(other)


def test_seeds_of_many_paths_at_once_are_those_of_each():
    env, episode = np.array([0, 1, 5, 2**40]), np.array([7, 0, 3, 1])
    for seed in (0, 1, 2**63, -1):
        each = [derived(seed, *path, 4) for path in zip(env.tolist(), episode.tolist(), strict=True)]
        assert derived_arrays(seed, env, episode, 4).tolist() == each

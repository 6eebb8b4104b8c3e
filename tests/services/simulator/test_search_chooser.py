"""Who looks ahead in a simulator: the moves, the policies that are learnt from, games that are over."""

from __future__ import annotations

import numpy as np
import pytest

from ludus import envs
from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.envs.boards.tic_tac_toe import TicTacToe
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.learn.search.settings import SearchSettings
from ludus.services.simulator.search_chooser import SearchChooser
from ludus.services.simulator.simulator import Simulator

GAME = "board:tic_tac_toe"


def _collect(settings: SearchSettings, *, num_groups: int = 1) -> Segment:
    policy = Policy(PolicySpec(obs=TicTacToe.obs, action=Discrete(9), network=NetworkConfig(hidden=(8,))))
    groups = [envs.make(GAME, 12 // num_groups) for _ in range(num_groups)]
    chooser = SearchChooser(policy, TicTacToe(), settings)
    simulator = Simulator(groups, chooser, num_steps=20, seed=5)
    try:
        return simulator.collect(0).segment
    finally:
        simulator.close()


@pytest.mark.parametrize("gumbel", [False, True])
@pytest.mark.parametrize("num_groups", [1, 2])
def test_every_move_has_the_policy_of_its_search(gumbel: bool, num_groups: int) -> None:
    segment = _collect(SearchSettings(simulations=20, gumbel=gumbel), num_groups=num_groups)
    active = segment.active[:-1]
    assert segment.terminated.any()
    assert segment.extra.shape == (20, 24, 9)
    np.testing.assert_allclose(segment.extra[active].sum(-1), 1.0, atol=1e-5)
    assert not segment.extra[~active].any()
    assert not segment.extra[active][~segment.mask[:-1][active]].any()
    chosen = np.take_along_axis(segment.extra, segment.action[..., None], -1)[..., 0][active]
    assert (chosen > 0).all()
    np.testing.assert_allclose(segment.logp[active], np.log(chosen), rtol=1e-4)


def test_at_temperature_0_the_most_visited_moves_are_played() -> None:
    segment = _collect(SearchSettings(simulations=20, temperature=0.0))
    active = segment.active[:-1]
    chosen = np.take_along_axis(segment.extra, segment.action[..., None], -1)[..., 0]
    assert np.array_equal(chosen[active], segment.extra.max(-1)[active])

"""Rules that were not learnt: what each does, and that the good ones are good."""

import numpy as np
import pytest

from ludus import envs
from ludus.envs.scenarios.heuristics import HEURISTICS, Fair, Random, StockUp, nothing, returns
from ludus.envs.scenarios.observations import AHEAD, OF_PORT, OF_VESSEL
from ludus.testing.vector_envs import RandomPlayer

NAME = "scenario:repositioning"


@pytest.fixture(scope="module")
def moment():
    """One moment of many envs, some way into their episodes."""
    vector_env = envs.make(NAME, 32)
    player, now = RandomPlayer(vector_env.spec, seed=0), vector_env.reset(seed=1)
    for _ in range(40):
        now = vector_env.step(player(now))
    return now


@pytest.mark.parametrize("name", HEURISTICS)
def test_every_rule_chooses_only_what_is_allowed(moment, name):
    choice = HEURISTICS[name]()(moment)
    assert moment.mask[np.arange(len(choice)), choice].all()
    assert not choice[~moment.active].any()


def test_the_same_seed_chooses_the_same(moment):
    assert np.array_equal(Random(3)(moment), Random(3)(moment))
    assert not np.array_equal(Random(3)(moment), Random(4)(moment))


def test_a_port_that_stocks_up_loads_only_what_it_does_not_need_and_discharges_only_what_it_needs(moment):
    choice = StockUp(ticks=8, times=1.0)(moment)
    port = moment.obs[:, OF_PORT]
    lacks = port[:, 6] - port[:, 1] - port[:, 0]  # what is sent in 8 ticks, less what is being emptied and the stock
    is_loading, is_discharging = (choice >= 1) & (choice <= 4), choice >= 5
    assert is_loading.sum() > 10
    assert is_discharging.sum() > 10
    assert (lacks[is_loading] < 0).all()
    assert (lacks[is_discharging] > 0).all()


def test_what_is_shared_goes_to_ports_that_have_too_little_for_what_they_send():
    """A port with a stock of 80 and a vessel with space; of the stops ahead the first sends much and has nothing."""
    vector_env = envs.make(NAME, 1)
    now = vector_env.reset(seed=1)
    row = int(np.argmax(now.active))
    now.obs[row, OF_PORT] = 0.0
    now.obs[row, OF_PORT.start] = 0.8
    now.obs[row, OF_VESSEL] = [1.0, 0.0, 0.0, 1.0]
    now.obs[row, AHEAD] = 0.0
    now.mask[row] = [True] * 5 + [False] * 4
    now.obs[row, AHEAD.start + 7] = 2.0  # sent in 16 ticks
    assert Fair()(now)[row] == 4  # all of it
    now.obs[row, OF_PORT.start + 7] = 2.0
    assert Fair(ahead=1.0)(now)[row] == 2  # half of it
    now.obs[row, AHEAD.start] = 2.0
    assert Fair(ahead=1.0)(now)[row] == 0


def test_doing_nothing_loses_half_of_the_orders_and_a_fair_share_is_far_better_than_chance():
    vector_env = envs.make(NAME, 40)
    idle, by_chance, fair = (returns(choose, vector_env, 2).mean() for choose in (nothing, Random(), Fair()))
    vector_env.reset(2)
    assert idle + 15 < by_chance
    assert by_chance + 15 < fair
    assert fair + 20 < vector_env.ordered().mean()

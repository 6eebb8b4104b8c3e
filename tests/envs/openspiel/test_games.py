"""OpenSpiel's games as envs: the contract, and that tables play as OpenSpiel itself does."""

import dataclasses

import numpy as np
import pyspiel
import pytest

from ludus import envs
from ludus.envs import seeds
from ludus.envs.loop import LoopVectorEnv
from ludus.envs.openspiel import library
from ludus.envs.openspiel.named import spec_of, tree_of
from ludus.envs.openspiel.state_env import StateEnv
from ludus.envs.openspiel.tree import OVER, grow
from ludus.envs.openspiel.tree import _cumulative as cumulative_of
from ludus.envs.openspiel.tree_env import TreeVectorEnv
from ludus.errors import EnvError
from ludus.testing.raw_envs import RawStep
from ludus.testing.vector_envs import RandomPlayer, VectorEnvConformance


class RawSpiel:
    """A game as the library plays it, with the chance that `StateEnv` draws."""

    def __init__(self, name, seed):
        self._game = pyspiel.load_game(name)
        self._seed = seed

    def begin(self, episode):
        self._rng = np.random.default_rng(seeds.derived(self._seed, 0, episode))
        self._state = self._game.new_initial_state()
        self._chance()
        return self._seen()

    def _chance(self):
        while self._state.is_chance_node():
            actions, weights = zip(*self._state.chance_outcomes(), strict=True)
            self._state.apply_action(actions[int((np.cumsum(weights) <= self._rng.random()).sum())])

    def _seen(self):
        has_info = self._game.get_type().provides_information_state_tensor
        see = self._state.information_state_tensor if has_info else self._state.observation_tensor
        return {player: see(player) for player in range(self._game.num_players())}

    def step(self, action):
        self._state.apply_action(int(action[self._state.current_player()]))
        self._chance()
        is_over = self._state.is_terminal()
        players = range(self._game.num_players())
        return RawStep(
            seen=self._seen(),
            is_over=is_over,
            reward=dict(enumerate(self._state.rewards())),
            terminated=dict.fromkeys(players, is_over),
            truncated={},
            mask={} if is_over else {player: np.array(self._state.legal_actions_mask()) > 0 for player in players},
        )

    def close(self):
        pass


class TestKuhnFromTables(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("openspiel:kuhn_poker", num_envs)


class TestLeducFromTables(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("openspiel:leduc_poker", num_envs)


class TestLeducFromStates(VectorEnvConformance):
    def make(self, num_envs):
        game = library.load("leduc_poker", {})
        return LoopVectorEnv(lambda: StateEnv(spec_of("openspiel:leduc_poker", game), game), num_envs)

    def raw(self, seed):
        return RawSpiel("leduc_poker", seed)


class TestConnectFour(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("openspiel:connect_four", num_envs)

    def raw(self, seed):
        return RawSpiel("connect_four", seed)


class TestSimultaneousMovesByTurns(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("openspiel:goofspiel", num_envs, num_cards=4)


class TestThreePlayers(VectorEnvConformance):
    def make(self, num_envs):
        return envs.make("openspiel:kuhn_poker", num_envs, players=3)


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker"])
def test_random_games_from_tables_are_those_of_the_library(name):
    game = library.load(name, {})
    tree = tree_of(f"openspiel:{name}", {})
    rng = np.random.default_rng(1)
    for _ in range(200):
        state, node = game.new_initial_state(), None
        lottery = tree.start
        while not state.is_terminal():
            weight = 1.0
            while state.is_chance_node():
                outcomes, weights = zip(*state.chance_outcomes(), strict=True)
                place = int(rng.integers(len(outcomes)))
                weight *= weights[place]
                state.apply_action(outcomes[place])
            seen = [library.observe(game, state, player) for player in range(2)]
            reached = slice(tree.first[lottery], tree.first[lottery + 1])
            same = [
                (at, probability)
                for at, probability in zip(tree.outcome[reached], tree.probability[reached], strict=True)
                if np.array_equal(tree.obs[at], np.asarray(seen, np.float32))
            ]
            [(node, probability)] = same
            assert probability == pytest.approx(weight)
            assert np.array_equal(tree.returns[node], state.returns())
            if state.is_terminal():
                break
            assert tree.player[node] == state.current_player()
            assert np.flatnonzero(tree.legal[node]).tolist() == state.legal_actions()
            action = int(rng.choice(state.legal_actions()))
            lottery = tree.lottery[node, action]
            state.apply_action(action)
        if not state.is_chance_node() and tree.player[node] != OVER:
            [node] = tree.outcome[tree.first[lottery] : tree.first[lottery + 1]]
        assert np.array_equal(tree.returns[node], state.returns())


def test_chance_is_as_likely_as_it_should_be():
    env = envs.make("openspiel:kuhn_poker", 3000)
    now = env.reset(seed=3)
    deals, counts = np.unique(now.obs.reshape(3000, -1), axis=0, return_counts=True)
    assert len(deals) == 6
    assert counts.min() > 400
    assert counts.max() < 600


def test_what_is_likelier_is_drawn_more_often():
    game = library.load("kuhn_poker", {})
    tree = grow(game)
    own = tree.first[tree.start], tree.first[tree.start + 1]
    uneven = [(int(node), weight) for node, weight in zip(tree.outcome[slice(*own)], [0.9] + [0.02] * 5, strict=True)]
    cumulative = tree.cumulative.copy()
    cumulative[slice(*own)] = cumulative_of(tree.start, uneven)
    drawn = dataclasses.replace(tree, cumulative=cumulative).draw(
        np.full(1000, tree.start), np.random.default_rng(1).random(1000)
    )
    assert 870 < np.count_nonzero(drawn == uneven[0][0]) < 930


def test_a_game_whose_players_do_not_see_what_they_may_do_is_refused(monkeypatch):
    monkeypatch.setattr(library, "observe", lambda game, state, player: [0.0] * 30)
    monkeypatch.setattr(library, "tensor_shape", lambda game: (30,))
    with pytest.raises(EnvError, match="cannot be played from observations"):
        grow(library.load("leduc_poker", {}))


def test_a_step_gives_what_was_won_in_it():
    spec, tree = envs.spec("openspiel:kuhn_poker"), tree_of("openspiel:kuhn_poker", {})
    returns = np.cumsum(np.ones((len(tree.player), 1)), 0) * [1.0, -1.0]  # something on the way, too
    env = TreeVectorEnv(spec, dataclasses.replace(tree, returns=returns), 1)
    now, player = env.reset(seed=1), RandomPlayer(spec, seed=0)
    for _ in range(20):
        before = env._node[0]
        now = env.step(player(now))
        expected = [0.0, 0.0] if now.first[0] else returns[env._node[0]] - returns[before]
        assert now.reward.tolist() == pytest.approx(expected)


def test_a_large_game_has_no_tables():
    assert grow(library.load("leduc_poker", {}), max_nodes=9456) is None
    with pytest.raises(EnvError, match="too large for tables"):
        tree_of("openspiel:connect_four", {})


def test_a_misspelt_game_is_answered_with_the_nearest():
    with pytest.raises(EnvError, match="kuhn_poker"):
        envs.make("openspiel:kun_poker", 1)


def test_parameters_that_a_game_does_not_have_are_refused():
    with pytest.raises(EnvError, match="cannot be made with"):
        envs.make("openspiel:kuhn_poker", 1, cards=5)


def test_an_illegal_action_changes_nothing():
    env = envs.make("openspiel:leduc_poker", 2)
    assert isinstance(env, TreeVectorEnv)
    now = env.reset(seed=1)
    before = now.obs.copy()
    folds = np.flatnonzero(~now.mask[0])[0]
    with pytest.raises(EnvError, match="legal are"):
        env.step(np.full(4, folds))
    assert np.array_equal(env._now.obs, before)
    env.step(RandomPlayer(env.spec, seed=0)(now))

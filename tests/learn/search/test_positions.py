"""What a network has said is found again under the same weights, and only then."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.data.actions import Discrete
from ludus.envs.boards.tic_tac_toe import TicTacToe
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy, PolicySpec
from ludus.learn.search.evaluator import PolicyEvaluator
from ludus.learn.search.positions import Positions
from ludus.learn.search.search import TreeSearch
from ludus.learn.search.settings import SearchSettings


class Counting:
    """A network of weights 0 that counts the rows it is asked for."""

    def __init__(self) -> None:
        self.num_rows = 0
        self.weights = 0
        self._weight = np.random.default_rng(1).normal(size=(18, 9)).astype(np.float32)

    def __call__(self, obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        self.num_rows += len(obs)
        logits = np.stack([row @ self._weight for row in obs])  # row by row: bit by bit alike
        return logits, np.tanh(logits.sum(1) * np.float32(0.1))

    def fingerprint(self) -> int:
        return self.weights


class Plain:
    """The same, without a fingerprint."""

    def __init__(self) -> None:
        self.inner = Counting()

    def __call__(self, obs: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.inner(obs)


def test_a_search_finds_the_same_and_asks_less() -> None:
    rules, rng = TicTacToe(), np.random.default_rng(0)
    search = TreeSearch(rules, SearchSettings(simulations=60, leaves=2))
    counting, plain = Counting(), Plain()
    states = rules.start(20)
    expected = search(states, plain, rng)
    found = search(states, counting, rng)
    assert np.array_equal(found.visits, expected.visits)
    assert np.array_equal(found.policy, expected.policy)
    assert counting.num_rows < plain.inner.num_rows / 10, "all games are alike"
    before = counting.num_rows
    again = search(states, counting, rng)
    assert np.array_equal(again.visits, expected.visits)
    assert counting.num_rows == before
    counting.weights = 1
    search(states, counting, rng)
    assert counting.num_rows == 2 * before


def test_positions_that_meet_at_one_place_are_not_taken_for_each_other() -> None:
    positions = Positions(TicTacToe())
    positions.of_weights(1)
    states = np.array([[1, 2, 2], [1, 2, 2], [4, 8, 2]])
    place = np.array([5, 5, 5])
    assert not positions.known(states, place).any()
    chosen, like = positions.first_of_each(states, place)
    assert np.array_equal(states[chosen][like], states)
    scores = np.arange(3 * 18, dtype=np.float32).reshape(3, 2, 9)
    positions.write(states, place, scores, np.zeros(3, np.float32))
    assert positions.known(states, place).tolist() == [False, False, True]
    assert np.array_equal(positions.read(place)[0][2], scores[2])
    assert positions.known(states[2:], positions.places(states[2:])).tolist() == [False]
    positions.of_weights(2)
    assert not positions.known(states, place).any()


def test_every_change_of_a_policy_changes_its_fingerprint() -> None:
    spec = PolicySpec(obs=TicTacToe.obs, action=Discrete(9), network=NetworkConfig(hidden=(8,)), normalise_returns=True)
    policy = Policy(spec)
    evaluate = PolicyEvaluator(policy, TicTacToe())
    seen = [evaluate.fingerprint()]
    assert evaluate.fingerprint() == seen[0]
    with torch.no_grad():
        for tensor in (*policy.parameters(), *policy.buffers()):
            tensor.view(-1)[0] += 0.5
            seen.append(evaluate.fingerprint())
    assert len(set(seen)) == len(seen)

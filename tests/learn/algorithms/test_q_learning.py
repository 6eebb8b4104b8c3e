"""The learner's contract fits more than actor-critics: Q-learning with a target network, replay, several networks.

The algorithms here are a user's own: each is all that has to be written.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from synthetic_segments import make_learner, make_policy, make_segment, parameters_of

import ludus
from ludus import data
from ludus.data import nest as nests
from ludus.data.actions import Discrete
from ludus.errors import ConfigError
from ludus.experiment.config import resolve
from ludus.learn import ops
from ludus.learn.algorithms.actor_critic import ActorCritic, ActorCriticConfig
from ludus.learn.algorithms.algorithm import Algorithm, Loss, Networks, SegmentConfig, View
from ludus.learn.algorithms.learner import Learner, Sample
from ludus.learn.ops.distributions import Categorical
from ludus.options import option

HEAD = f"{__file__}:EpsilonGreedy"
WHOLE = {"num_epochs": 1, "minibatch_size": 0}


# --- Q-learning


class EpsilonGreedy(Categorical):
    """`params` are Q-values: the best choice, or any one."""

    epsilon = 0.3

    def __init__(self, action: Discrete) -> None:
        super().__init__(action.num_choices)

    def sample(self, params: Any, rng: np.random.Generator, mask: Any = None) -> tuple[Any, Any]:
        any_choice, logp = super().sample(np.zeros_like(params), rng, mask)
        best = self.mode(params, mask)
        action = np.where(rng.random(len(params)) < self.epsilon, any_choice, best)
        return action, np.log(self.epsilon * np.exp(logp) + (1.0 - self.epsilon) * (action == best))


@dataclass(frozen=True, kw_only=True)
class QLearningConfig(SegmentConfig):
    num_steps: int = option(16, help="steps of each environment in one segment", minimum=1)
    gamma: float = option(0.9, help="discount of a reward one step later", minimum=0.0, maximum=1.0)
    num_epochs: int = option(8, help="passes over each batch", minimum=1)
    minibatch_size: int = option(64, help="environment steps of one gradient step", minimum=0)
    learning_rate: float = option(3e-3, help="learning rate of Adam", minimum=0.0)
    n: int = option(3, help="steps of rewards in a target", minimum=1)
    tau: float = option(0.1, help="how far the target network moves at each gradient step", minimum=0.0)


class QLearning(Algorithm[QLearningConfig]):
    Config = QLearningConfig

    def policy_spec(self, env: Any, network: Any) -> Any:
        return dataclasses.replace(super().policy_spec(env, network), head=HEAD)

    def networks(self, policy: Any) -> Networks:
        return Networks(policy=policy, targets={"target": copy.deepcopy(policy)})

    def targets(self, sample: Any) -> dict[str, Any]:
        segment = sample.segment
        q, _value = sample.evaluate(sample.networks.targets["target"])
        best = q.max(-1).values
        return {"q": ops.n_step_returns(segment.reward, best, *segment.ends, gamma=self.config.gamma, n=self.config.n)}

    def losses(self, view: View) -> Iterator[Loss]:
        q = view.params.gather(-1, view.action.unsqueeze(-1)).squeeze(-1)
        error = q - view.targets["q"]
        yield Loss(0.5 * view.mean(error.square()), {"q": view.mean(q)}, priority=error.abs())

    def after_step(self, networks: Networks, num_steps: int) -> None:
        target, policy = (network.state_dict() for network in (networks.targets["target"], networks.policy))
        for name, tensor in target.items():
            tensor.lerp_(policy[name], self.config.tau)


class Sides(gymnasium.Env):
    """Walk to the end of a corridor that is shown: 1 for it, -1 for the other."""

    observation_space = gymnasium.spaces.Box(-3.0, 3.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._place, self._side = 0, int(self.np_random.choice([-1, 1]))
        return np.float32([self._place, self._side]), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._place += 2 * int(action) - 1
        is_over = abs(self._place) == 3
        reward = float(self._place // 3 * self._side) if is_over else 0.0
        return np.float32([self._place, self._side]), reward, is_over, False, {}


def test_an_algorithm_of_ones_own_that_is_no_actor_critic_learns_the_same_from_one_seed(tmp_path: Path) -> None:
    settings = {
        "steps": 6_000,
        "seed": 2,
        "threads": 1,
        "eval_episodes": 40,
        "eval_max_steps": 50,
        "project": str(tmp_path),
    }
    run = ludus.train(f"{__file__}:QLearning", f"{__file__}:Sides", trial="q", **settings)
    assert run.result["eval_return_mean"] == 1.0, "greedy: every episode goes to the right end"
    again = ludus.train(f"{__file__}:QLearning", f"{__file__}:Sides", trial="again", **settings)
    assert again.result["weights_hash"] == run.result["weights_hash"]


def test_it_has_no_settings_of_actor_critics() -> None:
    config = resolve(f"{__file__}:QLearning", "CartPole-v1", {"tau": 0.5})
    own = {field.name for field in dataclasses.fields(config.algorithm)}
    assert not own & {"lam", "value_coef", "entropy_coef", "normalise_returns", "squash", "log_std"}
    with pytest.raises(ConfigError, match="no setting 'lam'"):
        resolve(f"{__file__}:QLearning", "CartPole-v1", {"lam": 0.9})


def q_learner(recurrent: str = "none", **settings: Any) -> Learner:
    return make_learner(f"{__file__}:QLearning", make_policy(head=HEAD, recurrent=recurrent), **settings)


def test_the_target_network_follows_the_policy_and_has_no_gradient() -> None:
    learner = q_learner(tau=0.25, **WHOLE)
    (target,) = learner.networks.targets.values()
    before = parameters_of(learner.policy)
    assert np.array_equal(parameters_of(target), before)
    learner.update(Sample(make_segment(learner.policy)))
    after = parameters_of(learner.policy)
    assert not np.array_equal(after, before)
    np.testing.assert_allclose(parameters_of(target), 0.75 * before + 0.25 * after, atol=1e-6)
    assert not any(parameter.requires_grad for parameter in target.parameters())


@pytest.mark.parametrize("recurrent", ["none", "gru"])
def test_priorities_are_the_largest_errors_of_the_samples_rows(recurrent: str) -> None:
    learner = q_learner(recurrent, n=1, **WHOLE)
    segment = make_segment(learner.policy, num_rows=6, turns=0.0)
    tensors = nests.map(lambda leaf: None if leaf is None else torch.from_numpy(leaf), segment.to_nest())
    with torch.no_grad():
        obs = tensors["obs"] if recurrent == "gru" else tensors["obs"].flatten(0, 1)
        q = learner.policy.evaluate(obs, tensors["state"], tensors["first"])[0].view(7, 6, 3)
    goes_on = torch.where(tensors["terminated"], 0.0, 0.9)
    error = tensors["reward"] + goes_on * q[1:].max(-1).values
    error = (error - q[:-1].gather(-1, tensors["action"].unsqueeze(-1)).squeeze(-1)).abs() * tensors["active"][:-1]
    update = learner.update(Sample(segment, keys=np.arange(6) + 40, weight=np.ones(6, np.float32)))
    assert update.priorities is not None
    np.testing.assert_allclose(update.priorities, error.max(0).values.numpy(), atol=1e-5)
    assert learner.update(Sample(segment)).priorities is None


@pytest.mark.parametrize("recurrent", ["none", "gru"])
def test_the_importance_of_a_row_is_what_its_steps_count(recurrent: str) -> None:
    def learn(weight: Any, *, junk: float = 0.0) -> np.ndarray:
        learner = q_learner(recurrent, max_grad_norm=0.0, adam_eps=1.0, learning_rate=1.0, **WHOLE)
        segment = make_segment(learner.policy)
        segment.reward[:, 2:] += junk
        learner.update(Sample(segment, keys=np.arange(5), weight=None if weight is None else np.float32(weight)))
        return parameters_of(learner.policy)

    np.testing.assert_allclose(learn([1, 1, 1, 1, 1]), learn(None), atol=1e-6)
    assert np.array_equal(learn([1, 1, 0, 0, 0]), learn([1, 1, 0, 0, 0], junk=9.0))
    assert not np.allclose(learn([1, 1, 1, 1, 1]), learn([2, 1, 1, 1, 1]), atol=1e-4)


# --- several networks


class Critic(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))

    def forward(self, obs: Any) -> Any:
        return self.layers(obs).squeeze(-1)


class TwoNetworks(ActorCritic[ActorCriticConfig]):
    """The value is a network of its own; it is moved before the policy's loss is computed from it."""

    Config = ActorCriticConfig
    needs_time = True

    def networks(self, policy: Any) -> Networks:
        self.critic = Critic()
        self.seen: list[np.ndarray] = []
        return Networks(policy=policy, trained={"critic": self.critic}, targets={"late": copy.deepcopy(self.critic)})

    def losses(self, view: View) -> Iterator[Loss]:
        assert view.segment is not None
        logp, _entropy = view.head.logp_and_entropy(view.params, view.action, view.mask)
        self.seen.append(parameters_of(self.critic))
        yield Loss(view.mean((self.critic(view.segment.obs)[:-1] - view.segment.reward).square()), {}, "critic")
        self.seen.append(parameters_of(self.critic))
        advantage = view.segment.reward - self.critic(view.segment.obs)[:-1]
        yield Loss(-view.mean(advantage * logp), {"advantage": view.mean(advantage)})  # its gradient reaches the critic

    def after_step(self, networks: Networks, num_steps: int) -> None:
        if num_steps % 2 == 0:
            networks.targets["late"].load_state_dict(networks.trained["critic"].state_dict())


def two_networks(**settings: Any) -> Learner:
    return make_learner(f"{__file__}:TwoNetworks", make_policy(), **{"minibatch_size": 6, **settings})


def test_each_loss_moves_its_own_network_before_the_next_loss_is_computed() -> None:
    learner = two_networks()
    update = learner.update(Sample(make_segment(learner.policy)))
    seen = learner.algorithm.seen  # type: ignore[attr-defined]
    assert learner.num_gradient_steps == len(seen) // 2 == 5
    for number in range(5):
        assert not np.array_equal(seen[2 * number], seen[2 * number + 1]), "the critic's own loss moves it"
        if number:
            assert np.array_equal(seen[2 * number - 1], seen[2 * number]), "the policy's loss does not"
    assert {"loss", "gradient_norm", "critic_gradient_norm", "advantage"} == update.metrics.keys()
    with pytest.raises(ConfigError, match="accumulate=1"):
        two_networks(accumulate=2, minibatch_size=0).update(Sample(make_segment(learner.policy)))


@pytest.mark.parametrize("make", [q_learner, two_networks])
def test_all_networks_optimisers_and_rng_go_on_from_a_checkpoint_bit_by_bit(make: Any) -> None:
    def learn(learner: Learner, seeds: range) -> None:
        for seed in seeds:
            learner.update(Sample(make_segment(make_policy(), seed=seed)))

    whole, early, late = make(seed=3), make(seed=3), make(seed=4)
    learn(whole, range(6))
    learn(early, range(3))
    late.restore(data.decode(data.encode(early.save())))
    learn(late, range(3, 6))
    ours, theirs = whole.save(), late.save()
    assert "networks" in ours
    for mine, other in zip(nests.leaves(ours), nests.leaves(theirs), strict=True):
        assert np.array_equal(mine, other)

"""MAPPO and IPPO: whole updates against a slow, plain one, minibatches of whole envs, and the critic's scale."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from synthetic_segments import parameters_of

from data.team_segments import NUM_CHOICES, OBS, Played, play
from ludus.core import EnvSpec
from ludus.data import nest as nests
from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.learn.algorithms import minibatches
from ludus.learn.algorithms.learner import Learner, Sample
from ludus.learn.algorithms.registry import algorithm_class
from ludus.learn.algorithms.sample import SampleView
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy

NUM_AGENTS = 3
GLOBAL_STATE = ArraySpec((5,), np.float32)
# None of them is a default, and no two are the same.
SETTINGS: dict[str, Any] = {
    "num_epochs": 2,
    "minibatch_size": 0,
    "gamma": 0.9,
    "lam": 0.7,
    "learning_rate": 2e-2,
    "value_coef": 0.6,
    "entropy_coef": 0.05,
    "max_grad_norm": 0.3,
    "reward_scale": 1.3,
    "adam_eps": 1e-3,
    "normalise_obs": False,
    "normalise_returns": False,
}


def make_learner(
    name: str = "mappo", *, recurrent: str = "none", global_state: Any = GLOBAL_STATE, seed: int = 1, **settings: Any
) -> Learner:
    made = algorithm_class(name)
    algorithm = made(made.Config(**{**SETTINGS, **settings}), num_agents=NUM_AGENTS, global_state=global_state)  # type: ignore[arg-type]
    env = EnvSpec(name="fake", obs=OBS, action=Discrete(NUM_CHOICES), agents=("a", "b", "c"), global_state=global_state)
    network = NetworkConfig(hidden=(8,), recurrent=recurrent, recurrent_size=6)
    return Learner(algorithm, Policy(algorithm.policy_spec(env, network), seed=seed), seed=seed)


def make_played(learner: Learner, seed: int = 0, **settings: Any) -> Played:
    state = {"hidden": ArraySpec((6,), np.float32)} if learner.policy.is_recurrent else None
    given = {"global_state": learner.algorithm.global_state, "state": state, **settings}
    played = play(num_agents=NUM_AGENTS, seed=seed, **given)
    played.segment.logp[...] = -1.1 + 0.2 * played.segment.logp
    return played


class Reference:
    """Copies of a learner's networks; one agent, one step and one env at a time."""

    def __init__(self, learner: Learner) -> None:
        self._config = learner.algorithm.config
        self.policy = copy.deepcopy(learner.policy)
        self.critic = copy.deepcopy(learner.networks.trained["critic"])
        self._moments: dict[int, list[np.ndarray]] = {}
        self._num_steps = 0

    def update(self, played: Played) -> dict[str, float]:
        config, segment = self._config, played.segment
        values = self._values(segment)
        advantage, target = self._gae(played, {at: float(value.detach()) for at, value in values.items()})
        acts = [(step, row) for step, row in np.argwhere(segment.active[:-1])]
        found = np.array([advantage[step, row // NUM_AGENTS] for step, row in acts])
        mean, std = found.mean(), found.std(ddof=1)
        totals: dict[str, float] = {}
        for _ in range(config.num_epochs):
            values, logps = self._values(segment), self._logps(segment)
            sums = dict.fromkeys(("policy_loss", "value_loss", "entropy"), torch.zeros((), dtype=torch.float64))
            for step, row in acts:
                env = row // NUM_AGENTS
                gain = (advantage[step, env] - mean) / (std + 1e-8)
                of_choices = logps[step, row]
                ratio = (of_choices[int(segment.action[step, row])] - float(segment.logp[step, row])).exp()
                clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
                sums["policy_loss"] = sums["policy_loss"] - torch.minimum(gain * ratio, gain * clipped)
                sums["value_loss"] = sums["value_loss"] + 0.5 * (values[step, env] - target[step, env]) ** 2
                sums["entropy"] = sums["entropy"] - sum(logp.exp() * logp for logp in of_choices.values())
            means = {name: total / len(acts) for name, total in sums.items()}
            loss = means["policy_loss"] + config.value_coef * means["value_loss"]
            means["loss"] = loss - config.entropy_coef * means["entropy"]
            self._num_steps += 1
            parameters = [list(self.policy.parameters()), list(self.critic.parameters())]
            gradients = iter(torch.autograd.grad(means["loss"], [*parameters[0], *parameters[1]], allow_unused=True))
            for name, own in zip(("gradient_norm", "critic_gradient_norm"), parameters, strict=True):
                means[name] = torch.tensor(self._descend(own, [next(gradients) for _ in own]))
            for name, value in means.items():
                totals[name] = totals.get(name, 0.0) + float(value.detach()) / config.num_epochs
        return totals

    def _values(self, segment: Segment) -> dict[tuple[int, int], torch.Tensor]:
        found = {}
        for step in range(segment.num_steps + 1):
            for env in range(segment.num_rows // NUM_AGENTS):
                if segment.global_state is None:
                    seen = segment.obs[step, env * NUM_AGENTS : (env + 1) * NUM_AGENTS]
                else:
                    seen = segment.global_state[step, env]
                found[step, env] = self.critic.core(torch.from_numpy(seen)[None])[0].double()
        return found

    def _logps(self, segment: Segment) -> dict[tuple[int, int], dict[int, torch.Tensor]]:
        """Of each choice that is allowed."""
        found = {}
        for row in range(segment.num_rows):
            state = segment.state and {"hidden": torch.from_numpy(segment.state["hidden"][row])[None]}
            for step in range(segment.num_steps):
                obs = torch.from_numpy(segment.obs[step, row])[None]
                if state is None:
                    logits = self.policy.model(obs)[0]
                else:
                    first = torch.from_numpy(segment.first[step, row].reshape(1, 1))
                    outputs, _, state = self.policy.model(obs[None], state, first)
                    logits = outputs[0]
                allowed = np.flatnonzero(segment.mask[step, row]).tolist()
                logp = logits[0, allowed].double().log_softmax(0)
                found[step, row] = dict(zip(allowed, logp, strict=True))
        return found

    def _gae(self, played: Played, values: Any) -> tuple[dict[Any, float], dict[Any, float]]:
        config, segment = self._config, played.segment
        advantage, target = {}, {}
        for env in range(segment.num_rows // NUM_AGENTS):
            rows, following = slice(env * NUM_AGENTS, (env + 1) * NUM_AGENTS), 0.0
            for step in reversed(range(segment.num_steps)):
                if not segment.active[step, rows].any():
                    following = 0.0
                    continue
                reward = config.reward_scale * float(segment.reward[step, rows].mean())
                after = 0.0 if played.terminated[step, env] else config.gamma * values[step + 1, env]
                delta = reward + after - values[step, env]
                is_over = played.terminated[step, env] or played.truncated[step, env]
                following = delta + (0.0 if is_over else config.gamma * config.lam * following)
                advantage[step, env], target[step, env] = following, following + values[step, env]
        return advantage, target

    def _descend(self, parameters: list[torch.Tensor], gradients: list[Any]) -> float:
        config = self._config
        arrays = [np.zeros(p.shape) if g is None else g.numpy() for p, g in zip(parameters, gradients, strict=True)]
        norm = math.sqrt(sum(float((g.astype(float) ** 2).sum()) for g in arrays))
        scale = config.max_grad_norm / (norm + 1e-6) if 0.0 < config.max_grad_norm < norm else 1.0
        for parameter, gradient in zip(parameters, arrays, strict=True):
            moments = self._moments.setdefault(id(parameter), [0.0 * gradient, 0.0 * gradient])
            moments[0] = 0.9 * moments[0] + 0.1 * scale * gradient
            moments[1] = 0.999 * moments[1] + 0.001 * (scale * gradient) ** 2
            mean, square = moments[0] / (1.0 - 0.9**self._num_steps), moments[1] / (1.0 - 0.999**self._num_steps)
            with torch.no_grad():
                parameter -= torch.from_numpy(config.learning_rate * mean / (np.sqrt(square) + config.adam_eps))
        return norm


@pytest.mark.parametrize("recurrent", ["none", "gru"])
@pytest.mark.parametrize("global_state", [None, GLOBAL_STATE])
def test_updates_are_those_of_the_reference(global_state: Any, recurrent: str) -> None:
    learner = make_learner(recurrent=recurrent, global_state=global_state)
    reference = Reference(learner)
    for seed in range(2):
        played = make_played(learner, seed)
        expected = reference.update(played)
        found = learner.update(Sample(played.segment)).metrics
        assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4, abs=1e-5)
        np.testing.assert_allclose(parameters_of(learner.policy), parameters_of(reference.policy), atol=5e-5)
        critic = learner.networks.trained["critic"]
        np.testing.assert_allclose(parameters_of(critic), parameters_of(reference.critic), atol=5e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("recurrent", ["none", "gru"])
def test_the_rows_of_an_env_and_its_state_stay_together_in_minibatches(recurrent: str) -> None:
    learner = make_learner(recurrent=recurrent, minibatch_size=40)
    segment = make_played(learner, num_envs=4, has_mask=False).segment
    segment.obs[...] = np.arange(13)[:, None, None] + 100.0 * np.arange(12)[None, :, None]
    segment.global_state[...] = np.arange(13)[:, None, None] + 100.0 * np.arange(4)[None, :, None]
    tensors = {name: nests.map(lambda x: None if x is None else torch.from_numpy(x), value)
               for name, value in segment.to_nest().items()}  # fmt: skip
    sample = SampleView(segment=Segment(**tensors), networks=learner.networks)
    seen = []
    for (make_view,) in minibatches.minibatches(learner.algorithm, sample, {}, np.random.default_rng(1)):
        view = make_view()
        state, obs = view.global_state[..., 0], view.team_obs[..., 0]
        step, env = state % 100, state // 100
        for agent in range(NUM_AGENTS):
            assert torch.equal(obs[..., agent], step + 100 * (NUM_AGENTS * env + agent))
        assert view.action.shape == obs.flatten(-2).shape
        weight = torch.ones_like(view.logp) if view.weight is None else view.weight
        torch.testing.assert_close(weight.sum() if view.weight is not None else torch.tensor(1.0), torch.tensor(1.0))
        acts = torch.from_numpy(segment.active)[step.long().flatten(), :].view(-1, 4, NUM_AGENTS)
        acts = acts[torch.arange(len(acts)), env.long().flatten()].view(obs.shape)
        assert torch.equal(weight.view(obs.shape) > 0.0, acts)
        seen += [at for at, any_acts in zip(state.flatten().tolist(), acts.any(-1).flatten(), strict=True) if any_acts]
    is_active = segment.active[:-1].reshape(12, 4, NUM_AGENTS).any(2)
    expected = (np.arange(12)[:, None] + 100.0 * np.arange(4))[is_active]
    assert sorted(seen) == sorted(2 * expected.tolist()), "each step once in each of two epochs"


def test_parts_of_a_minibatch_make_the_step_of_the_whole() -> None:
    one, other = make_learner(max_grad_norm=0.0), make_learner(max_grad_norm=0.0, accumulate=3)
    for learner in (one, other):
        learner.update(Sample(make_played(learner).segment))
    np.testing.assert_allclose(parameters_of(one.policy), parameters_of(other.policy), atol=1e-5)
    critics = [parameters_of(learner.networks.trained["critic"]) for learner in (one, other)]  # type: ignore[arg-type]
    np.testing.assert_allclose(*critics, atol=1e-5)


def test_the_critics_values_keep_their_meaning_when_the_scale_of_returns_moves() -> None:
    learner = make_learner(normalise_returns=True, normalise_obs=True, learning_rate=0.0)
    played = make_played(learner)
    played.segment.reward[...] = 50.0 + 20.0 * played.segment.reward
    state = torch.randn(7, 5)
    learner.update(Sample(played.segment))
    scale, critic = learner.policy.value_scale, learner.networks.trained["critic"]
    assert scale is not None
    before, std = scale(critic.core(state)), float(scale.std)
    assert critic.normaliser.count > 0
    learner.update(Sample(make_played(learner, 1).segment))
    assert float(scale.std) != pytest.approx(std, rel=0.01)
    torch.testing.assert_close(scale(critic.core(state)), before, rtol=1e-3, atol=1e-3)


def test_a_reward_of_one_agent_is_shared_by_all_and_by_none_without_a_team() -> None:
    played = make_played(make_learner())
    for name, is_shared in (("mappo", True), ("ippo", False)):
        prepared = make_learner(name).algorithm.prepare(played.segment)
        assert np.array_equal(prepared.reward, played.segment.reward) != is_shared
        if is_shared:
            each = prepared.reward.reshape(12, 3, NUM_AGENTS)
            assert (each == each[..., :1]).all()


def test_ippo_is_ppo_of_agents_that_are_no_opponents() -> None:
    segment = make_played(make_learner()).segment
    ippo, ppo = make_learner("ippo"), make_learner("ppo")
    assert ippo.update(Sample(segment)).metrics == ppo.update(Sample(segment)).metrics
    assert np.array_equal(parameters_of(ippo.policy), parameters_of(ppo.policy))
    coefs = [make_learner(name, entropy_coef=None).algorithm.entropy_coef for name in ("mappo", "ippo", "ppo")]  # type: ignore[attr-defined]
    assert coefs == [0.01, 0.01, 0.05]


def test_two_learners_go_on_alike_after_a_checkpoint() -> None:
    one, other = (make_learner(seed=seed, normalise_obs=True, normalise_returns=True) for seed in (1, 2))
    one.update(Sample(make_played(one).segment))
    other.restore(one.save())
    segment = make_played(one, 1).segment
    assert one.update(Sample(segment)).metrics == other.update(Sample(segment)).metrics

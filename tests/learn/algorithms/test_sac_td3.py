"""SAC and TD3: updates against a plain version (`replay_reference.py`), and what else their settings promise."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
import torch
from replay_reference import ReplayReference, make_transitions, networks_of

from ludus import data
from ludus.data import nest as nests
from ludus.data.actions import ActionSpec, Continuous, Discrete, MultiDiscrete
from ludus.data.spec import ArraySpec
from ludus.errors import ConfigError
from ludus.learn.algorithms import sac_passes
from ludus.learn.algorithms.registry import algorithm_class
from ludus.learn.algorithms.replay_learner import Replayed, ReplayLearner
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import Policy

torch.set_num_threads(1)

CONTINUOUS = Continuous((-1.0, -2.0), (1.0, 5.0))
DISCRETE = Discrete(3)
CASES: dict[str, tuple[str, ActionSpec]] = {
    "sac": ("sac", CONTINUOUS),
    "sac by torch's graph": ("sac", CONTINUOUS),
    "discrete sac": ("sac", DISCRETE),
    "td3": ("td3", CONTINUOUS),
}
NETWORK = NetworkConfig(hidden=(8, 6))
VECTOR = ArraySpec((4,), np.float32)
# None of them is a default: what is left out makes a difference.
SETTINGS: dict[str, Any] = {
    "batch_size": 7,
    "gamma": 0.9,
    "n_step": 3,
    "learning_rate": 1e-2,
    "reward_scale": 1.3,
    "adam_eps": 1e-3,
    "tau": 0.1,
    "num_critics": 3,
}
OWN: dict[str, dict[str, Any]] = {
    "sac": {"initial_alpha": 0.3},
    "td3": {"target_noise": 0.6, "target_noise_clip": 0.4, "policy_every": 1},
}


def make_learner(
    name: str,
    action: ActionSpec,
    *,
    obs: Any = VECTOR,
    network: NetworkConfig = NETWORK,
    seed: int = 1,
    **settings: Any,
) -> ReplayLearner:
    algorithm = algorithm_class(name)
    made: Any = algorithm(algorithm.Config(**{**SETTINGS, **OWN[name], **settings}))
    spec = made.policy_spec(types.SimpleNamespace(obs=obs, action=action), network)
    policy = Policy(spec, seed=seed)
    if policy.normaliser is not None:
        policy.normaliser.mean_0.copy_(torch.tensor([0.1, -0.2, 0.3, 0.0]))
        policy.normaliser.variance_0.copy_(torch.tensor([2.0, 0.5, 1.0, 0.01]))
    return ReplayLearner(made, policy, seed=seed)


def compare(
    case: str,
    *,
    num_updates: int = 3,
    has_mask: bool = False,
    weighted: bool = False,
    output_bias: list[float] | None = None,
    **settings: Any,
) -> Any:
    """`output_bias`: of the policy and its target."""
    name, action = CASES[case]
    learner = make_learner(name, action, **settings)
    if output_bias is not None:
        for network in (learner.policy.model, learner.networks.targets.get("policy_target", learner.policy.model)):
            network.tower.biases[-1].data[0, :, 0] = torch.tensor(output_bias)
    if case == "sac by torch's graph":
        learner.networks.workspace["passes"] = None
    reference = ReplayReference(name, learner, seed=1)
    for number in range(num_updates):
        batch = make_transitions(action, seed=number, has_mask=has_mask)
        assert (batch.discount == 0.0).any()
        assert len(set(batch.discount.tolist())) == 4
        weight = np.linspace(0.2, 1.0, 7, dtype=np.float32) if weighted else None
        update = learner.update(Replayed(batch, np.arange(7), weight))
        metrics, priorities = reference.update(batch, weight)
        assert {key: update.metrics[key] for key in metrics} == pytest.approx(metrics, rel=1e-4, abs=1e-5)
        if update.priorities is not None:
            np.testing.assert_allclose(update.priorities, priorities, rtol=1e-4, atol=1e-5)
        for which, network in networks_of(learner).items():
            for key, tensor in network.state_dict().items():
                np.testing.assert_allclose(
                    tensor.numpy(), reference.networks[which][key].detach().numpy(), atol=3e-5, err_msg=f"{which} {key}"
                )
    return update


@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"policy_every": 2, "num_updates": 4},
        {"max_grad_norm": 0.05},
        {"tau": 1.0, "num_critics": 2},
        {"num_critics": 1},
        {"normalise_obs": True},
        {"network": NetworkConfig(hidden=(8, 6), activation="tanh")},
        {"network": NetworkConfig(hidden=(9,))},
    ],
    ids=str,
)
def test_updates_are_those_of_the_reference(case: str, settings: dict[str, Any]) -> None:
    compare(case, **settings)


@pytest.mark.parametrize("case", sorted(CASES))
def test_rows_count_by_their_importance_and_get_priorities(case: str) -> None:
    update = compare(case, weighted=True, prioritised=True)
    assert update.priorities is not None


@pytest.mark.parametrize(
    "settings", [{}, {"target_entropy_share": 0.9}, {"target_entropy": 0.3}, {"alpha": 0.2}], ids=str
)
def test_masks_are_heeded_at_both_observations(settings: dict[str, Any]) -> None:
    compare("discrete sac", has_mask=True, **settings)


@pytest.mark.parametrize("settings", [{"alpha": 0.4}, {"target_entropy": -0.3}, {"initial_alpha": 2.0}], ids=str)
def test_the_temperature_is_fixed_or_learnt_for_an_entropy(settings: dict[str, Any]) -> None:
    compare("sac", **settings)
    compare("sac by torch's graph", **settings)
    learner = make_learner("sac", CONTINUOUS, **settings)
    assert ("temperature" in learner.networks.trained) is ("alpha" not in settings)


def test_the_noise_on_target_actions_is_clipped() -> None:
    compare("td3", target_noise=0.0)
    compare("td3", target_noise=3.0, target_noise_clip=0.1)


def test_target_actions_stay_within_their_bounds() -> None:
    compare("td3", output_bias=[2.0, -2.0])  # noise on 0.96 goes beyond 1


def test_a_std_that_is_bounded_has_no_gradient() -> None:
    """What is written out against torch's graph: the reference has no finite numbers so far out."""
    head: Any = make_learner("sac", CONTINUOUS).policy.head
    outputs = torch.tensor([[0.1, -0.2, 5.0, 0.3], [0.4, 0.0, -30.0, 1.9]], requires_grad=True)
    of_unit, of_logp = torch.randn(2, 2), torch.randn(2)
    unit, logp = head.rsample(outputs, torch.Generator().manual_seed(3))
    ((unit * of_unit).sum() + (logp * of_logp).sum()).backward()
    noise = torch.empty(2, 2).normal_(generator=torch.Generator().manual_seed(3))
    drawn = sac_passes.DrawnActions.of_outputs(outputs.detach().numpy().T, noise.numpy().T)
    np.testing.assert_allclose(drawn.unit.T, unit.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(drawn.logp, logp.detach().numpy(), rtol=1e-5)
    found = drawn.gradient(of_unit.numpy().T, of_logp.numpy()).T
    assert outputs.grad is not None
    np.testing.assert_allclose(found, outputs.grad.numpy(), rtol=1e-4, atol=1e-5)
    assert found[0, 2] == found[1, 2] == 0.0


def test_the_policys_step_leaves_its_critics_alone() -> None:
    learner = make_learner("sac", CONTINUOUS, learning_rate=0.0)
    learner.networks.workspace["passes"] = None
    learner.update(Replayed(make_transitions(CONTINUOUS)))
    critics = learner.networks.trained["critics"]
    of_critics = [parameter.grad.clone() for parameter in critics.parameters()]  # type: ignore[union-attr]
    losses = list(
        learner.algorithm.losses(learner._view(learner._tensors(make_transitions(CONTINUOUS)), slice(None), None))
    )
    losses[1].value.backward()
    for parameter, before in zip(critics.parameters(), of_critics, strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, before)


@pytest.mark.parametrize("case", sorted(CASES))
def test_all_goes_on_from_a_checkpoint_bit_by_bit(case: str) -> None:
    name, action = CASES[case]

    def learn(learner: ReplayLearner, seeds: range) -> None:
        for seed in seeds:
            learner.update(Replayed(make_transitions(action, seed=seed)))

    def make(seed: int) -> ReplayLearner:
        return make_learner(name, action, seed=seed, policy_every=2, normalise_obs=True)

    whole, early, late = make(3), make(3), make(4)
    learn(whole, range(6))
    learn(early, range(3))
    late.restore(data.decode(data.encode(early.save())))
    learn(late, range(3, 6))
    for mine, other in zip(nests.leaves(whole.save()), nests.leaves(late.save()), strict=True):
        assert np.array_equal(mine, other)


@pytest.mark.parametrize("case", sorted(CASES))
def test_several_minibatches_are_several_steps(case: str) -> None:
    name, action = CASES[case]
    one, two = make_learner(name, action), make_learner(name, action)
    parts = [make_transitions(action, seed=seed) for seed in range(2)]
    joined = type(parts[0])(
        **{
            key: None if value is None else np.concatenate([value, parts[1].to_nest()[key]])
            for key, value in parts[0].to_nest().items()
        }
    )
    for part in parts:
        one.update(Replayed(part))
    two.update(Replayed(joined))
    assert two.num_gradient_steps == 2
    for mine, other in zip(nests.leaves(one.save()["weights"]), nests.leaves(two.save()["weights"]), strict=True):
        assert np.array_equal(mine, other)


@pytest.mark.parametrize("case", sorted(CASES))
def test_observations_may_be_nests_with_images(case: str) -> None:
    name, action = CASES[case]
    obs = {"at": ArraySpec((2,), np.float32), "seen": ArraySpec((36, 36, 1), np.uint8)}
    learner = make_learner(
        name, action, obs=obs, network=NetworkConfig(hidden=(8,), encoder="small"), normalise_obs=False
    )
    rng = np.random.default_rng(0)
    batch = make_transitions(action)

    def observed() -> Any:
        return {
            "at": rng.standard_normal((7, 2)).astype(np.float32),
            "seen": rng.integers(0, 255, (7, 36, 36, 1)).astype(np.uint8),
        }

    batch.obs, batch.next_obs = observed(), observed()
    before = {name: nests.leaves(learner.save()["networks"]) for name in ("critics",)}
    update = learner.update(Replayed(batch))
    assert np.isfinite(list(update.metrics.values())).all()
    assert not all(
        np.array_equal(a, b) for a, b in zip(before["critics"], nests.leaves(learner.save()["networks"]), strict=True)
    )


@pytest.mark.parametrize(("name", "size"), [("sac", 2), ("td3", 3)])
def test_actions_are_random_until_there_is_enough_to_learn_from(name: str, size: int) -> None:
    learner = make_learner(name, CONTINUOUS, min_size=100, num_envs=2, hold=5)
    learner.explore(99, 0.0)
    early = learner.policy.exploration.tolist()  # type: ignore[union-attr]
    assert early[:2] == [1.0, 10.0]
    assert len(early) == size
    obs, first = np.zeros((500, 4), np.float32), np.ones(500, np.bool_)
    rng = np.random.default_rng(0)
    action, _, _ = learner.policy.act(obs, None, first, rng)
    held, _, _ = learner.policy.act(obs, None, first, rng)
    assert np.array_equal(action, held), "until the key changes"
    np.testing.assert_allclose(action.mean(0), [0.0, 1.5], atol=0.2)
    np.testing.assert_allclose(action.std(0), np.float64([2.0, 7.0]) / np.sqrt(12.0), rtol=0.1)
    learner.explore(100, 0.0)
    later = learner.policy.exploration.tolist()  # type: ignore[union-attr]
    assert later[:2] == [0.0, 0.0]


def test_networks_have_the_published_shape_unless_they_are_set() -> None:
    env: Any = types.SimpleNamespace(obs=VECTOR, action=CONTINUOUS)
    for name in ("sac", "td3"):
        algorithm = algorithm_class(name)
        made = algorithm(algorithm.Config())
        assert made.policy_spec(env, NetworkConfig()).network == NetworkConfig(hidden=(256, 256), activation="relu")
        own = NetworkConfig(hidden=(5,), activation="tanh")
        assert made.policy_spec(env, own).network == own


@pytest.mark.parametrize(
    ("name", "action", "network", "message"),
    [
        ("td3", DISCRETE, NetworkConfig(), "Use sac or dqn"),
        ("sac", MultiDiscrete((2, 3)), NetworkConfig(), "Use ppo"),
        ("sac", Continuous((-np.inf,), (1.0,)), NetworkConfig(), "no bounds"),
        ("td3", Continuous((-1.0,), (3e38,)), NetworkConfig(), "no bounds"),
        ("sac", CONTINUOUS, NetworkConfig(recurrent="gru"), "recurrent=none"),
    ],
)
def test_what_they_cannot_learn_is_refused(name: str, action: Any, network: NetworkConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_learner(name, action, network=network)

"""The learner on synthetic segments: against a plain reference, in parts, by rows, saved and gone on with."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import plain_ppo
import pytest
import torch
from synthetic_segments import ACTIONS, make_learner, make_policy, make_segment, parameters_of

from ludus import data
from ludus.data import nest as nests
from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.errors import TrainingError
from ludus.learn.algorithms import registry
from ludus.learn.algorithms.algorithm import Networks, View
from ludus.learn.algorithms.appo import APPO, APPOConfig
from ludus.learn.algorithms.learner import Learner, Sample
from ludus.learn.algorithms.ppo import PPOConfig
from ludus.learn.algorithms.sample import SampleView
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.ops.distributions import head_for
from ludus.learn.policies.policy import Policy, PolicySpec

WHOLE = {"num_epochs": 1, "minibatch_size": 0}
ALGORITHMS = ("ppo", "a2c", "impala", "appo")


@pytest.mark.parametrize("kind", sorted(ACTIONS))
@pytest.mark.parametrize("recurrent", ["none", "gru"])
def test_a_step_of_ppo_is_that_of_the_plain_one(kind: str, recurrent: str) -> None:
    policy = make_policy(ACTIONS[kind], recurrent=recurrent)
    plain = copy.deepcopy(policy)
    segment = make_segment(policy, has_mask=kind != "continuous")
    settings: dict[str, Any] = {**WHOLE, "entropy_coef": 0.01, "learning_rate": 1e-2}
    metrics = make_learner("ppo", policy, **settings).update(Sample(segment)).metrics
    expected = plain_ppo.take_step(plain, segment, PPOConfig(**settings))
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(parameters_of(policy), parameters_of(plain), atol=2e-5)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_inactive_steps_hold_changes_nothing(name: str) -> None:
    found = []
    for junk in (0.0, 7.0):
        policy = make_policy()
        segment = make_segment(policy)
        idle = ~segment.active[:-1]
        assert idle.any()
        segment.action[idle] = int(junk) % 3
        segment.logp[idle] = -junk
        make_learner(name, policy, **WHOLE).update(Sample(segment))
        found.append(parameters_of(policy))
    assert np.array_equal(*found)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("kind", sorted(ACTIONS))
@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_every_algorithm_learns_from_every_kind_of_action(name: str, kind: str, recurrent: str) -> None:
    policy = make_policy(ACTIONS[kind], recurrent=recurrent)
    before = parameters_of(policy)
    segment = make_segment(policy, has_mask=kind != "continuous")
    metrics = make_learner(name, policy, entropy_coef=0.01).update(Sample(segment)).metrics
    assert all(np.isfinite(list(metrics.values())))
    moved = parameters_of(policy) != before
    # what leads from state is zero in the beginning where the state is
    assert moved.mean() > (0.99 if recurrent == "none" else 0.9)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_better_actions_become_more_likely(name: str) -> None:
    """One choice is always rewarded, the others never."""
    policy = make_policy()
    learner = make_learner(name, policy, learning_rate=0.01)
    for seed in range(60):
        segment = make_segment(policy, num_rows=16, seed=seed, stray=0.0)
        segment.reward[...] = segment.action == 1
        learner.update(Sample(segment))
    params, _ = policy.runner()(segment.obs[0], None, segment.first[0])
    assert (params.argmax(axis=1) == 1).all()
    assert learner.version == 60


@pytest.mark.parametrize("name", ["ppo", "a2c", "impala"])
@pytest.mark.parametrize("recurrent", ["none", "gru"])
def test_accumulated_gradients_make_the_same_step(name: str, recurrent: str) -> None:
    found = []
    settings = WHOLE | ({"normalise_advantage": False} if name == "impala" else {})  # its parts are normalised apart
    for accumulate in (1, 2, 3):
        policy = make_policy(recurrent=recurrent)
        learner = make_learner(name, policy, accumulate=accumulate, learning_rate=1e-2, **settings)
        metrics = learner.update(Sample(make_segment(policy))).metrics
        found.append((parameters_of(policy), metrics["loss"]))
    for parameters, loss in found[1:]:
        np.testing.assert_allclose(parameters, found[0][0], atol=1e-5)
        assert loss == pytest.approx(found[0][1], abs=1e-5)


def test_accumulated_parts_are_worked_on_one_after_the_other() -> None:
    """The point of parts: the forward pass of one begins after the backward pass of the one before."""
    policy = make_policy()
    learner = make_learner("ppo", policy, accumulate=2, **WHOLE)
    log: list[str] = []
    evaluate, loss = policy.evaluate, learner.algorithm.loss

    def noted_evaluate(*args: Any) -> Any:
        log.append("forward")
        return evaluate(*args)

    def noted_loss(view: Any) -> Any:
        log.append("loss")
        return loss(view)

    policy.evaluate, learner.algorithm.loss = noted_evaluate, noted_loss  # type: ignore[method-assign]
    learner.update(Sample(make_segment(policy)))
    assert log == ["forward", "loss"] * 2


def test_recurrent_minibatches_are_whole_rows_with_their_own_state() -> None:
    policy = make_policy(recurrent="gru")
    segment = make_segment(policy, num_steps=4, num_rows=6)
    (state_name,) = segment.state
    segment.state[state_name][...] = np.arange(6)[:, None]
    segment.obs[..., 0] = np.arange(6)
    learner = make_learner("ppo", policy, num_epochs=2, minibatch_size=8)
    seen: list[list[float]] = []
    evaluate = policy.evaluate

    def noted(obs: Any, state: Any = None, first: Any = None) -> Any:
        rows = state[state_name][:, 0]
        assert obs.shape[0] == 5
        assert torch.equal(rows, obs[0, :, 0])  # each row has the state that is its own
        assert torch.equal(first, torch.from_numpy(segment.first)[:, rows.long()])
        seen.append(sorted(rows.tolist()))
        return evaluate(obs, state, first)

    policy.evaluate = noted  # type: ignore[method-assign]
    learner.update(Sample(segment))
    assert seen[0] == [0, 1, 2, 3, 4, 5]  # values, for the targets
    for epoch in (seen[1:4], seen[4:7]):
        assert [len(rows) for rows in epoch] == [2, 2, 2]
        assert sorted(row for rows in epoch for row in rows) == [0, 1, 2, 3, 4, 5]
    assert len(seen) == 7


def test_minibatches_hold_every_active_step_once_in_each_epoch() -> None:
    """Shuffled: neighbours in time or in rows, which are alike, are not neighbours in a minibatch."""
    policy = make_policy()
    segment = make_segment(policy, num_steps=8, num_rows=8)
    segment.obs[..., 0] = np.arange(9)[:, None] * 8 + np.arange(8)
    learner = make_learner("ppo", policy, num_epochs=3, minibatch_size=16)
    evaluate, seen = policy.evaluate, []

    def noted(obs: Any) -> Any:
        seen.append(obs[:, 0].int().tolist())
        return evaluate(obs)

    policy.evaluate = noted  # type: ignore[method-assign]
    before = learner.num_gradient_steps
    learner.update(Sample(segment))
    active = np.flatnonzero(segment.active[:-1]).tolist()
    assert len(seen) == learner.num_gradient_steps - before == 12
    sizes = [len(steps) for steps in seen]
    assert max(sizes) - min(sizes) <= 1
    epochs = [[step for steps in seen[start : start + 4] for step in steps] for start in (0, 4, 8)]
    assert all(sorted(epoch) == active for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3, "each epoch has an order of its own"
    for epoch in epochs:
        in_order = sum(later > earlier for earlier, later in pairwise(epoch))
        assert 0.2 < in_order / len(epoch) < 0.8
    for steps in seen:
        assert max(steps) - min(steps) > 24, "a minibatch has steps of the whole segment"


def test_rows_of_recurrent_policies_are_shuffled_in_each_epoch() -> None:
    policy = make_policy(recurrent="gru")
    segment = make_segment(policy, num_steps=4, num_rows=12)
    segment.obs[..., 0] = np.arange(12)
    learner = make_learner("ppo", policy, num_epochs=4, minibatch_size=16)
    evaluate, seen = policy.evaluate, []

    def noted(obs: Any, state: Any = None, first: Any = None) -> Any:
        seen.append(frozenset(obs[0, :, 0].int().tolist()))
        return evaluate(obs, state, first)

    policy.evaluate = noted  # type: ignore[method-assign]
    learner.update(Sample(segment))
    epochs = [frozenset(seen[start : start + 3]) for start in (1, 4, 7, 10)]
    assert all(frozenset().union(*epoch) == frozenset(range(12)) for epoch in epochs)
    assert len(set(epochs)) == 4


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("recurrent", ["none", "gru"])
def test_the_normaliser_takes_in_what_the_learner_is_given(name: str, recurrent: str) -> None:
    """And it is part of what is published: a player of the new weights scales observations alike."""
    policy = make_policy(normalise_obs=True, recurrent=recurrent)
    learner = make_learner(name, policy, **WHOLE)
    segments = [make_segment(policy, num_steps=12, num_rows=8, seed=seed) for seed in range(3)]
    for segment in segments:
        segment.obs[...] = 7.0 * segment.obs + 50.0
        learner.update(Sample(segment))
    player = make_policy(normalise_obs=True, recurrent=recurrent, seed=9)
    player.load_weights(learner.save()["weights"])
    seen = np.concatenate([segment.obs.reshape(-1, 4) for segment in segments])
    scaled = player.normaliser(torch.from_numpy(seen)).numpy()
    np.testing.assert_allclose(scaled.mean(0), 0.0, atol=0.1)
    np.testing.assert_allclose(scaled.std(0), 1.0, atol=0.1)


def test_a_forbidden_choice_is_neither_chosen_nor_learnt() -> None:
    policy = make_policy()
    segment = make_segment(policy, has_mask=True)
    segment.mask[...] = [True, False, True]
    rng = np.random.default_rng(0)
    params, _ = policy.runner()(segment.obs[0], None, segment.first[0])
    for step in range(segment.num_steps):
        segment.action[step], segment.logp[step] = policy.head.sample(params, rng, segment.mask[step])
    assert set(np.unique(segment.action)) <= {0, 2}
    before = policy.weights()["model.policy_bias"]
    make_learner("ppo", policy, **WHOLE).update(Sample(segment))
    after = policy.weights()["model.policy_bias"]
    assert after[1] == before[1]
    assert after[0] != before[0]


def test_the_step_size_falls_to_zero_over_the_run() -> None:
    moves = []
    for progress in (0.0, 0.5, 1.0):
        policy = make_policy()
        before = parameters_of(policy)
        make_learner("ppo", policy, anneal=True, **WHOLE).update(Sample(make_segment(policy)), progress=progress)
        moves.append(np.abs(parameters_of(policy) - before).max())
    assert moves[1] == pytest.approx(moves[0] / 2, rel=1e-2)
    assert moves[2] == 0.0


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_half_precision_comes_near_the_whole(name: str, recurrent: str) -> None:
    losses = {}
    for precision in ("float32", "bfloat16"):
        policy = make_policy(recurrent=recurrent)
        learner = make_learner(name, policy, precision=precision, **WHOLE)
        losses[precision] = learner.update(Sample(make_segment(policy))).metrics["loss"]
        assert parameters_of(policy).dtype == np.float32
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.05, abs=0.05)
    is_twin = recurrent == "none"  # two small towers stay in float32: too small to gain
    assert (losses["bfloat16"] == losses["float32"]) is is_twin


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_saved_sent_through_the_codec_and_restored_it_goes_on_bit_by_bit(name: str, recurrent: str) -> None:
    def learn(learner: Learner, seeds: range) -> None:
        for seed in seeds:
            segment = make_segment(make_policy(recurrent=recurrent), seed=seed)
            learner.update(Sample(segment), progress=seed / 10)

    def fresh() -> Learner:
        policy = make_policy(recurrent=recurrent, normalise_obs=True, seed=4)
        return make_learner(name, policy, anneal=True, num_epochs=2, minibatch_size=10)

    whole, early, late = fresh(), fresh(), fresh()
    learn(whole, range(6))
    learn(early, range(3))
    late.restore(data.decode(data.encode(early.save())))
    learn(late, range(3, 6))
    assert (late.version, late.num_gradient_steps) == (whole.version, whole.num_gradient_steps)
    ours, theirs = whole.save(), late.save()
    for mine, other in zip(nests.leaves(ours), nests.leaves(theirs), strict=True):
        assert np.array_equal(mine, other)


def test_a_loss_that_is_no_number_ends_the_run_and_says_what_may_help() -> None:
    policy = make_policy()
    segment = make_segment(policy)
    segment.logp[0, 0] = np.nan
    with pytest.raises(TrainingError, match=r"diverged.*learning_rate.*last checkpoint"):
        make_learner("ppo", policy, **WHOLE).update(Sample(segment))


@pytest.mark.parametrize("field", ["reward", "obs"])
def test_a_segment_that_holds_no_finite_numbers_is_not_blamed_on_the_settings(field: str) -> None:
    policy = make_policy()
    segment = make_segment(policy)
    getattr(segment, field)[0, 0] = np.inf
    with pytest.raises(TrainingError, match="rewards or observations that it learnt from are not finite"):
        make_learner("ppo", policy, **WHOLE).update(Sample(segment))


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("recurrent", ["none", "gru"])
def test_a_segment_with_nothing_to_learn_from_changes_nothing(name: str, recurrent: str) -> None:
    policy = make_policy(recurrent=recurrent)
    segment = make_segment(policy)
    learner = make_learner(name, policy)
    learner.update(Sample(segment))  # from here on Adam has somewhere to go
    before, num_steps = parameters_of(policy), learner.num_gradient_steps
    segment.active[...] = False
    learner.update(Sample(segment))
    assert np.array_equal(parameters_of(policy), before)
    assert learner.num_gradient_steps == num_steps
    assert learner.version == 2


def test_more_minibatches_than_active_steps_do_no_harm() -> None:
    policy = make_policy()
    segment = make_segment(policy)
    segment.active[...] = False
    segment.active[0, :2] = True
    metrics = make_learner("ppo", policy, minibatch_size=5, num_epochs=1).update(Sample(segment)).metrics
    assert np.isfinite(metrics["loss"])


def test_rewards_are_scaled_before_they_are_learnt_from() -> None:
    found = []
    for scale in (1.0, 0.1):
        policy = make_policy()
        segment = make_segment(policy)
        segment.reward /= np.float32(scale)
        make_learner("a2c", policy, reward_scale=scale, **WHOLE).update(Sample(segment))
        found.append(parameters_of(policy))
    np.testing.assert_allclose(*found, atol=1e-6)


def test_segments_are_not_changed_by_learning() -> None:
    policy = make_policy()
    segment = make_segment(policy)
    kept = Segment.from_nest(nests.map(lambda leaf: None if leaf is None else np.array(leaf), segment.to_nest()))
    make_learner("ppo", policy, reward_scale=0.5).update(Sample(segment))
    for mine, other in zip(nests.leaves(segment.to_nest()), nests.leaves(kept.to_nest()), strict=True):
        assert (mine is None and other is None) or np.array_equal(mine, other)


def test_a_read_only_segment_can_be_learnt_from() -> None:
    policy = make_policy()
    segment = make_segment(policy)
    frozen = replace(segment)
    for leaf in nests.leaves(frozen.to_nest()):
        if leaf is not None:
            leaf.flags.writeable = False
    assert make_learner("ppo", policy).update(Sample(frozen)).metrics


# --- models with modes

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self, obs, num_outputs):
        super().__init__()
        self.layer = torch.nn.Linear(obs.shape[0], 16)
        self.norm = torch.nn.BatchNorm1d(16)
        self.outputs = torch.nn.Linear(16, num_outputs + 1)

    def forward(self, obs):
        h = torch.nn.functional.dropout(torch.tanh(self.norm(self.layer(obs))), 0.5, training=self.training)
        y = self.outputs(h)
        return y[..., :-1], y[..., -1]
"""


@pytest.fixture
def modal(tmp_path: Path) -> PolicySpec:
    """Of a model that drops out, and keeps running statistics."""
    (tmp_path / "net.py").write_text(MODEL)
    network = NetworkConfig(model=f"{tmp_path / 'net.py'}:Net")
    return PolicySpec(obs=data.ArraySpec((4,), np.float32), action=ACTIONS["discrete"], network=network)


def test_a_model_with_modes_acts_without_chance_before_and_after_it_learns(modal: PolicySpec) -> None:
    policy = Policy(modal, seed=1)
    segment = make_segment(policy)
    learner = make_learner("ppo", policy, **WHOLE)
    obs, first = np.ones((1, 4), np.float32), np.zeros(1, np.bool_)  # one row: in training, too few for BatchNorm
    for _ in range(2):
        acted = [policy.runner()(obs, None, first)[0] for _ in range(8)]
        assert all(np.array_equal(acted[0], other) for other in acted)
        learner.update(Sample(segment))
        assert not policy.training


def test_running_statistics_begin_untouched_are_learnt_and_are_published(modal: PolicySpec) -> None:
    policy = Policy(modal, seed=1)
    assert int(policy.weights()["model.norm.num_batches_tracked"]) == 0
    segment = make_segment(policy)
    make_learner("ppo", policy, num_epochs=3, minibatch_size=0).update(Sample(segment))
    published = data.decode(data.encode(policy.weights()))
    assert int(published["model.norm.num_batches_tracked"]) == 3, "the pass for values alone does not count"
    assert np.abs(published["model.norm.running_mean"]).max() > 0.0
    other = Policy(modal, seed=2)
    other.load_weights(published)
    obs, first = segment.obs[0], segment.first[0]
    assert np.array_equal(other.runner()(obs, None, first)[0], policy.runner()(obs, None, first)[0])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_is_dropped_out_follows_from_the_seed_and_goes_on_from_a_checkpoint(modal: PolicySpec, name: str) -> None:
    segment = make_segment(Policy(modal, seed=1))

    def made() -> Learner:
        return make_learner(name, Policy(modal, seed=1), seed=4)

    whole, late = made(), made()
    torch.manual_seed(1)
    for _ in range(2):
        whole.update(Sample(segment))
    saved = data.decode(data.encode(whole.save()))
    torch.manual_seed(2)
    expected = torch.rand(1)
    torch.manual_seed(2)
    whole.update(Sample(segment))
    assert torch.equal(torch.rand(1), expected), "torch's own state is left alone"
    late.restore(saved)
    late.update(Sample(segment))
    assert all(nests.leaves(nests.map(np.array_equal, whole.save()["weights"], late.save()["weights"])))
    other = make_learner(name, Policy(modal, seed=1), seed=5)
    for _ in range(3):
        other.update(Sample(segment))
    assert not np.array_equal(parameters_of(other.policy), parameters_of(whole.policy))


class Twin:
    """Another rank that sees, and does, the same as this one."""

    rank, size = 0, 2

    def sum_(self, tensor: torch.Tensor) -> None:
        tensor.mul_(2.0)


def test_running_statistics_of_several_ranks_are_their_mean(modal: PolicySpec) -> None:
    segment = make_segment(Policy(modal, seed=1))
    alone = make_learner("ppo", Policy(modal, seed=1), **WHOLE)
    one_of_two = Learner(alone.algorithm, Policy(modal, seed=1), seed=1, ranks=Twin())
    for learner in (alone, one_of_two):
        learner.update(Sample(segment))
    for name, weights in alone.policy.weights().items():
        np.testing.assert_allclose(one_of_two.policy.weights()[name], weights, atol=1e-4, err_msg=name)


# --- off policy


def bandit_view(logits: torch.Tensor, behaviour: torch.Tensor, rewards: torch.Tensor) -> View:
    """One-step episodes of a bandit with three arms, each pulled as often as the acting policy would in 1,000 pulls."""
    counts = (behaviour * 1000).round().long()
    action = torch.repeat_interleave(torch.arange(3), counts).unsqueeze(0)
    rows = action.shape[1]
    flags = torch.ones(1, rows, dtype=torch.bool)
    segment = Segment(
        obs=torch.zeros(2, rows, 1), first=torch.ones(2, rows, dtype=torch.bool),
        active=torch.cat([flags, ~flags]), action=action, logp=behaviour.log()[action], reward=rewards[action],
        terminated=flags, truncated=~flags, version=torch.zeros(1),
    )  # fmt: skip
    return View(
        head=head_for(Discrete(3)), params=logits.expand(1, rows, 3), value=torch.zeros(2, rows), action=action,
        logp=segment.logp, weight=torch.full((1, rows), 1.0 / rows), segment=segment,
    )  # fmt: skip


def test_off_policy_appo_weights_each_step_once() -> None:
    """Below every cut, the mean over what another policy did is the exact gradient of this policy's expected reward."""
    behaviour, rewards = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([1.0, 2.0, -1.0])
    logits = torch.tensor([0.1, -0.3, 0.2], requires_grad=True)
    (logits.softmax(0) * rewards).sum().backward()
    exact = logits.grad.clone()
    logits.grad = None
    cuts = {"clip": 10.0, "max_ratio": 1e3, "rho_max": 1e3}
    settings = {**cuts, "normalise_advantage": False, "value_coef": 0.0, "entropy_coef": 0.0}
    algorithm, view = APPO(APPOConfig(**settings)), bandit_view(logits, behaviour, rewards)
    logp = view.head.logp(view.params, view.action)
    sample = SimpleNamespace(segment=view.segment, values_and_logp=lambda: (view.value, logp), reduce=None)
    view.targets = algorithm.targets(sample)  # type: ignore[arg-type]
    view.value = view.value[:-1]
    loss, _ = algorithm.loss(view)
    loss.backward()
    torch.testing.assert_close(-logits.grad, exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("far", [-300.0, 300.0])
def test_appo_learns_on_from_actions_that_have_become_impossible_or_certain(far: float) -> None:
    """A ratio of 0, or of more than a float32 holds, must not become a loss that is not a number."""
    policy = make_policy()
    segment = make_segment(policy)
    segment.logp[0] += far
    learner = make_learner("appo", policy)
    metrics = learner.update(Sample(segment)).metrics
    assert all(np.isfinite(value) for value in metrics.values()), metrics
    assert np.isfinite(parameters_of(policy)).all()


def test_recurrent_minibatches_have_the_masks_of_their_rows() -> None:
    policy = make_policy(recurrent="gru")
    segment = make_segment(policy, num_steps=4, num_rows=6, has_mask=True)
    segment.obs[..., 0] = np.arange(6)
    learner = make_learner("ppo", policy, num_epochs=1, minibatch_size=8)
    seen: list[int] = []
    loss = learner.algorithm.loss

    def noted(view: Any) -> Any:
        rows = view.segment.obs[0, :, 0].long()
        assert torch.equal(view.mask, torch.from_numpy(segment.mask)[:-1, rows])
        seen.extend(rows.tolist())
        return loss(view)

    learner.algorithm.loss = noted  # type: ignore[method-assign]
    learner.update(Sample(segment))
    assert sorted(seen) == [0, 1, 2, 3, 4, 5]
    assert learner.num_gradient_steps == 3


def test_a_sample_too_large_for_one_forward_pass_is_evaluated_row_by_row_as_in_one() -> None:
    policy = make_policy()
    segment = make_segment(policy, num_steps=4, num_rows=1_500)  # 7,500 observations, of which 4,096 are a part
    tensors = Segment(**nests.map(lambda leaf: None if leaf is None else torch.from_numpy(leaf), segment.to_nest()))
    view = SampleView(segment=tensors, networks=Networks(policy=policy))
    with torch.no_grad():
        params, value = policy.evaluate(tensors.obs.flatten(0, 1))
        torch.testing.assert_close(view.values(), value.view(5, 1_500))
        torch.testing.assert_close(view.evaluate()[0], params.view(5, 1_500, -1))
        torch.testing.assert_close(view.evaluate()[1], value.view(5, 1_500))


@pytest.mark.parametrize(("name", "usual"), [("ppo", 0.01), ("a2c", 0.0), ("impala", 0.01), ("appo", 0.01)])
def test_more_is_left_to_chance_where_agents_learn_from_each_other(name: str, usual: float) -> None:
    make, config = registry.algorithm_class(name), registry.config_class(name)
    assert make(config()).entropy_coef == usual
    assert make(config(), num_agents=2).entropy_coef == 0.05
    assert make(config(entropy_coef=0.002), num_agents=2).entropy_coef == 0.002

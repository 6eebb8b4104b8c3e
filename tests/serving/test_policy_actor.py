"""`PolicyActor`: it plays as a `Player` does, what it keeps of that, and what it answers to bodies that are none."""

from __future__ import annotations

import asyncio

import msgspec
import numpy as np
import pytest

import ludus
from ludus import errors
from ludus.data import nest as nests
from ludus.data.actions import Discrete
from ludus.data.segment import Segment
from ludus.data.spec import ArraySpec
from ludus.experiment.player import Player
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import PolicySpec
from ludus.learn.policies.served import ServedPolicy
from ludus.serving.policy_actor import PolicyActor
from ludus.trial import current as trials

POLICY = PolicySpec(obs=ArraySpec((2,), np.float32, -1.0, 1.0), action=Discrete(3))


def test_a_body_that_is_none_is_answered_with_what_is_wrong(trial: trials.Trial) -> None:
    policy = ServedPolicy(POLICY)
    ludus.RemoteModel("bodies", policy, forward_args=policy.example(), local_mode=True)
    actor = PolicyActor("bodies", "bodies")

    async def play() -> None:
        for body, wrong in {
            b'{"reward": 1.0}': r"no obs, only \['reward'\]",
            b'{"obs": null}': "no obs",
            b'{"obs": [1, 2, 3]}': r"obs must be an array of shape \(2,\) and float32; this one has the shape \(3,\)",
            b"[[1], [2]]": r"this one has the shape \(2, 1\)",
            b'[0.1, "up"]': "obs must be an array",
            b"[1, [2]]": "obs must be an array",
            b"[1, null]": "obs must be an array",
            b'{"obs": [0.1': "neither JSON nor msgpack",
            b"map 7": "neither JSON nor msgpack",
            b"[" * 100_000: "neither JSON nor msgpack",
            b'{"obs": [0, 0], "reward": "much"}': "reward is a number",
            b'{"obs": [0, 0], "reward": null}': "reward is a number",
            b'{"obs": [0, 0], "mask": [[true], []]}': "a mask has 3 booleans",
        }.items():
            with pytest.raises(errors.InvalidObservation, match=wrong):
                await actor.tick(body)
        answer = msgspec.json.decode(await actor.tick(b'{"obs": [0, 0], "reward": 1}'))
        assert answer["action"] in range(3)

    asyncio.run(play())


BYTES = PolicySpec(obs=ArraySpec((2,), np.uint8, 0, 255), action=Discrete(3))


@pytest.mark.parametrize("body", [b"[0, 256]", b"[-1, 0]", b"[0.5, 1]", b"[1e30, 1]"])
def test_a_number_that_the_dtype_cannot_hold_is_refused_not_rounded(trial: trials.Trial, body: bytes) -> None:
    policy = ServedPolicy(BYTES)
    ludus.RemoteModel("bytes", policy, forward_args=policy.example(), local_mode=True)
    actor = PolicyActor("bytes")
    with pytest.raises(errors.InvalidObservation, match="uint8"):
        asyncio.run(actor.tick(body))
    assert b"action" in asyncio.run(actor.tick(b"[1.0, 255]"))


RECURRENT = PolicySpec(
    obs=POLICY.obs, action=POLICY.action, network=NetworkConfig(hidden=(8,), recurrent="gru", recurrent_size=6)
)


def test_a_recurrent_policy_plays_as_a_player_does_and_keeps_state_and_return(
    trial: trials.Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = ServedPolicy(RECURRENT)
    ludus.RemoteModel("recurrent", policy, forward_args=policy.example(), local_mode=True)
    values: dict[str, float] = {}
    monkeypatch.setattr("ludus.serving.policy_actor.merge", values.__setitem__)
    actor, player = PolicyActor("recurrent", "recurrent", num_steps=4, greedy=True), Player(policy)
    observations = np.random.default_rng(0).uniform(-1, 1, (7, 2)).astype(np.float32)
    actions, states = [], []

    async def play() -> None:
        for t, obs in enumerate(observations[:6]):
            states.append(player._state)
            actions.append(player.act(obs))
            answer = await actor.tick(msgspec.json.encode({"obs": obs.tolist(), "reward": t}))
            assert msgspec.json.decode(answer) == {"action": actions[t]}
        await actor.end(msgspec.json.encode({"obs": observations[6].tolist(), "reward": 6, "terminated": True}))

    asyncio.run(play())
    first, second = map(Segment.from_nest, ludus.RemoteBuffer("recurrent").take(2))
    assert [*first.action[:, 0], *second.action[:2, 0]] == actions
    for started, kept, known in zip(*map(nests.leaves, (first.state, second.state, states[4])), strict=True):
        assert not started.any()
        assert kept.any()
        np.testing.assert_allclose(kept, known, rtol=1e-4, atol=1e-6)
    assert [*first.first[:, 0], *second.first[:3, 0]] == [True] + 7 * [False]
    assert [*first.reward[:, 0], *second.reward[:2, 0]] == [1, 2, 3, 4, 5, 6]
    assert values == {"episode/return": 21, "episode/length": 6}


def test_a_policy_with_masks_does_what_is_allowed_and_keeps_the_masks(trial: trials.Trial) -> None:
    policy = ServedPolicy(POLICY, has_mask=True)
    ludus.RemoteModel("masked", policy, forward_args=policy.example(), local_mode=True)
    actor, player = PolicyActor("masked", "masked", num_steps=8, greedy=True), Player(policy)
    masks = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]], np.bool_)
    actions = []

    async def play() -> None:
        for mask in masks:
            actions.append(player.act([0.5, -0.5], mask=mask))
            body = {"obs": [0.5, -0.5]} if mask.all() else {"obs": [0.5, -0.5], "mask": mask.tolist()}
            answer = await actor.tick(msgspec.json.encode(body))
            assert msgspec.json.decode(answer) == {"action": actions[-1]}
        await actor.end(b"")

    asyncio.run(play())
    assert actions[:3] == [0, 1, 2]
    (segment,) = map(Segment.from_nest, ludus.RemoteBuffer("masked").take())
    assert segment.action[:7, 0].tolist() == actions
    assert segment.mask[:7, 0].tolist() == masks.tolist()
    assert segment.mask[7:].all()
    assert not segment.logp[:3].any(), "there was nothing else to do"

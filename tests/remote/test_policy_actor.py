"""`PolicyActor`: what it answers to bodies that are none."""

from __future__ import annotations

import asyncio

import msgspec
import numpy as np
import pytest

import ludus
from ludus import errors
from ludus.data.actions import Discrete
from ludus.data.spec import ArraySpec
from ludus.learn.policies.policy import PolicySpec
from ludus.learn.policies.served import ServedPolicy
from ludus.remote import trial as trials
from ludus.remote.policy_actor import PolicyActor

POLICY = PolicySpec(obs=ArraySpec((2,), np.float32, -1.0, 1.0), action=Discrete(3))


def test_a_body_that_is_none_is_answered_with_what_is_wrong(trial: trials.Trial) -> None:
    policy = ServedPolicy(POLICY)
    ludus.RemoteModel("bodies", policy, forward_args=policy.example(), local_mode=True)
    actor = PolicyActor("bodies", "bodies")

    async def play() -> None:
        for body, wrong in {
            b'{"reward": 1.0}': r"no obs, only \['reward'\]",
            b'{"obs": null}': "no obs",
            b'{"obs": [1, 2, 3]}': "obs is not an array",
            b'{"obs": [0, 0], "reward": "much"}': "reward is a number",
            b'{"obs": [0, 0], "reward": null}': "reward is a number",
            b'{"obs": [0, 0], "mask": [[true], []]}': "a mask has 3 booleans",
        }.items():
            with pytest.raises(errors.DataError, match=wrong):
                await actor.tick(body)
        answer = msgspec.json.decode(await actor.tick(b'{"obs": [0, 0], "reward": 1}'))
        assert answer["action"] in range(3)

    asyncio.run(play())

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

"""Critics of vectors and of nests, of continuous actions and of choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ludus.data.actions import Continuous, Discrete
from ludus.data.nest import map as map_nest
from ludus.data.spec import ArraySpec
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.networks.critic import Critics

torch.set_num_threads(1)

OBS: dict[str, Any] = {
    "vector": ArraySpec((4,), np.float32),
    "nest": {"at": ArraySpec((2,), np.float32), "choice": ArraySpec((), np.int64, 0, 4)},
    "image": ArraySpec((36, 36, 1), np.uint8),
}
CONTINUOUS = Continuous((-1.0, -1.0), (1.0, 1.0))


class OwnModel(nn.Module):
    """A user's model: it reads vectors."""

    def __init__(self, obs: Any, num_outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(4, num_outputs)

    def forward(self, obs: Any) -> tuple[Any, Any]:
        outputs = self.layer(obs)
        return outputs, outputs[:, 0]


def observe(kind: str, num_rows: int = 6) -> Any:
    rng = np.random.default_rng(0)

    def leaf(spec: ArraySpec) -> torch.Tensor:
        if spec.dtype == np.float32:
            return torch.from_numpy(rng.standard_normal((num_rows, *spec.shape)).astype(np.float32))
        return torch.from_numpy(rng.integers(0, 4, (num_rows, *spec.shape)).astype(spec.dtype))

    return map_nest(leaf, OBS[kind])


@pytest.mark.parametrize("kind", sorted(OBS))
@pytest.mark.parametrize("num_critics", [1, 2, 3])
def test_each_critic_is_another_one(kind: str, num_critics: int) -> None:
    torch.manual_seed(0)
    config = NetworkConfig(hidden=(8,), activation="relu")
    obs, action = observe(kind), torch.rand(6, 2)
    values = Critics(OBS[kind], CONTINUOUS, config, num_critics=num_critics)(obs, action)
    assert values.shape == (num_critics, 6)
    assert len({round(value, 6) for value in values[:, 0].tolist()}) == num_critics
    choices = Critics(OBS[kind], Discrete(5), config, num_critics=num_critics)(obs)
    assert choices.shape == (num_critics, 6, 5)


@pytest.mark.parametrize("kind", sorted(OBS))
def test_frozen_critics_hand_the_same_gradient_to_the_action_alone(kind: str) -> None:
    critics = Critics(OBS[kind], CONTINUOUS, NetworkConfig(hidden=(8,)), num_critics=2)
    obs, action = observe(kind), torch.rand(6, 2, requires_grad=True)
    (expected,) = torch.autograd.grad(critics(obs, action).min(0).values.sum(), action)
    critics(obs, action, is_frozen=True).min(0).values.sum().backward()
    torch.testing.assert_close(action.grad, expected)
    assert all(parameter.grad is None for parameter in critics.parameters())
    torch.testing.assert_close(critics(obs, action, num_critics=1), critics(obs, action)[:1])


@pytest.mark.parametrize("action", [CONTINUOUS, Discrete(3)])
def test_a_users_model_is_read_from(action: Any) -> None:
    critics = Critics(OBS["vector"], action, NetworkConfig(model=f"{__file__}:OwnModel", hidden=(8,)))
    q = critics(observe("vector"), torch.rand(6, 2) if action is CONTINUOUS else None)
    assert q.shape == ((2, 6) if action is CONTINUOUS else (2, 6, 3))
    assert sum(type(module).__name__ == "OwnModel" for module in critics.modules()) == 2

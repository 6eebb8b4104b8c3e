import pytest
import torch

from ludus.learn.networks.twin import TwinMLP


def plain(model: TwinMLP, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same two towers, one after the other, by torch's own graph."""
    act = torch.tanh if model.activation == "tanh" else torch.relu
    results = []
    for tower, (weight, bias) in enumerate(
        [(model.policy_weight.t(), model.policy_bias), (model.value_weight, model.value_bias)]
    ):
        h = obs
        for inner, shift in zip(model.weights, model.biases, strict=True):
            h = act(h @ inner[tower] + shift[tower])
        results.append(h @ weight + bias)
    return results[0], results[1].squeeze(1)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden", [(8,), (16, 8), (8, 12, 6)])
def test_towers_and_their_gradients_are_those_of_two_plain_mlps(hidden, activation):
    torch.manual_seed(1)
    model = TwinMLP(5, 3, hidden, activation)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    obs, weight, weight_2 = torch.randn(11, 5), torch.randn(11, 3), torch.randn(11)
    gradients = []
    for forward in (model, lambda x: plain(model, x)):
        outputs, value = forward(obs)
        model.zero_grad()
        ((outputs * weight).sum() + (value * weight_2).sum()).backward()
        gradients.append((outputs, value, *[parameter.grad.clone() for parameter in model.parameters()]))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_value_alone_is_the_same():
    model = TwinMLP(4, 2, (16, 8))
    obs = torch.randn(9, 4)
    torch.testing.assert_close(model.values_only(obs), model(obs)[1].detach())


def test_it_works_without_gradients_and_for_a_single_row():
    model = TwinMLP(4, 2, (64, 64))
    with torch.inference_mode():
        outputs, value = model(torch.zeros(1, 4))
    assert outputs.shape == (1, 2)
    assert value.shape == (1,)

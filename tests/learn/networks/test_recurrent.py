"""State: kept from step to step, cleared where an episode begins, the same in one go and step by step."""

import pytest
import torch

from ludus.data import nest as nests
from ludus.learn.networks.recurrent import Recurrent

torch.set_num_threads(1)
NUM_STEPS, NUM_ROWS, NUM_INPUTS, SIZE = 9, 4, 5, 6
both_kinds = pytest.mark.parametrize("kind", ["lstm", "gru"])


def begin(kind):
    torch.manual_seed(0)
    core = Recurrent(kind, NUM_INPUTS, SIZE)
    state = {name: torch.randn(NUM_ROWS, *spec.shape) for name, spec in core.state_spec.items()}
    return core, torch.randn(NUM_STEPS, NUM_ROWS, NUM_INPUTS), state


def step_by_step(core, x, state, first):
    pieces = []
    for t in range(len(x)):
        y, state = core(x[t : t + 1], state, first[t : t + 1])
        pieces.append(y)
    return torch.cat(pieces), state


def assert_same(left, right):
    torch.testing.assert_close(left[0], right[0], rtol=1e-4, atol=1e-6)
    nests.map(lambda a, b: torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6), left[1], right[1])


@both_kinds
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_one_go_is_step_by_step(kind, share):
    core, x, state = begin(kind)
    first = torch.rand(NUM_STEPS, NUM_ROWS) < share
    assert_same(core(x, state, first), step_by_step(core, x, state, first))


@both_kinds
def test_a_row_that_begins_has_no_past(kind):
    core, x, state = begin(kind)
    first = torch.zeros(NUM_STEPS, NUM_ROWS, dtype=torch.bool)
    first[4, 1] = True
    y, after = core(x, state, first)
    never = torch.zeros_like(first)
    nothing = nests.map(torch.zeros_like, state)
    before, _ = core(x[:4], state, never[:4])
    fresh, fresh_after = core(x[4:], nothing, never[4:])
    others, others_after = core(x, state, never)
    torch.testing.assert_close(y[:4, 1], before[:, 1])
    torch.testing.assert_close(y[4:, 1], fresh[:, 1])
    torch.testing.assert_close(y[:, [0, 2, 3]], others[:, [0, 2, 3]])
    for name in core.state_spec:
        torch.testing.assert_close(after[name][1], fresh_after[name][1])
        torch.testing.assert_close(after[name][[0, 2, 3]], others_after[name][[0, 2, 3]])


@both_kinds
def test_state_is_as_its_spec_says(kind):
    core, x, state = begin(kind)
    assert set(core.state_spec) == ({"hidden", "cell"} if kind == "lstm" else {"hidden"})
    y, after = core(x, state, torch.zeros(NUM_STEPS, NUM_ROWS, dtype=torch.bool))
    assert y.shape == (NUM_STEPS, NUM_ROWS, SIZE)
    assert {name: tuple(leaf.shape) for name, leaf in after.items()} == dict.fromkeys(after, (NUM_ROWS, SIZE))
    torch.testing.assert_close(after["hidden"], y[-1])


@both_kinds
def test_gradients_do_not_cross_the_beginning_of_an_episode(kind):
    core, x, state = begin(kind)
    x.requires_grad_()
    first = torch.zeros(NUM_STEPS, NUM_ROWS, dtype=torch.bool)
    first[3, 0] = True
    y, _ = core(x, state, first)
    y[-1].sum().backward()
    assert not x.grad[:3, 0].any()
    assert x.grad[3:, 0].any(-1).all()
    assert x.grad[:3, 1].any(-1).all()
    assert all(parameter.grad.abs().sum() > 0 for parameter in core.parameters())


@both_kinds
def test_a_new_one_still_knows_after_ten_steps_what_it_saw(kind):
    torch.manual_seed(1)
    network = Recurrent(kind, 3, 32)
    seen = torch.zeros(11, 2, 3)
    seen[0, 0, 0], seen[0, 1, 0] = 2.0, -2.0
    state = {name: torch.zeros(2, 32) for name in network.state_spec}
    with torch.no_grad():
        y, _ = network(seen, state, torch.zeros(11, 2, dtype=torch.bool))
    difference = (y[:, 0] - y[:, 1]).norm(dim=-1)
    assert difference[10] > 0.1 * difference[0]

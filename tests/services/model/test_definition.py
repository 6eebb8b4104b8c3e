from __future__ import annotations

import stat
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from ludus import errors
from ludus.services.model.definition import Definition, ModelFolder
from ludus.services.model.settings import ModelSettings
from ludus.services.model.torch_weights import get_torch_model_weights, set_torch_model_weights
from ludus.services.weights.store import VersionStore

from .nets import IMAGE, Net, net, weights_of


def test_a_model_is_made_once_and_then_taken_up(tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path, "net")
    assert folder.create(Definition(module=net(1), forward_args=(IMAGE,)), {"keep": 3})
    assert not folder.create(Definition(module=net(2), forward_args=(IMAGE,)), {"max_batch": 7})
    assert (folder.settings().keep, folder.settings().max_batch) == (3, 7)
    version, weights = VersionStore(tmp_path).get("net")
    assert version.number == 0
    np.testing.assert_array_equal(weights["policy.bias"], net(1).policy.bias.detach().numpy())
    assert folder.definition().module is not folder.definition().module
    assert folder.others() == ["net"]


def test_its_definition_may_be_read_by_nobody_else(tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path, "net")
    folder.create(Definition(module=net(1)), {})
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o600


def test_another_architecture_under_the_same_name_is_refused(tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path, "net")
    folder.create(Definition(module=net(1)), {})
    with pytest.raises(errors.DataError, match=r"'hidden.weight' is float32\[8, 64\] and should be float32\[16, 64\]"):
        folder.create(Definition(module=Net(hidden=8)), {})
    with pytest.raises(errors.DataError, match=r"'conv.weight' is missing.*and 10 more"):
        folder.create(Definition(module=torch.nn.Linear(2, 2)), {})


def test_what_a_killed_maker_left_is_made_anew(tmp_path: Path) -> None:
    VersionStore(tmp_path).publish("net", weights_of(net(5)), number=0)
    folder = ModelFolder(tmp_path, "net")
    folder.create(Definition(module=net(1)), {})
    np.testing.assert_array_equal(
        VersionStore(tmp_path).get("net", 0)[1]["value.bias"], net(1).value.bias.detach().numpy()
    )


def test_versions_whose_definition_is_gone_are_kept(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    for number in range(3):
        store.publish("net", weights_of(net(number)), number=number)
    ModelFolder(tmp_path, "net").create(Definition(module=net(7)), {})
    assert store.latest("net") == 2


def test_of_many_who_make_it_at_once_one_does(tmp_path: Path) -> None:
    made = []
    threads = [
        threading.Thread(
            target=lambda seed=seed: made.append(ModelFolder(tmp_path, "net").create(Definition(module=net(seed)), {}))
        )
        for seed in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 5 + [True]
    assert VersionStore(tmp_path).latest("net") == 0


def test_a_module_that_cannot_run_on_its_example_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    class Mean(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean(0)

    folder = ModelFolder(tmp_path, "net")
    with pytest.raises(errors.DataError, match="cannot run on forward_args"):
        folder.create(Definition(module=net(1), forward_args=(IMAGE[:1],)), {})
    with pytest.raises(errors.DataError, match="first axis of all outputs must be the batch's"):
        folder.create(Definition(module=Mean(), forward_args=(np.zeros(4, np.float32),)), {})
    assert not folder.exists
    assert not (tmp_path / "net").exists()


def test_making_it_leaves_the_users_module_as_it_is(tmp_path: Path) -> None:
    module = net(1).train()
    before = get_torch_model_weights(module)
    ModelFolder(tmp_path, "net").create(Definition(module=module, forward_args=(IMAGE,)), {})
    assert module.training
    after = get_torch_model_weights(module)
    assert all((before[name] == after[name]).all() for name in before)
    assert ModelFolder(tmp_path, "net").definition().module.training


def test_weights_go_out_as_copies_and_come_back(tmp_path: Path) -> None:
    one, other = net(1), net(2)
    weights = get_torch_model_weights(one)
    with torch.no_grad():
        one.policy.bias.add_(1.0)
    assert (weights["policy.bias"] == net(1).policy.bias.detach().numpy()).all()
    set_torch_model_weights(other, weights)
    assert torch.equal(other.norm.running_mean, net(1).norm.running_mean)
    weights["policy.bias"][:] = 9.0
    assert not (other.policy.bias == 9.0).any()
    with pytest.raises(errors.DataError, match="another architecture"):
        set_torch_model_weights(other, {"x": np.zeros(1)})


@pytest.mark.parametrize(
    "wrong",
    [{"backend": "onxx"}, {"max_batch": 0}, {"tolerance": -1.0}, {"checkpoint_steps": 0}, {"keep": 0}],
)
def test_settings_that_cannot_be_are_refused(wrong: dict) -> None:
    with pytest.raises(errors.ConfigError):
        ModelSettings(**wrong)


def test_a_misspelt_backend_is_answered_with_the_nearest() -> None:
    with pytest.raises(errors.ConfigError, match="Did you mean 'onnx'"):
        ModelSettings(backend="onxx")


def test_a_name_that_its_workers_could_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.DataError, match="'_net' cannot name a model"):
        ModelFolder(tmp_path, "_net")
    assert ModelFolder(tmp_path, "3-net_v.2").name == "3-net_v.2"

from __future__ import annotations

import os
import pickle
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus import errors
from ludus.data import nest as nests
from ludus.data.actions import Continuous, Discrete, MultiDiscrete
from ludus.data.spec import ArraySpec
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.policies.policy import PolicySpec
from ludus.learn.policies.served import ServedPolicy
from ludus.models.definition import Definition, ModelFolder
from ludus.models.settings import ModelSettings
from ludus.models.torch_weights import get_torch_model_weights, set_torch_model_weights
from ludus.models.versions.store import VersionStore

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


def test_what_a_killed_maker_left_is_made_again(tmp_path: Path) -> None:
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


# ---- code


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Another user's machine while it is called: what is made there is sealed by another key."""

    def be() -> None:
        monkeypatch.setenv("LUDUS_STATE_DIR", str(tmp_path / "another machine"))

    here = os.environ["LUDUS_STATE_DIR"]
    yield be
    monkeypatch.setenv("LUDUS_STATE_DIR", here)


SPECS = [
    PolicySpec(obs=ArraySpec((4,), np.float32, -np.inf, [1.0, 2.0, 3.0, np.inf], "obs"), action=Discrete(2)),
    PolicySpec(
        obs={
            "image": ArraySpec((8, 8, 3), np.uint8, 0, 255),
            "pair": (ArraySpec((), np.float32), ArraySpec((2,), "f8")),
        },
        action=Continuous((-1.0, 0.0), (1.0, np.inf)),
        network=NetworkConfig(encoder="mlp", hidden=(8,), recurrent="gru", recurrent_size=5),
        squash=False,
        normalise_obs=True,
        log_std=-0.5,
    ),
    PolicySpec(obs=ArraySpec((3,), np.float32), action=MultiDiscrete((2, 3)), network=NetworkConfig(hidden=())),
    PolicySpec(obs=ArraySpec((3,), np.float32), action=Discrete(2), head="epsilon_greedy", has_value=False),
    PolicySpec(
        obs=ArraySpec((3,), np.float32),
        action=Discrete(2),
        head="categorical_returns",
        head_args={"num_atoms": 3, "v_min": -1.0, "v_max": 2.5},
        has_value=False,
    ),
]


@pytest.mark.parametrize("spec", SPECS)
def test_a_policy_is_opened_anywhere_without_unpickling_anything(
    spec: PolicySpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = ServedPolicy(spec, seed=3, has_mask=True).eval()
    folder = ModelFolder(tmp_path / "models", "net")
    folder.create(Definition(module=policy, forward_args=policy.example()), {})
    monkeypatch.setenv("LUDUS_STATE_DIR", str(tmp_path / "another machine"))
    folder.path.chmod(0o666)

    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("something was unpickled")

    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    opened = ModelFolder(tmp_path / "models", "net").definition()
    assert isinstance(opened.module, ServedPolicy)
    assert (opened.module.spec, opened.module.has_mask, opened.module.training) == (spec, True, False)
    assert nests.map(np.shape, opened.forward_args) == nests.map(np.shape, policy.example())
    set_torch_model_weights(opened.module, get_torch_model_weights(policy))
    args = nests.map(lambda leaf: torch.as_tensor(np.asarray(leaf))[None], policy.example())
    assert torch.equal(opened.module(*args)["params"], policy(*args)["params"])


@pytest.mark.parametrize("is_old", [True, False])
def test_code_that_was_made_elsewhere_is_not_run_without_consent(
    is_old: bool, tmp_path: Path, elsewhere: Any, caplog: pytest.LogCaptureFixture
) -> None:
    here = os.environ["LUDUS_STATE_DIR"]
    elsewhere()
    module = net(1)
    folder = ModelFolder(tmp_path / "models", "net")
    folder.create(Definition(module=module), {})
    body = pickle.dumps((Trap(tmp_path / "trapped"), (), {}))
    from ludus.models import definition as definitions

    folder.path.write_bytes(body if is_old else definitions._join(definitions._CODE, body))
    os.environ["LUDUS_STATE_DIR"] = here
    names = r"it names posix\.mkdir\)"
    with pytest.raises(errors.ConfigError, match=rf"net.definition contains code.*{names}.*nothing was run.*--trust"):
        folder.definition()
    assert not (tmp_path / "trapped").exists()
    folder.trust()
    assert "as you have agreed to: it names posix.mkdir." in caplog.text
    assert not (tmp_path / "trapped").exists()
    folder.definition()
    assert (tmp_path / "trapped").exists(), "the trap works"


def test_code_that_was_made_elsewhere_runs_after_consent_in_other_processes_too(
    tmp_path: Path, elsewhere: Any, caplog: pytest.LogCaptureFixture
) -> None:
    here = os.environ["LUDUS_STATE_DIR"]
    elsewhere()
    folder = ModelFolder(tmp_path / "models", "net")
    folder.create(Definition(module=net(1)), {})
    os.environ["LUDUS_STATE_DIR"] = here
    folder.trust()
    assert f"{folder.path} contains code" in caplog.text
    assert isinstance(ModelFolder(tmp_path / "models", "net").definition().module, Net)


def test_ones_own_code_is_named_in_the_log_before_it_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "ludus.models.definition")
    folder = ModelFolder(tmp_path / "models", "net")
    folder.create(Definition(module=net(1)), {})
    folder.definition()
    [record] = [record for record in caplog.records if record.message.startswith("running the code of")]
    assert record.levelname == "INFO"
    assert f"{folder.path}: it names " in record.message
    assert f"{Net.__module__}.Net" in record.message


@pytest.mark.parametrize("what", ["file", "folder"])
def test_code_that_others_could_have_written_is_not_run_even_with_consent(what: str, tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path / "models", "net")
    folder.create(Definition(module=net(1)), {})
    folder.definition()
    if what == "file":
        folder.path.chmod(0o620)
    else:
        folder.folder.chmod(0o777)
    for attempt in (folder.definition, folder.trust):
        with pytest.raises(errors.ConfigError, match=r"can be written by other users.*chmod go-w"):
            attempt()


def test_code_of_another_user_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ModelFolder(tmp_path / "models", "net")
    folder.create(Definition(module=net(1)), {})
    owner = os.geteuid()
    if owner == 0:
        owner = 12345
        os.chown(folder.path, owner, -1)
    else:  # only root can give files away: be another user than the one who has it
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(errors.ConfigError, match=rf"belongs to another user \(uid {owner}\)"):
        folder.definition()


def test_a_loose_umask_does_not_make_a_models_folder_writable_by_the_group(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        folder = ModelFolder(tmp_path / "models", "net")
        folder.create(Definition(module=net(1)), {})
    finally:
        os.umask(before)
    assert isinstance(folder.definition().module, Net)


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.parametrize("damage", ["empty", "half", "flip"])
def test_a_damaged_definition_is_an_error_that_names_it_and_is_not_unpickled(
    is_plain: bool, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ServedPolicy(SPECS[0]) if is_plain else net(1)
    folder = ModelFolder(tmp_path / "models", "net")
    folder.create(Definition(module=module), {})
    content = bytearray(folder.path.read_bytes())
    if damage == "flip":
        content[-20] ^= 0x10
    folder.path.write_bytes({"empty": b"", "half": content[: len(content) // 2], "flip": content}[damage])
    monkeypatch.setattr(pickle, "loads", None)
    with pytest.raises(errors.DataError, match=r"net.definition is torn"):
        folder.definition()


def test_damaged_settings_are_reported_and_the_model_runs_as_if_there_were_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = ModelFolder(tmp_path / "models", "net")
    folder.create(Definition(module=net(1)), {"keep": 3})
    (tmp_path / "models" / "net" / "settings.json").write_bytes(b"")
    assert folder.settings() == ModelSettings()
    assert "settings.json is damaged" in caplog.text

"""A user's own model: found, built, tried once, and refused with reasons."""

import textwrap

import numpy as np
import pytest
import torch

from ludus.data.spec import ArraySpec
from ludus.errors import ConfigError
from ludus.learn.networks.config import NetworkConfig
from ludus.learn.networks.model import build_model

torch.set_num_threads(1)
OBS = ArraySpec((5,), np.float32)

SOURCE = """
    import numpy as np
    import torch
    from ludus.data.spec import ArraySpec

    class Small(torch.nn.Module):
        def __init__(self, obs, num_outputs):
            super().__init__()
            self.layer = torch.nn.Linear(obs.shape[0], num_outputs + 1)

        def forward(self, obs):
            y = self.layer(obs)
            return y[..., :-1], y[..., -1]

    class Remembers(Small):
        state_spec = {"last": ArraySpec((5,), np.float32)}

        def forward(self, obs, state, first):
            return *super().forward(obs), {"last": obs[-1]}

    class Forgets(Remembers):
        def forward(self, obs, state, first):
            return super().forward(obs, state, first)[:2]

    class OtherState(Remembers):
        def forward(self, obs, state, first):
            return *super().forward(obs, state, first)[:2], {"last": obs[-1, :, :2]}

    class NoState(Remembers):
        def forward(self, obs, state, first):
            return *super().forward(obs, state, first)[:2], None

    class WideValue(Small):
        def forward(self, obs):
            y = self.layer(obs)
            return y[..., :-1], y[..., -1:]

    class OnlyOutputs(Small):
        def forward(self, obs):
            return self.layer(obs)

    class Breaks(Small):
        def forward(self, obs):
            raise RuntimeError("out of ideas")

    def not_a_module(obs, num_outputs):
        return 3

    def wrong_arguments():
        pass

    number = 3
"""


@pytest.fixture
def build(tmp_path):
    path = tmp_path / "own_networks.py"
    path.write_text(textwrap.dedent(SOURCE))
    return lambda name: build_model(OBS, 2, NetworkConfig(model=f"{path}:{name}"))


def test_a_model_from_a_file_is_used(build):
    outputs, value = build("Small")(torch.zeros(7, 5))
    assert outputs.shape == (7, 2)
    assert value.shape == (7,)
    assert build("Remembers").state_spec == {"last": OBS}


def test_a_model_from_a_module_is_used(build, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    assert type(build_model(OBS, 2, NetworkConfig(model="own_networks:Small"))).__name__ == "Small"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Forgets", r"\(outputs, value, state\)"),
        ("OtherState", "state"),
        ("NoState", "state"),
        ("WideValue", r"value \[3, 1\].*must be \[3\]"),
        ("OnlyOutputs", r"\(outputs, value\)"),
        ("Breaks", "RuntimeError: out of ideas"),
        ("not_a_module", "returned a int"),
        ("wrong_arguments", "could not be built"),
        ("number", "'int' object is not callable"),
        ("missing", "no 'missing'"),
    ],
)
def test_a_model_that_breaks_the_contract_is_refused(build, name, said):
    with pytest.raises(ConfigError, match=said):
        build(name)


@pytest.mark.parametrize("name", ["Small", ":Small", "nowhere.py:Small", "no_such_module:Small", "own:"])
def test_a_name_that_leads_nowhere_is_refused(name):
    with pytest.raises(ConfigError, match="model"):
        build_model(OBS, 2, NetworkConfig(model=name))


def test_a_file_that_does_not_run_is_refused(tmp_path):
    (tmp_path / "broken.py").write_text("def")
    with pytest.raises(ConfigError, match="SyntaxError"):
        build_model(OBS, 2, NetworkConfig(model=f"{tmp_path}/broken.py:Small"))

"""Modules made of torch's own layers are stored as data; anything else stays code."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ludus import errors
from ludus.models import definition as definitions
from ludus.models import layer_definition
from ludus.models.definition import Definition, ModelFolder
from ludus.models.versions.store import VersionStore

VECTOR, IMAGE = np.ones(4, np.float32), np.ones((3, 12, 12), np.float32)


PLAIN = {
    "linear": (nn.Linear(4, 2), VECTOR),
    "without bias": (nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 2)), VECTOR),
    "nested, with names": (
        nn.Sequential(
            OrderedDict(
                body=nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8, bias=False), nn.GELU("tanh"), nn.Dropout(0.3)),
                head=nn.Sequential(nn.LeakyReLU(0.2), nn.Linear(8, 3), nn.Softmax(-1)),
            )
        ),
        VECTOR,
    ),
    "images": (
        nn.Sequential(
            nn.ZeroPad2d(1),
            nn.Conv2d(3, 8, (3, 2), stride=2, padding=1, bias=False, padding_mode="reflect"),
            nn.BatchNorm2d(8, momentum=None),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 8, 3, padding="same", groups=4, dilation=2),
            nn.GroupNorm(2, 8, eps=1e-3),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1),
            nn.PReLU(4),
            nn.AdaptiveAvgPool2d((2, None)),
            nn.Flatten(),
        ),
        IMAGE,
    ),
    "embedding": (nn.Sequential(nn.Embedding(10, 4, padding_idx=0), nn.Flatten(), nn.Linear(8, 2)), np.array([1, 2])),
    "one activation twice": (
        nn.Sequential(nn.Linear(4, 4), relu := nn.ReLU(), nn.Linear(4, 4), relu),
        VECTOR,
    ),
    "doubles": (nn.Sequential(nn.Linear(4, 4), nn.Tanh()).double(), VECTOR.astype(np.float64)),
    "nothing to learn": (nn.Sequential(nn.Identity(), nn.Hardtanh(-2.0, 2.0)), VECTOR),
}


@pytest.mark.parametrize("name", PLAIN)
def test_layers_of_torch_are_opened_anywhere_without_unpickling_anything(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, example = PLAIN[name]
    before = torch.get_rng_state()
    folder = ModelFolder(tmp_path / "models", "net")
    folder.create(Definition(module=module, forward_args=(example,)), {})
    assert torch.equal(torch.get_rng_state(), before), "the user's random numbers are as they were"
    monkeypatch.setenv("LUDUS_STATE_DIR", str(tmp_path / "another machine"))
    monkeypatch.setattr(pickle, "loads", None)
    opened = ModelFolder(tmp_path / "models", "net").definition()
    assert str(opened.module) == str(module)
    weights = VersionStore(tmp_path / "models").get("net", private=True)[1]
    opened.module.load_state_dict({key: torch.as_tensor(array) for key, array in weights.items()})
    for each in (module, opened.module):
        each.eval()
    batch = torch.as_tensor(np.stack([example, example * 2]))
    torch.testing.assert_close(opened.module(batch), module(batch))
    module.train()


def test_modes_and_what_is_frozen_are_kept(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    module[1].eval()
    module[2].bias.requires_grad_(False)
    text = layer_definition.to_text(module, (VECTOR,), {})
    assert text is not None
    twin = layer_definition.from_text(text)
    assert [each.training for each in twin.modules()] == [True, True, False, True]
    assert [name for name, each in twin.named_parameters() if not each.requires_grad] == ["2.bias"]


class Own(nn.Linear):
    pass


def _hooked() -> nn.Module:
    module = nn.Linear(4, 4)
    module.register_forward_hook(lambda _module, _args, output: output + 1)
    return module


def _tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    module[1].weight = module[0].weight
    return module


def _with_own_forward() -> nn.Module:
    module = nn.Linear(4, 4)
    module.forward = lambda x: x + 1  # type: ignore[method-assign]
    return module


def _with_a_none() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4))
    module._modules["1"] = None
    return module


def _mixed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).double())


def _one_layer_twice() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, layer)


def _with_a_buffer() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4))
    module.register_buffer("scale", torch.ones(4))
    return module


@pytest.mark.parametrize(
    "make",
    [
        lambda: Own(4, 4),
        lambda: nn.Sequential(Own(4, 4)),
        lambda: type("Linear", (nn.Linear,), {})(4, 4),
        lambda: nn.LSTM(4, 4),
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
        _hooked,
        _tied,
        _with_own_forward,
        _with_a_none,
        _mixed,
        _one_layer_twice,
        _with_a_buffer,
    ],
)
def test_anything_else_stays_code(make: Any) -> None:
    assert layer_definition.to_text(make(), (), {}) is None


def test_a_module_whose_twin_computes_something_else_stays_code(monkeypatch: pytest.MonkeyPatch) -> None:
    class Off(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 1.0

    from_text = layer_definition.from_text

    def build(text: str) -> nn.Module:
        twin = from_text(text)
        twin.__class__ = Off
        return twin

    module = nn.Linear(4, 4)
    assert layer_definition.to_text(module, (VECTOR,), {}) is not None
    monkeypatch.setattr(layer_definition, "from_text", build)
    assert layer_definition.to_text(module, (VECTOR,), {}) is None


def test_storing_a_module_leaves_it_as_it_is() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    assert layer_definition.to_text(module, (VECTOR,), {}) is not None
    assert all(each.training for each in module.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def _layer(name: str, **args: Any) -> dict[str, Any]:
    return {"class": name, "training": False, "args": args}


@pytest.mark.parametrize(
    "layers",
    [
        _layer("Module"),
        _layer("utils"),
        _layer("Linear", in_features=4),
        _layer("Linear", in_features={"a": 1}, out_features=2, bias=True),
        _layer("Linear", in_features=[4], out_features=2, bias=True),
        _layer("Linear", in_features=-4, out_features=2, bias=True),
        {"class": ["Linear"], "training": False, "args": {}},
        {"class": "Sequential", "training": False, "children": [["forward", _layer("Tanh")]]},
        {"class": "Sequential", "training": False, "children": [["a", None]]},
        None,
    ],
)
def test_what_is_no_definition_is_an_error_and_builds_nothing(layers: Any, tmp_path: Path) -> None:
    text = json.dumps({"layers": layers, "dtype": "torch.float32", "frozen": []})
    with pytest.raises(errors.DataError, match="is not the definition of a module"):
        layer_definition.from_text(text)
    folder = ModelFolder(tmp_path, "net")
    nest = {"layers": text, "forward_args": (), "forward_kwargs": {}}
    folder.path.write_bytes(definitions._join(definitions._LAYERS, definitions._pack_nest(nest)))
    with pytest.raises(errors.DataError, match="the definition of model 'net' cannot be used"):
        folder.definition()

"""What a named model is: its module, what its inputs look like, and how it is run. Its weights are in the store.

    models/
    ├── policy.definition       the module and example inputs: a private file, because it is pickled
    └── policy/                 the versions, as `VersionStore` keeps them
        ├── settings.json       how it is run
        └── model.onnx          exported once, when a backend needs it

The definition is written last: a model whose definition is there is whole.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import cloudpickle
import torch
from numpy.typing import NDArray

from ludus import errors, files
from ludus.program import trial as trials
from ludus.services.model import verify
from ludus.services.model.backends import Source
from ludus.services.model.rows import RowLayout
from ludus.services.model.settings import ModelSettings
from ludus.services.model.torch_weights import as_arrays, difference
from ludus.services.weights.store import VersionStore, check_model

__all__ = ["Definition", "ModelFolder"]

_SETTINGS = "settings.json"
_ONNX = "model.onnx"


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A module as its author made it, and one row of what it is given."""

    module: torch.nn.Module
    forward_args: tuple[Any, ...] = ()
    forward_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def layout(self) -> RowLayout | None:
        """What a row looks like; `None` if there is no example."""
        if not self.forward_args and not self.forward_kwargs:
            return None
        return RowLayout.of(self.forward_args, self.forward_kwargs)

    def source(self, *, export: Path | None = None) -> Source:
        """What backends are prepared from: the module in eval mode, and the example as a batch of one row."""
        module, layout = self.module.eval(), self.layout
        if layout is None:
            return Source(module=module)
        leaves = layout.take(self.forward_args, self.forward_kwargs)
        assert leaves is not None, "it is made of the same arguments"
        args, kwargs = layout.nest(leaves)
        return Source(module=module, args=args, kwargs=kwargs, export=export)


class ModelFolder:
    """Where one model is kept: `folder` is the trial's `models`."""

    def __init__(self, folder: Path, name: str) -> None:
        check_model(name)
        if name.startswith("_"):
            raise errors.DataError(
                f"{name!r} cannot name a model: a letter or a digit comes first, because it becomes part of its "
                "workers' names"
            )
        self.folder = folder
        self.name = name
        self.path = folder / f"{name}.definition"
        self.onnx_path = folder / name / _ONNX

    @property
    def exists(self) -> bool:
        return self.path.is_file()

    def create(self, definition: Definition, settings: Mapping[str, Any]) -> bool:
        """Make the model, its weights as version 0, unless it is there; whether it was made.

        `settings` that are not `None` hold from now on. Raises `DataError` if another architecture has the name.
        """
        weights = as_arrays(definition.module)
        packed = self._pack(definition)
        if not self.exists:
            verify.check_example(_unpack(packed).source())
        self.folder.mkdir(parents=True, exist_ok=True)
        with files.lock(self.folder / f".{self.name}.lock"):
            is_new = not self.exists
            known = ModelSettings() if is_new else self.settings()
            changed = known.changed(settings)
            store = VersionStore(self.folder, keep=changed.keep)
            if is_new and not store.latest(self.name):  # whoever was killed before it was whole left a version 0
                store.rewind(self.name, None)
                store.publish(self.name, weights, number=0)
            else:
                self.check(store.get(self.name)[1], weights)
            if changed != known or is_new:
                trials.write_private(self.folder / self.name / _SETTINGS, json.dumps(asdict(changed)).encode())
            if is_new:
                trials.write_private(self.path, packed)
        return is_new

    def check(self, wanted: Mapping[str, NDArray[Any]], given: Mapping[str, NDArray[Any]]) -> None:
        """Raise `DataError` unless these weights fit the model."""
        told = difference(wanted, given)
        if told:
            raise errors.DataError(
                f"the model {self.name!r} of this trial has another architecture: {told}. Give this one another name, "
                "or begin another trial."
            )

    def _pack(self, definition: Definition) -> bytes:
        given = (definition.module, definition.forward_args, dict(definition.forward_kwargs))
        try:
            content: bytes = cloudpickle.dumps(given)
        except Exception as error:
            raise errors.DataError(
                f"the model {self.name!r} cannot be sent to other processes: {type(error).__name__}: {error}. Open "
                "files, locks, sockets and the like do not belong into a module."
            ) from error
        return content

    def definition(self) -> Definition:
        """Each time another copy. Raises `DataError` if it cannot be read here."""
        try:
            return _unpack(self.path.read_bytes())
        except Exception as error:
            raise errors.DataError(
                f"the definition of model {self.name!r} cannot be loaded here: {type(error).__name__}: {error}. The "
                "module's class must be importable, and by the name that it had when the model was made."
            ) from error

    def settings(self) -> ModelSettings:
        try:
            known = json.loads((self.folder / self.name / _SETTINGS).read_bytes())
        except FileNotFoundError:
            return ModelSettings()
        names = {each.name for each in fields(ModelSettings)}
        return ModelSettings(**{name: value for name, value in known.items() if name in names})

    def others(self) -> list[str]:
        """The names of all models of the trial."""
        return sorted(path.name.removesuffix(".definition") for path in self.folder.glob("*.definition"))


def _unpack(content: bytes) -> Definition:
    module, args, kwargs = pickle.loads(content)  # noqa: S301 - from a private file of the trial's, or just packed
    return Definition(module=module, forward_args=args, forward_kwargs=kwargs)

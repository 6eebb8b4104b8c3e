"""What a named model is: its module, what its inputs look like, and how it is run. Its weights are in the store.

    models/
    ├── policy.definition       the module and example inputs: a policy as its spec, torch's own layers by their names
    │                           and arguments, a user's own module as code
    └── policy/                 the versions, as `VersionStore` keeps them
        ├── settings.json       how it is run
        ├── adopted.json        of a training run's policy: which checkpoint it has as a version
        └── model.onnx          exported once, when a backend needs it; model.onnx.sha256 has its checksum

The definition is written last: a model whose definition is there is whole. It is a header (magic, format, kind, SHA-256
of the body, seal) and the body. The body of a policy, or of a module that is made of torch's own layers only, is a
nest: opening it runs no code (`policy_definition.py`, `layer_definition.py`). A user's own module is pickled, and
opening it runs the code in it; so it is opened only if this user made it on this machine, which the seal proves
(`program/trust.py`), or has agreed to it (`trust`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import pickle
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import cloudpickle
import torch
from numpy.typing import NDArray

from ludus import data, errors, files
from ludus.data.digest import digest
from ludus.data.rows import RowLayout
from ludus.models import layer_definition, pickle_names, policy_definition, verify
from ludus.models.adoption import Adoption, read_adoption, write_adoption
from ludus.models.backends import Source
from ludus.models.settings import ModelSettings
from ludus.models.torch_weights import as_arrays, difference
from ludus.models.versions.store import VersionStore, check_model
from ludus.program import folder as folders
from ludus.program import trust as trusts

__all__ = ["Definition", "ModelFolder"]

_SETTINGS = "settings.json"
_ONNX = "model.onnx"
_MAGIC, _FORMAT = b"LUDUSDEF", 1
_HEAD = struct.Struct(f"<8sHH32s{trusts.SEAL_BYTES}s")  # magic, format, kind, SHA-256 of the body, seal
_POLICY, _CODE, _LAYERS = 0, 1, 2
_NO_SEAL = bytes(trusts.SEAL_BYTES)

_LOG = logging.getLogger(__name__)


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
        files.make_folder(self.folder)
        trusts.close_to_others(self.folder)
        with files.lock(self.folder / f".{self.name}.lock"):
            is_new = not self.exists
            known = ModelSettings() if is_new else self.settings()
            changed = known.changed(settings)
            store = VersionStore(self.folder, keep=changed.keep)
            if is_new and not store.latest(self.name):  # a maker killed half-way left a version 0
                store.publish(self.name, weights, number=store.rewind(self.name, None))
            else:
                self.check(store.get(self.name)[1], weights)
            if changed != known or is_new:
                folders.write_private(self.folder / self.name / _SETTINGS, json.dumps(asdict(changed)).encode())
            if is_new:
                folders.write_private(self.path, packed)
        return is_new

    def define(self, definition: Definition) -> None:
        """Have the definition here, whatever was before, and no version: those are kept elsewhere, as in a pool."""
        packed = self._pack(definition)
        files.make_folder(self.folder)
        trusts.close_to_others(self.folder)
        folders.write_private(self.path, packed)

    def adopt(self, definition: Definition, settings: Mapping[str, Any], *, number: int | None) -> None:
        """Have the model here with the weights of `definition`, a training run's checkpoint, as its newest version.

        Once for each checkpoint: what is published later, by scripts or by the run itself, stays the newest. `number`:
        what the run, which publishes its versions itself, calls these weights; `None`: it does not, so it is the next.
        `settings` hold if the model is new. After a kill on the way the next caller does it.
        """
        weights = as_arrays(definition.module)
        packed = self._pack(definition)
        if not self.exists:
            verify.check_example(_unpack(packed).source())
        elif policy_definition.is_plain(definition.module):
            self.replace_code(definition)
        files.make_folder(self.folder)
        trusts.close_to_others(self.folder)
        with files.lock(self.folder / f".{self.name}.lock"):
            is_new = not self.exists
            changed = ModelSettings().changed(settings) if is_new else self.settings()
            store = VersionStore(self.folder, keep=changed.keep)
            number = self._adopt_weights(store, weights, number)
            write_adoption(self.folder / self.name, Adoption(digest=digest(weights), number=number))
            if is_new:
                folders.write_private(self.folder / self.name / _SETTINGS, json.dumps(asdict(changed)).encode())
                folders.write_private(self.path, packed)

    def _adopt_weights(self, store: VersionStore, weights: dict[str, NDArray[Any]], number: int | None) -> int:
        """The number that they have among the versions, published or not."""
        try:
            newest, known = store.get(self.name)
        except errors.DataError as error:
            if store.versions(self.name) or self.exists:
                _LOG.warning("no version of %r can be used: %s The newest checkpoint is published.", self.name, error)
            return store.publish(self.name, weights, number=max(store.rewind(self.name, None), number or 0)).number
        self.check(known, weights)
        own, before = digest(weights), read_adoption(self.folder / self.name)
        if before is not None and before.covers(own, newest):
            return before.number
        there = [version.number for version in store.versions(self.name) if version.digest == own]
        if there:
            return there[-1]
        if number is not None and number <= newest.number:
            return number
        return store.publish(self.name, weights, number=number).number

    def check(self, wanted: Mapping[str, NDArray[Any]], given: Mapping[str, NDArray[Any]]) -> None:
        """Raise `DataError` unless these weights fit the model."""
        differences = difference(wanted, given)
        if differences:
            raise errors.DataError(
                f"the model {self.name!r} of this trial has another architecture: {differences}. Use another name, "
                "or start another trial."
            )

    def replace_code(self, definition: Definition) -> None:
        """If the definition that is there contains code, or cannot be read, put this one, a policy's, in its place."""
        assert policy_definition.is_plain(definition.module), "else there is nothing gained"
        try:
            kind = _parse(self.path.read_bytes())[0]
        except FileNotFoundError:
            return
        except errors.DataError as error:
            _LOG.warning("%s %s; it is written again.", self.path, error)
        else:
            if kind != _CODE:
                return
        folders.write_private(self.path, self._pack(definition))

    def trust(self) -> None:
        """The user agrees to run the code of this definition: seal it, so that other processes run it, too.

        Raises `ConfigError` if other users could have changed it.
        """
        kind, body, _ = _parse(trusts.read_private(self.path))
        if kind == _CODE:
            names = pickle_names.describe(body)
            _LOG.warning("%s contains code, which is run from now on, as you have agreed to: %s.", self.path, names)
            folders.write_private(self.path, _join(_CODE, body))

    def _pack(self, definition: Definition) -> bytes:
        args, kwargs = definition.forward_args, dict(definition.forward_kwargs)
        example = {"forward_args": args, "forward_kwargs": kwargs}
        try:
            if policy_definition.is_plain(definition.module):
                policy: Any = definition.module
                return _join(_POLICY, _pack_nest({"policy": policy_definition.to_nest(policy), **example}))
            if (layers := layer_definition.to_text(definition.module, args, kwargs)) is not None:
                return _join(_LAYERS, _pack_nest({"layers": layers, **example}))
        except errors.CodecError as error:
            _LOG.warning("the model %r is stored as code: it has no other form: %s", self.name, error)
        try:
            content: bytes = cloudpickle.dumps((definition.module, args, kwargs))
        except Exception as error:
            raise errors.DataError(
                f"the model {self.name!r} cannot be sent to other processes: {type(error).__name__}: {error}. Open "
                "files, locks, sockets and the like do not belong into a module."
            ) from error
        return _join(_CODE, content)

    def definition(self) -> Definition:
        """Each time another copy. Raises `DataError` if it cannot be read here.

        Raises `ConfigError`, and runs nothing, if it contains code and is not this user's own.
        """
        try:
            kind, body, sealed = _parse(self.path.read_bytes())
            if kind == _CODE:
                kind, body, sealed = _parse(trusts.read_private(self.path))
                if not trusts.is_own(body, sealed):
                    raise errors.ConfigError(_not_trusted(self.path, body))
                if _LOG.isEnabledFor(logging.INFO):
                    _LOG.info("running the code of %s: %s", self.path, pickle_names.describe(body))
            return _open(kind, body)
        except errors.ConfigError:
            raise
        except errors.DataError as error:
            raise errors.DataError(
                f"the definition of model {self.name!r} cannot be used: {self.path} {error}. Remove it and make the "
                "model again; its versions stay."
            ) from None
        except Exception as error:
            raise errors.DataError(
                f"the definition of model {self.name!r} cannot be loaded here: {type(error).__name__}: {error}. The "
                "module's class must be importable, and by the name that it had when the model was made."
            ) from error

    def settings(self) -> ModelSettings:
        path = self.folder / self.name / _SETTINGS
        names = {each.name for each in fields(ModelSettings)}
        try:
            known = json.loads(path.read_bytes())
            return ModelSettings(**{name: value for name, value in known.items() if name in names})
        except FileNotFoundError:
            return ModelSettings()
        except (ValueError, TypeError, AttributeError) as error:
            _LOG.warning("%s is damaged (%s); the model is run as if no settings were given.", path, error)
            return ModelSettings()

    def others(self) -> list[str]:
        """The names of all models of the trial."""
        return sorted(path.name.removesuffix(".definition") for path in self.folder.glob("*.definition"))


# --- one file


def _join(kind: int, body: bytes) -> bytes:
    sealed = trusts.seal(body) if kind == _CODE else _NO_SEAL
    return _HEAD.pack(_MAGIC, _FORMAT, kind, hashlib.sha256(body).digest(), sealed) + body


def _parse(content: bytes) -> tuple[int, bytes, bytes]:
    """Kind, body and seal. Raises `DataError` with the end of a sentence that begins with the file's name."""
    if content[:1] == b"\x80":  # a pickle of before there were seals
        return _CODE, content, _NO_SEAL
    if len(content) < _HEAD.size:
        raise errors.DataError(f"is torn: it ends after {len(content)} bytes")
    magic, form, kind, sha256, sealed = _HEAD.unpack_from(content)
    body = content[_HEAD.size :]
    if magic != _MAGIC or form != _FORMAT or kind not in (_POLICY, _CODE, _LAYERS):
        raise errors.DataError("is not a definition that this Ludus can read")
    if hashlib.sha256(body).digest() != sha256:
        raise errors.DataError("is torn or altered: its SHA-256 is another")
    return kind, body, sealed


def _open(kind: int, body: bytes) -> Definition:
    if kind in (_POLICY, _LAYERS):
        nest = _unpack_nest(body)
        try:
            args, kwargs = nest["forward_args"], nest["forward_kwargs"]
            if kind == _POLICY:
                module: torch.nn.Module = policy_definition.from_nest(nest["policy"])
            else:
                module = layer_definition.from_text(nest["layers"])
            return Definition(module=module, forward_args=tuple(args), forward_kwargs=kwargs)
        except (KeyError, TypeError) as error:
            raise errors.DataError(f"is not the definition of a model: {error!r}") from None
    module, args, kwargs = pickle.loads(body)  # noqa: S301 - sealed by this user, or just packed
    return Definition(module=module, forward_args=args, forward_kwargs=kwargs)


def _unpack(packed: bytes) -> Definition:
    """What `_pack` just made."""
    kind, body, _ = _parse(packed)
    return _open(kind, body)


_LENGTH = struct.Struct("<Q")


def _pack_nest(nest: Any) -> bytes:
    frames = data.encode(nest)
    return b"".join(part for frame in frames for part in (_LENGTH.pack(data.nbytes([frame])), bytes(frame)))


def _unpack_nest(body: bytes) -> Any:
    frames, at = [], 0
    while at < len(body):
        if at + _LENGTH.size > len(body):
            raise errors.DataError("is altered: the lengths in it do not add up")
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        frames.append(bytearray(body[at : at + length]))  # of its own, so that arrays are writable
        at += length
    return data.decode(frames)


def _not_trusted(path: Path, body: bytes) -> str:
    return (
        f"{path} contains code (a pickled module: {pickle_names.describe(body)}), and it was not made by this user on "
        "this machine. Serving the model would run that code, with all rights that you have; nothing was run. If you "
        "trust its author: `ludus serve … --trust`, or RemoteModel(name, trust=True), once."
    )

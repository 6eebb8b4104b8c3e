"""Named models: made once, found by name from any process of the trial, run in batches, versioned.

model = RemoteModel("policy", Net(), forward_args=(image,))     # make it, or take it up again
model = RemoteModel("policy")                                   # elsewhere: find it
logits, value = await model.forward(image)                      # no batch axis; the session's own version
model.publish_weights(net)                                      # the next version
opponent = model.clone(1200)                                    # the newest version at or before 1200, to play against
branch = model.clone("champion", name="branch")                 # a model of its own that begins with those weights
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, overload

import torch

from ludus import errors
from ludus.data.nest import Nest
from ludus.discovery import names as naming
from ludus.gateway.session import FOLLOW, Session, current
from ludus.models import registry
from ludus.models.definition import Definition, ModelFolder
from ludus.models.kernel_threads import LoopSink
from ludus.models.pools import place
from ludus.models.request import Inference
from ludus.models.settings import ModelSettings
from ludus.models.torch_weights import as_arrays, get_torch_model_weights, set_torch_model_weights
from ludus.models.verify import Verification
from ludus.models.versions.changes import NEWEST
from ludus.models.versions.store import LATEST, Version
from ludus.trial import current as trials
from ludus.trial import trained
from ludus.trial.named.clone import ModelClone, number_of
from ludus.trial.trial import Trial
from ludus.workers.remote import Remote

__all__ = ["RemoteModel", "get_torch_model_weights", "set_torch_model_weights"]

_APPEARS_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.05


class RemoteModel:
    """A model of the trial that `ludus.init` began, by its name. Handles are cheap: make one wherever it is needed.

    name, model: with a `model` it is made, its weights being version 0, unless it is there; then it must have the same
        parameters. Without one it is waited for.
    forward_args, forward_kwargs: what one call is given, without the batch axis: NumPy arrays, or nests of them. Calls
        must then look like it. All backends but eager need it.
    local_mode: run it in the callers' own processes, not in workers of its own.
    num_workers, max_batch, num_threads: of the workers; `max_batch` counts rows.
    backend: "eager", "numpy" (policies), "compile", "onnx", "int8", or "auto": the fastest that gives what eager does.
    tolerance: how far a backend may be from eager, absolute and relative; beyond, it is not used.
    checkpoint_seconds, checkpoint_steps: how often a version gets a tag, so that it stays.
    keep: how many of the newest versions stay, beside those with a tag and those that a session plays.
    max_busy_s: a worker that is in one forward pass for longer is taken for hung and replaced; its first one, and what
        loads or compiles, may take ten times as long. 0: never.

    trust: run the code of a module that is there and was made by another user or on another machine.

    Settings that are not given are as the model was made, or as `ModelSettings` has them.
    """

    def __init__(
        self,
        name: str,
        model: torch.nn.Module | None = None,
        forward_args: tuple[Any, ...] = (),
        forward_kwargs: Mapping[str, Any] | None = None,
        *,
        local_mode: bool | None = None,
        num_workers: int | None = None,
        max_batch: int | None = None,
        num_threads: int | None = None,
        backend: str | None = None,
        tolerance: float | None = None,
        checkpoint_seconds: float | None = None,
        checkpoint_steps: int | None = None,
        keep: int | None = None,
        max_busy_s: float | None = None,
        timeout_s: float = 30.0,
        trust: bool = False,
        trial: Trial | None = None,
    ) -> None:
        self._given = {
            "local_mode": local_mode,
            "num_workers": num_workers,
            "max_batch": max_batch,
            "num_threads": num_threads,
            "backend": backend,
            "tolerance": tolerance,
            "checkpoint_seconds": checkpoint_seconds,
            "checkpoint_steps": checkpoint_steps,
            "keep": keep,
            "max_busy_s": max_busy_s,
        }
        ModelSettings().changed(self._given)  # errors are raised before anything is done
        self.name = name
        self._trial = trial if trial is not None else trials.current()
        self._timeout_s = timeout_s
        folder = ModelFolder(Path(self._trial.folder) / "models", name)
        forget = functools.partial(registry.forget, folder.folder)
        self._trial.keep("models", lambda: self._trial.before_close(forget))
        if not folder.exists:
            place.expect_in_folder(Path(self._trial.folder), name)
        if model is None:
            if forward_args or forward_kwargs:
                raise errors.ConfigError("forward_args belong to a model that is made: give it, too")
            _wait_for(folder)
            if trust:
                folder.trust()
        else:
            folder.create(_definition(model, forward_args, forward_kwargs), self._given)
        self._found = registry.find(folder.folder, name)
        if model is not None:
            self._found.reload_settings()
        self._settings = self._found.settings.changed(self._given)
        self._runner: Inference | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sink: LoopSink | None = None

    @property
    def _named(self) -> registry.NamedModel:
        """What this process knows of it; looked up again when that was closed, and in a child that was forked."""
        if self._found.is_closed:
            self._found = registry.find(self._found.folder.folder, self.name)
        return self._found

    # -- forward --------------------------------------------------------------------------------------------------

    async def forward(self, *args: Any, **kwargs: Any) -> Nest:
        """The model's outputs for one row: NumPy nests in and out, without the batch axis.

        Calls of all callers are run together. In a session, the version is the session's own: what its game asked for,
        or the newest when it first came here, to its end. Elsewhere it is the newest. Raises `SpecError` for what does
        not look like `forward_args`, and what the module raised.
        """
        session = current.get()
        if session is None:
            return await self._forward_newest(None, args, kwargs)
        wanted = session.wanted(self.name)
        if wanted == FOLLOW:
            return await self._forward_newest(session, args, kwargs)
        number = session.versions.get(self.name)
        if number is None:
            number = self._pin(session, wanted)
        return await self._ask(number, args, kwargs)

    async def forward_version(self, version: int | str, /, *args: Any, **kwargs: Any) -> Nest:
        """`forward` by a version that is named, whatever the session plays."""
        return await self._ask(version, args, kwargs)

    async def _forward_newest(self, session: Session | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Nest:
        number = self._named.store.resolve(self.name, LATEST)
        if session is not None and session.versions.get(self.name) != number:
            session.pin(self.name, number)
        try:
            return await self._ask(number, args, kwargs)
        except errors.DataError:
            if self._named.store.latest(self.name) == number:
                raise
        holds = self._named.holds  # it may be that retention was quicker than we were
        number = holds.hold(LATEST)
        try:
            if session is not None:
                session.pin(self.name, number)
            return await self._ask(number, args, kwargs)
        finally:
            holds.release(number)

    def _pin(self, session: Session, wanted: int | str) -> int:
        """The session plays this version to its end, and until then it stays where it is."""
        holds = self._named.holds
        number = holds.hold(wanted)
        session.pin(self.name, number)
        session.add_done_callback(lambda: holds.release(number))
        return number

    def _ask(self, version: int | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> asyncio.Future[Nest]:
        loop = asyncio.get_running_loop()
        sink = self._sink
        if loop is not self._loop or sink is None:
            self._loop, self._sink = loop, (sink := LoopSink(loop))
        future: asyncio.Future[Nest] = loop.create_future()
        runner = self._runner
        if runner is None or runner.is_closed:
            runner = self._inference()
        runner.submit(version, args, kwargs, sink, future)
        return future

    def _inference(self) -> Inference:
        """What runs it, for all handles of this process. Never waits: it starts in a thread of its own."""
        if self._runner is None or self._runner.is_closed:
            if self._settings.local_mode:
                self._runner = self._named.kernel(self._settings)
            else:
                self._runner = self._named.client(
                    self._settings, self._open_workers, trial=self._trial, node=self._node, timeout_s=self._timeout_s
                )
        return self._runner

    @property
    def _node(self) -> str:
        return f"model-{self.name}"

    def _open_workers(self) -> Remote:
        settings = self._settings
        self._trial.ask_driver(
            "start_model",
            self.name,
            settings.num_workers,
            settings.max_batch,
            settings.num_threads,
            max_busy_s=settings.max_busy_s,
        )
        return self._trial.remote(self._node)

    # -- weights --------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The number of the newest version."""
        return self._named.store.resolve(self.name, LATEST)

    def get_model(self, version: int | str = LATEST) -> torch.nn.Module:
        """A module of one's own, in the mode it was made in, with a version's weights: a number, a tag or "latest"."""
        module = self._named.folder.definition().module
        set_torch_model_weights(module, self._named.store.get(self.name, version)[1])
        return module

    def publish_weights(self, weights: Mapping[str, Any] | torch.nn.Module, *, tag: str | None = None) -> int:
        """Make the next version and return its number; who asks for the newest has it from now on.

        Raises `DataError`, and publishes nothing, if these are the weights of another architecture, or `tag` cannot be
        one.
        """
        return self._named.publish(as_arrays(weights), tag=tag, settings=self._settings).number

    @overload
    def clone(self, step: int | str = NEWEST) -> ModelClone: ...

    @overload
    def clone(self, step: int | str = NEWEST, *, name: str) -> RemoteModel: ...

    def clone(self, step: int | str = NEWEST, *, name: str | None = None) -> ModelClone | RemoteModel:
        """The newest version at or before `step`; -1: the newest of all. A tag is also a step.

        Without a `name`, a fixed opponent, called `NAME-NUMBER`: it shares the version's file with all who play it,
        so make one for each session. With a name, a model of its own that begins with those weights, to train; if it
        is there already and began with the same weights, it is returned as it is now. Raises `DataError` if there is
        no such version.
        """
        return (
            ModelClone(self, step, lambda: self._named.holds, self._named.store)
            if name is None
            else self._branch(step, name)
        )

    def _branch(self, step: int | str, name: str) -> RemoteModel:
        own = self._named
        with own.store.hold(self.name, number_of(own.store, self.name, step)) as held:
            number = held.number
            version, weights = own.store.get(self.name, number)
            definition = own.folder.definition()
            set_torch_model_weights(definition.module, weights)
        cloned = RemoteModel(
            name,
            definition.module,
            definition.forward_args,
            definition.forward_kwargs,
            **asdict(self._settings),
            timeout_s=self._timeout_s,
            trial=self._trial,
        )
        first = next((each for each in cloned.versions() if each.number == 0), None)
        if first is not None and first.digest != version.digest:
            raise errors.DataError(
                f"there is a model {cloned.name!r} already, and it did not begin with version {number} of "
                f"{self.name!r}; give the clone another name"
            )
        return cloned

    def tag(self, name: str, number: int | None = None) -> None:
        """Name a version, by default the newest, so that it stays. A name that is taken moves."""
        self._named.store.tag(self.name, name, self.step if number is None else number)

    def tags(self) -> dict[str, int]:
        return self._named.store.tags(self.name)

    def versions(self) -> list[Version]:
        """All that are there, oldest first."""
        return self._named.store.versions(self.name)

    # -- how it runs ----------------------------------------------------------------------------------------------

    @property
    def settings(self) -> ModelSettings:
        return self._settings

    @property
    def backend(self) -> str:
        """What runs it, which may be another than was asked for. Begins it, if need be, and waits; so does the next."""
        return self.verification.chosen

    @property
    def verification(self) -> Verification:
        """Which backends were tried, and how far from eager they were."""
        return self._inference().verification()

    def verify(self) -> Verification:
        """Choose the backend again, on recently seen inputs, too."""
        return self._inference().verification(again=True)

    def statistics(self) -> dict[str, Any]:
        """`KernelStats` by name: of this process, or of one of the model's workers."""
        return self._inference().stats()

    def close(self) -> None:
        """Stop running it in this process, for all handles here; one that is used again starts again."""
        self._found.close()
        self._runner = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Elsewhere it is found by its name."""
        return _find, (self.name, self._given, self._timeout_s)

    def __repr__(self) -> str:
        return f"RemoteModel({self.name!r})"


def _find(name: str, given: Mapping[str, Any], timeout_s: float) -> RemoteModel:
    return RemoteModel(name, **given, timeout_s=timeout_s)


def _definition(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Definition:
    if not isinstance(model, torch.nn.Module):
        raise errors.ConfigError(f"a model is a torch.nn.Module, not a {type(model).__name__}")
    if not isinstance(args, tuple):
        raise errors.ConfigError(f"forward_args is a tuple of arguments, not a {type(args).__name__}: write (x,)")
    return Definition(module=model, forward_args=args, forward_kwargs=dict(kwargs or {}))


def _wait_for(folder: ModelFolder) -> None:
    """The policy of a run that trains is there as soon as it has a version."""
    until = time.monotonic() + _APPEARS_WITHIN_S
    while not folder.exists:
        if folder.name == trained.MODEL and not trained.is_published(folder.folder.parent):
            trained.publish(folder.folder.parent)
            continue
        if time.monotonic() >= until:
            place.expect_in_folder(folder.folder.parent, folder.name)
            raise errors.NameTimeout(
                f"there is no model {folder.name!r} in {folder.folder.parent}, and none was made in "
                f"{_APPEARS_WITHIN_S:g} s. {naming.nearest(folder.name, folder.others())} Its maker gives the "
                "module: RemoteModel(name, model)."
            )
        time.sleep(_LOOK_EVERY_S)

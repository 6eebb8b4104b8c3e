"""A model that is none: it answers arrays of given specs, so that an actor is tested without torch.

model = FakeModel(outputs={"logits": ArraySpec((6,), np.float32)})
answer = await model.forward(observation)        # {"logits": six made-up numbers}
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from ludus import errors
from ludus.data.nest import Nest
from ludus.fake.made_up import as_specs, make_up
from ludus.gateway import session as sessions
from ludus.models.settings import ModelSettings
from ludus.models.stats import KernelStats
from ludus.models.versions.changes import NEWEST, at_or_before
from ludus.models.versions.store import LATEST, Version, check_tag

__all__ = ["FakeModel"]


class FakeModel:
    """Has `forward` and the rest of what an actor uses of a `RemoteModel`.

    `outputs`: specs or examples of what `forward` answers, without an axis for batches; or a function of what it was
    given. `delay_s` is how long an answer takes. `module` is what `get_model` gives copies of. In a session it pins its
    version, as a real model does.
    """

    def __init__(
        self,
        name: str = "fake",
        outputs: Nest | Callable[..., Nest] = None,
        *,
        step: int = 1,
        delay_s: float = 0.0,
        seed: int = 0,
        module: Any = None,
    ) -> None:
        self.name = name
        self.step = step
        self.num_forwards = 0
        self._outputs = outputs
        self._specs = None if callable(outputs) else as_specs(outputs)
        self._delay_s = delay_s
        self._rng = np.random.default_rng(seed)
        self._module = module
        self._tags: dict[str, int] = {}
        self._versions = [_version(name, step)]

    async def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Made-up arrays, or what the function makes of the arguments."""
        session = sessions.current.get()
        if session is not None:
            wanted = session.wanted(self.name)
            if wanted == sessions.FOLLOW or self.name not in session.versions:
                session.pin(self.name, wanted if isinstance(wanted, int) else self.step)
        return await self.forward_version(self.step, *args, **kwargs)

    async def forward_version(self, version: int | str, /, *args: Any, **kwargs: Any) -> Any:
        """The same; all versions of a fake are alike."""
        self.num_forwards += 1
        await asyncio.sleep(self._delay_s)
        return self._outputs(*args, **kwargs) if callable(self._outputs) else make_up(self._specs, self._rng)

    def publish_weights(self, weights: Any = None, *, tag: str | None = None) -> int:
        """The number of the next version, which is the newest from now on."""
        if tag is not None:
            check_tag(tag)
        self.step += 1
        self._versions.append(_version(self.name, self.step))
        if tag is not None:
            self._tags[tag] = self.step
        return self.step

    def clone(self, step: int | str = NEWEST, *, name: str | None = None) -> FakeModel:
        """Another one like it, of the newest version at or before `step`; -1: the newest. A tag is also a step.

        It is called `NAME-NUMBER` and stays at that version; one that is given a `name` begins with version 0.
        """
        if isinstance(step, str) and step != LATEST and step not in self._tags:
            raise errors.DataError(f"{self.name!r} has no tag {step!r}; there are: {', '.join(self._tags) or 'none'}")
        if isinstance(step, str):
            number = self._tags.get(step, self.step)
        else:
            number = at_or_before(self.name, [version.number for version in self._versions], step)
        outputs = self._outputs if callable(self._outputs) else self._specs
        return FakeModel(
            name or f"{self.name}-{number}",
            outputs,
            step=number if name is None else 0,
            delay_s=self._delay_s,
            seed=number,
            module=self._module,
        )

    def get_model(self, version: int | str = "latest") -> Any:
        """A copy of `module`; all versions of a fake are alike."""
        if self._module is None:
            raise errors.ConfigError(f"the fake model {self.name!r} has no module: give it one, FakeModel(module=net)")
        return copy.deepcopy(self._module)

    def tag(self, name: str, number: int | None = None) -> None:
        """Name a version, by default the newest. A name that is taken moves."""
        check_tag(name)
        number = self.step if number is None else number
        if all(version.number != number for version in self._versions):
            raise errors.DataError(f"{self.name!r} has no version {number}; it was not tagged")
        self._tags[name] = number

    def tags(self) -> dict[str, int]:
        return dict(self._tags)

    def versions(self) -> list[Version]:
        """The first, and those that were published; none has any weights."""
        return list(self._versions)

    @property
    def settings(self) -> ModelSettings:
        """A fake runs in the caller's own process."""
        return ModelSettings(local_mode=True)

    def statistics(self) -> dict[str, Any]:
        """The stats that a real one has: each call is a batch of its own."""
        found = KernelStats(
            num_calls=self.num_forwards,
            num_rows=self.num_forwards,
            num_batches=self.num_forwards,
            num_failed=0,
            num_pending=0,
            max_pending=0,
            num_loads=0,
            versions=tuple([version.number for version in self._versions]),
            held=(),
            num_refused_versions=0,
            backend="fake",
            busy_s=self.num_forwards * self._delay_s,
            idle_s=0.0,
        )
        return asdict(found)

    def close(self) -> None:
        """There is nothing to close."""


def _version(model: str, number: int) -> Version:
    return Version(model=model, number=number, digest=f"{number:064x}", nbytes=0, created=time.time())

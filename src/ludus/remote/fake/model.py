"""A model that is none: it answers arrays of given specs, so that an actor is tested without torch.

model = FakeModel(outputs={"logits": ArraySpec((6,), np.float32)})
answer = await model.forward(observation)        # {"logits": six made-up numbers}
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from ludus.data.nest import Nest
from ludus.gateway import session as sessions
from ludus.remote.fake.made_up import as_specs, make_up

__all__ = ["FakeModel"]


class FakeModel:
    """Has `forward` and the rest of what an actor uses of a `RemoteModel`.

    `outputs`: specs or examples of what `forward` answers, without an axis for batches; or a function of what it was
    given. `delay_s` is how long an answer takes. In a session it pins its version, as a real model does.
    """

    def __init__(
        self,
        name: str = "fake",
        outputs: Nest | Callable[..., Nest] = None,
        *,
        step: int = 1,
        delay_s: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.name = name
        self.step = step
        self.num_forwards = 0
        self._outputs = outputs
        self._specs = None if callable(outputs) else as_specs(outputs)
        self._delay_s = delay_s
        self._rng = np.random.default_rng(seed)

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
        self.step += 1
        return self.step

    def clone(self, step: int | str = "latest", *, name: str | None = None) -> FakeModel:
        """Another one like it, called `NAME-STEP` unless `name` is given; its own versions begin with 0."""
        number = step if isinstance(step, int) else self.step
        outputs = self._outputs if callable(self._outputs) else self._specs
        return FakeModel(name or f"{self.name}-{number}", outputs, step=0, delay_s=self._delay_s, seed=number)

"""`@register`: a method of a plain class becomes a command that others call from afar.

class Policy:
    @register(max_batch=64)
    def act(self, obs):            # called once with the observations of up to 64 callers, stacked
        return self.net(obs)

    @register(response=False)
    def record(self, episode):     # the caller does not wait for it
        ...
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any, TypeVar, overload

from ludus.rpc.batching import Batching
from ludus.rpc.server import RpcServer

__all__ = ["Registration", "commands_of", "register", "register_all"]

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__ludus_command__"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Registration:
    """The arguments of `@register`."""

    response: bool = True
    batching: Batching = dataclasses.field(default_factory=Batching)


@overload
def register(response: F) -> F: ...


@overload
def register(
    response: bool = True, batch: int = 1, *, max_batch: int = 1, straggler_s: float = 1.0, max_pending: int = 4096
) -> Callable[[F], F]: ...


def register(
    response: Any = True, batch: int = 1, *, max_batch: int = 1, straggler_s: float = 1.0, max_pending: int = 4096
) -> Any:
    """Make a method a remote command.

    `response=False`: the caller is answered at once and the method runs afterwards; its errors are logged here.
    `batch=n`: wait for n callers and run once on their stacked arguments, or, when the first has waited
    `straggler_s`, on those that came. `max_batch=n`: whenever free, run once on what is pending, at most n.
    Batched methods see a leading axis on every argument and must return one row for each caller.
    """
    if callable(response):
        return register()(response)
    registration = Registration(
        response=response,
        batching=Batching(batch=batch, max_batch=max_batch, straggler_s=straggler_s, max_pending=max_pending),
    )

    def mark(function: F) -> F:
        setattr(function, _MARK, registration)
        return function

    return mark


def commands_of(service: object) -> dict[str, Registration]:
    """The commands of an object or a class, by name."""
    cls = service if isinstance(service, type) else type(service)
    found: dict[str, Registration] = {}
    for name in dir(cls):
        registration = getattr(getattr(cls, name, None), _MARK, None)
        if isinstance(registration, Registration):
            found[name] = registration
    return found


def register_all(server: RpcServer, service: object, *, but: Collection[str] = ()) -> None:
    """Have `server` answer the commands of `service`, `but` these."""
    for name, registration in commands_of(service).items():
        if name in but:
            continue
        server.register_handler(
            name, getattr(service, name), response=registration.response, batching=registration.batching
        )

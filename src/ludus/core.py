"""Every contract of Ludus on one page.

How the parts meet:

    program = Program("demo")                            # nodes and handles: the topology as data
    policy = program.add("policy", Policy, replicas=3)   # a plain class with @register methods, or a Worker
    program.add("player", Player, policy)                # a handle given to a constructor is the edge
    launch.local(program)                                # an engine runs it

    # in each process the engine starts:
    names = discovery.connect(url)                       # Names: where is everybody?
    worker.configure(config)                             # phase by phase: configure → start → ... → exit
    names.add(key, server.address, ttl=2.0)              # a lease: it lapses when the process is killed
    while worker.is_running:
        server.handle_requests()                         # control commands and calls
        worker._poll()                                   # one short piece of work

Users write services, workers and, if they must, a `Names` backend; `ludus.testing` has the conformance kit for each.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

__all__ = ["NameCallback", "Names", "Watch", "WorkerStatus"]

NameCallback = Callable[[str, "str | None"], None]
"""Told `(name, value)` when a name appears or changes and `(name, None)` when it is gone."""


class Watch(Protocol):
    """A running `watch_names`; `close` ends it and returns once no callback will be made any more.

    It waits for a callback that is under way, so do not call it with a lock held that the callback takes. The
    callback itself may call it.
    """

    def close(self) -> None: ...


@runtime_checkable
class Names(Protocol):
    """Names → values: who is where. Names are paths such as `experiment/trial/kind/worker`; values are strings.

    Safe to use from several threads. A method that cannot reach its backend raises `DiscoveryError`.
    """

    def add(self, name: str, value: str, *, ttl: float | None = None, replace: bool = False) -> None:
        """Set `name`. Raises `NameTaken` if it exists and `replace` is false.

        With a `ttl` the name is a lease that this object keeps alive in the background until `delete` or `close`;
        when the process dies the name is gone within `ttl` seconds (or, where the backend cannot hold so short a
        lease, within the time that its log warns of). A lease that was lost, be it to an outage or to somebody
        else's `delete`, is put back; one that somebody else has taken since is let go. Without a `ttl` the name
        stays until deleted.
        """
        ...

    def get(self, name: str) -> str:
        """The value of `name`. Raises `NameNotFound`."""
        ...

    def get_subtree(self, root: str) -> list[str]:
        """The values of `root` and of every name below it, in the order of `find_subtree`."""
        ...

    def find_subtree(self, root: str) -> list[str]:
        """`root`, if it is a name, and every name below it, sorted. `a/b` is below `a`; `ab` is not."""
        ...

    def wait(self, name: str, timeout: float | None = None) -> str:
        """The value of `name`, once it is there. Raises `NameTimeout`; `None` means 60 seconds."""
        ...

    def watch_names(self, names: str | Sequence[str], callback: NameCallback) -> Watch:
        """Call `callback` at every change of these names; a name that ends in `/` stands for all names below it.

        The present state is told first, as if it had just appeared (a plain name that does not exist is told as
        `None`). Callbacks come from one background thread, in order. Quick changes may be told as one: the last.
        A callback that raises is logged and does not end the watch.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove `name` and stop keeping it alive. Raises `NameNotFound`.

        What this object added and somebody else has replaced since is not there any more: it raises, and theirs stays.
        """
        ...

    def clear_subtree(self, root: str) -> None:
        """Remove `root` and every name below it, whosever they are. Removing nothing is not an error."""
        ...

    def close(self) -> None:
        """End watches and keep-alives and remove the leases this object holds. May be called twice."""
        ...


class WorkerStatus(enum.StrEnum):
    """Where a worker is in its life.

    created ──configure──▶ ready ──start──▶ running ◀──resume── paused
                                              │ └────pause────────▲
                         done ◀── _poll ends ─┤
                       failed ◀── it raised ──┤
                       exited ◀── exit, interrupt, SIGTERM
    """

    CREATED = "created"
    READY = "ready"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    EXITED = "exited"

    @property
    def is_final(self) -> bool:
        return self in (WorkerStatus.DONE, WorkerStatus.FAILED, WorkerStatus.EXITED)

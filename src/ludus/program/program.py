"""A program: nodes and handles, the topology as data.

    program = Program("demo")
    policy = program.add("policy", Policy, replicas=3)     # workers policy/0, policy/1, policy/2
    program.add("player", Player, policy, lr=3e-4)         # a handle given to a constructor is the edge

Nothing starts here: an engine of `ludus.launch` runs a program, and in the worker's process every handle has become
a `Remote`, on which the other node's registered commands are called as if they were methods.
"""

from __future__ import annotations

import inspect
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, NoReturn

from ludus import errors
from ludus.discovery import names as naming
from ludus.workers import register
from ludus.workers import worker as workers

__all__ = ["Edge", "Handle", "Node", "Program", "Resources", "RestartPolicy", "map_handles"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one replica takes from its machine.

    `launch.ray` places by it. `launch.local` reserves nothing, but gives maths libraries no more threads than `cpus`.
    """

    cpus: float = 1.0
    gpus: float = 0.0
    custom: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, amount in {"cpus": self.cpus, "gpus": self.gpus, **self.custom}.items():
            if amount < 0:
                raise errors.ProgramError(f"Resources({name}={amount}): an amount cannot be negative.")


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """When a crashed worker is started again: after `backoff_s`, doubled at each crash up to `max_backoff_s`.

    More than `max_restarts` crashes within `window_s` end the run, unless another replica of the node still serves.
    Kills from outside and outages are not counted. Three deaths before a first unit of work end it, too.
    `max_restarts=0` ends it at the first crash of any kind; None: there is no limit for a worker that has ever worked.

    max_busy_s: a worker whose loop has been in one call or poll for longer, without progress, is hung: it is killed and
        started again. Ten times as long is allowed for what it says is warming up. None: never.
    is_expendable: whether the run goes on without a worker that is given up on, while other replicas of its node are
        up. None: yes, if the workers of the node only answer calls.
    """

    max_restarts: int | None = 5
    window_s: float = 60.0
    backoff_s: float = 0.2
    max_backoff_s: float = 10.0
    max_busy_s: float | None = None
    is_expendable: bool | None = None

    def __post_init__(self) -> None:
        if self.max_busy_s is not None and self.max_busy_s <= 0:
            raise errors.ProgramError(f"{self}: max_busy_s must be more than 0, or None for no limit.")
        if min(self.max_restarts or 0, self.window_s, self.backoff_s, self.max_backoff_s) < 0:
            raise errors.ProgramError(f"{self}: nothing in a restart policy can be negative.")

    def delay_s(self, num_crashes: int) -> float:
        """How long to wait before the restart that follows the `num_crashes`-th crash of the window."""
        doublings = min(num_crashes - 1, 32)
        return float(min(self.max_backoff_s, self.backoff_s * 2.0**doublings))


@dataclass(frozen=True)
class Handle:
    """Stands for a node until the program runs; given to another node's constructor, it is a `Remote` in the worker."""

    program: str
    node: str

    def __repr__(self) -> str:
        return f"Handle({self.node!r})"

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):  # pickle and copy ask for these, before there is a `node` to tell of
            raise AttributeError(attribute)
        raise AttributeError(
            f"Handle({self.node!r}) has no attribute {attribute!r}: a handle only stands for its node. It becomes a "
            "Remote, which has the node's commands, where it is given to another node's constructor by itself or "
            "inside a dict, list or tuple, not inside another object."
        )


class Edge(NamedTuple):
    """`caller` was given a handle to `service`; both are names of nodes."""

    caller: str
    service: str


@dataclass(frozen=True, kw_only=True)
class Node:
    """One class, its constructor's arguments, and how many of it to run."""

    name: str
    cls: type
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    replicas: int = 1
    resources: Resources = field(default_factory=Resources)
    restarts: RestartPolicy = field(default_factory=RestartPolicy)

    @property
    def worker_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}/{index}" for index in range(self.replicas))

    @property
    def has_end(self) -> bool:
        """Whether its workers have work of their own, which may end, or only answer calls until they are stopped."""
        return issubclass(self.cls, workers.Worker) or _has_run(self.cls)

    @property
    def is_expendable(self) -> bool:
        """Whether the run goes on without one of its workers, while another is up."""
        chosen = self.restarts.is_expendable
        return self.replicas > 1 and (not self.has_end if chosen is None else chosen)

    @property
    def handles(self) -> tuple[Handle, ...]:
        """Every handle its constructor is given, in order, each once."""
        found: dict[Handle, None] = {}

        def note(handle: Handle) -> Handle:
            found[handle] = None
            return handle

        map_handles((self.args, dict(self.kwargs)), note)
        return tuple(found)


class Program:
    """Nodes by name, and the handles between them. Its name is the `experiment` under which its workers are found."""

    def __init__(self, name: str) -> None:
        _check_name("program", name)
        self.name = name
        self._nodes: dict[str, Node] = {}

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._nodes.values())

    @property
    def edges(self) -> tuple[Edge, ...]:
        return tuple(Edge(node.name, handle.node) for node in self.nodes for handle in node.handles)

    def add(
        self,
        name: str,
        cls: type,
        /,
        *args: Any,
        replicas: int = 1,
        resources: Resources | None = None,
        restarts: RestartPolicy | None = None,
        **kwargs: Any,
    ) -> Handle:
        """Add a node of `replicas` workers, each of which will construct `cls(*args, **kwargs)`.

        `cls` is a `Worker`, or any class with `@register` methods, a `run()` method, or both. Raises `ProgramError`
        if the name is taken, the class cannot be a worker, or its constructor would refuse the arguments.
        """
        _check_name("node", name)
        if name in self._nodes:
            raise errors.ProgramError(
                f"program {self.name!r} already has a node {name!r}; for more workers of it use replicas=, "
                "otherwise choose another name."
            )
        if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 1:
            raise errors.ProgramError(f"node {name!r}: replicas={replicas!r} is not a whole number of 1 or more.")
        _check_class(name, cls)
        _check_arguments(name, cls, args, kwargs)
        node = Node(
            name=name,
            cls=cls,
            args=args,
            kwargs=kwargs,
            replicas=replicas,
            resources=resources or Resources(),
            restarts=restarts or RestartPolicy(),
        )
        for handle in node.handles:
            if handle.program != self.name:
                raise errors.ProgramError(
                    f"node {name!r} was given a handle to {handle.node!r} of another program, {handle.program!r}; "
                    "a handle connects nodes of one program only."
                )
        self._nodes[name] = node
        return self.handle(name)

    def handle(self, name: str) -> Handle:
        """A handle to a node that is there or will be added later; so two nodes can hold each other."""
        _check_name("node", name)
        return Handle(self.name, name)

    def node(self, name: str) -> Node:
        """The node of that name. Raises `ProgramError` with the nearest one that exists."""
        try:
            return self._nodes[name]
        except KeyError:
            raise errors.ProgramError(
                f"program {self.name!r} has no node {name!r}. {naming.nearest(name, self._nodes)}"
            ) from None

    def validate(self) -> None:
        """Raise `ProgramError` unless an engine could run this: there are nodes and every handle leads to one."""
        if not self._nodes:
            raise errors.ProgramError(f"program {self.name!r} has no nodes; add one with program.add(name, cls).")
        for caller, service in self.edges:
            if service not in self._nodes:
                raise errors.ProgramError(
                    f"node {caller!r} holds a handle to {service!r}, which was never added. "
                    f"{naming.nearest(service, self._nodes)}"
                )

    def describe(self) -> dict[str, Any]:
        """The topology as plain JSON data, for people and tools; arguments are shown, shortened, as their `repr`."""
        return {
            "program": self.name,
            "nodes": [_describe(node) for node in self.nodes],
            "edges": [list(edge) for edge in self.edges],
        }


def map_handles(value: Any, replace: Callable[[Handle], Any]) -> Any:
    """`value` with each `Handle` in it, through dicts, lists and tuples, replaced; anything else is left as it is."""
    match value:
        case Handle():
            return replace(value)
        case dict():
            return {key: map_handles(item, replace) for key, item in value.items()}
        case list():
            return [map_handles(item, replace) for item in value]
        case tuple():
            items = [map_handles(item, replace) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        case _:
            return value


def _check_name(what: str, name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise errors.ProgramError(
            f"{name!r} cannot name a {what}: a name is a letter followed by letters, digits, '_', '-' or '.', "
            "because it becomes part of file names and of names in the name service."
        )


def _check_class(name: str, cls: Any) -> None:
    if not isinstance(cls, type):
        kind = "a function" if inspect.isroutine(cls) else f"an object of class {type(cls).__name__}"
        raise errors.ProgramError(
            f"node {name!r} was given {kind} where a class belongs. Give the class and, after it, the arguments of "
            "its constructor: each worker makes its own object."
        )
    if issubclass(cls, workers.Worker) or _has_run(cls) or register.commands_of(cls):
        return
    raise errors.ProgramError(
        f"node {name!r}: {cls.__qualname__} has nothing to do. Mark a method with @register to answer calls, give it "
        "a run() method, or derive it from Worker."
    )


def _has_run(cls: type) -> bool:
    return callable(getattr(cls, "run", None)) and "run" not in register.commands_of(cls)


def _check_arguments(name: str, cls: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """A missing or misspelt argument is reported where it was written, not by a crash in a process of its own."""
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):  # some classes written in C have none
        return
    server = (None,) if issubclass(cls, workers.Worker) else ()
    try:
        signature.bind(*server, *args, **kwargs)
    except TypeError as error:
        unknown = [key for key in kwargs if key not in signature.parameters]
        near = f" {naming.nearest(unknown[0], signature.parameters)}" if unknown else ""
        raise errors.ProgramError(
            f"node {name!r}: {cls.__qualname__}{signature} would refuse its arguments: {error}.{near}"
        ) from None


def _describe(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "class": f"{node.cls.__module__}.{node.cls.__qualname__}",
        "workers": list(node.worker_names),
        "has_end": node.has_end,
        "args": [reprlib.repr(value) for value in node.args],
        "kwargs": {key: reprlib.repr(value) for key, value in node.kwargs.items()},
        "resources": asdict(node.resources),
        "restarts": asdict(node.restarts),
    }

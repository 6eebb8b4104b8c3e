"""Programs: nodes and handles, the topology of a run as data; the folder of a trial and its lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ludus.program.program import Edge, Handle, Node, Program, Resources, RestartPolicy

__all__ = ["Edge", "Handle", "Node", "Program", "Resources", "RestartPolicy"]


def __getattr__(name: str) -> Any:
    """Programs bring workers and calls; the folder and the lock of a trial need neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ludus.program import program

    return getattr(program, name)

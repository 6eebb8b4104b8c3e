"""Programs: nodes and handles, the topology of a run as data."""

from ludus.program.program import Edge, Handle, Node, Program, Resources, RestartPolicy

__all__ = ["Edge", "Handle", "Node", "Program", "Resources", "RestartPolicy"]

"""Engines that run a program: `launch.local(program)` as processes here, `launch.ray(program)` on a cluster."""

from ludus.launch.local_engine import launch as local
from ludus.launch.ray_engine import launch as ray
from ludus.launch.run import Run
from ludus.launch.supervisor import End, Event, EventKind, Phase, WorkerRecord

__all__ = ["End", "Event", "EventKind", "Phase", "Run", "WorkerRecord", "local", "ray"]

"""Engines that run a program: `launch.local(program)` as processes here, `launch.ray(program)` on a cluster."""

from ludus.launch.local_engine import launch as local
from ludus.launch.ray_engine import connected as ray_connected
from ludus.launch.ray_engine import launch as ray
from ludus.launch.run import Place, Run
from ludus.launch.supervisor import End, Event, EventKind, Phase, WorkerRecord

__all__ = ["End", "Event", "EventKind", "Phase", "Place", "Run", "WorkerRecord", "local", "ray", "ray_connected"]

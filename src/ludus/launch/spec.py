"""A worker's settings, sent by a private file on one host, by Ray to another; never over a socket of ours."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from ludus import errors
from ludus.data import lookup
from ludus.program import folder as folders
from ludus.program import program as programs

__all__ = ["WorkerSpec", "make_specs", "pack", "read_spec", "write_spec"]


@dataclass(frozen=True, kw_only=True)
class WorkerSpec:
    """One worker: who it is, where the names are, and, pickled, what to construct."""

    worker: str
    experiment: str
    trial: str
    names_url: str
    host: str  # what its server binds to
    secret: str | None
    folder: str  # the trial's
    payload: bytes  # of `pack`
    max_busy_s: float | None  # of its node's RestartPolicy
    sys_path: tuple[str, ...]  # of the driver, so that what it could import can be imported
    user_files: Mapping[str, str]  # of `data.lookup`, in the driver: classes of the payload may be theirs

    def unpack(self) -> tuple[type, tuple[Any, ...], Mapping[str, Any]]:
        """The class and its arguments, handles still in place."""
        sys.path[:0] = [path for path in self.sys_path if path not in sys.path]
        lookup.add_user_files(self.user_files)
        cls, args, kwargs = pickle.loads(self.payload)  # noqa: S301 - from a private file, written by the driver
        return cls, args, kwargs


def pack(node: programs.Node) -> bytes:
    """A node's class and arguments as bytes. Classes of `__main__` and local ones travel with their code."""
    try:
        content: bytes = cloudpickle.dumps((node.cls, node.args, dict(node.kwargs)))
    except Exception as error:
        raise errors.ProgramError(
            f"node {node.name!r} cannot be sent to its workers' processes: {error}. Open files, locks, sockets and "
            "the like belong into the constructor or run(), not among the arguments."
        ) from error
    return content


def make_specs(
    program: programs.Program,
    folder: folders.TrialFolder,
    *,
    names_url: str,
    host: str,
    secret: str | None,
) -> dict[str, WorkerSpec]:
    """The spec of each worker of the program, by its name."""
    made = {}
    for node in program.nodes:
        payload = pack(node)
        for worker in node.worker_names:
            made[worker] = WorkerSpec(
                worker=worker,
                experiment=program.name,
                trial=folder.path.name,
                names_url=names_url,
                host=host,
                secret=secret,
                folder=str(folder.path),
                payload=payload,
                max_busy_s=node.restarts.max_busy_s,
                sys_path=tuple(os.path.abspath(path) for path in sys.path),
                user_files=lookup.user_files(),
            )
    return made


def write_spec(path: Path, spec: WorkerSpec) -> None:
    folders.write_private(path, pickle.dumps(spec))


def read_spec(path: Path) -> WorkerSpec:
    spec: WorkerSpec = pickle.loads(path.read_bytes())  # noqa: S301 - a private file, written by the driver
    return spec

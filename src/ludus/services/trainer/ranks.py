"""Trainer ranks: torch.distributed between processes that make the same gradient step together.

gloo on CPUs, nccl on GPUs, both with ring all-reduce. Ranks find each other by the trial's names. A rank that dies is
noticed by the others at their next sum, because its connections close, or after `timeout_s`; they end with
`TrainingError`, never in a wait without end.
"""

from __future__ import annotations

import datetime
import os
import socket
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from ludus.core import Names
from ludus.errors import TrainingError

__all__ = ["TorchRanks"]

_TIMEOUT_S = 60.0


class TorchRanks:
    """The group of this process. One in each process at a time; `close` leaves it."""

    def __init__(
        self,
        rank: int,
        size: int,
        *,
        names: Names,
        key: str,
        host: str = "127.0.0.1",
        device: str = "cpu",
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        """`key` is where rank 0 tells the others its address; `host` is how they reach it."""
        self.rank = rank
        self.size = size
        self._device = device
        timeout = datetime.timedelta(seconds=timeout_s)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _interface(host))
        try:
            if rank == 0:
                store = dist.TCPStore(host, 0, size, is_master=True, timeout=timeout, wait_for_workers=False)
                names.add(key, f"{host}:{store.port}", replace=True)
            else:
                there, _, port = names.wait(key, timeout_s).rpartition(":")
                store = dist.TCPStore(there, int(port), size, is_master=False, timeout=timeout)
            backend = "nccl" if device.startswith("cuda") else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
        except (RuntimeError, TimeoutError) as error:
            raise TrainingError(f"trainer {rank} of {size} did not find the others: {error}") from error

    def sum_(self, tensor: torch.Tensor) -> None:
        """Replace the tensor by its sum over all ranks. Raises `TrainingError` if one of them is lost."""
        try:
            dist.all_reduce(tensor)
        except RuntimeError as error:
            raise TrainingError(
                f"trainer {self.rank} lost another of the {self.size} ranks in the middle of an update ({error}). The "
                "run cannot go on without it; `ludus resume` goes on from the last checkpoint."
            ) from error

    def sum_numbers(self, numbers: Sequence[float]) -> list[float]:
        """Sums over all ranks."""
        tensor = torch.tensor(list(numbers), dtype=torch.float64, device=self._device)
        self.sum_(tensor)
        return [float(number) for number in tensor.tolist()]

    def least(self, number: float) -> float:
        """The smallest over all ranks."""
        rows = [0.0] * self.size
        rows[self.rank] = number
        return min(self.sum_numbers(rows))

    def close(self) -> None:
        """Leave the group. May be called twice."""
        if dist.is_initialized():
            dist.destroy_process_group()


def _interface(host: str) -> str:
    """The network interface of this address; gloo would otherwise ask for the host's name, which may not resolve."""
    if host in ("127.0.0.1", "localhost"):
        return "lo"
    for _, name in socket.if_nameindex():
        if _address_of(name) == host:
            return name
    return "lo"


def _address_of(interface: str) -> Any:
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            packed = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", interface[:15].encode()))
        except OSError:  # an interface without an address
            return None
    return socket.inet_ntoa(packed[20:24])

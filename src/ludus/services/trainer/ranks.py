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
from ludus.errors import DataError, TrainingError

__all__ = ["TorchRanks"]

_TIMEOUT_S = 60.0
_SUMMED = frozenset(  # by gloo and nccl. Booleans, too, but by "or"
    {
        *(torch.uint8, torch.int8, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.complex64, torch.complex128),
    }
)
_WIDENED = frozenset({torch.int16, torch.uint16, torch.uint32, torch.uint64})  # their sum is made of 64 bits


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
        if tensor.dtype not in _SUMMED:
            raise DataError(f"a tensor of {tensor.dtype} cannot be added up over ranks; convert it first")
        try:
            dist.all_reduce(tensor)
        except RuntimeError as error:
            raise TrainingError(
                f"trainer {self.rank} lost another of the {self.size} ranks in the middle of an update ({error}). The "
                "run cannot go on without it; `ludus resume` goes on from the last checkpoint."
            ) from error

    def sum_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Its sum over all ranks as a new tensor, of the same type; of booleans, how many are true, as int64."""
        if tensor.dtype in _WIDENED:
            total = tensor.to(torch.int64)
            self.sum_(total)
            return total.to(tensor.dtype)
        total = tensor.to(torch.int64) if tensor.dtype is torch.bool else tensor.detach().clone()
        self.sum_(total)
        return total

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

"""What a server knows of a command, of a call of it, and of all of them together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ludus.rpc import messages
from ludus.rpc.batching import Gathering, GatheringStats
from ludus.rpc.ledger import LedgerStats
from ludus.rpc.transport import Peer

__all__ = ["Arrived", "Command", "ServerStats"]


@dataclasses.dataclass(slots=True)
class Command:
    """A handler and how it is run."""

    handler: Callable[..., Any]
    response: bool
    gathering: Gathering[Arrived] | None


@dataclasses.dataclass(slots=True)
class Arrived:
    """A call on its way through the server."""

    peer: Peer
    call: messages.Call
    deadline: float
    body: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerStats:
    """Counts since the start, and what waits now."""

    num_received: int
    num_run: int
    num_failed: int
    num_duplicates: int  # copies of calls that were not run again
    num_expired: int  # calls whose deadline had passed before they could run
    num_malformed: int
    num_waiting: int  # read and not run yet
    num_deferred: int  # run and not answered yet
    num_connections: int
    num_unsent_bytes: int  # of answers not read fast enough; a caller with 256 MiB of them is hung up on
    batches: dict[str, GatheringStats]
    ledger: LedgerStats

"""The metrics of a training loop that is not in its trial's driver: sent there, where the trial's one writer is."""

from __future__ import annotations

import collections
import logging
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from ludus import errors
from ludus.rpc.call import Pending
from ludus.rpc.client import wait_any
from ludus.telemetry.metrics import check_name
from ludus.workers.remote import Remote

__all__ = ["SentMetrics"]

_LOG = logging.getLogger(__name__)
_SEND_S = 30.0  # nobody waits for it: a driver that reads a long file first may take some seconds
_END_S = 2.0  # less than a worker is given to end in
_MAX_LINES = 4096  # that wait for a driver that does not answer
_MAX_SENT = 256  # lines in one call
_NOT_RUN = (errors.Unreachable, errors.Overloaded, errors.DiscoveryError)  # the driver has not got the call

_Line = tuple[int, dict[str, float]]


class SentMetrics:
    """Writes as `MetricsWriter` does, by calls to worker `driver/0`. `write` never waits: one call is on its way at a
    time, and what comes during one goes with the next. No line is written twice; one is lost only with a process.
    """

    def __init__(self, folder: Path, *, resume_step: int | None = None, age_s: float = 0.0) -> None:
        """`folder` is where the driver writes."""
        self._loop = {"id": uuid.uuid4().hex, "resume_step": resume_step, "age_s": age_s}
        self._remote = Remote("driver").within(_SEND_S)
        self._lines: collections.deque[_Line] = collections.deque(maxlen=_MAX_LINES)
        self._sent: list[_Line] = []
        self._pending: Pending | None = None
        self._is_away = False
        self._is_closed = False

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if self._is_closed:
            raise errors.TrainingError("metrics were written after their writer was closed.")
        for name in values:
            check_name(name)
        self._lines.append((int(step), {name: float(value) for name, value in values.items()}))
        if self._pending is None or wait_any([self._pending], 0.0):
            self._settle()
            self._send()

    def close(self) -> None:
        """Send the rest, and wait until it is there; not for a driver that does not answer."""
        if self._is_closed:
            return
        self._is_closed = True
        until = time.monotonic() + _END_S
        self._remote = self._remote.within(_END_S)
        self._settle(_END_S)
        while self._lines and time.monotonic() < until:
            self._send()
            self._settle(_END_S)
        try:
            if self._lines:
                _LOG.warning("%d lines of metrics could not be sent to the driver; they are lost", len(self._lines))
            else:
                self._remote.submit("end_metrics", self._loop["id"]).result()
        except errors.LudusError as error:
            _LOG.debug("the driver did not hear that the loop has ended: %s", error)
        finally:
            self._remote.close()

    def _send(self) -> None:
        self._sent = [self._lines.popleft() for _ in range(min(len(self._lines), _MAX_SENT))]
        if not self._sent:
            return
        try:
            self._pending = self._remote.submit("write_metrics", self._loop, [list(line) for line in self._sent])
        except _NOT_RUN as error:
            self._keep(error)

    def _settle(self, wait_s: float = 0.0) -> None:
        """Wait for the call that is on its way, if any."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        if not wait_any([pending], wait_s):
            _LOG.warning("the driver has not answered that %d lines of metrics are written", len(self._sent))
            return
        try:
            pending.result()
            self._is_away = False
        except _NOT_RUN as error:
            self._keep(error)
        except errors.LudusError as error:
            _LOG.warning("the driver may not have written %d lines of metrics: %s", len(self._sent), error)

    def _keep(self, error: Exception) -> None:
        """They go with the next."""
        self._lines.extendleft(reversed(self._sent))
        if not self._is_away:
            _LOG.warning("the driver cannot be sent the metrics of the loop now: %s", error)
        self._is_away = True

"""What becomes of envs that raise: counted always, logged once for each type of error, and too many end the run."""

from __future__ import annotations

import logging
import signal
import traceback

from ludus.errors import EnvError

__all__ = ["MAX_IN_A_ROW", "RAISED", "Failures", "expect_own"]

log = logging.getLogger(__name__)

MAX_IN_A_ROW = 10
"""So many failures without a single good step between them are no accident."""

RAISED = (Exception, SystemExit)
"""What an env may raise. One that calls `sys.exit` has failed like any other; it does not end the run silently."""


def expect_own(error: BaseException) -> None:
    """Raise the error again if it is not the env's own: the handler of a signal has exited."""
    if isinstance(error, SystemExit):
        handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
        if any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__)):
            raise error


class Failures:
    """The failures of one group of envs. `last` says what, where, with which seed and at which step."""

    def __init__(self, name: str) -> None:
        self.count = 0
        self.last = ""
        self._name = name
        self._seen: set[type[BaseException]] = set()

    def note(self, error: BaseException, *, which: str, seed: int, step: int, in_a_row: int) -> None:
        """Take note of one. Raises `EnvError` if it is the last straw."""
        expect_own(error)
        self.count += 1
        what = f"failed: {error}" if isinstance(error, EnvError) else f"raised {type(error).__name__}: {error}"
        self.last = f"{which} of {self._name} {what} (seed {seed}, step {step})"
        is_traced = error.__traceback__ is not None  # else we found fault with what it gave
        if type(error) not in self._seen:
            self._seen.add(type(error))
            log.error(
                "%s. It is restarted and its rows are marked as failed; more of this type are only counted.",
                self.last,
                exc_info=error if is_traced else None,
            )
        if in_a_row >= MAX_IN_A_ROW:
            text = "".join(traceback.format_exception(error)).rstrip()
            raise EnvError(
                f"{self.last}. That was failure {in_a_row} without a good step between them, so the env is given up."
                + (f"\n{text}" if is_traced else "")
            ) from error

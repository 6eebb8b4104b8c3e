"""What becomes of worlds that raise: counted always, logged once for each type of error, and too many end the run."""

from __future__ import annotations

import logging
import traceback

from ludus.errors import EnvError

__all__ = ["MAX_IN_A_ROW", "Failures"]

log = logging.getLogger(__name__)

MAX_IN_A_ROW = 10
"""So many failures without a single good step between them are no accident."""


class Failures:
    """The failures of one group of worlds. `last` says what, where, with which seed and at which step."""

    def __init__(self, name: str) -> None:
        self.count = 0
        self.last = ""
        self._name = name
        self._seen: set[type[BaseException]] = set()

    def note(self, error: Exception, *, which: str, seed: int, step: int, in_a_row: int) -> None:
        """Take note of one. Raises `EnvError` if it is the last straw."""
        self.count += 1
        self.last = f"{which} of {self._name} raised {type(error).__name__}: {error} (seed {seed}, step {step})"
        if type(error) not in self._seen:
            self._seen.add(type(error))
            log.error(
                "%s. It is begun anew and its rows are marked as failed; more of this type are only counted.",
                self.last,
                exc_info=error,
            )
        if in_a_row >= MAX_IN_A_ROW:
            text = "".join(traceback.format_exception(error)).rstrip()
            raise EnvError(
                f"{self.last}. That was failure {in_a_row} without a good step between them, so the world is given up. "
                f"The last one:\n{text}"
            ) from error

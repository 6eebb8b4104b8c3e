"""Every error Ludus raises.

    LudusError
    ├── DataError (ValueError)            a nest, a spec or bytes are not what they should be
    │   ├── InvalidObservation            a game sent what its actor cannot use; the game is answered with the text
    │   ├── SpecError                     a nest does not fit its spec; `.path` names the leaf
    │   └── CodecError                    bytes are malformed or past a limit; `.path` names the leaf
    ├── RpcError                          a call did not bring back a result
    │   ├── DeadlineExceeded (TimeoutError)
    │   ├── Unreachable (ConnectionError) nothing answers there; the call was not run
    │   ├── OutcomeUnknown                the server was lost after it may have started the call
    │   ├── Overloaded                    a bounded queue was full; the call was not run
    │   ├── UnknownCommand                no handler has that name; the nearest ones are given
    │   ├── Unauthorised                  a wrong or missing secret; a public address without one
    │   └── RemoteError                   the handler raised; carries type, message and traceback
    ├── DiscoveryError                    the name service refused or cannot be reached
    │   ├── NameNotFound (KeyError)
    │   ├── NameTaken
    │   └── NameTimeout (TimeoutError)    the name did not appear in time
    ├── WorkerError                       a command does not fit the worker's state
    ├── ProgramError                      a program is malformed, or a run ended because a worker kept dying
    ├── ConfigError (ValueError)          a setting is unknown, of the wrong type or out of range
    ├── EnvError                          an env cannot be made, stepped or restored
    ├── CheckpointError                   a checkpoint is torn, foreign or missing
    ├── TrainingError                     a training run cannot go on; says how to resume it
    └── MissingExtra (ImportError)        an optional library is not installed; the text says what to install

A message says what happened, what follows from it, and what to do.
"""

from __future__ import annotations

__all__ = [
    "LOST",
    "UNANSWERED",
    "CheckpointError",
    "CodecError",
    "ConfigError",
    "DataError",
    "DeadlineExceeded",
    "DiscoveryError",
    "EnvError",
    "InvalidObservation",
    "LudusError",
    "MissingExtra",
    "NameNotFound",
    "NameTaken",
    "NameTimeout",
    "OutcomeUnknown",
    "Overloaded",
    "ProgramError",
    "RemoteError",
    "RpcError",
    "SpecError",
    "TrainingError",
    "Unauthorised",
    "UnknownCommand",
    "Unreachable",
    "WorkerError",
]


class LudusError(Exception):
    """The root: `except LudusError` catches everything below and nothing else."""


class DataError(LudusError, ValueError):
    """A nest, a spec or bytes are not what they should be."""


class InvalidObservation(DataError):
    """A game sent what its actor cannot use. Raised in an actor, its text is the game's answer (422)."""


class _AtPath(DataError):
    """An error at one leaf of a nest. `path` is spelled `obs/image/0`; empty means the nest as a whole."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"at {path!r}: {message}" if path else message)
        self.path = path


class SpecError(_AtPath):
    """A nest does not fit its spec."""


class CodecError(_AtPath):
    """Bytes are malformed or past a limit, or a value cannot be encoded."""


class RpcError(LudusError):
    """A call did not bring back a result."""


class DeadlineExceeded(RpcError, TimeoutError):
    """The time given to a call ran out. Unless the text says so, it may still have run."""


class Unreachable(RpcError, ConnectionError):
    """Nothing answers at that address. The call was not run."""


class OutcomeUnknown(RpcError):
    """The server was lost after it may have started the call; it was not run a second time."""


class Overloaded(RpcError):
    """A bounded queue was full. The call was not run; try again later."""


LOST = (Unreachable, OutcomeUnknown)
"""The server went away: the call did not run, or may have."""

UNANSWERED = (*LOST, DeadlineExceeded, Overloaded)
"""After these the same call may be made again, if making it twice does no harm."""


class UnknownCommand(RpcError):
    """No handler is registered under that name."""


class Unauthorised(RpcError):
    """The secret is wrong or missing."""


class RemoteError(RpcError):
    """The handler raised. Built-in exceptions can also be caught by their own type (`except ValueError`)."""

    def __init__(self, message: str, *, remote_type: str = "Exception", remote_traceback: str = "") -> None:
        super().__init__(message)
        self.remote_type = remote_type
        self.remote_traceback = remote_traceback

    def __str__(self) -> str:
        text = f"{self.remote_type}: {self.args[0]}"
        if not self.remote_traceback:
            return text
        return f"{text}\n\nRemote traceback:\n{self.remote_traceback.rstrip()}"


class DiscoveryError(LudusError):
    """The name service refused or cannot be reached."""


class NameNotFound(DiscoveryError, KeyError):
    """No such name."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class NameTaken(DiscoveryError):
    """The name exists and `replace` was not given."""


class NameTimeout(DiscoveryError, TimeoutError):
    """The name did not appear in time."""


class WorkerError(LudusError):
    """A command does not fit the worker's state."""


class ProgramError(LudusError):
    """A program is malformed, or a run ended because a worker kept dying."""


class ConfigError(LudusError, ValueError):
    """A setting is unknown, of the wrong type or out of range."""


class EnvError(LudusError):
    """An env cannot be made, stepped or restored."""


class CheckpointError(LudusError):
    """A checkpoint is torn, foreign or missing."""


class TrainingError(LudusError):
    """A training run cannot go on; the message says how to resume it."""


class MissingExtra(LudusError, ImportError):
    """An optional library is not installed."""

    def __init__(self, library: str, *, extra: str) -> None:
        super().__init__(f"{library} is not installed. Install it with: pip install 'ludus[{extra}]'")

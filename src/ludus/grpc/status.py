"""Exceptions ↔ gRPC statuses: what a handler raised is raised again at the caller, typed, with the remote traceback.

The status is for clients in any language. The type, the message and the traceback are in the trailing metadata
`ludus-failure-bin` (`Failure` of protos/messages.proto), for Ludus's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from ludus import errors
from ludus.grpc.protos.messages_pb2 import Failure
from ludus.rpc import failures, messages

__all__ = ["FAILURE_KEY", "clip", "error_of", "status_of", "trailing"]

FAILURE_KEY = "ludus-failure-bin"
# What a failed call ends with is metadata, of which a client takes 8 KiB; coded it grows by a third, details by three.
_DETAIL_BYTES = 600
_MESSAGE_BYTES = 1000
_TRACEBACK_BYTES = 2500
_CODES: tuple[tuple[type[BaseException], grpc.StatusCode], ...] = (  # the first that fits
    (errors.DataError, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.ConfigError, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.DeadlineExceeded, grpc.StatusCode.DEADLINE_EXCEEDED),
    (errors.Unreachable, grpc.StatusCode.UNAVAILABLE),
    (errors.Overloaded, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.UnknownCommand, grpc.StatusCode.UNIMPLEMENTED),
    (errors.Unauthorised, grpc.StatusCode.UNAUTHENTICATED),
    (errors.NameNotFound, grpc.StatusCode.NOT_FOUND),
    (errors.NameTaken, grpc.StatusCode.ALREADY_EXISTS),
    (errors.WorkerError, grpc.StatusCode.FAILED_PRECONDITION),
    (NotImplementedError, grpc.StatusCode.UNIMPLEMENTED),
)
_ERRORS: dict[grpc.StatusCode, type[errors.LudusError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.DataError,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.Overloaded,
    grpc.StatusCode.UNIMPLEMENTED: errors.UnknownCommand,
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthorised,
    grpc.StatusCode.PERMISSION_DENIED: errors.Unauthorised,
    grpc.StatusCode.NOT_FOUND: errors.NameNotFound,
}
_NOT_CONNECTED = ("failed to connect", "DNS resolution failed", "name resolution")  # how gRPC says so
_TOO_LARGE = "larger than max"


def status_of(error: BaseException) -> grpc.StatusCode:
    """UNKNOWN for what is not one of Ludus's errors: the handler failed."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.UNKNOWN)


def trailing(error: BaseException) -> tuple[tuple[str, bytes], ...]:
    """The metadata that a failed call ends with."""
    failure = failures.describe(error, seq=0, load=0)
    traceback = failure.traceback.encode(errors="replace")[-_TRACEBACK_BYTES:].decode(errors="ignore")
    message = Failure(type=failure.kind, message=clip(failure.message, _MESSAGE_BYTES), traceback=traceback)
    return ((FAILURE_KEY, message.SerializeToString()),)


def clip(text: str, num_bytes: int = _DETAIL_BYTES) -> str:
    """Text as it may be in the details or the metadata of a status."""
    return text.encode(errors="replace")[:num_bytes].decode(errors="ignore")


def error_of(call: Any, *, where: object) -> errors.LudusError:
    """What a failed call (a `grpc.RpcError`) means. `where` is the server's address, for messages."""
    failure = _failure_in(call.trailing_metadata() or ())
    if failure is not None:
        return failures.revive(messages.Failure(0, 0, failure.type, failure.message, failure.traceback))
    code, details = call.code(), call.details() or ""
    if code is grpc.StatusCode.CANCELLED:  # not by the caller, who would have another exception
        return errors.OutcomeUnknown(f"{where} cancelled the call, which may have run: {details}")
    if code is grpc.StatusCode.UNAVAILABLE:
        if any(words in details for words in _NOT_CONNECTED):
            return errors.Unreachable(f"nothing answers at {where}: {details}. Is the server up, and is this its port?")
        return errors.OutcomeUnknown(f"the connection to {where} broke, and the call may have run: {details}")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
        return errors.DataError(f"{details}; send it in parts, or raise `max_message_bytes` on both sides")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.DeadlineExceeded(f"{where} did not answer in time; the call may have run")
    kind = _ERRORS.get(code)
    if kind is not None:
        return kind(f"{where}: {details}")
    return errors.RemoteError(details, remote_type=code.name)


def _failure_in(metadata: Iterable[tuple[str, Any]]) -> Failure | None:
    for key, value in metadata:
        if key == FAILURE_KEY:
            try:
                return Failure.FromString(value)
            except DecodeError:  # of a server that is not Ludus's: its status has to do
                return None
    return None

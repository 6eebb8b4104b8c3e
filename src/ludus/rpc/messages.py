"""What goes over the wire: five typed structs, each the first frame of a message; a nest's frames follow.

    caller → server   Call, Notify, Probe
    server → caller   Reply, Failure

A call is known by `(client, seq)`: the same pair is never run twice by a server, however often it arrives. The caller
has settled every call below `acked` except those listed as `unsettled`, so the server may forget the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec

from ludus.rpc.arena import CALL_WINDOW
from ludus.rpc.transport import Buffer

__all__ = [
    "MALFORMED",
    "NOT_SEEN",
    "Call",
    "Failure",
    "FromCaller",
    "FromServer",
    "Notify",
    "Probe",
    "Reply",
    "decode_from_caller",
    "decode_from_server",
    "encode",
]

NOT_SEEN = "NotSeen"
"""The kind of a `Failure` that answers a probe for a call that never arrived: the caller sends it again."""


class Call(msgspec.Struct, tag="c", array_like=True, gc=False):
    """Run `command` on the arguments that follow (see `call.encode_body`) and answer."""

    client: bytes
    seq: int
    slot: Annotated[int, msgspec.Meta(ge=0, lt=CALL_WINDOW)]  # which mark the server sets when it begins the call
    acked: int
    unsettled: list[int]
    command: str
    timeout_s: float
    sent_at: float  # the caller's monotonic clock; comparable on the same host only


class Notify(msgspec.Struct, tag="n", array_like=True, gc=False):
    """Run `command`; no answer is wanted, not even of failure."""

    command: str


class Probe(msgspec.Struct, tag="p", array_like=True, gc=False):
    """What became of that call? Answered by its reply again, by `NOT_SEEN`, or, while it runs, not at all.

    `instance` is the server the call was sent to: another one, in its place, cannot say that the call was not seen.
    """

    client: bytes
    seq: int
    instance: str


class Reply(msgspec.Struct, tag="r", array_like=True, gc=False):
    """The result follows. `load` is how many calls were waiting at the server."""

    seq: int
    load: int


class Failure(msgspec.Struct, tag="f", array_like=True, gc=False):
    """The call failed: `kind` is the exception's type name, `traceback` the remote one."""

    seq: int
    load: int
    kind: str
    message: str
    traceback: str


FromCaller = Call | Notify | Probe
FromServer = Reply | Failure

encode = msgspec.msgpack.Encoder().encode
decode_from_caller: Callable[[Buffer], FromCaller] = msgspec.msgpack.Decoder(FromCaller).decode
decode_from_server: Callable[[Buffer], FromServer] = msgspec.msgpack.Decoder(FromServer).decode
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError)
"""What the two decoders raise."""

"""Names of the library, for modules of other floors that build on this one: they do not import it themselves."""

from __future__ import annotations

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

__all__ = ["EOF", "DecodeError", "RpcError", "StatusCode"]

EOF: object = grpc.aio.EOF
RpcError: type[Exception] = grpc.RpcError
StatusCode = grpc.StatusCode

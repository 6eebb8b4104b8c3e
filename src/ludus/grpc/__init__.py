"""gRPC: messages and their stubs, base classes of servers and clients. The one door to `grpc` and `google.protobuf`.

protos/      .proto files, and beside each what `make protos` made of it
arrays.py    nests of arrays as messages
server.py    `GrpcServer`: what every service gets without asking
client.py    `GrpcClient`: calls that raise Ludus's errors

docs/grpc.md has the three steps to a service of one's own.
"""

import importlib
import os

from ludus.errors import MissingExtra

__all__: list[str] = []

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else each connection that is closed is a line on stderr

for _library in ("grpc", "google.protobuf", "grpc_health", "grpc_reflection"):
    try:
        importlib.import_module(_library)
    except ImportError:
        raise MissingExtra(_library, extra="grpc") from None

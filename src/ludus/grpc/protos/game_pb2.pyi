from ludus.grpc.protos import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StepKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATELESS: _ClassVar[StepKind]
    START: _ClassVar[StepKind]
    TICK: _ClassVar[StepKind]
    END: _ClassVar[StepKind]
STATELESS: StepKind
START: StepKind
TICK: StepKind
END: StepKind

class StepRequest(_message.Message):
    __slots__ = ("session", "kind", "step", "data", "run", "model", "version", "deadline_ms", "signature")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    session: str
    kind: StepKind
    step: int
    data: bytes
    run: str
    model: str
    version: str
    deadline_ms: int
    signature: Signature
    def __init__(self, session: _Optional[str] = ..., kind: _Optional[_Union[StepKind, str]] = ..., step: _Optional[int] = ..., data: _Optional[bytes] = ..., run: _Optional[str] = ..., model: _Optional[str] = ..., version: _Optional[str] = ..., deadline_ms: _Optional[int] = ..., signature: _Optional[_Union[Signature, _Mapping]] = ...) -> None: ...

class Signature(_message.Message):
    __slots__ = ("key", "time_ms", "token")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    key: str
    time_ms: int
    token: str
    def __init__(self, key: _Optional[str] = ..., time_ms: _Optional[int] = ..., token: _Optional[str] = ...) -> None: ...

class StepReply(_message.Message):
    __slots__ = ("data", "session", "versions", "problem")
    class VersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    DATA_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    session: str
    versions: _containers.ScalarMap[str, int]
    problem: _messages_pb2.Problem
    def __init__(self, data: _Optional[bytes] = ..., session: _Optional[str] = ..., versions: _Optional[_Mapping[str, int]] = ..., problem: _Optional[_Union[_messages_pb2.Problem, _Mapping]] = ...) -> None: ...

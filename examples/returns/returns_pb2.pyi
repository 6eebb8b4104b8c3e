from ludus.grpc.protos.data_type import array_pb2 as _array_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Rewards(_message.Message):
    __slots__ = ("rewards", "gamma")
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    rewards: _array_pb2.Array
    gamma: float
    def __init__(self, rewards: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., gamma: _Optional[float] = ...) -> None: ...

class Discounts(_message.Message):
    __slots__ = ("returns",)
    RETURNS_FIELD_NUMBER: _ClassVar[int]
    returns: _array_pb2.Array
    def __init__(self, returns: _Optional[_Union[_array_pb2.Array, _Mapping]] = ...) -> None: ...

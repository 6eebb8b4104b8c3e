from ludus.grpc.protos.data_type import array_pb2 as _array_pb2
from ludus.grpc.protos.data_type import torch_tensor_pb2 as _torch_tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Container(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NONE: _ClassVar[Container]
    DICT: _ClassVar[Container]
    LIST: _ClassVar[Container]
    TUPLE: _ClassVar[Container]
    BATCH: _ClassVar[Container]
NONE: Container
DICT: Container
LIST: Container
TUPLE: Container
BATCH: Container

class Batch(_message.Message):
    __slots__ = ("num_axes", "fields")
    NUM_AXES_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    num_axes: int
    fields: _containers.RepeatedCompositeFieldContainer[Nest]
    def __init__(self, num_axes: _Optional[int] = ..., fields: _Optional[_Iterable[_Union[Nest, _Mapping]]] = ...) -> None: ...

class Nest(_message.Message):
    __slots__ = ("name", "number", "array", "tensor", "scalar", "boolean", "integer", "real", "complex", "text", "data", "container", "items", "num_axes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    SCALAR_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    REAL_FIELD_NUMBER: _ClassVar[int]
    COMPLEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NUM_AXES_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    array: _array_pb2.Array
    tensor: _torch_tensor_pb2.TorchTensor
    scalar: _array_pb2.Array
    boolean: bool
    integer: int
    real: float
    complex: Complex
    text: str
    data: bytes
    container: Container
    items: _containers.RepeatedCompositeFieldContainer[Nest]
    num_axes: int
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., array: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., tensor: _Optional[_Union[_torch_tensor_pb2.TorchTensor, _Mapping]] = ..., scalar: _Optional[_Union[_array_pb2.Array, _Mapping]] = ..., boolean: _Optional[bool] = ..., integer: _Optional[int] = ..., real: _Optional[float] = ..., complex: _Optional[_Union[Complex, _Mapping]] = ..., text: _Optional[str] = ..., data: _Optional[bytes] = ..., container: _Optional[_Union[Container, str]] = ..., items: _Optional[_Iterable[_Union[Nest, _Mapping]]] = ..., num_axes: _Optional[int] = ...) -> None: ...

class Complex(_message.Message):
    __slots__ = ("real", "imag")
    REAL_FIELD_NUMBER: _ClassVar[int]
    IMAG_FIELD_NUMBER: _ClassVar[int]
    real: float
    imag: float
    def __init__(self, real: _Optional[float] = ..., imag: _Optional[float] = ...) -> None: ...

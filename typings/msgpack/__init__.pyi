"""Stubs of msgpack: only the calls that Beanpole makes."""

from collections.abc import Callable, Iterator
from typing import Any

from . import exceptions as exceptions
from .exceptions import BufferFull as BufferFull
from .exceptions import ExtraData as ExtraData
from .exceptions import FormatError as FormatError
from .exceptions import OutOfData as OutOfData
from .exceptions import StackError as StackError
from .exceptions import UnpackException as UnpackException

def packb(
    o: object,
    *,
    default: Callable[[Any], Any] | None = None,
    use_bin_type: bool = True,
    strict_types: bool = False,
) -> bytes: ...
def unpackb(
    packed: bytes | bytearray | memoryview,
    *,
    use_list: bool = True,
    raw: bool = False,
    strict_map_key: bool = True,
    max_buffer_size: int = -1,
    max_str_len: int = -1,
    max_bin_len: int = -1,
    max_array_len: int = -1,
    max_map_len: int = -1,
    max_ext_len: int = -1,
) -> Any: ...

class Packer:
    def __init__(
        self,
        *,
        default: Callable[[Any], Any] | None = None,
        use_bin_type: bool = True,
        autoreset: bool = True,
        strict_types: bool = False,
        buf_size: int = ...,
    ) -> None: ...
    def pack(self, obj: object) -> bytes: ...
    def pack_array_header(self, size: int) -> bytes: ...
    def pack_map_header(self, size: int) -> bytes: ...
    def bytes(self) -> bytes: ...
    def reset(self) -> None: ...

class Unpacker:
    def __init__(
        self,
        file_like: Any = None,
        *,
        read_size: int = 0,
        use_list: bool = True,
        raw: bool = False,
        strict_map_key: bool = True,
        max_buffer_size: int = ...,
        max_str_len: int = -1,
        max_bin_len: int = -1,
        max_array_len: int = -1,
        max_map_len: int = -1,
        max_ext_len: int = -1,
    ) -> None: ...
    def feed(self, next_bytes: bytes | bytearray | memoryview) -> None: ...
    def unpack(self) -> Any: ...
    def skip(self) -> None: ...
    def read_bytes(self, n: int) -> bytes: ...
    def read_array_header(self) -> int: ...
    def tell(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...

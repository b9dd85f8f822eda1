"""The file format of a backup: header, chunks and footer, each with a checksum, and no more bytes.

Belongs here: the bytes, written to and read from any stream, so that a backup may go through a
pipe. As in snapshots, the chunks are opaque. The caller provides the contents of header and footer.
The format is described in docs/backup.md.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, Protocol

import msgpack
from crc32c import crc32c

from beanpole.errors import Damaged, UnknownVersion

MAGIC: Final = b"BeanBAK\n"
# Files of any other version are rejected.
VERSION: Final = 1
# The limit of a snapshot, from which the chunks come.
CHUNK_BYTES_MAX: Final = 4 * 1024 * 1024
# A header has the names of all members, a footer the names of some queues: 100 KB.
ABOUT_BYTES_MAX: Final = 1024 * 1024
_END_MARK: Final = 0xFFFFFFFF

# magic, version, size of the header's content
_HEADER: Final = Struct("<8sBI")
# size of the chunk, or the end mark, followed by the size of the footer's content
_LENGTH: Final = Struct("<I")
# CRC-32C over all preceding bytes of the file, without checksums
_CHECK: Final = Struct("<I")


class Sink(Protocol):
    """The sink of a backup: a file, a pipe or an encryption."""

    def write(self, data: bytes, /) -> object: ...


class Source(Protocol):
    """The source of a backup: `read` returns fewer bytes than requested only at its end."""

    def read(self, size: int, /) -> bytes: ...


class Writer:
    """Writes one backup to a stream.

    Attributes:
        chunks: the number of chunks written.
        written: the size of the file so far in bytes.
    """

    def __init__(self, stream: Sink, about: dict[str, Any]) -> None:
        """Write the header.

        Args:
            stream: the sink.
            about: the content of the header, in plain types.

        Raises:
            OSError: the stream cannot be written. The other methods raise this, too.
        """
        self.chunks = 0
        self.written = 0
        self._stream = stream
        self._check = 0
        packed = _pack(about)
        self._write(_HEADER.pack(MAGIC, VERSION, len(packed)) + packed)

    def add(self, chunk: bytes) -> None:
        """Write a chunk of 1 byte to CHUNK_BYTES_MAX."""
        assert 0 < len(chunk) <= CHUNK_BYTES_MAX, f"a chunk of {len(chunk)} bytes"
        self._write(_LENGTH.pack(len(chunk)), chunk)
        self.chunks += 1

    def finish(self, about: dict[str, Any]) -> None:
        """Write the footer with this content in plain types. The stream stays open."""
        packed = _pack({**about, "chunks": self.chunks})
        self._write(_LENGTH.pack(_END_MARK), _LENGTH.pack(len(packed)), packed)

    def _write(self, *parts: bytes) -> None:
        for part in parts:
            self._check = crc32c(part, self._check)
        self._stream.write(b"".join((*parts, _CHECK.pack(self._check))))
        self.written += sum(map(len, parts)) + _CHECK.size


class Reader:
    """Reads one backup from a stream, and returns each part only after its checksum was verified.

    Attributes:
        about: the content of the header.
        end: the content of the footer; None before all chunks were read.
        offset: the number of bytes read so far.
    """

    def __init__(self, stream: Source, name: str) -> None:
        """Read the header.

        Args:
            stream: the source; it may be a pipe.
            name: the name of the file, for messages.

        Raises:
            Damaged: this is not a backup, or its header is corrupt.
            UnknownVersion: it has another version.
            OSError: the stream cannot be read.
        """
        self.end: dict[str, Any] | None = None
        self.offset = 0
        self._stream = stream
        self._name = name
        self._check = 0
        head = stream.read(_HEADER.size)
        if head[: len(MAGIC)] != MAGIC:
            empty = "it is empty" if not head else "it does not begin as one"
            raise Damaged(f"{name} is no backup: {empty}")
        if len(head) < _HEADER.size:
            raise self._cut("its header")
        _, version, size = _HEADER.unpack(head)
        if version != VERSION:
            raise UnknownVersion(
                f"{name} is a backup of format {version}, this program reads {VERSION}: use the "
                "release that wrote it"
            )
        self._count(head)
        self.about = self._about(size, "header")

    def chunks(self) -> Iterator[bytes]:
        """Yield all chunks, then read the footer into `end`, and check that nothing follows.

        Raises:
            Damaged: a checksum is wrong, the footer is missing, or bytes follow it.
            OSError: the stream cannot be read.
        """
        count = 0
        while True:
            what = f"chunk {count}"
            (size,) = _LENGTH.unpack(self._read(_LENGTH.size, f"{what}, or its end"))
            if size == _END_MARK:
                break
            if not 0 < size <= CHUNK_BYTES_MAX:
                raise Damaged(f"{self._at()}: {what} cannot have {size} bytes")
            chunk = self._read(size, what)
            self._verify(what)
            count += 1
            yield chunk
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size, "its footer"))
        end = self._about(size, "footer")
        if end.get("chunks") != count:
            raise Damaged(f"{self._at()}: the footer counts {end.get('chunks')} chunks of {count}")
        if self._stream.read(1):
            raise Damaged(f"{self._at()}: something follows the end of the backup")
        self.end = end

    def _about(self, size: int, what: str) -> dict[str, Any]:
        if size > ABOUT_BYTES_MAX:
            raise Damaged(f"{self._at()}: its {what} cannot have {size} bytes")
        packed = self._read(size, f"its {what}")
        self._verify(f"its {what}")
        try:
            about = msgpack.unpackb(packed)
        except (ValueError, TypeError, msgpack.exceptions.UnpackException):
            about = None
        if type(about) is not dict:
            raise Damaged(f"{self._name}: its {what} cannot be read")
        return about

    def _read(self, size: int, what: str) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise self._cut(what)
        self._count(data)
        return data

    def _count(self, data: bytes) -> None:
        self._check = crc32c(data, self._check)
        self.offset += len(data)

    def _verify(self, what: str) -> None:
        data = self._stream.read(_CHECK.size)
        if len(data) < _CHECK.size:
            raise self._cut(what)
        if data != _CHECK.pack(self._check):
            raise Damaged(f"{self._at()}: the checksum of {what} is wrong")
        self.offset += _CHECK.size

    def _cut(self, what: str) -> Damaged:
        return Damaged(f"{self._at()}: the backup is cut off: {what} is missing")

    def _at(self) -> str:
        return f"{self._name}: offset {self.offset}"


def _pack(about: dict[str, Any]) -> bytes:
    packed: bytes = msgpack.packb(about, use_bin_type=True)
    assert len(packed) <= ABOUT_BYTES_MAX, f"a header or footer of {len(packed)} bytes"
    return packed

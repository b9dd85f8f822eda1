"""Small files that are replaced as a whole: counters, pairs of times, markers.

After a crash a file has either its old content or the new one.
"""

import os
from struct import Struct
from typing import Final

from crc32c import crc32c

from beanpole.errors import Damaged
from beanpole.storage.files import TEMPORARY, Files
from beanpole.storage.format import (
    FILE_HEADER_BYTES,
    MAGIC_RECORD,
    Identity,
    check_identity,
    decode_file_header,
    encode_file_header,
)

# Small, because these files are read and written in the loop.
PAYLOAD_BYTES_MAX: Final = 64 * 1024

_CHECK: Final = Struct("<I")


def write_atomic(files: Files, path: str, identity: Identity, payload: bytes) -> None:
    """Replace the file at `path`, durably at return. Takes several syncs: not for hot paths.

    Raises:
        OSError: the disk refuses; the file keeps its old content.
    """
    assert len(payload) <= PAYLOAD_BYTES_MAX, f"{len(payload)} bytes in a small file"
    header = encode_file_header(MAGIC_RECORD, identity, len(payload))
    handle = files.open(path + TEMPORARY, create=True)
    try:
        handle.write(0, header + payload + _CHECK.pack(crc32c(payload, crc32c(header))))
        handle.sync()
    finally:
        handle.close()
    files.rename(path + TEMPORARY, path)
    files.sync_directory(os.path.dirname(path) or ".")


def read_checked(files: Files, path: str, identity: Identity) -> bytes | None:
    """Return the content of the file, or None if there is no file.

    Raises:
        Damaged: the file is corrupt.
        WrongIdentity: a file of another cluster or node.
        UnknownVersion: a file of another version.
        OSError: the disk refuses.
    """
    found = read_record(files, path)
    if found is None:
        return None
    owner, payload = found
    check_identity(owner, identity, path)
    return payload


def read_record(files: Files, path: str) -> tuple[Identity, bytes] | None:
    """Return the owner of the file and its content, or None if there is no file.

    Raises:
        Damaged: the file is corrupt.
        UnknownVersion: a file of another version.
        OSError: the disk refuses.
    """
    if not files.exists(path):
        return None
    handle = files.open(path)
    try:
        data = handle.read(0, handle.size())
    finally:
        handle.close()
    header = decode_file_header(data, MAGIC_RECORD, path)
    end = FILE_HEADER_BYTES + header.first
    payload = data[FILE_HEADER_BYTES:end]
    check = crc32c(payload, crc32c(data[:FILE_HEADER_BYTES]))
    if data[end:] != _CHECK.pack(check):
        raise Damaged(f"{path}: offset {FILE_HEADER_BYTES}: the checksum of the content is wrong")
    return header.identity, payload

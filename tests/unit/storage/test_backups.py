"""The file of a backup: round trips, and rejection of all other files with a reason."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole.errors import Damaged, UnknownVersion
from beanpole.storage.backups import ABOUT_BYTES_MAX, CHUNK_BYTES_MAX, MAGIC, Reader, Writer

ABOUT = {"cluster": "test", "index": 7}
END = {"digest": b"d" * 32, "jobs": 3}
CHUNKS = [b"first chunk", b"\0" * 40, b"\xff\xff\xff\xff end?"]


def written(chunks: list[bytes], about: dict[str, Any] = ABOUT) -> bytes:
    stream = io.BytesIO()
    writer = Writer(stream, about)
    for chunk in chunks:
        writer.add(chunk)
    writer.finish(END)
    assert writer.written == len(stream.getvalue())
    return stream.getvalue()


def read(data: bytes) -> tuple[dict[str, Any], list[bytes], dict[str, Any]]:
    reader = Reader(io.BytesIO(data), "FILE")
    chunks = list(reader.chunks())
    assert reader.end is not None
    assert reader.offset == len(data)
    return reader.about, chunks, reader.end


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8))
def test_what_was_written_is_read(chunks: list[bytes]) -> None:
    assert read(written(chunks)) == (ABOUT, chunks, {**END, "chunks": len(chunks)})


def test_the_largest_chunk_is_read() -> None:
    chunk = b"x" * CHUNK_BYTES_MAX
    assert read(written([chunk]))[1] == [chunk]


def test_every_flipped_bit_is_refused() -> None:
    data = written(CHUNKS)
    for place in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            with pytest.raises((Damaged, UnknownVersion), match="FILE"):
                read(bytes(changed))


def test_every_shorter_file_is_refused_as_cut_off() -> None:
    data = written(CHUNKS)
    for size in range(len(MAGIC), len(data)):
        with pytest.raises(Damaged, match="cut off"):
            read(data[:size])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "FILE is no backup: it is empty"),
        (b"BeanSNP\n and more", "FILE is no backup: it does not begin as one"),
        (written(CHUNKS) + b"\0", "something follows the end"),
        (written(CHUNKS) * 2, "something follows the end"),
        (MAGIC + b"\x02" + bytes(4), "format 2, this program reads 1"),
        (MAGIC + b"\x01" + (ABOUT_BYTES_MAX + 1).to_bytes(4, "little"), "its header cannot have"),
    ],
)
def test_what_is_no_backup_is_named(data: bytes, words: str) -> None:
    with pytest.raises((Damaged, UnknownVersion), match=words):
        read(data)


def test_chunks_in_another_order_are_refused() -> None:
    data = written([b"one chunk", b"two chunk"])
    first, second = data.index(b"one chunk") - 4, data.index(b"two chunk") - 4
    size = second - first
    swapped = data[:first] + data[second : second + size] + data[first:second]
    with pytest.raises(Damaged, match="the checksum of chunk 0 is wrong"):
        read(swapped + data[second + size :])


def test_a_chunk_of_another_backup_is_refused() -> None:
    """This holds even at the same place, after a different header."""
    data, other = written(CHUNKS), written(CHUNKS, {**ABOUT, "index": 8})
    start = data.index(CHUNKS[0]) - 4
    with pytest.raises(Damaged, match="the checksum of chunk 0 is wrong"):
        read(data[:start] + other[start:])

"""The stream of a peer's snapshot, without I/O: is each message what it should be?

How the messages travel is in `peer`; what becomes of the chunks is the sink's business.
"""

from typing import Protocol

from crc32c import crc32c


class Sink(Protocol):
    """Where the chunks of a fetched snapshot go."""

    @property
    def backlog_bytes(self) -> int: ...
    def write(self, chunk: bytes) -> None: ...


class SnapshotStream:
    """The messages of a peer whose snapshot at `index` is fetched."""

    def __init__(self, peer: str, index: int, sink: Sink) -> None:
        self._peer = peer
        self._index = index
        self._sink = sink
        self._begun = False

    def take(self, index: int, data: bytes, check: int) -> str | None:
        """Take one message; returns why the stream must be given up, None while it is right.

        The first message says which snapshot it is, all others have data and its CRC-32C.
        """
        if not self._begun:
            self._begun = True
            if index != self._index:
                return f"{self._peer} sent the snapshot at {index}, not at {self._index}"
            return None
        if crc32c(data) != check:
            return f"a chunk from {self._peer} does not have its checksum"
        self._sink.write(data)
        return None

    def ended(self) -> str | None:
        """The peer says that this was all; returns why that cannot be, None if it can."""
        return None if self._begun else f"{self._peer} sent an empty stream"

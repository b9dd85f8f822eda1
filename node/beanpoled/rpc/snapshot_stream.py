"""The stream of a peer's snapshot, without I/O: validation of each message.

`peer` transports the messages; the sink receives the chunks.
"""

from crc32c import crc32c

from beanpole.replication.consensus import Sink


class SnapshotStream:
    """The messages of a peer whose snapshot at `index` is fetched."""

    def __init__(self, peer: str, index: int, sink: Sink) -> None:
        self._peer = peer
        self._index = index
        self._sink = sink
        self._begun = False

    def take(self, index: int, data: bytes, check: int) -> str | None:
        """Process one message; return why the stream must be given up, None while it is right.

        The first message identifies the snapshot; all others have data and its CRC-32C.
        """
        if not self._begun:
            self._begun = True
            if index != self._index:
                return f"{self._peer} sent the snapshot at {index}, not at {self._index}"
            return None
        if crc32c(data) != check:
            return f"a chunk from {self._peer} does not have its checksum"
        self._sink.write(data)
        # A sink that accepts nothing more would let the peer send all of its snapshot.
        failure = self._sink.failure
        return None if failure is None else f"the snapshot of {self._peer}: {failure}"

    def ended(self) -> str | None:
        """Check the end of the stream; return why it cannot be complete, None if it can."""
        return None if self._begun else f"{self._peer} sent an empty stream"

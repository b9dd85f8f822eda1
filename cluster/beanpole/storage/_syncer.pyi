"""The types of syncer.c, which exists only in the compiled tree (deploy/compile.py)."""

class Syncer:
    """One thread that writes and syncs, one write at a time."""

    def __new__(cls, event_fd: int, /) -> Syncer:
        """Start the thread; it makes `event_fd`, an eventfd, readable after each write."""
    def begin(self, fd: int, data: bytes, offset: int, room: int, /) -> bool:
        """Begin to write and sync; False if a write is in progress, or its result was not taken.

        Args:
            fd: the file; it may be closed before the write ends.
            data: the bytes.
            offset: their offset in the file.
            room: the end of the zeros after the bytes, which may be written again.

        Raises:
            OSError: the file is not open.
        """
    def take(self) -> tuple[int, int] | None:
        """Return (errno or 0, microseconds) of a finished write, once; None if there is none."""
    def settle(self) -> None:
        """Wait until no write is in progress. The result must still be taken."""
    def end(self) -> None:
        """Finish the write in progress, and end the thread."""

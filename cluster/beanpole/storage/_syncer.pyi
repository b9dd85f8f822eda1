"""The types of syncer.c, which only the compiled tree has (deploy/compile.py)."""

class Syncer:
    """One thread that writes and syncs, one write at a time."""

    def __new__(cls, event_fd: int, /) -> Syncer:
        """Start the thread; it makes `event_fd`, an eventfd, readable after each write."""
    def begin(self, fd: int, data: bytes, offset: int, room: int, /) -> bool:
        """Begin to write and sync; False if a write is under way or was not taken yet.

        Args:
            fd: the file; it may be closed meanwhile.
            data: the bytes.
            offset: where they go.
            room: up to here the file has zeros behind the bytes, which may be written again.

        Raises:
            OSError: the file is not open.
        """
    def take(self) -> tuple[int, int] | None:
        """Return (errno or 0, microseconds) of a finished write, once; None if there is none."""
    def settle(self) -> None:
        """Wait until no write is under way; one that is finished is still to be taken."""
    def end(self) -> None:
        """Finish the write that is under way, and end the thread."""

"""The types of syncer.c, which only the compiled tree has (deploy/compile.py)."""

class Syncer:
    """One thread that writes and syncs, one write at a time."""

    def __new__(cls, event_fd: int, /) -> Syncer:
        """Start the thread; it makes `event_fd`, an eventfd, readable after each write."""
    def begin(self, fd: int, data: bytes, offset: int, /) -> bool:
        """Begin to write and sync; False if a write is under way or was not taken yet.

        Raises:
            OSError: the file is not open.
        """
    def take(self) -> tuple[int, int] | None:
        """Return (errno or 0, microseconds) of a finished write, once; None if there is none."""
    def end(self) -> None:
        """Finish the write that is under way, and end the thread."""

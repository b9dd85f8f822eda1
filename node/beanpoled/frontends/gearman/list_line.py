"""The lists that the clients of one node asked for: one piece in a step of the loop, for all.

A piece takes a node a millisecond or more, and what is left of a list may take a megabyte, so
neither may be multiplied by the number of clients that ask. `listings` makes the pieces.
"""

from collections.abc import Callable, Iterator
from typing import Final, final

# Lists that have begun and whose clients do not read; each may hold the names of 100,000 functions,
# a megabyte. One more ends the connection that does not read for the longest time.
UNREAD_MAX: Final = 64


@final
class Listing:
    """A list in progress.

    Attributes:
        pieces: the rest of it.
    """

    __slots__ = ("end_unread", "go_on", "pieces")

    def __init__(
        self, pieces: Iterator[bytes], go_on: Callable[[], bool], end_unread: Callable[[], None]
    ) -> None:
        """Begin.

        Args:
            pieces: the bytes of each piece.
            go_on: writes the next piece, and returns whether there is more to write now.
            end_unread: ends the connection, because its client does not read.
        """
        self.pieces = pieces
        self.go_on = go_on
        self.end_unread = end_unread


@final
class ListLine:
    """The lists of a node's clients, first come first served."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], None]) -> None:
        """Begin with an empty line."""
        self._call_soon = call_soon
        self._line: dict[Listing, None] = {}
        self._unread: dict[Listing, None] = {}  # the one that waits longest first
        self._is_stepping = False

    def join(self, listing: Listing) -> None:
        """Begin a list, or go on with one whose client reads again."""
        self._unread.pop(listing, None)
        self._line[listing] = None
        if not self._is_stepping:
            self._step()

    def pause(self, listing: Listing) -> None:
        """Keep a list whose client does not read; its `go_on` returns False."""
        self._unread[listing] = None
        if len(self._unread) > UNREAD_MAX:
            oldest = next(iter(self._unread))
            del self._unread[oldest]
            oldest.end_unread()

    def leave(self, listing: Listing) -> None:
        """Forget a list whose connection has ended."""
        self._line.pop(listing, None)
        self._unread.pop(listing, None)

    def _step(self) -> None:
        self._is_stepping = True
        if self._line:
            first = next(iter(self._line))
            if not first.go_on():
                self._line.pop(first, None)
        self._is_stepping = bool(self._line)
        if self._line:
            self._call_soon(self._step)

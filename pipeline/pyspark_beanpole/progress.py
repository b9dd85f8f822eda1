"""A live progress line for a running stream: how far it is, how far it has to go, how fast.

For batch queries, Spark itself shows progress in a terminal (see `session`).
"""

from typing import Final, NamedTuple, TextIO

from beanpole.client.terminals import moves_cursor

BAR_WIDTH: Final = 24


class Progress(NamedTuple):
    """The position and speed of a stream."""

    # The number of batches that this process has written.
    batches: int
    # The offset after the last written event, and after the last event of the cluster.
    done: int
    latest: int
    # Events a second in the last batch.
    rate: float = 0.0


class StreamLine:
    """Writes a line that is replaced on a terminal; elsewhere, one line for each batch.

    A terminal that cannot move its cursor counts as elsewhere.
    """

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._terminal = moves_cursor(output)
        self._batches = -1

    def show(self, progress: Progress) -> None:
        """Show the progress; if the output is not a terminal, only after a new batch."""
        if progress.batches == self._batches and not self._terminal:
            return
        self._batches = progress.batches
        self._write(f"\r\x1b[2K{words(progress)}" if self._terminal else f"{words(progress)}\n")

    def say(self, text: str) -> None:
        """Write a permanent line."""
        self._write(f"\r\x1b[2K{text}\n" if self._terminal else f"{text}\n")

    def end(self) -> None:
        """Keep the current line; later output begins below it."""
        if self._terminal and self._batches >= 0:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()


def words(progress: Progress) -> str:
    """Return the progress as one line."""
    latest = max(progress.latest, progress.done)
    share = progress.done / latest if latest else 1.0
    bar = "#" * int(share * BAR_WIDTH)
    return (
        f"batch {progress.batches} [{bar:<{BAR_WIDTH}}] {progress.done:,} of {latest:,} events, "
        f"{latest - progress.done:,} behind, {progress.rate:,.0f} a second"
    )

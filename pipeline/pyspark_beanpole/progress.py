"""One live line about a stream that runs: how far it is, how far there is to go, how fast.

What a batch query does Spark itself shows in a terminal (see `session`).
"""

from typing import Final, NamedTuple, TextIO

BAR_WIDTH: Final = 24


class Progress(NamedTuple):
    """Where a stream is."""

    # How many batches this process has written.
    batches: int
    # The offset behind the last event that is written, and behind the last one of the cluster.
    done: int
    latest: int
    # Events a second in the last batch.
    rate: float = 0.0


class StreamLine:
    """Writes to a terminal a line that is replaced, elsewhere one line for each batch."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._terminal = output.isatty()
        self._batches = -1

    def show(self, progress: Progress) -> None:
        """Show where the stream is; elsewhere than in a terminal only a new batch is news."""
        if progress.batches == self._batches and not self._terminal:
            return
        self._batches = progress.batches
        self._write(f"\r\x1b[2K{words(progress)}" if self._terminal else f"{words(progress)}\n")

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self._write(f"\r\x1b[2K{text}\n" if self._terminal else f"{text}\n")

    def end(self) -> None:
        """Leave the line as it is; what is printed next stands below it."""
        if self._terminal and self._batches >= 0:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()


def words(progress: Progress) -> str:
    """Return where a stream is in one line."""
    latest = max(progress.latest, progress.done)
    share = progress.done / latest if latest else 1.0
    bar = "#" * int(share * BAR_WIDTH)
    return (
        f"batch {progress.batches} [{bar:<{BAR_WIDTH}}] {progress.done:,} of {latest:,} events, "
        f"{latest - progress.done:,} behind, {progress.rate:,.0f} a second"
    )

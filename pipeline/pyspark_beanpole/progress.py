"""One live line about a stream that runs: how far it is, how far there is to go, how fast.

What a batch query does Spark itself shows in a terminal (see `session`).
"""

import json
from collections.abc import Mapping
from typing import Any, Final, TextIO

BAR_WIDTH: Final = 24


class StreamLine:
    """Writes to a terminal a line that is replaced, elsewhere one line for each batch."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._terminal = output.isatty()
        self._batch = -1

    def show(self, progress: Mapping[str, Any] | None) -> None:
        """Show what `StreamingQuery.lastProgress` says; a batch that is known is not news."""
        if progress is None or (progress["batchId"] == self._batch and not self._terminal):
            return
        self._batch = progress["batchId"]
        line = words(progress)
        self._output.write(f"\r\x1b[2K{line}" if self._terminal else f"{line}\n")
        self._output.flush()

    def end(self) -> None:
        """Leave the line as it is; what is printed next stands below it."""
        if self._terminal and self._batch >= 0:
            self._output.write("\n")


def words(progress: Mapping[str, Any]) -> str:
    """Return the progress of a stream of events in one line."""
    source = progress["sources"][0]
    done = _offset(source["endOffset"])
    latest = max(_offset(source["latestOffset"]), done)
    share = done / latest if latest else 1.0
    bar = "#" * int(share * BAR_WIDTH)
    rate = progress.get("processedRowsPerSecond") or 0.0
    return (
        f"batch {progress['batchId']} [{bar:<{BAR_WIDTH}}] {done:,} of {latest:,} events, "
        f"{latest - done:,} behind, {rate:,.0f} a second"
    )


def _offset(text: Any) -> int:
    """Return the number in an offset of the source: text of JSON, or what that means."""
    found = json.loads(text) if isinstance(text, str) else text
    return int(found["offset"]) if found else 0

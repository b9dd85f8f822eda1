"""The partial statistics of a stream, in files: pieces of contiguous offsets.

    DIR/_parts/<first>-<end>.arrow      of the events first <= offset < end

The newest piece grows batch by batch, until a new hour begins; the pieces of a finished day are
joined into one. So the cost of a batch does not grow with the day, and there are few files. Where
clocks were set back, or those of leaders differ, days alternate: then neighbours of several days
become one, because only neighbours have all events between their first and their last.

A piece is written before its events are committed, and the pieces that it replaces are removed
after that. So whenever a process dies, some pieces form a chain up to the end of the committed
events: these are valid, and all others are ignored.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from beanpole.exporting import steps
from beanpole.exporting.directory import listed
from beanpole.exports import Span
from beanpole.places import Place
from pyspark_beanpole.packing import packed, unpacked
from pyspark_beanpole.statistics.keys import DAY_US, Parts
from pyspark_beanpole.statistics.lives import spans_of
from pyspark_beanpole.statistics.parts import SCHEMAS, merged

HOUR_US: Final = DAY_US // 24
# Raised when the same events give other parts in the same columns: parts by earlier rules are made
# anew. 2: attempts that a policy ended count as failed. 3: queues of qless have no oldest job, a
# change of a buried job is no burial, a worker is present from the reservation of its first job on,
# and time-outs of qless and deletions by administrators are no worker's. 4: a move of a buried job
# to another queue is no burial. Releases up to 0.3.0 wrote no number.
RULES: Final = {b"rules": b"4"}

# So many closed pieces that can be one are joined even before their day is over: clocks that go
# forth and back begin a piece with each batch.
_LOOSE_MAX: Final = 24

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{20})\.arrow")


class Piece(NamedTuple):
    """The partial statistics of the events first <= offset < end."""

    first: int
    end: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.first:020d}-{self.end:020d}.arrow"


def packed_parts(parts: Parts) -> bytes:
    """Serialize parts for `unpacked_parts`."""
    tables = [packed(table) for table in parts.values()]
    columns = {"name": list(parts), "part": pa.array(tables, pa.binary())}
    return packed(pa.table(columns).replace_schema_metadata(RULES))


def unpacked_parts(content: Any) -> dict[str, pa.Table]:
    """Return the parts that `packed_parts` serialized.

    Raises:
        ValueError: another version wrote them.
    """
    rows = unpacked(content)
    names, tables = rows["name"].to_pylist(), rows["part"].to_pylist()
    found = {name: unpacked(table) for name, table in zip(names, tables, strict=True)}
    schemas = {name: table.schema for name, table in found.items()}
    if schemas != SCHEMAS or rows.schema.metadata != RULES:
        raise ValueError("another version wrote it")
    return found


def chain(pieces: Iterable[Piece], first: int, end: int) -> list[Piece] | None:
    """Return the shortest chain of pieces from `first` to `end`; None if there is none."""
    by_end: dict[int, list[Piece]] = {}
    for piece in pieces:
        by_end.setdefault(piece.end, []).append(piece)
    found: list[Piece] = []
    while end > first:
        before = [piece for piece in by_end.get(end, ()) if first <= piece.first < end]
        if not before:
            return None
        found.append(min(before))
        end = found[-1].first
    return found[::-1]


def joinable(days: Iterable[tuple[Piece, int]]) -> list[list[Piece]]:
    """Group neighbours whose days do not grow; return the groups in order, each contiguous.

    Args:
        days: a chain of pieces, each with the day on which it begins.

    There are at most as many groups as days, however often clocks were set back.
    """
    groups: list[tuple[list[Piece], int]] = []
    for piece, begun in days:
        group, day = [piece], begun
        while groups and groups[-1][1] >= day:
            before, _ = groups.pop()
            group = before + group
        groups.append((group, day))
    return [group for group, _ in groups]


class Pieces:
    """The pieces of one stream; only this process changes them."""

    def __init__(self, place: Place) -> None:
        """Create an empty set; call `load` or `begin` next."""
        self._place = place
        # All pieces but the newest, in order, with the days on which they begin, and their merged
        # parts; then the newest piece and its parts.
        self._closed: dict[Piece, int] = {}
        self._before: Parts = merged([])
        self._open: Piece | None = None
        self._parts: Parts = merged([])
        self._obsolete: list[Piece] = []

    def load(self, spans: Sequence[Span]) -> bool:
        """Read the pieces of the events in these ranges; return whether they are complete."""
        there = [_piece(name) for name in listed(self._place)]
        pieces = [piece for piece in there if piece is not None]
        first, end = (spans[0][0], spans[-1][1]) if spans else (0, 0)
        found = chain(pieces, first, end)
        if found is None:
            return False
        try:
            parts = {piece: self._read(piece) for piece in found}
        except (OSError, KeyError, ValueError, pa.ArrowException):
            return False
        # Earlier versions joined pieces that were no neighbours, under a name that claimed the
        # events between them.
        if any(_events(parts[piece]) != _within(piece, spans) for piece in found):
            return False
        self._obsolete = [piece for piece in pieces if piece not in parts]
        self._closed = {piece: _day(parts[piece]) for piece in found[:-1]}
        self._open = found[-1] if found else None
        self._before = merged(parts[piece] for piece in self._closed)
        self._parts = parts[self._open] if self._open is not None else merged([])
        return True

    def begin(self, first: int, end: int, parts: Parts) -> None:
        """Replace all pieces by new partial statistics of the events [first, end)."""
        self._obsolete = [*self._closed, *filter(None, [self._open]), *self._obsolete]
        self._closed, self._before = {}, merged([])
        self._open = Piece(first, end) if first < end else None
        self._parts = parts
        if self._open is not None:
            self._obsolete = [piece for piece in self._obsolete if piece != self._open]
            self._write(self._open, parts)

    def prepare(self, first: int, end: int, parts: Parts) -> "Step":
        """Write the partial statistics of a batch, merged with those of the same hour."""
        before = self._open
        grows = before is not None and _hour(self._parts) == _hour(parts)
        if grows and before is not None:
            step = Step(Piece(before.first, end), merged([self._parts, parts]), before)
        else:
            step = Step(Piece(first, end), parts, None)
        self._write(step.piece, step.parts)
        return step

    def accept(self, step: "Step") -> None:
        """Make a prepared piece valid after its events are committed; remove what it replaces."""
        if step.replaces is not None:
            self._obsolete.append(step.replaces)
        elif self._open is not None:
            self._closed[self._open] = _day(self._parts)
            self._before = merged([self._before, self._parts])
            self._join_closed(_day(step.parts))
        self._open, self._parts = step.piece, step.parts
        self.clean()

    def clean(self) -> None:
        """Remove the files of pieces that are not valid."""
        while self._obsolete:
            steps.remove(self._place, self._obsolete.pop().name)

    def together(self) -> Parts:
        """Return the partial statistics of all events."""
        return merged([self._before, self._parts])

    @property
    def put_from(self) -> int | None:
        """The id of the first job put in the whole log; 0 if the log begins with offset 0."""
        spans = [span for part in (self._before, self._parts) for span in spans_of(part["covered"])]
        if not spans:
            return None
        if spans[0].first == 0:
            return 0
        known = [span.put_from for span in spans if span.put_from >= 0]
        return known[0] if known else None

    def _join_closed(self, day: int) -> None:
        """Join closed pieces that can be one, when a new day begins or they are many."""
        is_new = day > max(self._closed.values())
        joined: dict[Piece, int] = {}
        replaced: list[Piece] = []
        for group in joinable(self._closed.items()):
            days = [self._closed[piece] for piece in group]
            if len(group) > 1 and (is_new or len(group) >= _LOOSE_MAX):
                whole = Piece(group[0].first, group[-1].end)
                self._write(whole, merged(self._read(piece) for piece in group))
                joined[whole] = min(days)
                replaced += group
            else:
                joined.update(zip(group, days, strict=True))
        # At last: a disk that fails before leaves all pieces as they were.
        self._closed = joined
        self._obsolete += replaced

    def _read(self, piece: Piece) -> Parts:
        with self._place.files.open_input_stream(self._place.at(piece.name)) as stream:
            return unpacked_parts(stream.read_buffer())

    def _write(self, piece: Piece, parts: Parts) -> None:
        steps.write_whole(self._place, piece.name, packed_parts(parts))


class Step(NamedTuple):
    """A piece that is written but not valid yet, and the piece that it replaces."""

    piece: Piece
    parts: Parts
    replaces: Piece | None


def _piece(name: str) -> Piece | None:
    match = _NAME.fullmatch(name)
    return Piece(int(match[1]), int(match[2])) if match else None


def _events(parts: Parts) -> int:
    return sum(span.events for span in spans_of(parts["covered"]))


def _within(piece: Piece, spans: Iterable[Span]) -> int:
    """Return how many of the events in these ranges belong to a piece; others are in no file."""
    return sum(max(0, min(end, piece.end) - max(first, piece.first)) for first, end in spans)


def _begun_us(parts: Mapping[str, pa.Table]) -> int:
    return min((span.begin_wall_us for span in spans_of(parts["covered"])), default=0)


def _hour(parts: Parts) -> int:
    return _begun_us(parts) // HOUR_US


def _day(parts: Parts) -> int:
    return _begun_us(parts) // DAY_US

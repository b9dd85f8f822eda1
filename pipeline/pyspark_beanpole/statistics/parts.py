"""Partial statistics: mergeable tables from which every statistic can be computed.

`reduced` makes them from the events of one range of offsets, `merged` combines those of any ranges,
in any order and any number of steps: the same events give the same numbers, however they were
split. Pure, without I/O and without Spark.

covered         spans of offsets that have been seen
transitions     events by day, tube, protocol, kind, reason, states
durations       waits and runs by day, tube, protocol, kind, bin and slot
moments         their count, sum, extremes, squared differences, and how many kept the limit
attempts        ends of jobs by outcome and attempts
workers         outcomes of reservations by worker and tube
minutes         flows and depths by tube and minute; whole_minutes: of all tubes together
left, ready     the input of `oldest`: jobs that left the ready state, and counts of those that stay
looked          jobs of the minutes that needed a second look
buried, before  single jobs: those that were buried, those that existed before
"""

from collections.abc import Collection, Iterable
from typing import Final

import pyarrow as pa

from pyspark_beanpole.statistics import counts, lives, minutes, reigns
from pyspark_beanpole.statistics.chunks import chosen, chunk_of, chunks
from pyspark_beanpole.statistics.grouping import NONE
from pyspark_beanpole.statistics.keys import DEFAULT_LIMITS, Limits, Parts

SCHEMAS: Final[dict[str, pa.Schema]] = {
    "covered": lives.COVERED,
    **counts.SCHEMAS,
    **minutes.SCHEMAS,
    "left": reigns.LEFT,
    "ready": reigns.READY_SCHEMA,
    "looked": reigns.LOOKED,
    "buried": lives.BURIED_SCHEMA,
    "before": lives.BEFORE,
}
# Partial rows of this many chunks are merged at once, which bounds the memory of a task.
FOLD_CHUNKS: Final = 16


def reduced(
    batches: Iterable[pa.RecordBatch],
    limits: Limits = DEFAULT_LIMITS,
    *,
    tubes: Collection[str] | None = None,
    put_from: int | None = None,
) -> Parts:
    """Return the partial statistics of one range of offsets.

    Args:
        batches: all events of the range in order, with `chunks.COLUMNS`; columns that an older
            version lacks are null.
        limits: the service level.
        tubes: the tubes whose events are counted; None for all.
        put_from: the first id that was put in the whole log that this range is a part of, if
            known: jobs from it on are not from before. 0 if the log begins with offset 0.
    """
    kept: list[Parts] = []
    spans: list[lives.Span] = []
    for batch in chunks(batches):
        spans = lives.joined([*spans, lives.span_of(batch)])
        if tubes is not None:
            batch = chosen(batch, tubes)
        if batch.num_rows:
            old_below = lives.old_below(spans[0]) if put_from is None else put_from
            kept.append(_reduced(batch, limits, old_below))
        if len(kept) >= FOLD_CHUNKS:
            kept = [_merged(kept, spans)]
    return {**_merged(kept, spans), "covered": lives.covered_of(spans)}


def _reduced(batch: pa.RecordBatch, limits: Limits, put_from: int) -> Parts:
    chunk = chunk_of(batch)
    return {
        **counts.reduced(chunk, limits),
        **minutes.reduced(chunk),
        **reigns.reduced(chunk),
        **lives.reduced(chunk, put_from),
    }


def merged(parts: Iterable[Parts]) -> Parts:
    """Merge the parts of ranges that do not overlap; the result of no parts is empty tables.

    Raises:
        ValueError: ranges overlap.
    """
    together = sorted(parts, key=_first)
    spans = [span for part in together for span in lives.spans_of(part["covered"])]
    joined = lives.joined(spans)
    return {**_merged(together, joined), "covered": lives.covered_of(joined)}


def with_looked(parts: Parts, found: Iterable[pa.Table]) -> Parts:
    """Return parts with the results of a second look (`reigns.looked`) at ranges of the events."""
    looked = reigns.merged("looked", pa.concat_tables([reigns.LOOKED.empty_table(), *found]))
    return {**parts, "looked": looked}


def _first(part: Parts) -> int:
    return min((span.first for span in lives.spans_of(part["covered"])), default=NONE)


def _merged(parts: list[Parts], spans: list[lives.Span]) -> Parts:
    found = {}
    for name, schema in SCHEMAS.items():
        tables = [part[name] for part in parts if name in part]
        table = pa.concat_tables(tables) if tables else schema.empty_table()
        if name in counts.SCHEMAS:
            table = counts.merged(name, table)
        elif name in minutes.SCHEMAS:
            table = minutes.merged(table, lives.firsts(spans))
        elif name == "buried":
            table = lives.merged_buried(table, spans)
        elif name == "before":
            table = lives.merged_before(table, spans)
        elif name != "covered":
            table = reigns.merged(name, table)
        found[name] = table
    return found

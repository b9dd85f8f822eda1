"""The final tables of docs/pipeline-statistics.md, computed from partial statistics.

Every function takes `Parts` (from `parts.reduced` or `parts.merged`) and returns an Arrow table in
the order of its keys. A parameter `by` selects any of KEYS; () aggregates everything.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beanpole import events as e
from beanpole.exports import UNCOUNTED
from pyspark_beanpole.statistics import counts, lives, minutes, reigns
from pyspark_beanpole.statistics.bins import SLOTS, bin_edges, bin_middles, place
from pyspark_beanpole.statistics.chunks import (
    EVENT_WORDS,
    RESERVED,
    STATE_WORDS,
    completes,
    failing,
    outcomes,
)
from pyspark_beanpole.statistics.counts import LONG, TEXT
from pyspark_beanpole.statistics.grouping import (
    Floats,
    Ints,
    Shape,
    coded,
    folded,
    grouped,
    ints,
    numbered,
    table_groups,
)
from pyspark_beanpole.statistics.keys import DEPTHS, KEYS, MINUTE_US, OUTCOMES, SECOND_US, Parts

PERCENTILES: Final = (50, 90, 95, 99)
# The kinds of events that `throughput` counts by their name.
NAMED: Final = (
    *("reserved", "touched", "released", "returned", "timed_out", "buried", "kicked", "due"),
    *("failed", "moved", "blocked", "unblocked"),
)
# Events that end a reservation without completing its job.
FAILURES: Final = (e.RELEASED, e.RETURNED, e.TIMED_OUT, e.BURIED, e.FAILED, e.EXPIRED)
# The reason of events that carry none: the worker gave none, as its protocol has no word for it.
UNSAID: Final = "unsaid"
_DOUBLE: Final = pa.float64()


def finished(
    parts: Parts, start: pa.Table | None = None, known_min: int = 0
) -> dict[str, pa.Table]:
    """Return all tables, by name.

    Args:
        parts: complete; `oldest` is exact if the minutes that `unresolved` names were looked at.
        start: (tube, DEPTHS...): the number of jobs before the first event, if known; otherwise
            it is derived from the events of those jobs (`before`).
        known_min: the minute until which no event follows the last one, if the log goes on after
            it; depths and the oldest jobs hold until then.
    """
    depths = depth(parts, start, known_min)
    return {
        "throughput": throughput(parts),
        "times": times(parts),
        "histogram": slots(parts),
        "attempts": attempts(parts),
        "failures": failures(parts),
        "workers": workers(parts),
        "dead_letters": dead_letters(parts),
        "depth": depths,
        "whole_depth": whole_depth(parts, start, known_min),
        "backlog": backlog(depths),
        "slo": levels(parts),
        "oldest": oldest(parts, known_min),
    }


class _Answer:
    """Builds the columns of a table, with one value for each group of rows of another table."""

    def __init__(self, table: pa.Table, by: Sequence[str]) -> None:
        self.groups = table_groups(table, by)
        firsts = pa.array(self.groups.firsts)
        self._by = by
        self._columns: dict[str, Any] = {name: table[name].take(firsts) for name in by}

    def put(self, name: str, values: Any, kind: pa.DataType | None = None) -> None:
        self._columns[name] = pa.array(values, kind) if isinstance(values, np.ndarray) else values

    def done(self) -> pa.Table:
        table = pa.table(self._columns)
        return table.sort_by([(name, "ascending") for name in self._by]) if self._by else table


def throughput(parts: Parts, by: Sequence[str] = KEYS) -> pa.Table:
    """Return the flows: puts, ends, growth, and the numbers of other events.

    `done` were ended by the worker that held them, `removed` deleted in any other way; `given_up`
    failed for good, `expired` are those whose TTL ended first.
    """
    table = parts["transitions"]
    event = coded(table["event"], EVENT_WORDS).codes
    before, after = (coded(table[n], STATE_WORDS).codes for n in ("state_before", "state"))
    complete = completes(event, coded(table["protocol"]), coded(table["reason"]))
    outcome = outcomes(event, before, after, complete)
    events = ints(table, "events")
    answer = _Answer(table, by)

    def total(chosen: Ints, amounts: Ints = events) -> Ints:
        return answer.groups.summed(np.where(chosen, amounts, 0))

    puts = total(event == e.PUT)
    ends = [total(outcome == number) for number in range(len(OUTCOMES))]
    answer.put("puts", puts)
    answer.put("put_bytes", total(event == e.PUT, ints(table, "body_bytes")))
    for name, amount in zip(OUTCOMES, ends, strict=True):
        answer.put(name, amount)
    answer.put("growth", puts - sum(ends))
    for name in NAMED:
        answer.put(name, total(event == EVENT_WORDS.index(name)))
    return answer.done()


def times(parts: Parts, by: Sequence[str] = KEYS) -> pa.Table:
    """Return wait and run times in seconds, for each of `by` and kind.

    count, mean_s, std_s (of a sample: null for one), p50_s to p99_s (within 1 %), min_s, max_s,
    total_s.
    """
    keys = (*by, "kind")
    table = counts.merged_moments(parts["moments"], keys)
    table = table.sort_by([(name, "ascending") for name in keys])
    count = ints(table, "count")
    total_s = ints(table, "total_s") + ints(table, "total_us") / SECOND_US
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = table["m2_us2"].to_numpy() / (count - 1)
    found = {name: table[name] for name in keys}
    found["count"] = table["count"]
    found["mean_s"] = pa.array(total_s / count)
    found["std_s"] = pa.array(np.sqrt(np.maximum(variance, 0)) / SECOND_US, mask=count < 2)
    ranks = percentiles(parts, by, PERCENTILES)
    for percent in PERCENTILES:
        found[f"p{percent}_s"] = ranks[f"p{percent}_s"]
    for name in ("min", "max"):
        found[f"{name}_s"] = pa.array(ints(table, f"{name}_us") / SECOND_US)
    found["total_s"] = pa.array(total_s)
    return pa.table(found)


def percentiles(parts: Parts, by: Sequence[str], percents: Sequence[float]) -> pa.Table:
    """Return p<percent>_s for each of `by` and kind: the value not exceeded by that share.

    The value is the middle of its bin, clipped to the minimum and the maximum. Percentile 0 is
    the exact minimum and 100 the exact maximum.
    """
    keys = (*by, "kind")
    order = [(name, "ascending") for name in keys]
    moments = counts.merged_moments(parts["moments"], keys).sort_by(order)
    table = _bins(parts, by)
    starts = np.sort(table_groups(table, keys).firsts)
    amount, middle_us = ints(table, "count"), bin_middles(ints(table, "bin"))
    sums = np.cumsum(amount)
    before = (sums - amount)[starts]
    count = ints(moments, "count")
    least, most = ints(moments, "min_us"), ints(moments, "max_us")
    found = {name: moments[name] for name in keys}
    for percent in percents:
        # Computed in integers, because 0.95 has no exact float: the smallest rank that reaches the
        # share.
        millionths = round(percent * 10_000)
        rank = np.maximum(-(-count * millionths // 1_000_000), 1)
        at = middle_us[np.searchsorted(sums, before + rank)] if len(starts) else least
        value = np.clip(at, least, most)
        value = least if percent == 0 else most if percent == 100 else value
        found[f"p{percent}_s"] = pa.array(value / SECOND_US)
    return pa.table(found)


def _bins(parts: Parts, by: Sequence[str], column: str = "bin") -> pa.Table:
    table = parts["durations"].select([*by, "kind", column, "count"])
    table = folded(table, Shape((*by, "kind", column), ("count",)))
    return table.sort_by([(name, "ascending") for name in (*by, "kind", column)])


def bins(parts: Parts, by: Sequence[str] = KEYS) -> pa.Table:
    """Return the finest histogram: from_us, width_us, count, for each of `by`, kind and bin."""
    table = _bins(parts, by)
    from_us, width_us = bin_edges(ints(table, "bin"))
    table = table.append_column("from_us", pa.array(from_us, LONG))
    table = table.append_column("width_us", pa.array(width_us, LONG))
    return table.select([*by, "kind", "bin", "from_us", "width_us", "count"])


def slots(parts: Parts, by: Sequence[str] = KEYS) -> pa.Table:
    """Return the histogram in qless's slots, for each of `by`, kind and slot in use.

    label, from_s, width_s, count, and count_per_s, the value for a plot.
    """
    table = _bins(parts, by, "slot")
    amount = ints(table, "count")
    places = [place(number) for number in table["slot"].to_pylist()]
    width_s = np.array([width for _, _, width in places], np.int64)
    found = {name: table[name] for name in (*by, "kind", "slot")}
    found["label"] = pa.array([label for label, _, _ in places], TEXT)
    found["from_s"] = pa.array([begin for _, begin, _ in places], LONG)
    found["width_s"] = pa.array(width_s, LONG)
    found["count"] = table["count"]
    found["count_per_s"] = pa.array(amount / width_s if len(width_s) else [], _DOUBLE)
    return pa.table(found)


def slot_lists(parts: Parts, by: Sequence[str] = KEYS) -> pa.Table:
    """Return `histogram`, a list of 148 counts, as qless's `stats` command shows it."""
    table = _bins(parts, by, "slot")
    groups = table_groups(table, (*by, "kind"))
    shown = np.zeros((groups.size, SLOTS), np.int64)
    slot, amount = ints(table, "slot"), ints(table, "count")
    few = slot < SLOTS
    shown[groups.of[few], slot[few]] = amount[few]
    found = {name: table[name].take(pa.array(groups.firsts)) for name in (*by, "kind")}
    found["histogram"] = pa.array(list(shown), pa.list_(LONG))
    return pa.table(found)


def attempts(parts: Parts, by: Sequence[str] = KEYS) -> pa.Table:
    """Return the number of ended jobs for each of `by`, outcome, and number of attempts."""
    return _summed(parts["attempts"], (*by, "outcome", "attempts"), ("jobs",))


def _summed(table: pa.Table, keys: Sequence[str], sums: Sequence[str]) -> pa.Table:
    found = folded(table.select([*keys, *sums]), Shape(tuple(keys), tuple(sums)))
    return found.sort_by([(name, "ascending") for name in keys])


def failures(parts: Parts, by: Sequence[str] = KEYS) -> pa.Table:
    """Return how often each (event, reason) ended a reservation without completing its job.

    Columns: count, and run_s, the seconds spent on these reservations.
    """
    table = parts["transitions"]
    event = coded(table["event"], EVENT_WORDS).codes
    before = coded(table["state_before"], STATE_WORDS).codes
    reasons = coded(table["reason"])
    taken = ~completes(event, coded(table["protocol"]), reasons)
    ended = np.isin(event, FAILURES) | ((event == e.DELETED) & taken)
    failed = (ended & (before == RESERVED)) | failing(event, before, reasons)
    table = table.filter(pa.array(failed))
    reason = table["reason"].fill_null(UNSAID)
    table = table.set_column(table.schema.get_field_index("reason"), "reason", reason)
    found = _summed(table, (*by, "event", "reason"), ("events", "run_s", "run_us"))
    run_s = ints(found, "run_s") + ints(found, "run_us") / SECOND_US
    found = found.select([*by, "event", "reason", "events"])
    found = found.rename_columns([*by, "event", "reason", "count"])
    return found.append_column("run_s", pa.array(run_s, _DOUBLE))


def levels(parts: Parts, by: Sequence[str] = KEYS) -> pa.Table:
    """Return the service levels: count, within and their share, for each of `by`, kind, limit_s."""
    table = parts["moments"]
    table = table.filter(pa.array(ints(table, "limit_us") != counts.UNLIMITED_US))
    keys = (*by, "kind", "limit_us")
    found = _summed(table, keys, ("count", "within"))
    amount, within = ints(found, "count"), ints(found, "within")
    columns = {name: found[name] for name in (*by, "kind")}
    columns["limit_s"] = pa.array(ints(found, "limit_us") / SECOND_US, _DOUBLE)
    columns |= {name: found[name] for name in ("count", "within")}
    columns["share"] = pa.array(within / np.maximum(amount, 1), _DOUBLE)
    return pa.table(columns)


def workers(parts: Parts) -> pa.Table:
    """Return a row for each worker: its utilisation, and its failures compared with all workers.

    `utilisation` is the average number of jobs it held while it was present, from its first event,
    or from the beginning of a reservation that ended, to its last event: 1 is a worker that always
    had one job. Jobs that it still holds at the end do not count yet.
    """
    table = parts["workers"]
    answer = _Answer(table, ("worker",))
    groups = answer.groups
    sums = {name: groups.summed(ints(table, name)) for name in counts.WORKER_SUMS}
    busy_s = sums["run_s"] + sums["run_us"] / SECOND_US
    present_s = np.zeros(0)
    if groups.size:
        first, last = groups.least(ints(table, "first_us")), groups.most(ints(table, "last_us"))
        present_s = (last - first) / SECOND_US
    answer.put("tubes", np.bincount(groups.of, minlength=groups.size).astype(np.int64))
    for name in ("reservations", "done", "released", "buried", "timed_out", "returned"):
        answer.put(name, sums[name])
    answer.put("lost_leases", sums["lost_leases"])
    answer.put("failed", sums["failed"])
    answer.put("failed_share", _share(sums["failed"], sums["ends"]), _DOUBLE)
    fleet = _share(sums["failed"].sum(keepdims=True), sums["ends"].sum(keepdims=True))
    answer.put("fleet_failed_share", pa.array(fleet.to_pylist() * groups.size, _DOUBLE))
    answer.put("busy_s", busy_s)
    answer.put("present_s", present_s)
    answer.put("utilisation", _share(busy_s, present_s), _DOUBLE)
    return answer.done()


def _share(part: Floats, whole: Floats) -> pa.Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return pa.array(part / whole, _DOUBLE, mask=np.asarray(whole) == 0)


def dead_letters(parts: Parts) -> pa.Table:
    """Return a row for each job that is buried at the end, with its state at the burial."""
    table = lives.letters(parts["buried"]).drop_columns(["state"])
    names = ["buried_at" if name == "wall_time" else name for name in table.schema.names]
    return table.rename_columns(names).sort_by("offset")


def before(parts: Parts) -> pa.Table:
    """Return (tube, DEPTHS...): the number of jobs before the first event.

    It is derived from the events of these jobs; a job without events is not counted. Empty if the
    log begins with offset 0.
    """
    return lives.before(parts["before"], lives.spans_of(parts["covered"]))


def started(parts: Parts, jobs_before: Mapping[str, int]) -> pa.Table:
    """Return `before`, plus a row without a tube for the jobs that are known only by number.

    Args:
        parts: complete.
        jobs_before: the number of jobs in each state before the first event, in all tubes,
            according to the cluster or the manifest of an export.
    """
    table = before(parts)
    counted = table.filter(pc.invert(pc.starts_with(table["tube"], UNCOUNTED)))
    unseen = {
        state: max(0, jobs_before.get(state, 0) - sum(counted[state].to_pylist()))
        for state in DEPTHS
    }
    if not any(unseen.values()):
        return table
    row = {"tube": [None], **{state: [count] for state, count in unseen.items()}}
    return pa.concat_tables([table, pa.table(row, table.schema)])


def depth(parts: Parts, start: pa.Table | None = None, known_min: int = 0) -> pa.Table:
    """Return flows and depths of each tube and minute with events."""
    start = before(parts) if start is None else start
    return minutes.depths(parts["minutes"], start, _end_min(parts, known_min))


def whole_depth(parts: Parts, start: pa.Table | None = None, known_min: int = 0) -> pa.Table:
    """Return `depth` for all tubes together, with the maxima of their sum."""
    start = before(parts) if start is None else start
    return minutes.depths(parts["whole_minutes"], start, _end_min(parts, known_min))


def _end_min(parts: Parts, known_min: int) -> int:
    """Return the end of the log in minutes, which a tube may determine that was not selected."""
    walls = [span.until_wall_us for span in lives.spans_of(parts["covered"])]
    return max(max(walls, default=0) // MINUTE_US + 1, known_min)


def backlog(depths: pa.Table) -> pa.Table:
    """Return the stretches of whole minutes with ready jobs at their end and no reservation.

    (tube, begin, until, ready, minutes), from the table of `depth`; `ready` is the maximum of
    ready jobs at the end of one of the minutes.
    """
    time = pa.timestamp("us", "UTC")
    minute, until, ready = (ints(depths, name) for name in ("minute", "until", "ready"))
    # A minute with reservations is not idle, but the minutes that follow it without a row are.
    begin = np.where(ints(depths, "reservations") > 0, minute + MINUTE_US, minute)
    rows = np.flatnonzero((ready > 0) & (begin < until))
    tube = numbered(depths["tube"])[rows]
    begin, until, ready = begin[rows], until[rows], ready[rows]
    new = np.ones(len(rows), bool)
    new[1:] = (tube[1:] != tube[:-1]) | (begin[1:] != until[:-1])
    groups = grouped(np.cumsum(new))
    start, end = groups.least(begin), groups.most(until)
    return pa.table(
        {
            "tube": depths["tube"].take(pa.array(rows[groups.firsts])),
            "begin": pa.array(start).cast(time),
            "until": pa.array(end).cast(time),
            "ready": pa.array(groups.most(ready)),
            "minutes": pa.array((end - start) // MINUTE_US),
        }
    )


def unresolved(parts: Parts) -> pa.Table:
    """Return the minutes that `reigns.looked` has to look at to make `oldest` exact."""
    return reigns.unresolved(parts["ready"], _begun_us(parts))


def _begun_us(parts: Parts) -> int | None:
    spans = lives.spans_of(parts["covered"])
    return None if not spans or spans[0].first == 0 else spans[0].begin_time_us


def oldest(parts: Parts, known_min: int = 0) -> pa.Table:
    """Return the reigns of the oldest ready jobs: (tube, begin, until, job_id, ready_since).

    At a full minute T with `begin <= T < until` the age of the tube's oldest ready job is
    `T - ready_since`; without a row, no job was ready. For a job that is still ready at the end
    and was not looked for, `job_id` is null and `ready_since` up to a minute too early.
    """
    spans = [span for span in lives.spans_of(parts["covered"]) if span.events]
    if not spans:
        return reigns.REIGNS.empty_table()
    eldest = reigns.still(parts["ready"], parts["looked"], _begun_us(parts))
    last = spans[-1]
    return reigns.reigns(parts["left"], eldest, last.last_wall_us, last.last_time_us, known_min)

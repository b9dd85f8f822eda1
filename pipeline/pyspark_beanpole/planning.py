"""Plan the tasks of a read: turn the options and the extent of the log into ranges of offsets."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql.datasource import InputPartition

from beanpole.client.events import Events, EventsLost, Extent
from beanpole.client.rpc import told
from beanpole.errors import ConfigurationError
from pyspark_beanpole.logs import log
from pyspark_beanpole.options import EARLIEST, Position, ReadOptions
from pyspark_beanpole.packing import rows_of

# A task reads this many events in less than a second; a smaller task would cost more to start.
TASK_ROWS_MAX: Final = 250_000
# The last second that has a date; options allow later times.
TOLD_US_MAX: Final = 253_402_300_799_000_000


@dataclass
class Range(InputPartition):
    """The events [first, end) of one task, and the nodes to ask, in order of preference."""

    first: int
    end: int
    addresses: tuple[str, ...]


def bounds(events: Events, options: ReadOptions) -> tuple[Extent, int, int]:
    """Return the cluster's extent, the first offset to read and the end, both fixed now.

    Raises:
        ConfigurationError: the offsets do not fit the cluster or each other.
        EventsLost: the first event is gone, or may be, and `fail_on_data_loss` is set, or a node
            that does not answer may have it.
        ClientError: no node answers, or none has the events yet.
    """
    end_known = max(options.starting.offset or 0, options.ending.offset or 0)
    if options.starting_wall_us or EARLIEST in (options.starting.word, options.ending.word):
        extent = events.whole(end_known, options.starting_wall_us)
        if options.starting_wall_us or extent.first:
            warn_of_silent(extent)
    else:
        # The end is fixed now, so it should come from the most advanced node.
        extent = events.extent_to(end_known, options.starting.offset, options.silent_patience_s)
    if options.starting_wall_us:
        first = extent.at_wall
        if extent.is_after_hole:
            _check_complete(events, extent, options)
    else:
        first = _resolved("startingOffsets", options.starting, extent)
    end = _resolved("endingOffsets", options.ending, extent)
    if options.ending_wall_us:
        end = events.whole(first, options.ending_wall_us).at_wall
    if first > end:
        starting = "startingTimestamp" if options.starting_wall_us else "startingOffsets"
        ending = "endingTimestamp" if options.ending_wall_us else "endingOffsets"
        raise ConfigurationError(
            f"{starting} (offset {first}) lies behind {ending} (offset {end}) of cluster "
            f"{extent.cluster!r}"
        )
    return extent, kept(extent, first, end, options.fail_on_data_loss), end


def warn_of_silent(extent: Extent) -> None:
    """Log the nodes that did not answer and may have earlier events."""
    if extent.failures:
        log.warning("nodes that did not answer may have earlier events: %s", told(extent.failures))


def kept(extent: Extent, first: int, end: int, fail_on_data_loss: bool) -> int:
    """Return the offset to begin at: `first`, or the earliest that a node still keeps.

    Raises:
        EventsLost: `first` is gone, and `fail_on_data_loss` is set; or it may be gone: a node that
            does not answer may have it.
    """
    if first >= min(extent.first, end):
        return first
    if fail_on_data_loss or extent.failures:
        raise EventsLost(first, extent.first, extent.failures)
    log.warning("events %d to %d are gone; reading from there", first, extent.first)
    return min(extent.first, end)


def _check_complete(events: Events, extent: Extent, options: ReadOptions) -> None:
    """Refuse a time for which the event before the first one is gone.

    Only the time of the first one could show that those before it are older than that.

    Raises:
        EventsLost: there may have been earlier events since the time, and `fail_on_data_loss` is
            set, or a node that does not answer may have them.
        ClientError: the first event cannot be read.
    """
    first = extent.at_wall
    since = _told_us(options.starting_wall_us)
    if not options.fail_on_data_loss and not extent.failures:
        log.warning("events since %s may be gone; reading from %d", since, first)
        return
    kept_us = _wall_us_of(events, extent)
    if kept_us is not None and kept_us <= options.starting_wall_us:
        return
    at = "" if kept_us is None else f", at {_told_us(kept_us)}"
    which = "earliest offset" if first == extent.first else "first offset since then"
    raise EventsLost(
        first - 1,
        first,
        extent.failures,
        f"events since {since} may be gone: the {which} that is kept is {first}{at}",
    )


def _wall_us_of(events: Events, extent: Extent) -> int | None:
    """Return the wall time of the event `at_wall`; None if there is none."""
    for piece in events.read(extent.at_wall, min(extent.at_wall + 1, extent.end)):
        moment: datetime = rows_of(piece).column("wall_time")[0].as_py()
        return round(moment.timestamp() * 1_000_000)
    return None


def _told_us(wall_us: int) -> str:
    return datetime.fromtimestamp(min(wall_us, TOLD_US_MAX) / 1_000_000, UTC).isoformat()


def check_cluster(name: str, birth: str, extent: Extent) -> None:
    """Refuse offsets of another cluster.

    Args:
        name: of the offset's cluster.
        birth: its birth id; empty if it is not known.
        extent: what the addresses have.

    Raises:
        ConfigurationError: the name is not that of the cluster, or its birth id is another one.
    """
    if name != extent.cluster:
        raise ConfigurationError(
            f"the offset is of cluster {name!r}, the addresses are of cluster {extent.cluster!r}; "
            "a stream goes on with the cluster that it began with"
        )
    if birth and extent.birth and birth != extent.birth:
        raise ConfigurationError(
            f"the offset is of the cluster {name!r} with the birth id {birth}, the addresses are "
            f"of the one with {extent.birth}, which was restored, recovered or begun anew: begin "
            "with a new checkpoint"
        )


def split(first: int, end: int, options: ReadOptions) -> list[Range]:
    """Split [first, end) into one or more tasks, whose reads begin at different nodes."""
    rows = end - first
    count = max(1, min(rows, max(options.min_partitions, -(-rows // TASK_ROWS_MAX))))
    return spread(first, end, count, options.addresses)


def spread(first: int, end: int, count: int, addresses: tuple[str, ...]) -> list[Range]:
    """Split [first, end) into `count` ranges of like size, whose reads begin at different nodes."""
    rows = end - first
    ranges = []
    for number in range(count):
        turn = number % len(addresses)
        ranges.append(
            Range(
                first + rows * number // count,
                first + rows * (number + 1) // count,
                addresses[turn:] + addresses[:turn],
            )
        )
    return ranges


def _resolved(name: str, position: Position, extent: Extent) -> int:
    if position.offset is None:
        return extent.first if position.word == EARLIEST else extent.end
    if position.cluster:
        check_cluster(position.cluster, position.birth, extent)
    if position.offset > extent.end:
        raise ConfigurationError(
            f"{name} = {position.offset} lies beyond the end, {extent.end}, of cluster "
            f"{extent.cluster!r}"
        )
    return position.offset

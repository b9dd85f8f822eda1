"""`beanpole pipeline job`: print the life of one job, without Spark and without Java."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from beanpole.client.events import Events, EventsLost
from beanpole.exporting.kinds import check_columns
from beanpole.numbers import whole_within
from beanpole.places import resolved
from pyspark_beanpole.cli import common
from pyspark_beanpole.packing import rows_of

if TYPE_CHECKING:
    from beanpole.exports import File
    from pyspark_beanpole.exports import Opened
    from pyspark_beanpole.ranges import Source

EXIT_UNKNOWN: Final = 1
# Ids of jobs are positive signed 64-bit integers.
ID_MAX: Final = 2**63 - 1
NO_JOB: Final = 0
# At most this many earlier jobs with an external id are named: Gearman's clients may reuse one.
NAMED_MAX: Final = 20


def add_command(commands: Any) -> None:
    """Add `job` to the parser."""
    parser = commands.add_parser("job", help="print the life of one job, event by event")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("id", type=_id, nargs="?", metavar="ID", help="the job's id")
    which.add_argument(
        "--external-id",
        type=_external_id,
        metavar="TEXT",
        help="what its client calls it: a UUID of Workq, a unique of Gearman; reads all events",
    )
    common.add_input(parser)
    parser.add_argument("--json", action="store_true", help="print it for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the life of a job; return 1 if it has no event."""
    from pyspark_beanpole.life import as_json, life_of, lines

    common.find_nodes(arguments)
    looked = _served(arguments) if arguments.directory is None else _exported(arguments)
    job_id, words = arguments.id, f"job {arguments.id}"
    if job_id is None:
        words = f"a job with the external id {arguments.external_id!r}"
        job_id = _named(looked, arguments.external_id)
    life = life_of(job_id, looked.batches(job_id))
    if not life.events:
        print(
            f"beanpole: no event of {words} in cluster {looked.cluster}: "
            f"{_searched(looked.source)}",
            file=sys.stderr,
        )
        return EXIT_UNKNOWN
    if arguments.json:
        print(json.dumps(as_json(life, looked.cluster), indent=2))
    else:
        print("\n".join(lines(life, looked.cluster)))
    return 0


def _named(looked: "_Looked", external_id: str) -> int:
    """Return the newest job's id for an external id, and print the older ones; NO_JOB if none."""
    from pyspark_beanpole.life import ids_of

    found = sorted(ids_of(external_id, looked.batches(None)))
    if not found:
        return NO_JOB
    *others, newest = found
    if others:
        named = ", ".join(map(str, others[-NAMED_MAX:]))
        more = f" (the newest {NAMED_MAX} of {len(others)})" if len(others) > NAMED_MAX else ""
        print(f"beanpole: earlier jobs had this external id: {named}{more}", file=sys.stderr)
    return newest


class _Looked(NamedTuple):
    """The events to search for a job, and their source."""

    cluster: str
    source: "Source"
    # Returns, in order, batches that contain all events of the given job; for None, all events.
    batches: Callable[[int | None], Iterator[pa.RecordBatch]]


def _searched(source: "Source") -> str:
    """Describe the events that were searched."""
    from pyspark_beanpole.report.figures import clock

    edges, ranges = source.edges(), source.ranges()
    if edges is None or not ranges:
        return "there are no events"
    first, end = ranges[0].first, ranges[-1].end
    lost = end - first - sum(one.end - one.first for one in ranges)
    but = f" but for {lost:,} that are missing" if lost else ""
    return (
        f"searched offsets {first} to {end - 1}{but}, {clock(edges.begin_us)} to "
        f"{clock(edges.last_us)} UTC"
    )


def _exported(arguments: argparse.Namespace) -> _Looked:
    from pyspark_beanpole.ranges import ExportSource

    export = common.export(arguments)
    assert export is not None, "--from was given"
    return _Looked(export.cluster, ExportSource(export), partial(_of_export, export))


def _of_export(export: "Opened", job_id: int | None) -> Iterator[pa.RecordBatch]:
    """Read the parts of files that may have events of a job, according to their metadata."""
    from pyspark_beanpole.life import COLUMNS, NAMES

    if job_id is None:
        yield from export.read(columns=NAMES)
        return
    for file in export.files:
        first, end = _span(export, file, job_id)
        if first < end:
            yield from export.read(first, end, columns=COLUMNS)


def _span(export: "Opened", file: "File", job_id: int) -> tuple[int, int]:
    """Return the offsets of a file that may belong to a job; all of them without statistics."""
    place = resolved(export.directory)
    try:
        metadata = pq.read_metadata(place.at(file.name), filesystem=place.files)
    except (OSError, pa.ArrowException):
        # Reading the file reports the error, or finds the file that replaced it.
        return file.first, file.end
    check_columns(place, file, metadata)
    first, found = file.first, []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        end = first + group.num_rows
        known = [
            column.statistics
            for column in map(group.column, range(group.num_columns))
            if column.path_in_schema == "job_id" and column.statistics is not None
        ]
        if all(values.min <= job_id <= values.max for values in known if values.has_min_max):
            found += [first, end]
        first = end
    return (found[0], found[-1]) if found else (file.first, file.first)


def _served(arguments: argparse.Namespace) -> _Looked:
    """Return all events that the nodes keep."""
    from pyspark_beanpole.ranges import ClusterSource

    nodes = Events(arguments.addresses, arguments.patience)
    extent = nodes.extent()
    source = ClusterSource(tuple(arguments.addresses), extent.first, extent.end, arguments.patience)
    return _Looked(extent.cluster, source, lambda _: _read(nodes, extent.first, extent.end))


def _read(nodes: Events, first: int, end: int) -> Iterator[pa.RecordBatch]:
    with nodes:
        while first < end:
            try:
                for piece in nodes.read(first, end):
                    yield rows_of(piece)
                    first = piece.end
            except EventsLost as lost:
                # The nodes may drop their oldest events during the read.
                if lost.kept <= first:
                    raise
                print(f"beanpole: {lost}", file=sys.stderr)
                first = lost.kept


def _external_id(given: str) -> str:
    if not given:
        raise argparse.ArgumentTypeError("'' is no external id: jobs without one have none")
    return common.text(given)


def _id(text: str) -> int:
    found = whole_within(text, 1, ID_MAX)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a job id: it must be 1 to {ID_MAX}")
    return found

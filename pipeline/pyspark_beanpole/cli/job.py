"""`beanpole pipeline job`: the life of one job, read without Spark and without Java."""

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from beanpole.client.events import Events, EventsLost
from beanpole.errors import ProtocolError
from pyspark_beanpole.cli import common

EXIT_UNKNOWN: Final = 1
# Ids of jobs have 64 bits and begin with 1.
ID_MAX: Final = 2**63 - 1


def add_command(commands: Any) -> None:
    """Add `job` to the parser."""
    parser = commands.add_parser("job", help="print the life of one job, event by event")
    parser.add_argument("id", type=_id, metavar="ID", help="the job's id")
    common.add_input(parser)
    parser.add_argument("--json", action="store_true", help="print it for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the life of a job; the exit status is 1 if there is no event of it."""
    from pyspark_beanpole.life import as_json, life_of, lines

    cluster, batches = _exported(arguments) if arguments.directory else _served(arguments)
    life = life_of(arguments.id, batches)
    if not life.events:
        searched = "there are no events"
        if life.begin is not None and life.until is not None:
            searched = (
                f"searched offsets {life.first} to {life.last}, {life.begin:%Y-%m-%d %H:%M:%S} to "
                f"{life.until:%Y-%m-%d %H:%M:%S} UTC"
            )
        print(
            f"beanpole: no event of job {arguments.id} in cluster {cluster}: {searched}",
            file=sys.stderr,
        )
        return EXIT_UNKNOWN
    if arguments.json:
        print(json.dumps(as_json(life, cluster), indent=2))
    else:
        print("\n".join(lines(life, cluster)))
    return 0


def _exported(arguments: argparse.Namespace) -> tuple[str, Iterator[pa.RecordBatch]]:
    found = common.export(arguments)
    assert found is not None, "--from was given"
    return found.cluster, found.read()


def _served(arguments: argparse.Namespace) -> tuple[str, Iterator[pa.RecordBatch]]:
    """Return the events that the nodes keep, from the earliest on."""
    nodes = Events(arguments.addresses)
    extent = nodes.extent()
    return extent.cluster, _read(nodes, extent.first, extent.end)


def _read(nodes: Events, first: int, end: int) -> Iterator[pa.RecordBatch]:
    with nodes:
        while first < end:
            try:
                for piece in nodes.read(first, end):
                    with pa.ipc.open_stream(piece.arrow) as stream:
                        batch = stream.read_next_batch()
                    rows = piece.end - piece.first
                    if batch.num_rows < piece.skip + rows:
                        raise ProtocolError(f"a batch of events has only {batch.num_rows} rows")
                    yield batch.slice(piece.skip, rows)
                    first = piece.end
            except EventsLost as lost:
                # The nodes may drop their oldest events while they are read.
                if lost.kept <= first:
                    raise
                print(f"beanpole: {lost}", file=sys.stderr)
                first = lost.kept


def _id(text: str) -> int:
    found = int(text) if text.isascii() and text.isdecimal() else 0
    if not 1 <= found <= ID_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a job id: it must be 1 to {ID_MAX}")
    return found

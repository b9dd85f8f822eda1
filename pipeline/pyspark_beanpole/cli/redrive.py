"""`beanpole pipeline redrive`: put buried or delayed jobs back to work, chosen with SQL."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from beanpole.client.admin import Admin
from beanpole.client.events import BegunAnew, Events, Extent
from beanpole.client.exiting import EXIT_NO_ANSWER
from beanpole.client.rpc import Nodes
from beanpole.client.terminals import visible
from beanpole.errors import ClientError, ConfigurationError
from beanpole.places import shown
from pyspark_beanpole.cli import common
from pyspark_beanpole.kicking import STATES, Kicks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pyspark_beanpole.exports import Opened
    from pyspark_beanpole.inputs import Input

EXIT_NO: Final = 1
TUBES_SHOWN_MAX: Final = 50


def add_command(commands: Any) -> None:
    """Add `redrive` to the parser."""
    parser = commands.add_parser(
        "redrive",
        help="put buried jobs back to work, chosen with SQL",
        description="--where sees the columns of each job's latest event (docs/pipeline.md).",
    )
    common.add_addresses(parser)
    parser.add_argument(
        "--from",
        dest="directory",
        metavar="DIR",
        help="choose by exported events, which may be older than what the nodes keep",
    )
    common.add_allow_missing(parser)
    parser.add_argument(
        "--where",
        type=common.text,
        default="true",
        metavar="SQL",
        help="for instance: tube = 'mail' AND buries < 3",
    )
    parser.add_argument("--state", choices=tuple(STATES), default="buried", help="default: buried")
    parser.add_argument("--dry-run", action="store_true", help="only show which jobs it would be")
    common.add_spark(parser)
    common.set_run(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Show the chosen jobs, and kick them unless --dry-run is given."""
    spark = common.spark(arguments)
    from pyspark_beanpole.redriving import chosen, count, counted

    def choose(found: "Input") -> "tuple[DataFrame, int]":
        jobs = chosen(found.events, arguments.state, arguments.where)
        return jobs, count(jobs, arguments.where)

    export = common.export(arguments)
    if export is not None:
        _check_cluster(export, arguments.addresses, arguments.patience)
    jobs, total = common.read(arguments, spark, choose)
    print(f"{total:,} {arguments.state} jobs")
    for row in counted(jobs).limit(TUBES_SHOWN_MAX).collect():
        print(visible(f"{row.jobs:>12,}  {row.tube}  {row.event}  {row.reason or '-'}"))
    if arguments.dry_run or not total:
        return 0 if total else EXIT_NO
    return _kick(arguments, jobs)


def _kick(arguments: argparse.Namespace, jobs: "DataFrame") -> int:
    """Kick the chosen jobs and print the counts, also of a command that is broken off."""
    rows = jobs.select("tube", "job_id").orderBy("tube", "job_id").toLocalIterator()
    kicks = Kicks(arguments.state)
    try:
        with Nodes(arguments.addresses, arguments.patience) as nodes:
            kicks.kick(Admin(nodes), ((row.tube, row.job_id) for row in rows))
    except BaseException:  # a refusal, no node that answers, or Ctrl-C
        print(f"broken off: {kicks.words()}", file=sys.stderr)
        raise
    print(kicks.words())
    if kicks.unsure:
        return EXIT_NO_ANSWER
    return 0 if kicks.kicked else EXIT_NO


def _check_cluster(export: "Opened", addresses: Sequence[str], patience_s: int) -> None:
    """Refuse to kick jobs of one cluster that were chosen by the events of another.

    Raises:
        ConfigurationError: the addresses are of another cluster, or begun anew.
        ClientError: the nodes that answer have fewer events, but are too few to tell.
    """
    with Events(addresses, patience_s) as nodes:
        extent = nodes.extent()
        _check_names(export, extent)
        # An export of release 0.3.0 has no birth id, but perhaps more events than a new cluster.
        if extent.end < export.end:
            try:
                extent = nodes.extent_to(export.end)
            except BegunAnew as error:
                raise ConfigurationError(f"--from {shown(export.directory)}: {error}") from None
    if extent.end < export.end:
        raise ClientError(
            f"--from has events to {export.end}, and the nodes that answer only to {extent.end}"
        )


def _check_names(export: "Opened", extent: Extent) -> None:
    """Compare the names of clusters, and their birth ids, by which those of the same name differ.

    Raises:
        ConfigurationError: the names are not the same, or one cluster was restored, for example.
    """
    if extent.cluster != export.cluster:
        raise ConfigurationError(
            f"--from has events of cluster {export.cluster!r}, --addresses are of cluster "
            f"{extent.cluster!r}: ids of jobs mean nothing in another cluster"
        )
    if export.birth and extent.birth and extent.birth != export.birth:
        raise ConfigurationError(
            f"--from has events of the cluster {export.cluster!r} with the birth id "
            f"{export.birth}, --addresses are of the one with {extent.birth}, which was restored, "
            "recovered or begun anew: ids of jobs mean nothing in another cluster"
        )

"""Where the events of a command come from: a cluster, or a directory that was exported from one.

Both give the same columns, and what the cluster says about the range of offsets they cover.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pyarrow.fs import FileSystem
from pyspark.sql import DataFrame, SparkSession

from beanpole.client.events import Events
from beanpole.client.rpc import PATIENCE_S
from beanpole.errors import ConfigurationError, UnknownVersion
from pyspark_beanpole.planning import warn_of_silent
from pyspark_beanpole.schema import EVENTS

MANIFEST: Final = "_manifest.json"
MANIFEST_VERSION: Final = 1


@dataclass(frozen=True)
class Input:
    """Events of a cluster."""

    events: DataFrame
    cluster: str
    # The ranges of offsets, each first <= offset < end, in order; there are gaps between them.
    spans: Sequence[tuple[int, int]]
    # How many jobs were in each state before the first event, and behind the last one; None where
    # that is not known.
    jobs_before: Mapping[str, int]
    jobs: Mapping[str, int] | None

    @property
    def first(self) -> int:
        """The first offset; 0 if there is none."""
        return self.spans[0][0] if self.spans else 0

    @property
    def end(self) -> int:
        """The offset behind the last event; 0 if there is none."""
        return self.spans[-1][1] if self.spans else 0

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The gaps, each first <= offset < end."""
        return [(before[1], after[0]) for before, after in pairwise(self.spans)]


def from_cluster(spark: SparkSession, addresses: Sequence[str]) -> Input:
    """Return all events that the nodes keep, up to now.

    Raises:
        ClientError: no node answers.
    """
    with Events(addresses, PATIENCE_S) as nodes:
        extent = nodes.whole()
    if extent.first:
        warn_of_silent(extent)
    reader = spark.read.format("beanpole").option("addresses", ",".join(addresses))
    events = reader.option("startingOffsets", extent.first).option("endingOffsets", extent.end)
    return Input(
        events.load(),
        extent.cluster,
        [(extent.first, extent.end)],
        extent.jobs_before,
        extent.jobs,
    )


def from_directory(spark: SparkSession, directory: str) -> Input:
    """Return the events of a directory that `beanpole events export` wrote, wherever it is.

    Raises:
        ConfigurationError: it is not such a directory.
        UnknownVersion: it was written by another version of Beanpole.
    """
    manifest = _manifest(directory)
    events = spark.read.schema(EVENTS).parquet(directory).select(EVENTS.names)
    return Input(
        events,
        manifest["cluster"],
        manifest["spans"],
        manifest["jobs_before"],
        None,
    )


def _manifest(directory: str) -> dict[str, Any]:
    """Read the manifest without Spark, which sees no file whose name begins with an underscore."""
    place = directory if "://" in directory else str(Path(directory).absolute())
    try:
        files, path = FileSystem.from_uri(place)
        with files.open_input_stream(f"{path}/{MANIFEST}") as file:
            found: dict[str, Any] = json.loads(file.read())
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{directory} is not a directory that `beanpole events export` wrote: {error}"
        ) from None
    name = f"{directory}/{MANIFEST}"
    try:
        # Another version may have other keys.
        if found["version"] != MANIFEST_VERSION:
            raise UnknownVersion(f"{name} is of version {found['version']}, not {MANIFEST_VERSION}")
        _, _ = found["cluster"], dict(found["jobs_before"])
        found["spans"] = [(int(first), int(end)) for first, end in found["spans"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(
            f"{name} is not what `beanpole events export` wrote: {error!r}"
        ) from None
    return found

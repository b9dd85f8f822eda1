"""The options of the data source and sink, validated: an unknown option is rejected by name.

Names are those of Spark's Kafka source where it has the same option. This module reads no events.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

from beanpole.addresses import listed
from beanpole.client.events import SILENT_PATIENCE_S, Events
from beanpole.client.rpc import PATIENCE_S
from beanpole.constants import TUBE_NAME_MAX_BYTES
from beanpole.errors import ConfigurationError
from beanpole.exports import OFFSET_MAX
from beanpole.numbers import whole_number, whole_within
from beanpole.protocol.beanstalk.requests import is_tube_name

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

# Requests to nodes have wall times in microseconds, as signed 64-bit numbers.
WALL_MS_MAX: Final = (2**63 - 1) // 1000
# More tasks than this only add cost: each is a call to a node and the start of a task.
PARTITIONS_MAX: Final = 10_000
# A day: a longer wait should be an error.
PATIENCE_MAX_S: Final = 86_400

# As in Spark's Kafka source: a batch below the minimum size waits no longer than this.
TRIGGER_DELAY_S: Final = 15 * 60.0

_BOTH: Final = (
    "addresses",
    "columns",
    "failOnDataLoss",
    "minPartitions",
    "patienceSeconds",
    "silentPatienceSeconds",
    "startingOffsets",
    "startingTimestamp",
)
BATCH_OPTIONS: Final = tuple(sorted((*_BOTH, "endingOffsets", "endingTimestamp")))
STREAM_OPTIONS: Final = tuple(
    sorted((*_BOTH, "maxRowsPerTrigger", "maxTriggerDelay", "minOffsetsPerTrigger"))
)
# Options of an export, which is named by `path` in place of `addresses`.
EXPORT_OPTIONS: Final = ("columns", "failOnDataLoss", "path")
WRITE_OPTIONS: Final = ("addresses", "dedupNamespace", "patienceSeconds", "tube")
# Spark asks for the schema before it tells whether it wants a batch or a stream, and it passes
# the writer of a stream the location of its checkpoint.
STREAM_WRITE_OPTIONS: Final = (*WRITE_OPTIONS, "checkpointLocation")
# Properties that Spark adds when it creates a table. When it reads or writes the table, it passes
# none of them.
_TABLE_PROPERTIES: Final = (
    *("collation", "comment", "external", "is_managed_location", "owner", "provider"),
)
_TABLE_ADVICE: Final = (
    "Spark 4.3 keeps no options for a table of a Python data source: give them in each statement, "
    "SELECT ... FROM events WITH (addresses = 'HOST:PORT,...') or INSERT INTO jobs WITH (...), or "
    "make a temporary view with OPTIONS"
)
_UNITS_S: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
# Renamed options of earlier releases, with their present names.
_RENAMED: Final = {"namespace": "dedupNamespace"}


@dataclass(frozen=True)
class Position:
    """A position in the stream of events: `offset`, or, if None, the end named by `word`."""

    word: str
    offset: int | None = None
    # The cluster that the offset belongs to; empty if not given.
    cluster: str = ""
    # The birth id of that cluster; empty if not given.
    birth: str = ""


@dataclass(frozen=True)
class ReadOptions:
    """The range of events to read, and the limits of reading."""

    addresses: tuple[str, ...]
    starting: Position
    ending: Position
    # Wall time in us since 1970, 0 for none; it takes precedence over `starting`.
    starting_wall_us: int
    # The same for the end; it takes precedence over `ending`.
    ending_wall_us: int
    # The maximum of a batch, and its minimum until `trigger_delay_s` have passed; 0 for no limit.
    rows_per_trigger: int
    rows_per_trigger_min: int
    trigger_delay_s: float
    min_partitions: int
    fail_on_data_loss: bool
    # How long to look for a node that answers, and for the other nodes once one has answered.
    patience_s: int
    silent_patience_s: int

    def events(self, addresses: tuple[str, ...] = ()) -> Events:
        """Return the event stream of these nodes, or of the given ones; close it after use."""
        return Events(addresses or self.addresses, self.patience_s, self.silent_patience_s)


@dataclass(frozen=True)
class ExportOptions:
    """The export to read."""

    # A path or URI.
    directory: str
    fail_on_data_loss: bool


@dataclass(frozen=True)
class WriteOptions:
    """The destination of jobs."""

    addresses: tuple[str, ...]
    tube: str
    # Lets a repetition of a whole write find its jobs; None: no write repeats another.
    namespace: str | None
    patience_s: int


T = TypeVar("T")


class _Options:
    """Options by name, in any capitalization, as in Spark."""

    def __init__(self, given: Mapping[str, str], allowed: tuple[str, ...]) -> None:
        spelled = {name.lower(): name for name in allowed}
        given = _without_table(given)
        if unknown := sorted(name for name in given if name.lower() not in spelled):
            now = [f"{name} is now {new}" for name, new in _RENAMED.items() if name in unknown]
            raise ConfigurationError(
                f"unknown option {', '.join(map(repr, unknown))}; "
                f"{''.join(f'{words}; ' for words in now)}allowed are {', '.join(allowed)}"
            )
        self._given = {spelled[name.lower()]: value for name, value in given.items()}

    def take(self, name: str, read: Callable[[str], T], default: T) -> T:
        """Return an option's value.

        Raises:
            ConfigurationError: the value is not allowed; the message names the allowed values.
        """
        text = self._given.get(name)
        if text is None:
            return default
        try:
            return read(text.strip())
        except ValueError as error:
            raise ConfigurationError(
                f"{name} = {text!r} is not allowed: it must be {error}"
            ) from None

    def addresses(self) -> tuple[str, ...]:
        none: tuple[str, ...] = ()
        found = self.take("addresses", listed, none)
        if not found:
            raise ConfigurationError(
                "the option addresses is missing: gRPC addresses of the nodes, HOST:PORT,... "
                f"({_TABLE_ADVICE})"
            )
        return found

    def patience_s(self) -> int:
        return self.take("patienceSeconds", _number(0, PATIENCE_MAX_S), PATIENCE_S)


def columns(given: Mapping[str, str]) -> list[str]:
    """Return the requested columns; an empty list for all."""
    allowed = tuple(sorted({*BATCH_OPTIONS, *STREAM_OPTIONS, *EXPORT_OPTIONS}))
    return _Options(given, allowed).take("columns", _names, [])


def for_batch(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of spark.read."""
    return _for_reading(_Options(given, BATCH_OPTIONS), EARLIEST)


def of_nodes(
    addresses: Iterable[str], patience_s: int, fail_on_data_loss: bool = True
) -> ReadOptions:
    """Return the options of our own reads from nodes."""
    given = {
        "addresses": ",".join(addresses),
        "patienceSeconds": str(patience_s),
        "failOnDataLoss": str(fail_on_data_loss),
    }
    return for_batch(given)


def is_export(given: Mapping[str, str]) -> bool:
    """Whether events are read from an export and not from nodes."""
    names = {name.lower() for name in given}
    return "path" in names and "addresses" not in names


def for_export(given: Mapping[str, str]) -> ExportOptions:
    """Return the options of spark.read for an export."""
    options = _Options(given, EXPORT_OPTIONS)
    return ExportOptions(
        options.take("path", str, ""), options.take("failOnDataLoss", _truth, True)
    )


def for_stream(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of spark.readStream."""
    return _for_reading(_Options(given, STREAM_OPTIONS), LATEST)


def for_writing(given: Mapping[str, str], stream: bool) -> WriteOptions:
    """Return the options of df.write and df.writeStream."""
    options = _Options(given, STREAM_WRITE_OPTIONS if stream else WRITE_OPTIONS)
    return WriteOptions(
        options.addresses(),
        options.take("tube", _tube, "default"),
        options.take("dedupNamespace", _namespace, None),
        options.patience_s(),
    )


def _for_reading(options: _Options, starting: str) -> ReadOptions:
    smallest = options.take("minOffsetsPerTrigger", _number(1, OFFSET_MAX), 0)
    largest = options.take("maxRowsPerTrigger", _number(1, OFFSET_MAX), 0)
    if largest and smallest > largest:
        raise ConfigurationError(
            f"minOffsetsPerTrigger = {smallest} is more than maxRowsPerTrigger = {largest}"
        )
    return ReadOptions(
        addresses=options.addresses(),
        starting=options.take("startingOffsets", _position, Position(starting)),
        ending=options.take("endingOffsets", _position, Position(LATEST)),
        starting_wall_us=options.take("startingTimestamp", _wall_us, 0),
        ending_wall_us=options.take("endingTimestamp", _wall_us, 0),
        rows_per_trigger=largest,
        rows_per_trigger_min=smallest,
        trigger_delay_s=options.take("maxTriggerDelay", _duration_s, TRIGGER_DELAY_S),
        min_partitions=options.take("minPartitions", _number(1, PARTITIONS_MAX), 1),
        fail_on_data_loss=options.take("failOnDataLoss", _truth, True),
        patience_s=options.patience_s(),
        silent_patience_s=options.take(
            "silentPatienceSeconds", _number(0, PATIENCE_MAX_S), SILENT_PATIENCE_S
        ),
    )


def _without_table(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options without the properties that Spark adds when it creates a table.

    Raises:
        ConfigurationError: the table has options, which would be lost.
    """
    if not any(name.lower() == "provider" for name in given):
        return given
    if any(name.lower() not in _TABLE_PROPERTIES for name in given):
        raise ConfigurationError(_TABLE_ADVICE)
    return {}


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


def _number(smallest: int, largest: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        found = whole_within(text, smallest, largest)
        if found is None:
            raise ValueError(f"a whole number from {smallest} to {largest}")
        return found

    return read


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _position(text: str) -> Position:
    if text.lower() in (EARLIEST, LATEST):
        return Position(text.lower())
    try:
        found = json.loads(text)
        if isinstance(found, dict):
            offset = _number(0, OFFSET_MAX)(str(found.pop("offset")))
            cluster, birth = found.pop("cluster"), found.pop("birth", "")
            if not found and isinstance(cluster, str) and isinstance(birth, str):
                return Position("", offset, cluster, birth)
        elif isinstance(found, int) and not isinstance(found, bool):
            return Position("", _number(0, OFFSET_MAX)(text))
    except (ValueError, KeyError, RecursionError):
        pass
    raise ValueError(
        f'earliest, latest, a number from 0 to {OFFSET_MAX}, or {{"cluster": NAME, "offset": N}}'
    )


def _wall_us(text: str) -> int:
    """Return a time, which is above 0: that would be none, and there are no older events."""
    try:
        if whole_number(text) is not None:
            wall_us = _number(0, WALL_MS_MAX)(text) * 1000
        else:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            wall_us = round(moment.timestamp() * 1_000_000)
    except ValueError:
        raise ValueError(
            "milliseconds since 1970, or a time like 2026-01-31T12:00:00 (UTC without a zone)"
        ) from None
    return max(wall_us, 1)


def _duration_s(text: str) -> float:
    """Read a time as Spark's Kafka source has it: 15m, 30s, 500ms."""
    found = re.fullmatch(r"(\d{1,9})\s*(ms|s|m|h|d)", text, re.ASCII | re.IGNORECASE)
    if not found:
        raise ValueError("a time like 500ms, 30s, 15m, 2h or 1d")
    return int(found[1]) * _UNITS_S[found[2].lower()]


def _namespace(text: str) -> str | None:
    if not text:
        raise ValueError("some text, for instance the date; leave it out for a write of its own")
    return text


def _tube(text: str) -> str:
    if not is_tube_name(text.encode()):
        raise ValueError(
            f"a tube's name of 1 to {TUBE_NAME_MAX_BYTES} bytes of "
            "A-Z a-z 0-9 - + / ; . $ _ ( ), not beginning with -"
        )
    return text

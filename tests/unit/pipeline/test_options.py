"""The options of the Spark source and sink: what is taken, and what is refused in which words."""

import re

import pytest

from beanpole.errors import ConfigurationError
from pyspark_beanpole import options
from pyspark_beanpole.options import Position

HERE = {"addresses": "127.0.0.1:11320, n1.example:11320"}


def test_a_batch_begins_at_the_earliest_event_and_a_stream_at_the_latest() -> None:
    batch, stream = options.for_batch(HERE), options.for_stream(HERE)
    assert batch.addresses == stream.addresses == ("127.0.0.1:11320", "n1.example:11320")
    assert (batch.starting, batch.ending) == (Position("earliest"), Position("latest"))
    assert stream.starting == Position("latest")
    assert batch.fail_on_data_loss
    assert batch.min_partitions == 1
    assert stream.rows_per_trigger == 0
    assert options.columns(HERE) == []


def test_names_are_read_in_any_case() -> None:
    found = options.for_stream(
        {**HERE, "MAXROWSPERTRIGGER": "7", "failondataloss": "False", "minpartitions": "3"}
    )
    assert (found.rows_per_trigger, found.fail_on_data_loss, found.min_partitions) == (7, False, 3)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Position("earliest")),
        (" Latest ", Position("latest")),
        ("0", Position("", 0)),
        ("1234567890123", Position("", 1234567890123)),
        ('{"offset": 5, "cluster": "dev"}', Position("", 5, "dev")),
    ],
)
def test_offsets(text: str, position: Position) -> None:
    assert options.for_batch({**HERE, "startingOffsets": text}).starting == position
    assert options.for_batch({**HERE, "endingOffsets": text}).ending == position


@pytest.mark.parametrize(
    ("text", "wall_us"),
    [
        ("1769860800123", 1_769_860_800_123_000),
        ("2026-01-31T12:00:00", 1_769_860_800_000_000),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000_000),
        ("2026-01-31T13:00:00.000001+01:00", 1_769_860_800_000_001),
    ],
)
def test_times(text: str, wall_us: int) -> None:
    assert options.for_batch({**HERE, "startingTimestamp": text}).starting_wall_us == wall_us


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("addresses", "nowhere", "HOST:PORT"),
        ("addresses", "a:1,,b:2", "HOST:PORT"),
        ("addresses", "a:0", "HOST:PORT"),
        ("startingOffsets", "first", "earliest, latest, a number"),
        ("startingOffsets", "-1", "earliest, latest, a number"),
        ("startingOffsets", "9" * 5000, "earliest, latest, a number"),
        ("startingOffsets", "true", "earliest, latest, a number"),
        ("startingOffsets", '{"0": 5}', "earliest, latest, a number"),
        ("startingOffsets", '{"cluster": 1, "offset": 5}', "earliest, latest, a number"),
        ("startingOffsets", '{"cluster": "a", "offset": 5, "x": 1}', "earliest, latest"),
        ("endingOffsets", "²", "earliest, latest, a number"),
        ("startingTimestamp", "yesterday", "milliseconds since 1970"),
        ("failOnDataLoss", "maybe", "true or false"),
        ("minPartitions", "0", "a whole number from 1 to 10000"),
        ("minPartitions", "10001", "a whole number from 1 to 10000"),
        ("patienceSeconds", "1.5", "a whole number from 0"),
    ],
)
def test_what_is_not_allowed_is_named_with_what_is(name: str, text: str, allowed: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} = .* must be .*{re.escape(allowed)}"):
        options.for_batch({**HERE, name: text})


def test_unknown_options_are_refused_with_the_list_of_those_that_are_known() -> None:
    with pytest.raises(
        ConfigurationError, match=r"unknown option 'pushFilters'; .* addresses, columns, .*ending"
    ):
        options.for_batch({**HERE, "pushFilters": "x"})
    with pytest.raises(ConfigurationError, match=r"unknown option 'endingOffsets'; .*maxRows"):
        options.for_stream({**HERE, "endingOffsets": "latest"})
    with pytest.raises(ConfigurationError, match=r"unknown option 'maxRowsPerTrigger'"):
        options.for_batch({**HERE, "maxRowsPerTrigger": "1"})
    with pytest.raises(ConfigurationError, match=r"unknown option 'path'; allowed are addresses"):
        options.for_writing({**HERE, "path": "x"}, stream=False)
    with pytest.raises(ConfigurationError, match="addresses is missing"):
        options.for_batch({})


def test_options_of_writing() -> None:
    found = options.for_writing({**HERE, "tube": "mail", "namespace": "monday"}, stream=False)
    assert (found.tube, found.namespace) == ("mail", "monday")
    stream = options.for_writing({**HERE, "checkpointLocation": "/tmp/x"}, stream=True)
    assert (stream.tube, stream.namespace) == ("default", "")
    with pytest.raises(ConfigurationError, match=r"tube = .* 1 to 200 bytes"):
        options.for_writing({**HERE, "tube": "x" * 201}, stream=False)

"""The options of the Spark source and sink: accepted values, and errors for the others."""

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
        ('{"offset": 5, "cluster": "dev", "birth": "0a"}', Position("", 5, "dev", "0a")),
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
        (str((2**63 - 1) // 1000), (2**63 - 1) // 1000 * 1000),
        # 0 stands for no time.
        ("0", 1),
        ("1970-01-01T00:00:00", 1),
        ("1969-12-31T00:00:00", 1),
    ],
)
def test_times(text: str, wall_us: int) -> None:
    assert options.for_batch({**HERE, "startingTimestamp": text}).starting_wall_us == wall_us
    assert options.for_batch({**HERE, "endingTimestamp": text}).ending_wall_us == wall_us


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("30s", 30), (" 15M ", 900), ("2 h", 7200), ("1d", 86400)]
)
def test_delays(text: str, seconds: float) -> None:
    assert options.for_stream({**HERE, "maxTriggerDelay": text}).trigger_delay_s == seconds


def test_an_offset_that_json_cannot_read_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is not allowed: it must be earliest, latest"):
        options.for_batch({**HERE, "startingOffsets": "[" * 100_000})


def test_the_least_rows_of_a_batch_are_not_more_than_the_most() -> None:
    given = {**HERE, "minOffsetsPerTrigger": "7"}
    found = options.for_stream(given)
    assert (found.rows_per_trigger_min, found.trigger_delay_s) == (7, 900)
    with pytest.raises(ConfigurationError, match="Trigger = 7 is more than maxRowsPerTrigger = 6"):
        options.for_stream({**given, "maxRowsPerTrigger": "6"})
    with pytest.raises(ConfigurationError, match=r"maxTriggerDelay = 'soon' is .* like 500ms, 30s"):
        options.for_stream({**given, "maxTriggerDelay": "soon"})


def test_a_table_with_options_would_lose_them() -> None:
    table = {"provider": "beanpole", "owner": "root"}
    assert options.columns(table) == []
    lost = {**table, **HERE, "option.addresses": HERE["addresses"]}
    with pytest.raises(ConfigurationError, match=r"Spark 4\.3 keeps no options for a table"):
        options.columns(lost)


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
        ("startingTimestamp", "9999999999999999", "milliseconds since 1970"),
        ("startingTimestamp", str((2**63 - 1) // 1000 + 1), "milliseconds since 1970"),
        ("failOnDataLoss", "maybe", "true or false"),
        ("minPartitions", "0", "a whole number from 1 to 10000"),
        ("minPartitions", "10001", "a whole number from 1 to 10000"),
        ("patienceSeconds", "1.5", "a whole number from 0"),
        ("silentPatienceSeconds", "1.5", "a whole number from 0"),
        ("endingTimestamp", "tomorrow", "milliseconds since 1970"),
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
    given = {**HERE, "tube": "mail", "dedupNamespace": "monday"}
    found = options.for_writing(given, stream=False)
    assert (found.tube, found.namespace) == ("mail", "monday")
    stream = options.for_writing({**HERE, "checkpointLocation": "/tmp/x"}, stream=True)
    assert (stream.tube, stream.namespace) == ("default", None)
    renamed = r"unknown option 'namespace'; namespace is now dedupNamespace; allowed are"
    with pytest.raises(ConfigurationError, match=renamed):
        options.for_writing({**HERE, "namespace": "monday"}, stream=False)
    with pytest.raises(ConfigurationError, match="dedupNamespace = '' is not allowed"):
        options.for_writing({**HERE, "dedupNamespace": ""}, stream=False)
    with pytest.raises(ConfigurationError, match=r"tube = .* 1 to 200 bytes"):
        options.for_writing({**HERE, "tube": "x" * 201}, stream=False)


def test_a_name_that_no_tube_can_have_is_refused_before_rows_are_read() -> None:
    for name in ("", "two words", "-dash", "t" * 201):
        with pytest.raises(ConfigurationError, match=r"tube = .* 1 to 200 bytes of A-Z"):
            options.for_writing({**HERE, "tube": name}, stream=False)

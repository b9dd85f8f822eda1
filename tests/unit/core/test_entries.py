"""The bytes of log entries: round trips, and garbage that every node rejects alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole import commands as c
from beanpole.errors import UnknownVersion

INTEGERS = st.integers(-(2**63), 2**64 - 1)
COMMANDS = st.lists(
    st.tuples(st.integers(0, 255), INTEGERS, st.binary(max_size=20)).map(tuple), max_size=5
)
SECTIONS = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), COMMANDS),
    max_size=4,
)


@given(st.integers(0, 255), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), SECTIONS)
def test_an_entry_comes_out_as_it_went_in(
    flags: int, time_us: int, wall_us: int, sections: list[tuple[int, int, int, list[c.Command]]]
) -> None:
    entry = c.encode_entry(
        flags, time_us, wall_us, [(o, i, n, c.pack_commands(cs)) for o, i, n, cs in sections]
    )
    expected = [(o, i, n, tuple(cs)) for o, i, n, cs in sections]
    assert c.decode_entry(entry) == (flags, time_us, wall_us, expected)


def test_an_empty_entry_is_its_header() -> None:
    entry = c.encode_entry(c.FLAG_PUTS_REFUSED, 7, 8, [])
    assert len(entry) == c.ENTRY_HEADER_BYTES
    assert c.decode_entry(entry) == (c.FLAG_PUTS_REFUSED, 7, 8, [])


def test_another_version_stops_the_reader() -> None:
    entry = c.encode_entry(0, 0, 0, [])
    with pytest.raises(UnknownVersion, match="entry version 3, this program knows 2: upgrade bean"):
        c.decode_entry(bytes([c.ENTRY_VERSION + 1]) + entry[1:])
    with pytest.raises(UnknownVersion, match=r"it was written before release 0\.2\.0"):
        c.decode_entry(bytes([1]) + entry[1:])


def test_every_cut_of_an_entry_is_recognised() -> None:
    entry = c.encode_entry(0, 1, 2, [(0, 1, 1, c.pack_commands([(c.OPEN, 1)]))])
    for size in range(len(entry)):
        if size == c.ENTRY_HEADER_BYTES:
            continue  # a header without sections is a valid entry
        with pytest.raises(UnknownVersion):
            c.decode_entry(entry[:size])


@given(st.binary(max_size=120), st.sampled_from([0, 0, 1, 2]))
def test_any_bytes_are_an_entry_or_refused(data: bytes, sections: int) -> None:
    """The bytes stand alone, after a valid header, and after whole sections."""
    whole = [(0, 1, number, c.pack_commands([(c.OPEN, 1)])) for number in range(sections)]
    for entry in (data, c.encode_entry(0, 1, 2, whole) + data):
        try:
            *numbers, found = c.decode_entry(entry)
        except UnknownVersion as error:
            assert str(error)
        else:
            assert all(type(number) is int for number in numbers)
            assert all(type(section[3]) is tuple for section in found)
            assert len(found) <= sections + len(entry) // c.SECTION_HEADER_BYTES


@given(st.binary(max_size=200))
def test_any_bytes_decode_to_a_tuple_or_nothing(payload: bytes) -> None:
    assert type(c.unpack_commands(payload)) is tuple


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x91" * 5000, id="nested too deeply"),
        pytest.param(b"\x92\x01", id="cut"),
        pytest.param(b"\x90\x90", id="more than one value"),
        pytest.param(b"\x81\x80\x01", id="a map whose key is a map"),
        pytest.param(b"\x91\xa1\xff", id="text that is no text"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="four billion items announced"),
        pytest.param(b"\x05", id="a number"),
        pytest.param(b"\xd6\xff\x00\x00\x00\x01", id="a timestamp"),
    ],
)
def test_garbage_is_no_commands(payload: bytes) -> None:
    assert c.unpack_commands(payload) == ()


def test_names_and_bodies_stay_bytes() -> None:
    command = (c.PUT, 1, b"\xff\x00", 0, 0, 1, b"")
    assert c.unpack_commands(c.pack_commands([command])) == (command,)

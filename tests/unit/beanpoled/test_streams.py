"""Which stream of Health/Watch or reflection makes room for another one."""

import pytest

from beanpoled.rpc.streams import chosen


@pytest.mark.parametrize(
    ("networks", "newcomer", "expected"),
    [
        (b"aaa", b"b", 0),
        (b"baac", b"b", None),  # two each: they would displace each other in turns
        (b"baaac", b"b", 1),
        (b"baaac", b"a", None),
        (b"aaa", b"a", None),
        (b"abc", b"d", 0),  # one each: the oldest goes
        (b"abc", b"c", None),
    ],
)
def test_the_address_with_most_makes_room_for_others(
    networks: bytes, newcomer: bytes, expected: int | None
) -> None:
    streams = {place: bytes((network,)) for place, network in enumerate(networks)}
    assert chosen(streams, newcomer) == expected

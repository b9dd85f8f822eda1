"""Which connections of a crowded gRPC port are closed."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from beanpoled.rpc.crowding import Connection, surplus


def connection(
    number: int, network: bytes = b"", used_s: float = 0.0, proved: bool = False, calls: int = 0
) -> Connection:
    one = Connection((b"host", number), network or bytes((10, 0, 0, number)), used_s)
    one.proved = proved
    one.calls = calls
    return one


def numbers(connections: list[Connection]) -> list[int]:
    return [one.name[1] for one in connections]


def test_nothing_is_closed_while_there_are_places() -> None:
    assert surplus([], 0) == []
    assert surplus([connection(number) for number in range(4)], 4) == []


def test_of_one_connection_each_the_oldest_goes() -> None:
    found = [connection(1, used_s=5.0), connection(2, used_s=3.0), connection(3, used_s=4.0)]
    assert numbers(surplus(found, 1)) == [2, 3]


def test_an_address_with_many_loses_its_own() -> None:
    alone = connection(1, b"a", used_s=0.0)
    many = [connection(number, b"b", used_s=number) for number in range(2, 8)]
    assert numbers(surplus([alone, *many], 3)) == [2, 3, 4, 5]
    # Equally many each, and only then the oldest.
    assert numbers(surplus([alone, *many], 1)) == [2, 3, 4, 5, 6, 1]


def test_networks_of_ipv6_are_addresses() -> None:
    network = bytes(range(8))
    assert connection(1, network + bytes(8)).network == network
    assert connection(1, bytes((10, 1, 2, 3))).network == bytes((10, 1, 2, 3))


def test_newcomers_go_before_those_that_have_proved_themselves() -> None:
    proved = [connection(number, used_s=number, proved=True) for number in range(5)]
    newcomers = [connection(number, used_s=number) for number in range(10, 20)]
    assert numbers(surplus([*proved, *newcomers], 10)) == [10, 11, 12, 13, 14]


def test_newcomers_have_half_of_the_places_at_least() -> None:
    proved = [connection(number, used_s=number, proved=True) for number in range(10)]
    newcomers = [connection(number, used_s=number) for number in range(20, 24)]
    assert numbers(surplus([*proved, *newcomers], 10)) == [0, 1, 2, 3]
    newcomers += [connection(number, used_s=number) for number in range(24, 27)]
    assert numbers(surplus([*proved, *newcomers], 10)) == [20, 21, 0, 1, 2, 3, 4]


def test_a_connection_with_a_call_in_progress_goes_last() -> None:
    busy = connection(1, b"a", used_s=1.0, proved=True, calls=1)
    idle = [connection(number, b"a", used_s=number, proved=True) for number in (2, 3)]
    assert numbers(surplus([busy, *idle], 1)) == [2, 3]
    assert numbers(surplus([busy, *idle], 0)) == [2, 3, 1]


_CONNECTIONS = st.lists(
    st.builds(
        connection,
        st.integers(0, 255),
        st.sampled_from([b"a", b"b", b"c", b"d"]),
        st.integers(0, 9),
        st.booleans(),
        st.integers(0, 2),
    ),
    max_size=40,
)


@given(_CONNECTIONS, st.integers(0, 30))
def test_exactly_the_surplus_goes(connections: list[Connection], kept: int) -> None:
    gone = surplus(connections, kept)
    assert len(gone) == len(set(gone)) == max(0, len(connections) - kept)
    left = [one for one in connections if one not in gone]
    for proved in (False, True):
        before = sum(one.proved is proved for one in connections)
        after = sum(one.proved is proved for one in left)
        assert after >= min(before, kept // 2)
        # A network that has lost a connection has no fewer than any other of its half, but for that
        # one.
        of = Counter(one.network for one in left if one.proved is proved)
        losers = {one.network for one in gone if one.proved is proved}
        assert all(of[loser] + 1 >= max(of.values(), default=0) for loser in losers)

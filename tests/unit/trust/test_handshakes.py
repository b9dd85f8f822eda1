"""The limits of TLS handshakes in progress: which begin, and which make room."""

from collections import Counter
from functools import partial
from random import Random

import pytest

from beanpoled.trust import handshakes
from beanpoled.trust.handshakes import (
    CLOSED,
    DISPLACED_AFTER_S,
    HANDSHAKE_TIMEOUT_S,
    NOT_TLS,
    STALE_ENTRIES_MAX,
    TIMED_OUT,
    TOO_MANY,
    TOO_MANY_FAILED,
    TOO_MANY_OF_ADDRESS,
    Failures,
    Handshakes,
    Room,
    reason_of,
)


def test_refusals_are_counted_and_logged_once_in_a_while() -> None:
    lines: list[str] = []
    found = Handshakes(2, 2, 0, lambda line, level=0: lines.append(line))
    for now_s in (1.0, 2.0, 40.0):
        found.refused(NOT_TLS, "a client", now_s)
        found.refused(CLOSED, "a client", now_s)
    assert found.refusals == {NOT_TLS: 3, CLOSED: 3}
    assert len(lines) == 2 and lines[0].endswith("(not_tls)")
    assert reason_of(ConnectionResetError()) == CLOSED
    assert reason_of(TimeoutError()) == TIMED_OUT


def begun(room: Room, *hosts: bytes) -> list[str]:
    """Begin handshakes; return the names of those that were displaced, such as `b2`."""
    displaced: list[str] = []
    for host in hosts:
        assert room.refusal(host, 1.0 + DISPLACED_AFTER_S) == ""
        name = f"{host.decode()}{room.in_progress}"
        room.begin(host, 1.0, partial(displaced.append, name))
    return displaced


def test_handshakes_of_an_address_are_limited() -> None:
    found = Room(9, 2, Failures(0))
    numbers = [found.begin(b"a", 1.0, fail) for _ in range(2)]
    assert found.refusal(b"a", 1.0) == TOO_MANY_OF_ADDRESS
    assert found.refusal(b"b", 1.0) == "" and found.in_progress == 2
    found.end(numbers[1])
    assert found.refusal(b"a", 1.0) == ""
    found.end(numbers[0])
    assert found.in_progress == 0 and not found._by_network


def fail() -> None:
    """Stand for the end of a handshake that must not be displaced."""
    raise AssertionError("displaced")


def test_a_full_room_ends_the_oldest_of_the_address_with_the_most() -> None:
    room = Room(4, 9, Failures(0))
    assert begun(room, b"a", b"b", b"b", b"c") == []
    displaced: list[int] = []
    numbers = [room.begin(b"d", 1.0, partial(displaced.append, number)) for number in range(3)]
    # b lost its first one to the first of d, a was the oldest of one each, and d had two then.
    assert displaced == [0] and room.in_progress == 4
    assert sorted(room._by_network) == [b"b", b"c", b"d"]
    room.end(numbers[0])
    assert room.in_progress == 4, "it was displaced"
    room.end(numbers[1])
    assert room.in_progress == 3


def test_with_one_handshake_of_each_address_the_oldest_makes_room() -> None:
    room = Room(3, 9, Failures(0))
    hosts = [b"10.0.0.%d" % number for number in range(9)]
    displaced: list[bytes] = []
    for host in hosts:
        room.begin(host, 1.0, partial(displaced.append, host))
    assert displaced == hosts[:6]


def test_a_handshake_is_not_displaced_before_it_had_its_time() -> None:
    """Otherwise a rush of clients that connect again would end all before they are done."""
    room = Room(2, 9, Failures(0))
    room.begin(b"a", 1.0, fail)
    number = room.begin(b"b", 2.0, fail)
    late_s = 1.0 + DISPLACED_AFTER_S
    assert room.refusal(b"c", late_s - 0.01) == TOO_MANY and room.refusal(b"c", late_s) == ""
    room.end(number)
    assert room.refusal(b"c", 1.0) == ""


def test_idle_ones_of_many_addresses_make_room_though_an_address_has_two_new_ones() -> None:
    """Of the address with the most none took long, and everybody was refused."""
    room = Room(4, 9, Failures(0))
    displaced: list[bytes] = []
    for host in (b"x", b"y"):
        room.begin(host, 1.0, partial(displaced.append, host))
    now_s = 1.0 + DISPLACED_AFTER_S
    for _ in range(2):
        room.begin(b"a", now_s, fail)
    for expected in ([b"x"], [b"x", b"y"]):
        assert room.refusal(b"b", now_s) == ""
        room.begin(b"b", now_s, fail)
        assert displaced == expected
    assert room.refusal(b"c", now_s) == TOO_MANY


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    room = Room(9, 2, Failures(1))
    for host in (b"2001:db8::1", b"2001:db8::2"):
        room.begin(host, 1.0, fail)
    assert room.refusal(b"2001:db8::3", 1.0) == TOO_MANY_OF_ADDRESS
    assert room.refusal(b"2001:db8:0:1::1", 1.0) == ""
    for number in range(9):
        room.failures.failed(b"2001:db8:0:1::%d" % number, 1.0)
    assert room.refusal(b"2001:db8:0:1::1", 1.0) == TOO_MANY_FAILED
    assert room.refusal(b"2001:db8:0:2::1", 1.0) == ""


def test_idle_ones_of_an_address_make_room_for_one_more_of_it() -> None:
    """A stranger in the network of a member kept it out with as few as one address may have."""
    room = Room(9, 2, Failures(0))
    displaced: list[int] = []
    for number in range(2):
        room.begin(b"2001:db8::66", 1.0 + number, partial(displaced.append, number))
    member, now_s = b"2001:db8::2", 1.0 + DISPLACED_AFTER_S
    assert room.refusal(member, now_s - 0.01) == TOO_MANY_OF_ADDRESS
    assert room.refusal(member, now_s) == ""
    room.begin(member, now_s, fail)
    assert displaced == [0] and room.in_progress == 2
    assert room.refusal(member, now_s) == TOO_MANY_OF_ADDRESS, "the oldest has one second"
    assert room.refusal(member, now_s + 1.0) == ""
    room.begin(member, now_s + 1.0, fail)
    assert displaced == [0, 1] and room.in_progress == 2


def test_a_lower_limit_of_an_address_is_reached_in_steps() -> None:
    room = Room(9, 9, Failures(0))
    assert begun(room, *[b"a"] * 5) == []
    room.per_address_max = 2
    left = []
    for _ in range(5):
        begun(room, b"a")
        left.append(room.in_progress)
    assert left == [4, 3, 2, 2, 2]
    assert not begun(room, b"b"), "others lose none for it"


def test_a_lower_limit_is_reached_in_steps() -> None:
    room = Room(9, 9, Failures(0))
    assert begun(room, *[b"a"] * 9) == []
    room.handshakes_max = 2
    left = []
    for _ in range(8):
        begun(room, b"b")
        left.append(room.in_progress)
    assert left == [8, 7, 6, 5, 4, 3, 2, 2]


def test_a_room_ranks_many_handshakes_in_bounded_memory() -> None:
    """Against a count of everything, at random."""
    random = Random(1)
    room = Room(50, 90, Failures(0))
    open_: dict[int, bytes] = {}  # by number, the oldest first
    for _ in range(5_000):
        if open_ and random.random() < 0.3:
            number = random.choice(list(open_))
            del open_[number]
            room.end(number)
            continue
        host = b"10.0.0.%d" % int(random.expovariate(0.2))
        if len(open_) == 50:
            counts = Counter(open_.values())
            most = max(counts.values())
            expected = next(one for one, its in open_.items() if counts[its] == most)
            del open_[expected]
        displaced: list[None] = []
        open_[room.begin(host, 1.0, partial(displaced.append, None))] = host
        assert room._networks == open_
        assert len(room._heap) <= 2 * len(room._by_network) + STALE_ENTRIES_MAX + 1


def test_half_open_clients_take_no_room_of_nodes() -> None:
    found = Handshakes(1, 1, 0, lambda line, level=0: None)
    found.of_clients.begin(b"a", 1.0, fail)
    assert found.of_clients.refusal(b"a", 1.0) == TOO_MANY_OF_ADDRESS
    assert found.of_nodes.refusal(b"a", 1.0) == ""
    found.of_nodes.begin(b"a", 1.0, fail)
    assert found.in_progress == 2


def test_an_address_of_which_many_handshakes_fail_is_refused_for_a_while() -> None:
    room = Room(100, 100, Failures(4))
    tries = []
    for number in range(20):  # two seconds
        now_s = 10.0 + number / 10
        refusal = room.refusal(b"a", now_s)
        tries.append(refusal)
        if not refusal:
            room.failures.failed(b"a", now_s)
        assert room.refusal(b"b", now_s) == "", "another address"
    assert set(tries) == {"", TOO_MANY_FAILED}
    assert tries[:4] == [""] * 4, "what it has saved"
    assert 4 + 2 * 4 - 1 <= tries.count("") <= 4 + 2 * 4 + 1
    assert [room.refusal(b"a", 20.0) for _ in range(9)] == [""] * 9, "none of these has failed"


def test_many_that_fail_at_once_keep_an_address_out_for_no_longer_than_a_handshake_takes() -> None:
    failures = Failures(1)
    for _ in range(100):
        failures.failed(b"a", 5.0)
    assert not failures.allow(b"a", 5.0 + HANDSHAKE_TIMEOUT_S - 0.1)
    assert failures.allow(b"a", 5.0 + HANDSHAKE_TIMEOUT_S)


def test_another_limit_begins_anew() -> None:
    failures = Failures(1)
    for _ in range(9):
        failures.failed(b"a", 5.0)
    failures.set_limit(1)
    assert not failures.allow(b"a", 5.0), "it is the same"
    failures.set_limit(2)
    assert failures.allow(b"a", 5.0)


def test_strangers_from_the_address_of_a_member_do_not_keep_it_out() -> None:
    found = Handshakes(9, 9, 1, lambda line, level=0: None)
    for room, refusal in ((found.of_clients, TOO_MANY_FAILED), (found.of_nodes, "")):
        for _ in range(3):
            room.failures.failed(b"a", 5.0)
        assert room.refusal(b"a", 5.0) == refusal


@pytest.mark.constants
def test_only_so_many_addresses_with_failures_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "FAILING_ADDRESSES_MAX", 3)
    failures = Failures(1)
    for host in (b"a", b"b", b"c", b"a", b"a", b"d"):
        failures.failed(host, 5.0)
        failures.failed(host, 5.0)
    assert [failures.allow(host, 5.0) for host in (b"a", b"b", b"c", b"d")] == [
        *(False, True, False, False)
    ]

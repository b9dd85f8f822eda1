"""Users: the rights that they have where, and the users of sessions.

`test_permission` checks that each operation asks for its right.
"""

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole import commands as c
from beanpole.constants import SECOND_US
from beanpole.core import accounts
from beanpole.core.applied import GRANTED, NONE_READY
from beanpole.core.image import parts
from beanpole.core.jobs.prefixes import ANY
from beanpole.core.jobs.spaces import SPACES
from beanpole.core.users import (
    ADMIN,
    ANONYMOUS,
    ANY_RIGHT,
    EVENTS,
    EVERYWHERE,
    PUT,
    RIGHTS_MAX,
    RULES_MAX,
    TOKENS_MAX,
    USERS_MAX,
    WORK,
    User,
    contains,
    may_be_network,
    may_be_pattern,
    rights_of,
)
from beanpole.events import BEANSTALK, GEARMAN
from tests.unit.core.cluster import copy_of
from tests.unit.core.counted import Counted
from tests.unit.core.guests import TURN, Guests
from tests.unit.core.having_users import (
    LEE,
    LEES,
    ROOT,
    ROOTS,
    TEN,
    add_lee,
    lock,
    set_rules,
    set_user,
)

SECRET = b"a secret of a kept session"


@pytest.fixture
def cluster(guests: Guests) -> Guests:
    return guests


# --- patterns -------------------------------------------------------------------------------------


def test_the_rights_of_all_patterns_that_fit_add_up() -> None:
    user = User(
        LEE,
        (),
        ((b"*", EVENTS), (b"mail", PUT), (b"mail*", WORK), (b"ma*", ADMIN), (b"\x02turn*", PUT)),
    )
    assert user.on(b"mail") == ANY_RIGHT
    assert user.on(b"mail-de") == WORK | ADMIN | EVENTS
    assert user.on(b"map") == ADMIN | EVENTS
    assert user.on(b"m") == EVENTS
    assert (user.on(TURN), user.on(b"\x02tur"), user.on(b"\x01turn")) == (PUT, 0, 0)
    assert (user.everywhere, user.on_all_of(b""), user.on_all_of(b"\x02")) == (0, EVENTS, 0)
    assert User(LEE, (), ((b"\x03*", WORK),)).on_all_of(b"\x03") == WORK
    everywhere = User(LEE, (), ((EVERYWHERE, PUT),))
    assert all(everywhere.on(name) == PUT for name in (b"", b"m", TURN, b"\x03q"))


NAMES = st.one_of(
    st.sampled_from([b"a", b"ab", b"abc", b"b", b"a!", b"\x01a", b"\x02ab", b"\x02b"]),
    st.lists(st.sampled_from(b"a!\xfe\xff"), min_size=1, max_size=3).map(bytes),
)
PATTERNS = st.one_of(
    NAMES, NAMES.map(lambda name: name + b"*"), st.sampled_from([b"*", b"\x02*", EVERYWHERE])
)


@given(st.dictionaries(PATTERNS, st.integers(1, ANY_RIGHT), max_size=8), NAMES)
def test_a_right_is_that_of_every_pattern_looked_at_alone(
    rights: dict[bytes, int], name: bytes
) -> None:
    """Compare the tables of a user with the rules of the manual."""
    wanted = 0
    for pattern, bits in rights.items():
        beginning = pattern.removesuffix(b"*")
        fits = name.startswith(beginning) if beginning != pattern else name == pattern
        if pattern == b"*":
            fits = name[0] >= 0x20
        if pattern == EVERYWHERE or fits:
            wanted |= bits
    user = User(LEE, (), tuple(sorted(rights.items())))
    assert user.on(name) == wanted
    assert user.among((name, name)).count(name) == 2 * bool(wanted)


def test_many_patterns_cost_a_lookup_no_more_steps() -> None:
    """An entry of 63 TAKEs used to look at 4,000,000 beginnings of names in 1.9 s."""
    user = User(LEE, (), tuple((b"a" * length + ANY, PUT) for length in range(1, RIGHTS_MAX)))
    name = Counted(b"a" * 200)
    assert user.on(name) == PUT
    assert user.among([name]) == [name]
    assert name.steps < 20
    assert user.on(Counted(b"b")) == 0


@pytest.mark.parametrize(
    ("pattern", "is_right"),
    [
        *((EVERYWHERE, True), (b"*", True), (b"a", True), (b"a*", True), (b"\x02*", True)),
        *((b"x" * 513, True), (b"x" * 514, False), (b"", False), (b"\x02", False)),
        *((b"a*b", False), (b"**", False), (b"\x07a", False), (b"\0", False), (b"\0a*", False)),
    ],
)
def test_what_may_be_a_pattern(pattern: bytes, is_right: bool) -> None:
    assert may_be_pattern(pattern) == is_right


@pytest.mark.parametrize(
    "value",
    [
        *(None, 5, {}, (5,), ((b"a",),), ((b"a", 0),), ((b"a", 16),), ((b"a", True),), (("a", 1),)),
        *(((b"a", 1), (b"a", 2)), tuple((b"%d" % n, 1) for n in range(RIGHTS_MAX + 1))),
    ],
)
def test_what_are_no_rights(value: Any, cluster: Guests) -> None:
    assert rights_of(value) is None
    assert cluster.do(c.SET_USER, 1, LEE, msgpack.packb(value), 0, 0, 0) == c.BAD_COMMAND
    assert cluster.do(c.SET_USER, 1, LEE, b"\xc1", 0, 0, 0) == c.BAD_COMMAND
    assert not cluster.machine.users.rows


# --- becoming a user ------------------------------------------------------------------------------


def test_without_users_everything_is_as_it_was(cluster: Guests) -> None:
    assert cluster.do(c.AS_USER, 1, b"", LEES) == c.DENIED
    assert cluster.do(c.AS_USER, 1, LEE, b"") == c.DENIED
    assert cluster.put() and cluster.reserve()


def test_anonymous_may_do_all_until_there_is_such_a_user(cluster: Guests) -> None:
    add_lee(cluster, (b"mail", PUT))
    assert cluster.put(session=1) > 0
    lock(cluster, (b"mail", PUT))
    cluster.open(9)
    assert cluster.put(session=9) == c.DENIED
    assert cluster.put(session=9, tube=b"mail") > 0


def test_a_token_makes_a_session_its_owners(cluster: Guests) -> None:
    lock(cluster)
    add_lee(cluster, (b"mail*", PUT))
    cluster.open(9)
    assert cluster.put(session=9, tube=b"mail-de") == c.DENIED
    for name, token in ((ROOT, LEES), (b"", b"?" * 32), (b"", b"l"), (b"who", b""), (b"", b"")):
        assert cluster.do(c.AS_USER, 9, name, token) == c.DENIED
    assert cluster.put(session=9, tube=b"mail-de") == c.DENIED
    assert cluster.do(c.AS_USER, 9, b"", LEES) == c.OK
    assert cluster.put(session=9, tube=b"mail-de") > 0
    assert cluster.put(session=9) == c.DENIED
    assert cluster.do(c.AS_USER, 9, LEE, LEES) == c.OK  # the name may be given, too


def test_rights_count_from_the_entry_that_changes_them(cluster: Guests) -> None:
    lock(cluster)
    add_lee(cluster, (b"mail", PUT))
    cluster.open(9)
    cluster.do(c.AS_USER, 9, b"", LEES)
    put = (c.PUT, 9, b"mail", 0, 0, 60, b"")
    less, more = msgpack.packb(()), msgpack.packb(((b"mail", PUT),))
    results = cluster.batch(
        put, (c.SET_USER, 1, LEE, less, 0, 0, 0), put, (c.SET_USER, 1, LEE, more, 0, 0, 0), put
    )
    assert [result > 0 for result in results] == [True, True, False, True, True]


def test_a_session_has_nothing_left_when_its_token_is_dropped(cluster: Guests) -> None:
    """A leaked token is worthless once it is dropped, even to connected sessions."""
    lock(cluster, (b"mail", PUT))
    add_lee(cluster, (b"*", PUT))
    other = b"m" * 32
    assert cluster.do(c.SET_TOKEN, 1, LEE, other, 1) == c.OK
    for session, token in ((8, LEES), (9, other)):
        cluster.open(session)
        cluster.do(c.AS_USER, session, b"", token)
        assert cluster.put(session=session) > 0
    assert cluster.do(c.SET_TOKEN, 1, LEE, LEES, 0) == c.OK
    assert cluster.put(session=9) > 0
    assert cluster.put(session=8) == c.DENIED
    assert cluster.put(session=8, tube=b"mail") == c.DENIED  # it is not anonymous, either
    copy = copy_of(cluster.machine)
    assert copy.origins[0].sessions[8].user == LEE
    assert cluster.do(c.DROP_USER, 1, LEE) == c.OK
    assert cluster.put(session=9) == c.DENIED
    add_lee(cluster, (b"*", PUT))
    assert cluster.put(session=9) == c.DENIED  # this is another user with the same name


def test_a_session_by_a_rule_keeps_its_user(cluster: Guests) -> None:
    lock(cluster)
    add_lee(cluster, (b"*", PUT))
    cluster.open(9)
    assert cluster.do(c.AS_USER, 9, LEE, b"") == c.OK
    assert cluster.do(c.SET_TOKEN, 1, LEE, LEES, 0) == c.OK
    assert cluster.put(session=9) > 0


def test_a_session_by_a_rule_is_not_that_of_a_later_user_of_the_name(cluster: Guests) -> None:
    lock(cluster)
    add_lee(cluster, (b"*", PUT))
    cluster.open(9)
    assert cluster.do(c.AS_USER, 9, LEE, b"") == c.OK
    birth = cluster.machine.users.rows[LEE].birth
    set_user(cluster, LEE, (b"*", PUT | WORK))
    assert cluster.put(session=9) > 0, "a change of rights makes no other user"
    cluster.machine = copy_of(cluster.machine)
    assert cluster.put(session=9) > 0
    assert cluster.do(c.DROP_USER, 1, LEE) == c.OK
    assert cluster.put(session=9) == c.DENIED
    add_lee(cluster, (b"*", PUT))
    assert cluster.put(session=9) == c.DENIED
    cluster.machine = copy_of(cluster.machine)
    assert cluster.put(session=9) == c.DENIED
    cluster.open(10)
    # The node of this session does not know yet that the user is another one.
    assert cluster.do(c.AS_USER, 10, LEE, birth) == c.DENIED
    assert cluster.do(c.AS_USER, 10, LEE, cluster.machine.users.rows[LEE].birth) == c.OK
    assert cluster.put(session=10) > 0
    assert cluster.do(c.AS_USER, 9, b"", LEES) == c.OK, "with a token of the new one"
    assert cluster.put(session=9) > 0


def test_users_of_one_entry_are_not_the_same(cluster: Guests) -> None:
    lock(cluster)
    cluster.open(9)
    made = (c.SET_USER, 1, LEE, msgpack.packb(((b"*", PUT),)), 0, 0, 0)
    put = (c.PUT, 9, b"default", 0, 0, 60, b"")
    results = cluster.batch(
        made, (c.AS_USER, 9, LEE, b""), put, (c.DROP_USER, 1, LEE), put, made, put
    )
    assert [results[2] > 0, results[4], results[6]] == [True, c.DENIED, c.DENIED]


def test_a_kept_session_by_a_rule_is_resumed_with_the_rights_of_the_later_user(
    cluster: Guests,
) -> None:
    lock(cluster)
    add_lee(cluster, (b"*", PUT))
    cluster.open(8)
    assert cluster.do(c.AS_USER, 8, LEE, b"") == c.OK
    assert cluster.do(c.KEEP, 8, b"s" * 32, 10 * SECOND_US) == c.OK
    assert cluster.do(c.DROP_USER, 1, LEE) == c.OK
    add_lee(cluster, (b"mail", PUT))
    cluster.open(9)
    assert cluster.do(c.RESUME, 9, b"s" * 32) == c.NOT_FOUND
    assert cluster.do(c.AS_USER, 9, LEE, b"") == c.OK
    assert cluster.do(c.RESUME, 9, b"s" * 32) == c.OK
    assert cluster.put(session=9, tube=b"mail") > 0
    assert cluster.put(session=9) == c.DENIED


def test_nobody_becomes_anonymous(cluster: Guests) -> None:
    lock(cluster)
    assert cluster.do(c.AS_USER, 1, ANONYMOUS, b"") == c.DENIED
    assert cluster.do(c.SET_TOKEN, 1, ANONYMOUS, LEES, 1) == c.BAD_COMMAND


# --- changes --------------------------------------------------------------------------------------


def test_tokens_are_few_and_each_has_one_owner(cluster: Guests) -> None:
    add_lee(cluster)
    set_user(cluster, ROOT)
    assert cluster.do(c.SET_TOKEN, 1, LEE, LEES, 1) == c.OK  # it may be repeated
    assert cluster.do(c.SET_TOKEN, 1, ROOT, LEES, 1) == c.EXISTS
    assert cluster.do(c.SET_TOKEN, 1, ROOT, LEES, 0) == c.NOT_FOUND
    assert cluster.do(c.SET_TOKEN, 1, b"who", LEES, 1) == c.NOT_FOUND
    assert cluster.do(c.SET_TOKEN, 1, LEE, b"short", 1) == c.BAD_COMMAND
    assert cluster.do(c.SET_TOKEN, 1, LEE, LEES, 2) == c.BAD_COMMAND
    for number in range(1, TOKENS_MAX):
        assert cluster.do(c.SET_TOKEN, 1, LEE, b"%032d" % number, 1) == c.OK
    assert cluster.do(c.SET_TOKEN, 1, LEE, b"%032d" % 9, 1) == c.FULL
    assert set_user(cluster, LEE, (b"*", PUT)) == c.OK
    assert len(cluster.machine.users.rows[LEE].tokens) == TOKENS_MAX  # they stay


def test_there_are_not_more_users_than_the_limit(cluster: Guests) -> None:
    for number in range(USERS_MAX):
        assert set_user(cluster, b"u%d" % number) == c.OK
    assert set_user(cluster, LEE) == c.OUT_OF_MEMORY
    assert cluster.do(c.DROP_USER, 1, b"u7") == c.OK
    assert cluster.do(c.DROP_USER, 1, b"u7") == c.NOT_FOUND
    assert set_user(cluster, LEE) == c.OK
    for name in (b"", b"x" * 65, b"a b", b"\xff", b"a:b"):
        assert set_user(cluster, name) == c.BAD_COMMAND


def test_memory_counts_users_and_rules(cluster: Guests) -> None:
    empty = accounts.memory_bytes(cluster.machine)
    set_user(cluster, LEE, *((b"%0500d" % number, PUT) for number in range(RIGHTS_MAX)))
    set_rules(cluster, (0, b"", b"", LEE))
    grown = accounts.memory_bytes(cluster.machine) - empty
    assert grown > 500 * RIGHTS_MAX
    cluster.lead()  # puts are checked against the memory at the begin of their entry
    set_rules(cluster)
    cluster.do(c.DROP_USER, 1, LEE)
    assert accounts.memory_bytes(cluster.machine) == empty


# --- rules ----------------------------------------------------------------------------------------


def test_the_first_rule_that_fits_counts(cluster: Guests) -> None:
    set_user(cluster, LEE)
    set_user(cluster, ROOT, (EVERYWHERE, ADMIN))
    assert (
        set_rules(
            cluster,
            (GEARMAN, TEN, b"", LEE),
            (0, b"", b"client.example", ROOT),
            (BEANSTALK, TEN, b"", ANONYMOUS),
            (0, TEN, b"", ROOT),
        )
        == c.OK
    )
    by_rule = cluster.machine.users.by_rule
    inside, outside = bytes((10, 1, 2, 3)), bytes((11, 1, 2, 3))
    assert by_rule(GEARMAN, inside, ()) == LEE
    assert by_rule(GEARMAN, outside, ()) == b""
    assert by_rule(GEARMAN, outside, (b"x", b"client.example")) == ROOT
    assert by_rule(BEANSTALK, inside, ()) == b""
    assert by_rule(3, inside, ()) == ROOT
    assert by_rule(3, b"", ()) == b""
    assert cluster.do(c.DROP_USER, 1, ROOT) == c.BUSY
    assert set_rules(cluster) == c.OK
    assert cluster.do(c.DROP_USER, 1, ROOT) == c.OK


@given(st.integers(0, 32), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_network_holds_the_addresses_with_its_prefix(length: int, base: int, other: int) -> None:
    behind = 32 - length
    base = base >> behind << behind
    network = bytes([length]) + base.to_bytes(4, "big")
    assert may_be_network(network)
    for address in (base, other, base ^ (1 << behind >> 1), base ^ (1 << behind & 0xFFFFFFFF)):
        fits = address >> behind == base >> behind
        assert contains(network, address.to_bytes(4, "big")) == fits
    assert not contains(network, bytes(16))


@pytest.mark.parametrize(
    "rule",
    [
        *(
            (0, TEN + b"x", b"", LEE),
            (0, b"\x21\x0a\0\0\0", b"", LEE),
            (0, b"\x08\x0a\1\0\0", b"", LEE),
        ),
        *((9, b"", b"", LEE), (0, b"", b"x" * 254, LEE), (0, b"", b"", b""), (0, b"", LEE), 5),
        *((True, b"", b"", LEE), (0, "", b"", LEE), (0, b"\x08", b"", LEE)),
    ],
)
def test_what_is_no_rule_is_refused(cluster: Guests, rule: Any) -> None:
    set_user(cluster, LEE)
    assert cluster.do(c.SET_RULES, 1, msgpack.packb((rule,))) == c.BAD_COMMAND
    assert cluster.do(c.SET_RULES, 1, msgpack.packb(rule)) == c.BAD_COMMAND
    many = [(0, b"", b"", LEE)] * (RULES_MAX + 1)
    assert cluster.do(c.SET_RULES, 1, msgpack.packb(many)) == c.BAD_COMMAND
    assert set_rules(cluster, (0, b"", b"", b"who")) == c.NOT_FOUND
    assert not cluster.machine.users.rules


# --- jobs that are handed out ---------------------------------------------------------------------


def test_queues_that_a_session_may_not_work_on_are_passed_over(cluster: Guests) -> None:
    closed = cluster.put(b"closed", tube=b"closed")
    opened = cluster.put(b"open", priority=9, tube=b"open")
    lock(cluster, (b"open", WORK), (b"closed", PUT | ADMIN))
    cluster.open(9)
    assert cluster.do(c.WATCH, 9, b"closed") == c.DENIED
    assert cluster.do(c.WATCH, 9, b"open") == c.OK
    assert cluster.grant(9) == (GRANTED, opened)
    assert cluster.grant(9) == (NONE_READY, 0)
    assert cluster.do(c.TAKE, 9) == c.NOT_FOUND
    # Queues that it has watched since before they were closed are skipped, too.
    set_user(cluster, ANONYMOUS, (b"*", WORK))
    cluster.do(c.WATCH, 9, b"closed")
    set_user(cluster, ANONYMOUS, (b"open", WORK))
    assert cluster.grant(9) == (NONE_READY, 0)
    set_user(cluster, ANONYMOUS, (b"*", WORK))
    assert cluster.do(c.TAKE, 9)[0] == closed


def test_a_right_is_that_of_the_queue_whatever_it_is_called(cluster: Guests) -> None:
    """An alias leads to the queue, but not around its rights."""
    job = cluster.put(tube=b"mail")
    assert cluster.do(c.SET_ALIAS, 1, b"\x02mail", b"mail") == c.OK
    lock(cluster, (b"\x02*", ANY_RIGHT))
    assert cluster.do(c.WATCH, 4, b"\x02mail") == c.DENIED
    assert cluster.do(c.LIST_TUBES, 4) == (TURN,)
    set_user(cluster, ANONYMOUS, (b"mail", WORK))
    assert cluster.do(c.LIST_TUBES, 4) == (b"\x02mail",)
    assert cluster.do(c.WATCH, 4, b"\x02mail") == c.OK
    assert cluster.take(4) == job


def test_tubes_without_a_right_are_not_listed(cluster: Guests) -> None:
    cluster.put(tube=b"mail")
    cluster.put(tube=b"other")
    lock(cluster, (b"mail", PUT))
    cluster.open(9)
    assert cluster.do(c.LIST_TUBES, 9) == (b"mail",)
    assert set(cluster.do(c.LIST_TUBES, 1)) == {b"default", b"mail", b"other"}


# --- sessions that come back ----------------------------------------------------------------------


def test_a_kept_session_goes_on_with_the_token_of_its_attachment(cluster: Guests) -> None:
    lock(cluster)
    add_lee(cluster, (b"*", ANY_RIGHT))
    fresh = b"f" * 32
    cluster.do(c.SET_TOKEN, 1, LEE, fresh, 1)
    job = cluster.put()
    for session, token in ((7, LEES), (8, ROOTS), (9, fresh)):
        cluster.open(session)
        cluster.do(c.AS_USER, session, b"", token)
    cluster.open(6 + 4)  # an anonymous session
    assert cluster.do(c.KEEP, 7, SECRET, SECOND_US) == c.OK
    assert cluster.do(c.RESERVE_JOB, 7, job)[0] == job
    cluster.do(c.CLOSE, 7, 1)
    for session in (8, 10):  # the secret is not sufficient
        assert cluster.do(c.RESUME, session, SECRET) == c.NOT_FOUND
    assert cluster.do(c.RESUME, 9, SECRET) == c.OK
    assert cluster.do(c.SET_TOKEN, 1, LEE, LEES, 0) == c.OK
    assert cluster.do(c.DELETE, 9, job) == c.OK


def test_no_space_has_the_prefix_of_everywhere() -> None:
    assert EVERYWHERE[:1] not in {rules.prefix for rules in SPACES.values()}


def test_an_older_machine_has_none() -> None:
    cluster = Guests(version=3)
    assert set_user(cluster, LEE) == c.BAD_COMMAND
    assert "users" not in dict(parts.of_version(3))

"""Changes of users, tokens, rights and rules that might leave nobody to change users are refused.

Other rights of users belong in `test_users`.
"""

from typing import Any

import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.users import ADMIN, ANONYMOUS, ANY_RIGHT, EVERYWHERE, PUT
from beanpole.events import BEANSTALK, GEARMAN, GRPC
from tests.unit.core.guests import Guests
from tests.unit.core.having_users import (
    LEE,
    ROOT,
    ROOTS,
    TEN,
    add_lee,
    lock,
    set_rules,
    set_user,
)


@pytest.fixture
def cluster(guests: Guests) -> Guests:
    return guests


def test_a_change_that_locks_out_is_refused(cluster: Guests) -> None:
    assert set_user(cluster, ANONYMOUS) == c.LOCKED_OUT
    add_lee(cluster, (b"*", ADMIN))  # every tube, which is less than EVERYWHERE
    assert set_user(cluster, ANONYMOUS, (b"*", ANY_RIGHT)) == c.LOCKED_OUT
    assert set_user(cluster, ROOT, (EVERYWHERE, ADMIN)) == c.OK
    assert set_user(cluster, ANONYMOUS) == c.LOCKED_OUT  # root has no token
    lock(cluster)
    for command in (
        (c.SET_USER, 1, ROOT, msgpack.packb(((EVERYWHERE, PUT),)), 0, 0, 0),
        (c.SET_TOKEN, 1, ROOT, ROOTS, 0),
        (c.DROP_USER, 1, ROOT),
    ):
        assert cluster.do(*command) == c.LOCKED_OUT
    assert set_user(cluster, ANONYMOUS, (EVERYWHERE, ADMIN)) == c.OK
    assert cluster.do(c.SET_TOKEN, 1, ROOT, ROOTS, 0) == c.OK
    cluster.open(9)
    assert cluster.do(c.DROP_USER, 9, ROOT) == c.OK
    assert cluster.do(c.DROP_USER, 9, ANONYMOUS) == c.OK


# 0.0.0.0/0 and ::/0, which have all addresses together
ALL_OF_IPV4, ALL_OF_IPV6 = bytes(5), bytes(17)


@pytest.mark.parametrize(
    ("rules", "is_refused"),
    [
        # All callers, and some: operators may be among them.
        ([(GRPC, b"", b"", LEE)], True),
        ([(0, b"", b"", LEE)], True),
        ([(GRPC, TEN, b"", LEE)], True),
        ([(0, b"", b"ops.example", LEE)], True),
        ([(GRPC, ALL_OF_IPV4, b"", LEE), (GRPC, ALL_OF_IPV6, b"", LEE)], True),
        # gRPC alone changes users.
        ([(BEANSTALK, b"", b"", LEE), (GEARMAN, TEN, b"", LEE)], False),
        # Rules that leave the right.
        ([], False),
        ([(0, b"", b"", ANONYMOUS), (0, b"", b"", LEE)], False),
        ([(0, TEN, b"ops.example", ROOT), (GRPC, b"", b"", ROOT), (0, b"", b"", LEE)], False),
        # The first rule that fits counts.
        ([(0, b"", b"", LEE), (0, b"", b"", ROOT)], True),
        ([(GRPC, TEN, b"", ROOT), (GRPC, b"", b"", LEE)], True),
        ([(0, TEN, b"", LEE), (0, b"", b"", ROOT)], True),
        ([(BEANSTALK, b"", b"", ROOT), (0, b"", b"", LEE)], True),
    ],
)
def test_rules_lock_out_if_no_administrator_has_a_token(
    cluster: Guests, rules: list[Any], is_refused: bool
) -> None:
    add_lee(cluster, (b"*", ANY_RIGHT))  # a token, and no right to change users
    assert set_user(cluster, ROOT, (EVERYWHERE, ADMIN)) == c.OK  # the right, and no token
    before = cluster.machine.users.rules
    assert set_rules(cluster, *rules) == (c.LOCKED_OUT if is_refused else c.OK)
    assert cluster.machine.users.rules == (before if is_refused else tuple(rules))
    assert cluster.do(c.SET_TOKEN, 1, ROOT, ROOTS, 1) == c.OK
    assert set_rules(cluster, *rules) == c.OK
    # With these rules in force the administrator cannot go; without them it can.
    rows = cluster.machine.users.rows
    for command in (
        (c.SET_TOKEN, 1, ROOT, ROOTS, 0),
        (c.SET_USER, 1, ROOT, msgpack.packb(((EVERYWHERE, PUT),)), 0, 0, 0),
        (c.DROP_USER, 1, ROOT),
    ):
        if is_refused:
            is_named = command[0] == c.DROP_USER and any(rule[3] == ROOT for rule in rules)
            assert cluster.do(*command) == (c.BUSY if is_named else c.LOCKED_OUT)
            assert cluster.machine.users.rows is rows
    assert set_rules(cluster) == c.OK
    assert cluster.do(c.DROP_USER, 1, ROOT) == c.OK


def test_a_rule_for_some_callers_is_no_administrator(cluster: Guests) -> None:
    """Whether anybody calls from a network or with a certificate, the cluster cannot know."""
    lock(cluster)
    for rule in ((GRPC, TEN, b"", ROOT), (0, b"", b"ops.example", ROOT)):
        assert set_rules(cluster, rule) == c.OK
        assert cluster.do(c.SET_TOKEN, 1, ROOT, ROOTS, 0) == c.LOCKED_OUT
    # One for all callers of gRPC is, and anonymous, which it replaces, does not count any more.
    assert set_rules(cluster, (GRPC, b"", b"", ROOT)) == c.OK
    assert cluster.do(c.SET_TOKEN, 1, ROOT, ROOTS, 0) == c.OK
    cluster.open(9)
    assert cluster.do(c.AS_USER, 9, ROOT, b"") == c.OK  # as a caller by the rule
    less = (c.SET_USER, 9, ROOT, msgpack.packb(((EVERYWHERE, PUT),)), 0, 0, 0)
    no_rules = (c.SET_RULES, 9, msgpack.packb(()))
    assert cluster.do(*less) == c.LOCKED_OUT
    assert cluster.do(*no_rules) == c.LOCKED_OUT
    assert cluster.do(c.DROP_USER, 9, ANONYMOUS) == c.OK
    assert cluster.do(*no_rules) == c.OK

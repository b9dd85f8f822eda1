"""Shorthands for the commands of an administrator of users, for the tests of `core`.

Expected results belong in the tests.
"""

from typing import Any

import msgpack

from beanpole import commands as c
from beanpole.core.users import ANONYMOUS, ANY_RIGHT, EVERYWHERE
from tests.unit.core.cluster import Cluster

ROOT, LEE = b"root", b"lee"
ROOTS, LEES = b"r" * 32, b"l" * 32
# 10.0.0.0/8
TEN = b"\x08\x0a\0\0\0"


def set_user(
    cluster: Cluster,
    name: bytes,
    *rights: tuple[bytes, int],
    jobs_max: int = 0,
    bytes_max: int = 0,
    rate: int = 0,
) -> Any:
    limits = (jobs_max, bytes_max, rate)
    return cluster.do(c.SET_USER, 1, name, msgpack.packb(rights), *limits)


def set_rules(cluster: Cluster, *rules: tuple[int, bytes, bytes, bytes]) -> Any:
    return cluster.do(c.SET_RULES, 1, msgpack.packb(rules))


def lock(cluster: Cluster, *rights: tuple[bytes, int]) -> None:
    """Restrict anonymous sessions to these rights; session 1 becomes an administrator."""
    assert set_user(cluster, ROOT, (EVERYWHERE, ANY_RIGHT)) == c.OK
    assert cluster.do(c.SET_TOKEN, 1, ROOT, ROOTS, 1) == c.OK
    assert cluster.do(c.AS_USER, 1, b"", ROOTS) == c.OK
    assert set_user(cluster, ANONYMOUS, *rights) == c.OK


def add_lee(cluster: Cluster, *rights: tuple[bytes, int]) -> None:
    assert set_user(cluster, LEE, *rights) == c.OK
    assert cluster.do(c.SET_TOKEN, 1, LEE, LEES, 1) == c.OK

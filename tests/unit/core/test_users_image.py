"""Users, rules and the users of sessions in images and backups; invalid values are damage."""

from typing import Any

import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.image.contents import Contents
from beanpole.core.image.image import Image
from beanpole.core.image.restore import load
from beanpole.core.users import (
    ADMIN,
    ANONYMOUS,
    EVENTS,
    PUT,
    WORK,
    Rule,
)
from beanpole.errors import Damaged
from beanpole.events import GEARMAN
from tests.unit.core.cluster import chunks_of, copy_of, image_of, with_chunk
from tests.unit.core.guests import Guests
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

# Of the second user.
BIRTH = b"%b\2" % bytes(7)


def filled() -> Guests:
    cluster = Guests()
    lock(cluster, (b"mail", PUT))
    add_lee(cluster, (b"\x02turn*", WORK), (b"mail", ADMIN))
    for number in range(40):
        set_user(cluster, b"u%d" % number, (b"*", EVENTS))
    set_rules(cluster, (0, TEN, b"", LEE), (GEARMAN, b"", b"a.example", ANONYMOUS))
    return cluster


def test_an_image_has_users_rules_and_whose_sessions_are() -> None:
    cluster = filled()
    copy = copy_of(cluster.machine)
    assert image_of(copy) == image_of(cluster.machine)
    assert copy.users.rules[1] == Rule(GEARMAN, b"", b"a.example", ANONYMOUS)
    assert copy.users.owner(LEES) is copy.users.rows[LEE]
    assert copy.origins[0].sessions[1].token == ROOTS
    assert copy.users.bytes == cluster.machine.users.bytes
    cluster.machine = copy
    cluster.open(9)
    assert cluster.put(session=9) == c.DENIED


def test_an_image_in_progress_has_the_users_of_its_beginning() -> None:
    cluster = filled()
    before = image_of(cluster.machine)
    image = Image(cluster.machine)
    cluster.do(c.DROP_USER, 1, b"u7")
    set_rules(cluster)
    cluster.do(c.AS_USER, 2, b"", LEES)
    assert chunks_of(image) == before
    image.close()


def test_a_restored_cluster_has_them_and_no_session_that_had_them() -> None:
    contents, other = Contents(), Contents()
    cluster = filled()
    kept = [chunk for chunk in map(contents.take, image_of(cluster.machine)) if chunk is not None]
    assert {kind for kind, _ in kept} >= {"users"}
    cluster.do(c.SET_TOKEN, 1, LEE, LEES, 0)
    for chunk in image_of(cluster.machine):
        other.take(chunk)
    assert contents.digest() != other.digest()


def test_a_machine_without_users_has_no_chunk_of_them() -> None:
    """The digest of a backup is therefore the same as before users were introduced."""
    chunks = [msgpack.unpackb(chunk) for chunk in image_of(Guests().machine)]
    assert [chunk[1] for chunk in chunks if chunk[0] == "users"] == [None]


@pytest.mark.parametrize(
    "value",
    [
        *(5, ["users", 5], ["else", []], ["rules", [[0, b"", b"", b"who"]]], ["rules", []]),
        *(["rules", [[0, b"", b""]]], ["users", [[b"a", BIRTH, []]]], ["births", 3]),
        *(["users", [one]] for one in ([b"a b", BIRTH, [], []], [b"a", BIRTH, [], [[b"**", 1]]])),
        *(["users", [one]] for one in ([b"a", BIRTH, [b"short"], []], [5, BIRTH, [], []])),
        *(["users", [one]] for one in ([ANONYMOUS, BIRTH, [LEES], []], [LEE, BIRTH, [], []])),
        *(["users", [[b"a", BIRTH, [ROOTS] * number, []]]] for number in (2, 5)),
        *(["users", [[b"a", birth, [], []]]] for birth in (5, b"", b"short", bytes(8))),
        *(["users", [[b"a", b"%b%c" % (bytes(7), number), [], []]]] for number in (1, 3)),
        *(["users", [[b"a", BIRTH, tokens, []]]] for tokens in ([LEES], ["l" * 32])),
    ],
)
def test_a_damaged_image_is_told(value: Any) -> None:
    cluster = Guests()
    add_lee(cluster)
    set_user(cluster, b"gone")
    cluster.do(c.DROP_USER, 1, b"gone")
    with pytest.raises(Damaged):
        load(with_chunk(cluster.machine, "users", value))


@pytest.mark.parametrize("value", [0, -1, 2**64 - 1, b"1", None])
def test_a_wrong_number_of_births_is_damage(value: Any) -> None:
    with pytest.raises(Damaged):
        load(with_chunk(Guests().machine, "users", ["births", value]))


def test_the_births_of_users_that_are_gone_count_in_an_image() -> None:
    cluster = Guests()
    set_user(cluster, LEE)
    cluster.do(c.DROP_USER, 1, LEE)
    cluster.machine = copy_of(cluster.machine)
    set_user(cluster, LEE)
    assert cluster.machine.users.rows[LEE].birth == BIRTH
    assert load(with_chunk(Guests().machine, "users", ["births", 2**63])).users.births == 2**63


@pytest.mark.parametrize(
    ("user", "token"), [(5, b""), (b"a b", b""), (LEE, b"short"), (b"", LEES), (LEE, b"")]
)
def test_a_session_of_a_user_that_cannot_be_is_damage(user: Any, token: bytes) -> None:
    chunks = image_of(Guests().machine)
    place = next(n for n, chunk in enumerate(chunks) if msgpack.unpackb(chunk)[0] == "sessions")
    kind, sessions = msgpack.unpackb(chunks[place])
    sessions[0][-2:] = [user, token]
    chunks[place] = msgpack.packb([kind, sessions])
    # Compiled code rejects a wrong type before the check does.
    with pytest.raises(Damaged, match=r"of a user that cannot be|bytes object expected"):
        load(chunks)


def test_two_machines_that_differ_in_a_user_have_different_hashes() -> None:
    def after(*commands: c.Command) -> int:
        cluster = Guests()
        for command in commands:
            cluster.do(*command)
        return cluster.machine.state_hash

    rights = [msgpack.packb(((b"a", bits),)) for bits in (1, 2)]
    hashes = [after((c.SET_USER, 1, LEE, packed, 0, 0, 0)) for packed in rights]
    hashes += [after((c.SET_USER, 1, ROOT, rights[0], 0, 0, 0)), after((c.SET_RULES, 1, b"\x90"))]
    added = (c.SET_USER, 1, LEE, rights[0], 0, 0, 0)
    hashes += [after(added, (c.SET_TOKEN, 1, LEE, token, 1)) for token in (LEES, ROOTS)]
    hashes += [after(added, (c.DROP_USER, 1, LEE)), after(added, (c.AS_USER, 1, LEE, b""))]
    assert len(set(hashes)) == len(hashes)

"""Hosts: their numbers, the hosts of events, and hosts in images."""

from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings

from beanpole import commands as c
from beanpole import events as e
from beanpole.constants import HOST_NAME_MAX_BYTES, HOSTS_MAX
from beanpole.core import accounts
from beanpole.core import hosts as hosts_module
from beanpole.core.hosts import Hosts
from beanpole.core.image import parts
from beanpole.core.image.image import Image, pack
from beanpole.core.image.restore import load
from beanpole.core.machine import Machine
from beanpole.errors import Damaged
from tests.unit.core.cluster import Cluster, Entry, chunks_of, copy_of, events_of, image_of
from tests.unit.core.foreign import add_spaces
from tests.unit.core.logs import BUDGETS, LOGS, tighten

OLD, NEW = 3, 4
ONE, TWO = b"10.0.0.1", b"10.0.0.2"
SECRET = b"a secret of mine"


@pytest.fixture
def cluster() -> Cluster:
    """Make sessions 1 and 2 of two hosts, and a job."""
    cluster = Cluster()
    cluster.lead((c.RAISE, NEW))
    assert cluster.do(c.OPEN_FROM, 1, ONE) == c.OK
    assert cluster.do(c.OPEN_FROM, 2, TWO) == c.OK
    cluster.put()
    return cluster


def hosts_of(cluster: Cluster) -> list[bytes]:
    """Return the hosts of the events since the last call."""
    names = {0: b"", **cluster.machine.hosts.names}
    return [names[event.host] for event in events_of(cluster.machine)]


def test_an_event_has_the_host_of_its_session(cluster: Cluster) -> None:
    cluster.grant(2)
    cluster.do(c.RELEASE, 2, 1, 0, 3)
    cluster.do(c.KICK_JOB, 1, 1)
    assert hosts_of(cluster) == [ONE, TWO, TWO, ONE]


def test_a_session_that_lost_its_job_names_its_host_and_nobody_names_none(cluster: Cluster) -> None:
    cluster.grant(2)
    cluster.pass_s(61)
    cluster.do(c.RESERVE_JOB, 2, 1)
    cluster.do(c.CLOSE, 2, 1)
    cluster.put(delay_s=1)
    cluster.pass_s(2)
    found = events_of(cluster.machine)
    names = {0: b"", **cluster.machine.hosts.names}
    assert [(event.kind, names[event.host]) for event in found] == [
        (e.PUT, ONE),
        (e.RESERVED, TWO),
        (e.TIMED_OUT, TWO),
        (e.RESERVED, TWO),
        (e.RETURNED, TWO),
        (e.PUT, ONE),
        (e.DUE, b""),
    ]


def test_a_resumed_session_is_where_its_client_is_now(cluster: Cluster) -> None:
    cluster.do(c.KEEP, 2, SECRET, 9_000_000)
    cluster.grant(2)
    cluster.do(c.CLOSE, 2, 1)
    cluster.do(c.OPEN_FROM, 3, b"unix")
    assert cluster.do(c.RESUME, 3, SECRET) == c.OK
    cluster.do(c.DELETE, 3, 1)
    assert hosts_of(cluster) == [ONE, TWO, b"unix"]


def test_numbers_are_dense_and_the_same_for_one_name(cluster: Cluster) -> None:
    for session in (3, 4):
        cluster.do(c.OPEN_FROM, session, TWO)
    cluster.do(c.OPEN_FROM, 1, b"taken")  # the session exists: the command has no effect
    cluster.do(c.OPEN_FROM, 5, b"unix")
    assert cluster.machine.hosts.names == {1: ONE, 2: TWO, 3: b"unix"}


@pytest.mark.parametrize("name", [b"", b"x" * (HOST_NAME_MAX_BYTES + 1)])
def test_a_name_that_is_too_long_or_none_opens_no_session(cluster: Cluster, name: bytes) -> None:
    assert cluster.do(c.OPEN_FROM, 3, name) == c.BAD_COMMAND
    assert cluster.do(c.OPEN, 3) == c.OK
    assert len(cluster.machine.hosts.names) == 2


def test_an_open_without_a_host_has_none(cluster: Cluster) -> None:
    cluster.open(3)
    cluster.put(session=3)
    assert hosts_of(cluster) == [ONE, b""]


def test_a_host_too_many_is_not_known() -> None:
    """The table is never emptied: once it is full, further hosts have the number UNKNOWN."""
    hosts = Hosts()
    for place in range(HOSTS_MAX):
        assert hosts.number(b"%d" % place) == place + 1
    assert hosts.number(b"more") == hosts_module.UNKNOWN
    assert hosts.number(b"7") == 8
    assert len(hosts.names) == HOSTS_MAX


def test_the_last_host_has_room_in_a_record_beside_the_last_origin() -> None:
    cluster = Cluster()
    cluster.lead((c.RAISE, NEW))
    for place in range(HOSTS_MAX - 1):
        cluster.machine.hosts.number(b"%d" % place)
    last = c.LEADER - 1
    cluster.do(c.OPEN_FROM, 1, ONE, origin=last)
    cluster.do(c.PUT, 1, b"default", 0, 0, 60, b"", origin=last)
    (event,) = events_of(cluster.machine)
    assert (event.kind, event.host, event.origin) == (e.PUT, HOSTS_MAX, last)
    assert (event.before, event.state, event.reason) == (0, 1, e.NO_REASON)


@pytest.mark.parametrize("version", [2, OLD])
def test_before_its_version_there_is_no_such_operation(version: int) -> None:
    cluster = Cluster()
    cluster.lead((c.RAISE, version))
    assert cluster.do(c.OPEN_FROM, 1, ONE) == c.BAD_COMMAND
    assert not cluster.machine.hosts.names
    assert cluster.do(c.OPEN, 1) == c.OK


def test_the_running_hash_sees_another_host() -> None:
    def digest(name: bytes) -> int:
        cluster = Cluster()
        cluster.lead((c.RAISE, NEW))
        for session, host in enumerate((ONE, TWO, name), 1):
            cluster.do(c.OPEN_FROM, session, host)
        return cluster.machine.state_hash

    assert digest(ONE) != digest(TWO)
    assert digest(ONE) == digest(ONE)


def test_hosts_count_in_memory_and_in_images(cluster: Cluster) -> None:
    machine = cluster.machine
    memory, image = accounts.memory_bytes(machine), accounts.image_bytes(machine)
    machine.hosts.number(b"more")
    assert accounts.memory_bytes(machine) == memory + accounts.HOST_BYTES
    assert accounts.image_bytes(machine) == image + accounts.HOST_IMAGE_BYTES
    assert len(pack([b"x" * HOST_NAME_MAX_BYTES])) <= 1 + accounts.HOST_IMAGE_BYTES


# --- images ---------------------------------------------------------------------------------------


def kinds_of(chunks: list[bytes]) -> dict[str, list[Any]]:
    """Return the values of an image's chunks by their kinds."""
    found: dict[str, list[Any]] = {}
    for kind, value in map(unpack, chunks[1:]):
        found.setdefault(kind, []).append(value)
    return found


def unpack(chunk: bytes) -> Any:
    return msgpack.unpackb(chunk, strict_map_key=False)


def test_a_copy_knows_the_hosts_and_goes_on_alike(cluster: Cluster) -> None:
    cluster.grant(2)
    events_of(cluster.machine)
    copy = copy_of(cluster.machine)
    assert image_of(copy) == image_of(cluster.machine)
    assert copy.hosts.names == cluster.machine.hosts.names
    entry = (99, 0, cluster.time_us, 0, [cluster.section((c.BURY, 2, 1, 0), (c.OPEN_FROM, 3, ONE))])
    copy.apply(*entry)
    cluster.machine.apply(*entry)
    assert events_of(copy) == events_of(cluster.machine)
    assert image_of(copy) == image_of(cluster.machine)


def test_an_image_of_version_3_has_neither_hosts_nor_a_field_for_one() -> None:
    cluster = Cluster()
    cluster.lead((c.RAISE, OLD))
    cluster.open(1)
    old = image_of(cluster.machine)
    assert "hosts" not in kinds_of(old)
    assert len(kinds_of(old)["sessions"][0][0]) == 15
    machine = load(old)
    assert machine.version == OLD
    machine.apply(50, 0, cluster.time_us, 0, [(c.LEADER, 0, 0, ((c.RAISE, NEW),))])
    cluster.machine.apply(50, 0, cluster.time_us, 0, [(c.LEADER, 0, 0, ((c.RAISE, NEW),))])
    new = image_of(machine)
    assert new == image_of(cluster.machine)
    assert kinds_of(new)["hosts"] == [None]
    assert len(kinds_of(new)["sessions"][0][0]) == 18
    put = [cluster.section((c.PUT, 1, b"default", 0, 0, 60, b""), (c.OPEN_FROM, 2, ONE))]
    machine.apply(51, 0, cluster.time_us, 0, put)
    (event,) = events_of(machine)
    assert event.host == 0  # the session is older than hosts


def test_many_hosts_are_in_many_chunks_as_they_were_when_the_image_began() -> None:
    cluster = Cluster()
    cluster.lead((c.RAISE, NEW))
    count = 2 * parts.CHUNK_HOSTS + 5
    for place in range(count):
        cluster.machine.hosts.number(b"host %d" % place)
    image = Image(cluster.machine)
    before = image_of(cluster.machine)
    cluster.do(c.OPEN_FROM, 1, b"later")
    assert chunks_of(image) == before
    image.close()
    found = kinds_of(before)["hosts"]
    assert [None if names is None else len(names) for names in found] == [
        *[parts.CHUNK_HOSTS] * 2,
        5,
        None,
    ]
    assert load(before).hosts.names == {place + 1: b"host %d" % place for place in range(count)}


@pytest.mark.parametrize(
    "names",
    [
        [ONE, ONE],
        [b""],
        [b"x" * (HOST_NAME_MAX_BYTES + 1)],
        ["10.0.0.1"],
        [7],
        7,
        [ONE],  # one session has the second host
        [],
    ],
)
def test_hosts_that_cannot_be_are_damage(cluster: Cluster, names: Any) -> None:
    chunks = image_of(cluster.machine)
    place = chunks.index(pack(["hosts", [ONE, TWO]]))
    chunks[place] = pack(["hosts", names])
    with pytest.raises(Damaged):
        load(chunks)


@pytest.mark.parametrize("host", [-1, 3, 2**64 - 1, None, b"1"])
def test_a_session_of_a_host_that_is_not_there_is_damage(cluster: Cluster, host: Any) -> None:
    chunks = image_of(cluster.machine)
    place = next(at for at, chunk in enumerate(chunks) if unpack(chunk)[0] == "sessions")
    kind, sessions = unpack(chunks[place])
    for changed in ([*sessions[0][:-1], host], sessions[0][:-1], [*sessions[0], 1]):
        wrong = list(chunks)
        wrong[place] = msgpack.packb([kind, [changed, *sessions[1:]]])
        with pytest.raises(Damaged):
            load(wrong)


# --- any log --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spaces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_spaces(patch)
        yield


class Named:
    """The hosts of each session's attachments, from the results of its commands alone."""

    def __init__(self) -> None:
        self.hosts: dict[tuple[int, int, int], set[bytes]] = {}

    def take(self, entry: Entry, own: int, results: list[tuple[int, int, list[Any]]]) -> None:
        """Record the results of an origin's batches."""
        applied = {(incarnation, number): found for incarnation, number, found in results}
        for origin, incarnation, number, commands in entry[4]:
            found = applied.get((incarnation, number)) if origin == own else None
            for command, result in zip(commands, found or [], strict=False):
                if command[0] in (c.OPEN, c.OPEN_FROM) and result == c.OK:
                    name = command[2] if command[0] == c.OPEN_FROM else b""
                    self.hosts.setdefault((origin, incarnation, command[1]), set()).add(name)


@pytest.mark.usefixtures("spaces")
@settings(deadline=None)
@given(LOGS, BUDGETS)
def test_the_host_of_an_event_is_that_of_the_open_of_its_session(
    entries: list[Entry], transitions: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        tighten(patch, transitions)
        machines = [Machine(), Machine()]
        named = Named()
        for entry in entries:
            for own, machine in enumerate(machines):
                named.take(entry, own, machine.apply(*entry, own=own).results)
            names = machines[0].hosts.names
            for event in events_of(machines[0]):
                if event.origin == e.NO_ORIGIN:
                    assert event.host == 0
                    continue
                wanted = named.hosts[event.origin, event.incarnation, event.session]
                if event.host:
                    assert names[event.host] in wanted
                else:
                    # The session named no host, or one beyond the limit.
                    assert b"" in wanted or wanted - set(names.values())

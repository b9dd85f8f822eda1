"""RAISE and later operations: the log alone determines a machine's version.

A newer program that replays the log of an older one therefore does the same.
"""

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.machine import Machine
from beanpole.core.operations import changes, leading
from beanpole.core.operations.operation import BODY, FREE, SESSION, ClientOperation, LeaderOperation
from beanpole.core.operations.table import OPERATIONS
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState
from tests.unit.core.cluster import Cluster, copy_of

NEW = c.BASE_VERSION + 1
# An operation that no program knows yet.
INVENTED = 31


def double(machine: MachineState, origin: Origin, command: c.Command) -> int:
    """Put two jobs for one command."""
    for _ in range(2):
        changes.put(machine, origin, (c.PUT, command[1], b"default", 0, 0, 1, command[2]))
    return c.OK


ENTRY = ClientOperation(INVENTED, (SESSION, BODY), double, FREE, since=NEW)


@pytest.fixture
def invented(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a program of the next release, which knows one operation more."""
    monkeypatch.setitem(OPERATIONS, INVENTED, ENTRY)


@pytest.mark.constants
def test_a_machine_begins_at_the_base_whatever_the_program_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At 519da29 it began at the program's version, so upgraded nodes differed from the others."""
    monkeypatch.setattr(c, "MACHINE_VERSION", NEW)
    assert Machine().version == c.BASE_VERSION == 2


def test_only_raise_takes_it_further() -> None:
    cluster = Cluster()
    assert not cluster.lead((c.EPOCH, 1, 0, 9, 9, 9, 9)).raised
    assert cluster.machine.version == c.BASE_VERSION
    assert cluster.lead((c.RAISE, NEW)).raised
    assert cluster.machine.version == NEW
    assert copy_of(cluster.machine).version == NEW


@pytest.mark.parametrize("version", [-1, 0, c.BASE_VERSION, NEW, c.VERSION_MAX + 1, 2**70])
def test_it_never_sinks_and_never_leaves_its_bounds(version: int) -> None:
    cluster = Cluster()
    cluster.lead((c.RAISE, NEW))
    assert not cluster.lead((c.RAISE, version)).raised
    assert cluster.machine.version == NEW


def test_the_running_chain_shows_it() -> None:
    raised, other = Cluster(), Cluster()
    raised.lead((c.RAISE, NEW))
    other.lead()
    assert raised.machine.state_hash != other.machine.state_hash


@pytest.mark.usefixtures("invented")
def test_an_operation_of_a_later_version_is_a_bad_command_before() -> None:
    cluster = Cluster()
    cluster.open(1)
    assert cluster.do(INVENTED, 1, b"x") == c.BAD_COMMAND
    assert len(cluster.machine.queue.jobs) == 0
    cluster.lead((c.RAISE, NEW))
    assert cluster.do(INVENTED, 1, b"x") == c.OK
    assert len(cluster.machine.queue.jobs) == 2


def test_the_program_that_does_not_know_it_makes_the_same_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hashes agree entry by entry, up to the RAISE: they do not depend on the program."""
    old = Cluster()
    old.open(1)
    assert old.do(INVENTED, 1, b"x") == c.BAD_COMMAND
    old.put()
    chain = old.machine.state_hash
    monkeypatch.setitem(OPERATIONS, INVENTED, ENTRY)
    machine = Machine()
    for entry in old.log:
        machine.apply(*entry)
    assert machine.state_hash == chain
    assert machine.queue.jobs_total == 1


def test_a_leaders_command_of_a_later_version_does_nothing_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = LeaderOperation(c.DIGEST, (), leading.digest, since=NEW)
    monkeypatch.setitem(OPERATIONS, c.DIGEST, entry)
    cluster = Cluster()
    assert not cluster.lead((c.DIGEST,)).digest
    assert cluster.lead((c.RAISE, NEW), (c.DIGEST,)).digest


@pytest.mark.usefixtures("invented")
def test_a_machine_from_an_image_has_the_operations_of_its_version() -> None:
    cluster = Cluster()
    cluster.open(1)
    cluster.lead((c.RAISE, NEW))
    cluster.machine = copy_of(cluster.machine)
    assert cluster.do(INVENTED, 1, b"x") == c.OK


def test_a_protocol_of_a_later_version_is_refused_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that does not know the protocol refuses it; both programs must agree."""
    later = max(e.PROTOCOL_NAMES) + 1
    monkeypatch.setitem(e.PROTOCOL_NAMES, later, "later")
    monkeypatch.setitem(e.PROTOCOL_SINCE, later, NEW)
    cluster = Cluster()
    cluster.open(1)
    assert cluster.do(c.SET_PROTOCOL, 1, later) == c.BAD_COMMAND
    assert cluster.do(c.SET_PROTOCOL, 1, e.GRPC) == c.OK
    cluster.lead((c.RAISE, NEW))
    assert cluster.do(c.SET_PROTOCOL, 1, later) == c.OK


@pytest.mark.parametrize("since", [e.KIND_SINCE, e.PROTOCOL_SINCE])
def test_versions_of_tables_are_later_than_the_base_and_known(since: dict[int, int]) -> None:
    assert all(c.BASE_VERSION < version <= c.MACHINE_VERSION for version in since.values())

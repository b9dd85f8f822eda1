"""Clients' administrative commands in the audit log whose end their node cannot foresee.

The right may end half-way, or be given at another node; the client may leave before the answer.
"""

import pytest

from beanpole import commands as c
from beanpole.constants import KICKS_PER_ENTRY_MAX
from beanpole.core.users import ADMIN, PUT
from beanpole.events import GEARMAN, QLESS
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import request
from beanpole.protocol.gearman.parser import TEXT
from beanpoled.audit.alike import Alike
from beanpoled.audit.entry import Entry
from beanpoled.frontends.gearman.shared import PREFIX
from beanpoled.origin.batches import NOT_DONE, UNKNOWN
from tests.unit.beanpoled.auth_scene import TOKEN, change_rights, gearman, give_users
from tests.unit.beanpoled.follower_scene import FollowerScene
from tests.unit.beanpoled.gearman_scene import Client, Scene, handle
from tests.unit.beanpoled.qless_scene import Client as QlessClient
from tests.unit.beanpoled.qless_scene import Scene as QlessScene

DENIED = "ERR ACCESS_DENIED The+user+may+not+do+this"
HALF_DENIED = "ERR ACCESS_DENIED The+right+has+ended,+and+some+jobs+are+deleted"


def apply_one(scene: FollowerScene) -> None:
    """Apply the batch of this node that is in flight; another one may follow it."""
    scene.run()
    ((number, batch),) = scene.node.origin._numbered.items()
    sections = [(0, 1, number, batch.payload)]
    scene.apply(c.encode_entry(0, scene.machine.queue.now_us, 0, sections))
    scene.run()


def half_dropped() -> tuple[Scene, Client, list[Entry]]:
    """Let an administrator drop a function, of which the first of several steps is done."""
    scene, client = gearman((b"f", PUT | ADMIN))
    told: list[Entry] = []
    scene.node.clients.audit = Alike(told.append).add
    client.text(b"auth %b\n" % TOKEN)
    client.connection.received(request(p.SUBMIT_JOB_BG, b"f", b"", b"x") * KICKS_PER_ENTRY_MAX)
    scene.commit_own()
    client.replies()
    change_rights(scene, GEARMAN, (b"f", PUT))
    assert client.text(b"drop function f\n").decode() == DENIED + "\r\n"
    change_rights(scene, GEARMAN, (b"f", PUT | ADMIN))
    client.connection.received(b"drop function f\n")
    apply_one(scene)
    assert 0 < len(scene.machine.queue.jobs) < KICKS_PER_ENTRY_MAX
    assert [one.outcome for one in told] == [DENIED]
    told.clear()
    return scene, client, told


def test_a_right_that_ends_half_way() -> None:
    """The jobs were deleted without a line: it was counted as the refusal before it."""
    scene, client, told = half_dropped()
    change_rights(scene, GEARMAN, (b"f", PUT))
    scene.commit_own()
    assert client.port.take().decode() == HALF_DENIED + "\r\n"
    assert [(one.outcome, one.alike) for one in told] == [("BEGUN, " + HALF_DENIED, 0)]


def test_a_function_that_is_used_again_half_way() -> None:
    scene, client, told = half_dropped()
    root = (c.AS_USER, 2, b"", b"r" * 32)
    scene.others((c.OPEN, 2), (c.SET_PROTOCOL, 2, GEARMAN), root, (c.WATCH, 2, PREFIX + b"f"))
    scene.commit_own()
    busy = "ERR there are still connected workers or executing clients"
    assert client.port.take().decode() == busy + "\r\n"
    assert [one.outcome for one in told] == ["BEGUN, " + busy]


def test_a_majority_that_is_lost_half_way() -> None:
    _, client, told = half_dropped()
    client.connection.failed(TEXT, NOT_DONE)
    lost = "ERR QUEUE_ERROR No+majority+of+the+nodes+answers;+some+jobs+are+deleted"
    client.scene.node.clients.flush()
    assert client.port.take().decode() == lost + "\r\n"
    assert [one.outcome for one in told] == ["BEGUN, " + lost]


def test_a_client_that_leaves_half_way() -> None:
    scene, client, told = half_dropped()
    client.connection.lost()
    scene.commit_own()
    assert [one.outcome for one in told] == ["BEGUN, UNKNOWN"]


def test_a_right_that_has_ended_before() -> None:
    """The node does not know it yet: nothing is done, as in any refusal."""
    scene, client = gearman((b"f", PUT | ADMIN))
    told: list[Entry] = []
    scene.node.clients.audit = Alike(told.append).add
    client.text(b"auth %b\n" % TOKEN)
    for _ in range(3):
        change_rights(scene, GEARMAN, (b"f", PUT | ADMIN))
        client.connection.received(b"drop function f\n")
        change_rights(scene, GEARMAN, (b"f", PUT))
        scene.commit_own()
        assert client.port.take().decode() == DENIED + "\r\n"
    assert [one.outcome for one in told] == [DENIED]


# --- rights that the node does not know yet -----------------------------------------------------

LINES = (b"create function g", b"drop function f", b"maxqueue f 1", b"cancel job " + handle(1))


def left(line: bytes) -> tuple[Scene, Client, list[Entry]]:
    """Let a client without the right send a line, and leave."""
    scene, client = gearman((b"f", PUT))
    client.text(b"auth %b\n" % TOKEN)
    client.ask(p.SUBMIT_JOB_BG, b"f", b"", b"x")
    told: list[Entry] = []
    scene.node.clients.audit = told.append
    client.connection.received(line + b"\n")
    client.connection.lost()
    assert [(one.outcome, one.refused) for one in told] == [("UNKNOWN", True)]
    told.clear()
    return scene, client, told


@pytest.mark.parametrize("line", LINES)
def test_a_change_that_is_done_after_its_client_has_left(line: bytes) -> None:
    """There was no line if another was refused within a minute before."""
    scene, _, told = left(line)
    change_rights(scene, GEARMAN, (b"*", ADMIN))  # comes first in the log
    scene.commit_own()
    lines = [(one.arguments["line"], one.user, one.outcome, one.refused) for one in told]
    assert lines == [(line.decode(), "lee", "OK", False)]


@pytest.mark.parametrize("line", LINES)
def test_a_change_that_is_refused_after_its_client_has_left(line: bytes) -> None:
    scene, client, told = left(line)
    scene.commit_own()
    client.connection.drop()
    assert not told and len(scene.machine.queue.jobs) == 1


def test_a_function_that_is_dropped_in_part_after_its_client_has_left() -> None:
    scene, client = gearman((b"f", PUT))
    client.text(b"auth %b\n" % TOKEN)
    client.connection.received(request(p.SUBMIT_JOB_BG, b"f", b"", b"x") * KICKS_PER_ENTRY_MAX)
    scene.commit_own()
    told: list[Entry] = []
    scene.node.clients.audit = told.append
    client.connection.received(b"drop function f\n")
    client.connection.lost()
    change_rights(scene, GEARMAN, (b"f", ADMIN))
    scene.commit_own()
    assert 0 < len(scene.machine.queue.jobs) < KICKS_PER_ENTRY_MAX
    assert [(one.outcome, one.refused) for one in told] == [
        ("UNKNOWN", True),
        ("BEGUN, UNKNOWN", False),
    ]


@pytest.mark.parametrize(("why", "outcomes"), [(UNKNOWN, ["UNKNOWN"]), (NOT_DONE, [])])
def test_a_change_without_an_answer_after_its_client_has_left(
    why: int, outcomes: list[str]
) -> None:
    _, client, told = left(LINES[0])
    for _ in range(2):
        client.connection.failed(TEXT, why)
    assert [(one.outcome, one.refused) for one in told] == [(one, False) for one in outcomes]


def test_a_connection_that_is_closed_because_its_answers_are_lost() -> None:
    """A snapshot covers them: the change may be done, whatever the node knew of the right."""
    scene, client = gearman((b"f", PUT))
    client.text(b"auth %b\n" % TOKEN)
    told: list[Entry] = []
    scene.node.clients.audit = told.append
    client.connection.received(b"create function f\n")
    client.connection.drop()
    assert [(one.outcome, one.refused) for one in told] == [("UNKNOWN", False)]


# --- qless --------------------------------------------------------------------------------------


def flushed_and_left() -> tuple[QlessScene, QlessClient, list[Entry]]:
    """Let a client without the right send FLUSHALL, and leave."""
    scene = QlessScene(qless_flush="on")
    give_users(scene, QLESS, (b"*", PUT))
    client = scene.connect()
    client.ask(b"AUTH lee %b\r\n" % TOKEN)
    told: list[Entry] = []
    scene.node.clients.audit = told.append
    client.connection.received(b"FLUSHALL\r\n")
    client.connection.lost()
    assert [(one.outcome, one.refused) for one in told] == [("BEGUN without the right", True)]
    told.clear()
    return scene, client, told


@pytest.mark.parametrize(("rights", "outcomes"), [(ADMIN, ["OK"]), (PUT, [])])
def test_a_flush_that_is_answered_after_its_client_has_left(
    rights: int, outcomes: list[str]
) -> None:
    """All was removed without a line if another flush was refused within a minute before."""
    scene, client, told = flushed_and_left()
    change_rights(scene, QLESS, (b"*", rights))  # comes first in the log
    scene.commit_own()
    client.connection.drop()
    assert [(one.user, one.outcome, one.refused) for one in told] == [
        ("lee", one, False) for one in outcomes
    ]


@pytest.mark.parametrize(("why", "outcomes"), [(UNKNOWN, ["UNKNOWN"]), (NOT_DONE, [])])
def test_a_flush_without_an_answer_after_its_client_has_left(why: int, outcomes: list[str]) -> None:
    scene, client, told = flushed_and_left()
    ((_, kind, _),) = [one for one in scene.node.origin._open.owners if one[0] is not None]
    for _ in range(2):
        client.connection.failed(kind, why)
    client.connection.drop()
    assert [(one.outcome, one.refused) for one in told] == [(one, False) for one in outcomes]


def test_a_flush_that_is_refused_leaves_nothing_to_record() -> None:
    scene = QlessScene(qless_flush="on")
    give_users(scene, QLESS, (b"*", PUT))
    client = scene.connect()
    client.ask(b"AUTH lee %b\r\n" % TOKEN)
    told: list[Entry] = []
    scene.node.clients.audit = told.append
    assert client.ask(b"FLUSHALL\r\n").startswith(b"-NOPERM")
    client.connection.drop()
    assert [(one.outcome, one.refused) for one in told] == [("BEGUN without the right", True)]

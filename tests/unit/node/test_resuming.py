"""`keep` and `resume` at one node: the reply to each connection, and detection of the commands."""

import pytest

from beanpole import commands as c
from tests.unit.node.settling import settle
from tests.unit.node.stage import Stage

TOKEN = b"0123456789abcdefghijkl"
KEEP = b"keep " + TOKEN + b" 60\r\n"
RESUME = b"resume " + TOKEN + b"\r\n"
WORK = b"put 0 0 60 1\r\nx\r\nreserve-with-timeout 0\r\n"


@pytest.fixture
def stage() -> Stage:
    found = Stage()
    found.lead()
    found.come_up()
    found.node.context.machine.activate(4)
    return found


def test_another_connection_takes_the_session_over(stage: Stage) -> None:
    first, port = stage.client(KEEP + b"use t\r\nwatch t\r\nignore default\r\n" + WORK)
    settle(stage)
    replies = b"KEPT\r\nUSING t\r\nWATCHING 2\r\nWATCHING 1\r\nINSERTED 1\r\nRESERVED 1 1\r\nx\r\n"
    assert port.take() == replies
    second, other = stage.client(
        RESUME + b"touch 1\r\nlist-tube-used\r\nignore t\r\nwatch default\r\n"
    )
    settle(stage)
    assert other.take() == (
        b"RESUMED 1\r\n1\r\nTOUCHED\r\nUSING t\r\nNOT_IGNORED\r\nWATCHING 2\r\n"
    ), "its tubes came along"
    assert second.is_worker
    # Further commands of the first connection have no effect, and it is closed without a reply.
    first.received(b"stats\r\ndelete 1\r\n")
    settle(stage)
    assert port.take() == b""
    assert first.closed
    second.received(b"delete 1\r\n")
    settle(stage)
    assert other.take() == b"DELETED\r\n"


def test_a_tube_that_is_an_alias_keeps_its_name(stage: Stage) -> None:
    stage.batch("n1", 1, (c.OPEN, 1), (c.SET_ALIAS, 1, b"mail", b"\x02function"), first=True)
    settle(stage)
    _, port = stage.client(KEEP + b"use mail\r\nwatch mail\r\n")
    settle(stage)
    assert port.take() == b"KEPT\r\nUSING mail\r\nWATCHING 2\r\n"
    _, other = stage.client(RESUME + b"list-tube-used\r\n" + WORK + b"ignore mail\r\n")
    settle(stage)
    assert other.take() == (
        b"RESUMED 0\r\n\r\nUSING mail\r\nINSERTED 1\r\nRESERVED 1 1\r\nx\r\nWATCHING 1\r\n"
    )


@pytest.mark.parametrize(
    ("queue", "name"), [(b"\x02function", b"function"), (b"\x02no name", b"default")]
)
def test_a_tube_whose_alias_is_removed_has_a_name(stage: Stage, queue: bytes, name: bytes) -> None:
    """It was the queue's own, with which no tube can be named: each put was INTERNAL_ERROR."""
    stage.batch("n1", 1, (c.OPEN, 1), (c.SET_ALIAS, 1, b"mail", queue), first=True)
    settle(stage)
    stage.client(KEEP + b"use mail\r\n")
    settle(stage)
    stage.batch("n1", 2, (c.SET_ALIAS, 1, b"mail", b""))
    _, other = stage.client(RESUME + b"list-tube-used\r\nput 0 0 60 1\r\nx\r\n")
    settle(stage)
    assert other.take() == b"RESUMED 0\r\n\r\nUSING %b\r\nINSERTED 1\r\n" % name


@pytest.mark.parametrize("wait", [b"reserve\r\n", b"reserve-with-timeout 600\r\n"])
def test_a_wait_ends_when_another_connection_takes_the_session_over(
    stage: Stage, wait: bytes
) -> None:
    first, port = stage.client(KEEP + wait)
    settle(stage)
    assert port.take() == b"KEPT\r\n" and first.is_waiting
    second, other = stage.client(RESUME + wait)
    settle(stage)
    stage.pass_us(200_000)
    assert first.closed and port.take() == b""
    assert not second.closed and second.is_waiting
    stage.client(b"put 0 0 60 1\r\nx\r\n")
    settle(stage)
    assert other.take() == b"RESUMED 0\r\n\r\nRESERVED 1 1\r\nx\r\n"


def test_a_wait_whose_session_is_not_open_yet_goes_on(stage: Stage) -> None:
    """Its session is missing, too: the batch that opens it is not applied."""
    stage.become("follower", None, 2)
    first, _ = stage.client(KEEP + b"reserve\r\n")
    stage.pass_us(1_000_000)
    assert not first.closed
    stage.lead(3)
    settle(stage)
    stage.pass_us(1_000_000)
    assert not first.closed and first.is_waiting


@pytest.mark.parametrize("first", [KEEP, RESUME])
def test_a_client_without_a_session_is_told_so(stage: Stage, first: bytes) -> None:
    stage.node.context.machine.sessions_max = 0
    connection, port = stage.client(first)
    settle(stage)
    assert connection.closed and port.take() == b"OUT_OF_MEMORY\r\n"


def test_a_lost_session_waits_and_one_that_quits_does_not(stage: Stage) -> None:
    first, _ = stage.client(KEEP + WORK)
    settle(stage)
    first.lost()
    settle(stage)
    assert stage.node.context.machine.queue.jobs[1].holder is not None
    _, port = stage.client(RESUME + b"quit\r\n")
    settle(stage)
    assert port.take() == b"RESUMED 1\r\n1\r\n"
    assert stage.node.context.machine.queue.jobs[1].holder is None
    _, port = stage.client(RESUME)
    settle(stage)
    assert port.take() == b"NOT_FOUND\r\n"


def test_of_two_in_one_entry_the_first_is_told_nothing(stage: Stage) -> None:
    """The first may be the client's latest attempt, and `NOT_FOUND` would be wrong."""
    first, _ = stage.client(KEEP + WORK)
    settle(stage)
    first.lost()
    settle(stage)
    newer, port = stage.client(b"")
    other, older = stage.client(b"")
    for connection in (newer, other):
        connection.received(RESUME)
    stage.run()
    settle(stage)
    assert newer.closed and port.take() == b""
    assert older.take() == b"RESUMED 1\r\n1\r\n"


def test_a_token_is_taken_once(stage: Stage) -> None:
    stage.client(KEEP)
    _, port = stage.client(KEEP + b"list-tube-used\r\n")
    settle(stage)
    assert port.take() == b"INTERNAL_ERROR\r\nUSING default\r\n"


def test_no_token_is_in_the_machine(stage: Stage) -> None:
    """A reader of a log, a snapshot or a backup could otherwise take the session over."""
    stage.client(KEEP)
    settle(stage)
    (secret,) = stage.node.context.machine.resumable
    assert TOKEN not in secret and len(secret) == 32


def test_an_older_machine_does_not_know_the_words(stage: Stage) -> None:
    stage.node.context.machine.activate(3)
    _, port = stage.client(KEEP + RESUME + b"extensions\r\n")
    settle(stage)
    unknown = 2 * b"UNKNOWN_COMMAND\r\n"
    assert port.take() == unknown + b"OK 17\r\n---\n- put-unique\n\r\n"
    stage.node.context.machine.activate(4)
    _, port = stage.client(b"extensions\r\n")
    settle(stage)
    assert port.take() == b"OK 40\r\n---\n- put-unique\n- keep\n- resume\n- auth\n\r\n"


def test_a_key_makes_one_job(stage: Stage) -> None:
    put = b"put-unique k 0 0 60 1\r\nx\r\n"
    _, port = stage.client(put + b"delete 1\r\n" + put + b"stats\r\n")
    settle(stage)
    assert port.take().startswith(b"INSERTED 1\r\nDELETED\r\nEXISTS 1\r\nOK ")
    stage.node.context.draining = True
    _, port = stage.client(put)
    settle(stage)
    assert port.take() == b"DRAINING\r\n"

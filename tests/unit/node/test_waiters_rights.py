"""Waits of clients that lack, or lose, the right to work on some watched tubes."""

from typing import Any

import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.users import ANONYMOUS, EVERYWHERE, PUT
from beanpoled.leading import dispatching
from beanpoled.links import frames
from beanpoled.turn.node import TURN_PERIOD_US
from tests.unit.node.stage import SECOND, Stage, config, grants, put

LEE, LEES = b"lee", b"l" * 32
MAIL = (b"mail", 15)


class Rights(Stage):
    """A leader at version 4. Session 1 of n1 is an administrator's, session 2 is lee's."""

    def __init__(self, *rights: tuple[bytes, int]) -> None:
        super().__init__()
        self.lead()
        self.come_up()
        self.node.leader.term.commands.append((c.RAISE, 4))
        self.number = 0
        self.do((c.OPEN, 1), (c.OPEN, 2), first=True)
        self.do(self.user(b"root", (EVERYWHERE, 15)), (c.SET_TOKEN, 1, b"root", b"r" * 32, 1))
        self.do((c.AS_USER, 1, b"", b"r" * 32), self.user(LEE, (b"*", 15)))
        self.do((c.SET_TOKEN, 1, LEE, LEES, 1), (c.AS_USER, 2, b"", LEES))
        self.do((c.WATCH, 2, b"mail"), self.user(ANONYMOUS), self.user(LEE, *rights))

    def user(self, name: bytes, *rights: tuple[bytes, int]) -> c.Command:
        return c.SET_USER, 1, name, msgpack.packb(rights), 0, 0, 0

    def do(self, *commands: c.Command, **how: Any) -> None:
        self.number += 1
        self.batch("n1", self.number, *commands, **how)
        self.settle()

    def settle(self) -> int:
        """Commit until nothing is proposed; return the number of entries."""
        for entries in range(20):
            self.pass_us(TURN_PERIOD_US)
            if not self.replica.proposed:
                return entries
            self.commit(1)
        raise AssertionError("the leader proposes again and again")

    def wait(self, session: int = 2, request: int = 1) -> None:
        self.items("n1", frames.WAITS, (session, request, 0))

    def granted(self) -> list[bytes]:
        """Return the bodies of the jobs that session 2 holds."""
        session = self.node.context.machine.origins[1].sessions[2]
        return [job.body for job in session.reserved.values()]


def test_a_waiter_stands_in_the_lines_of_what_it_may_work_on_only() -> None:
    stage = Rights(MAIL)
    stage.wait()
    stage.do(put(body=b"closed"))
    assert stage.granted() == []
    assert grants(stage) == []
    stage.do(put(tube=b"mail", body=b"open"))
    assert stage.granted() == [b"open"]


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_waiter_whose_right_ends_does_not_keep_the_leader_busy(is_ready: bool) -> None:
    """A GRANT that fails for lack of the right would be proposed forever."""
    stage = Rights((b"*", 15))
    stage.wait()
    if is_ready:  # the GRANT follows the loss of the right in the log
        stage.number += 1
        stage.batch("n1", stage.number, stage.user(LEE), put(body=b"x"))
        assert stage.settle() < 10
    else:
        stage.do(stage.user(LEE))
        stage.do(put(body=b"x"))
    assert stage.granted() == []
    stage.do(stage.user(LEE, (b"default", 15)))
    assert stage.granted() == [b"x"]  # it keeps waiting until it has the right


@pytest.mark.constants
def test_many_waiters_whose_rights_change_move_a_few_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those beyond the first turn kept their old lines until another entry came."""
    stage = Rights((b"*", 15))
    sessions = range(2, 7)
    for session in sessions[1:]:
        stage.do((c.OPEN, session), (c.AS_USER, session, b"", LEES), (c.WATCH, session, b"mail"))
    for session in sessions:
        stage.wait(session)
    stage.settle()
    waiters = stage.node.leader.line.waiters.values()
    assert [waiter.tubes for waiter in waiters] == [(b"default", b"mail")] * len(sessions)
    monkeypatch.setattr(dispatching, "LOOKS_PER_TURN_MAX", 1)
    stage.number += 1
    stage.batch("n1", stage.number, stage.user(LEE, MAIL))
    stage.commit(1)
    stage.node.leader.proposer.propose()
    assert [waiter.tubes for waiter in waiters].count((b"mail",)) == 1
    stage.run()
    assert [waiter.tubes for waiter in waiters] == [(b"mail",)] * len(sessions)


def test_a_waiter_whose_token_is_dropped_gets_nothing() -> None:
    stage = Rights((b"*", 15))
    stage.wait()
    stage.do((c.SET_TOKEN, 1, LEE, LEES, 0))
    stage.do(put(body=b"x"))
    assert stage.granted() == []


def test_those_behind_it_get_what_it_may_not_have() -> None:
    stage = Rights(MAIL)
    stage.wait()
    stage.wait(session=1)
    stage.do(put(body=b"x"))
    session = stage.node.context.machine.origins[1].sessions[1]
    assert [job.body for job in session.reserved.values()] == [b"x"]


def test_a_reserve_without_a_right_waits_for_its_look_though_an_older_command_failed() -> None:
    """Both were sent while there was no leader; the failure of the put ended the node later."""
    stage = Rights(MAIL)
    stage.do(stage.user(ANONYMOUS, (b"*", PUT)))
    connection, port = stage.client(b"put 0 0 60 1\r\nx\r\n")
    stage.settle()
    assert port.take() == b"INSERTED 1\r\n"
    replica = stage.replica
    replica.role, replica.leader = "follower", None
    stage.node.callbacks.role_changed()
    connection.received(b"put 0 0 60 1\r\ny\r\n")
    stage.pass_us(2 * SECOND)
    connection.received(b"reserve\r\n")
    stage.pass_us(config().command_timeout_ms * 1_000 - SECOND)
    assert port.take() == b"DRAINING\r\n"
    replica.term, replica.role, replica.leader = replica.term + 1, "leader", "n0"
    stage.node.callbacks.role_changed()
    stage.settle()
    assert port.take() == b"DENIED\r\n"


def test_a_reserve_whose_look_was_not_sent_leaves_none_for_the_next() -> None:
    """The next reserve looks again: the right may be there, and not known at this node yet."""
    stage = Rights(MAIL)
    stage.do(stage.user(ANONYMOUS))
    connection, port = stage.client(b"use other\r\n")
    stage.settle()
    port.take()
    replica = stage.replica
    replica.role, replica.leader = "follower", None
    stage.node.callbacks.role_changed()
    connection.received(b"reserve\r\n")
    stage.pass_us(config().command_timeout_ms * 1_000 + SECOND)
    assert port.take() == b"INTERNAL_ERROR\r\n"
    replica.term, replica.role, replica.leader = replica.term + 1, "leader", "n0"
    stage.node.callbacks.role_changed()
    stage.settle()
    connection.received(b"reserve\r\n")
    stage.run()
    assert port.take() == b""
    stage.settle()
    assert port.take() == b"DENIED\r\n"

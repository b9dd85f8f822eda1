"""Members that learn at once that an entry is committed, and members that may learn it later."""

import pytest

from beanpole import commands as c
from beanpoled.links import frames
from tests.unit.node.stage import MEMBERS, Port, Stage, leading, put
from tests.unit.node.test_peers import heartbeat


@pytest.fixture
def stage() -> Stage:
    """Return a leader; the clients of both peers do not depend on other nodes' changes."""
    stage = leading()
    for peer in MEMBERS[1:]:
        heartbeat(stage, peer, patient=True)
    stage.batch("n1", 2)
    stage.commit()  # includes the first digest, which is reported to all
    return stage


def told_later(stage: Stage) -> tuple[str, ...]:
    """Return the members that learn later of the last proposed entry."""
    return stage.replica.told_later.get(stage.replica.last_index, ())


def test_the_nodes_of_a_command_are_told_at_once(stage: Stage) -> None:
    stage.batch("n1", 3, put())
    assert told_later(stage) == ("n2",)
    stage.commit()
    stage.batch("n2", 2, put())
    assert told_later(stage) == ("n1",)


def test_a_command_of_the_leader_s_client_waits_for_nobody(stage: Stage) -> None:
    stage.come_up()
    stage.client(b"put 0 0 60 1\r\nx\r\n")
    stage.run()
    assert told_later(stage) == ("n1", "n2")


def test_the_node_that_gets_a_job_is_told_at_once(stage: Stage) -> None:
    stage.batch("n1", 3, (c.OPEN, 1))
    stage.commit()
    stage.items("n1", frames.WAITS, (1, 1, 3))
    stage.batch("n2", 2, put(), hint={b"default": 1})
    assert [command[0] for command in stage.proposed()] == [c.GRANT]
    assert told_later(stage) == ()


def test_all_nodes_are_told_at_once_of_what_the_leader_says(stage: Stage) -> None:
    stage.node.leader.term.node_down(1, 1)
    stage.node.context.wake()
    stage.run()
    assert [command[0] for command in stage.proposed()] == [c.NODE_DOWN]
    assert told_later(stage) == ()


def test_all_nodes_are_told_at_once_that_one_begins_a_life(stage: Stage) -> None:
    """From then on they refuse an older copy of its disk."""
    stage.batch("n1", 1, first=True, incarnation=2)
    assert told_later(stage) == ()
    stage.commit()
    stage.batch("n1", 2, put(), incarnation=2)
    assert told_later(stage) == ("n2",)


@pytest.mark.parametrize("said", [{"patient": False}, {}])
def test_a_node_that_does_not_say_that_it_can_wait_is_told_at_once(
    stage: Stage, said: dict[str, object]
) -> None:
    """Release 0.3.0 does not send this field."""
    heartbeat(stage, "n2", **said)
    stage.batch("n1", 3, put())
    assert told_later(stage) == ()


@pytest.mark.parametrize("protocol", ["workq", "gearman", "qless"])
def test_a_node_can_wait_while_all_its_clients_speak_beanstalk(protocol: str) -> None:
    stage = Stage()
    stage.follow()

    def says() -> bool:
        stage.host.sent.clear()
        stage.node.heartbeats.send()
        return frames.decode_heartbeat(stage.sent(frames.HEARTBEAT, "n1")[0]).patient

    assert says()
    stage.client()
    assert says()
    connection = stage.node.frontends[protocol].connected(Port())
    assert connection is not None and not says()
    connection.lost()
    assert says()
    connection.lost()
    stage.client()
    assert says()


def test_all_nodes_are_told_at_once_that_a_reservation_has_ended(stage: Stage) -> None:
    """The holder's node says DEADLINE_SOON until it knows."""
    stage.come_up()
    stage.batch("n1", 3, (c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 1, b"x"))
    stage.commit()
    stage.items("n1", frames.WAITS, (1, 1, 3))
    assert [command[0] for command in stage.proposed()] == [c.GRANT]
    stage.commit()
    stage.batch("n2", 2, put())
    assert told_later(stage) == ("n1",)
    stage.batch("n2", 3, put())  # waits for the previous entry, and no TICK comes meanwhile
    stage.pass_us(1_000_000)
    stage.commit(1)
    (entry,) = stage.replica.proposed
    assert [section[:3] for section in c.decode_entry(entry)[3]] == [(2, 1, 3)]
    assert told_later(stage) == ()


def test_all_nodes_are_told_at_once_that_puts_are_refused_or_not_any_more(stage: Stage) -> None:
    for number, low, later in (
        (3, True, ()),
        (4, True, ("n2",)),
        (5, False, ()),
        (6, False, ("n2",)),
    ):
        stage.node.peers.disk_low = low
        stage.batch("n1", number, put())
        assert len(stage.replica.proposed) == 1
        assert told_later(stage) == later
        stage.commit()


def test_what_a_member_said_on_an_earlier_link_does_not_count(stage: Stage) -> None:
    stage.node.router.link_down("n2")
    stage.node.router.link_up("n2")
    stage.batch("n1", 3, put())
    assert told_later(stage) == ()
    stage.commit()
    heartbeat(stage, "n2", patient=True)
    stage.batch("n1", 4, put())
    assert told_later(stage) == ("n2",)

"""Clients that listen to a job or wait for a queue, at one node; they speak the toy protocol."""

import pytest

from beanpole import commands as c
from beanpole.core.jobs.effects import DELETED, NOTIFIED_MIN
from beanpoled.frontends import listeners
from beanpoled.frontends.table import FRONTENDS
from tests.toy.frontend import ROW, ToyConnection, ToyFrontend
from tests.unit.core.cluster import copy_of
from tests.unit.node.stage import DEFAULT, Port, Stage, put

NOTE = NOTIFIED_MIN
# What a worker at another node did: sessions 1 and 2 of n1 are open, and 1 has job 1.
WORKER = 1


class Scene(Stage):
    """A follower that applies what others did, and whose clients speak the toy protocol."""

    def __init__(self) -> None:
        super().__init__(frontends={**FRONTENDS, ROW.name: ToyFrontend})
        self.follow()
        self.number = 0
        self.apply_sections((c.LEADER, 0, 0, ((c.RAISE, 3),)))
        self.come_up_behind()
        self.others((c.OPEN, 1), (c.OPEN, 2), put(), put(), (c.RESERVE_JOB, WORKER, 1))

    def others(self, *commands: c.Command) -> None:
        """Apply an entry with a batch of n1."""
        self.number += 1
        self.apply_sections((1, 1, self.number, commands))

    def toy(self, data: bytes = b"") -> tuple[ToyConnection, Port]:
        """Connect a client, and apply what it asks for."""
        port = Port()
        connection = self.node.frontends[ROW.name].connected(port)
        assert isinstance(connection, ToyConnection)
        connection.received(data)
        self.commit_own()
        return connection, port

    def commit_own(self, *behind: c.Command) -> None:
        """Apply the batch that this node has sent, and in the same entry what n1 did then."""
        self.run()
        origin = self.node.origin
        sections = [(0, 1, number, b.payload) for number, b in sorted(origin._numbered.items())]
        if behind:
            self.number += 1
            sections.append((1, 1, self.number, c.pack_commands(behind)))
        self.apply(c.encode_entry(0, self.node.context.machine.queue.now_us, 0, sections))
        self.run()

    @property
    def listened(self) -> list[int]:
        return list(self.node.context.machine.queue.effects.listened)


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- jobs -----------------------------------------------------------------------------------------


def test_what_the_holder_says_and_the_end_are_pushed(scene: Scene) -> None:
    _, port = scene.toy(b"LISTEN 1\n")
    _, other = scene.toy(b"LISTEN 1\nLISTEN 2\n")
    assert (port.take(), other.take()) == (b"OK\n", b"OK\nOK\n")
    assert scene.listened == [1, 2]
    scene.others((c.NOTIFY, WORKER, 1, NOTE, b"so"), (c.NOTIFY, WORKER, 1, NOTE, b"far"))
    for one in (port, other):
        assert one.take() == b"RESULT 1 so\nRESULT 1 far\n"
    scene.others((c.DELETE, WORKER, 1))
    assert (port.take(), other.take()) == (b"GONE 1\n", b"GONE 1\n")
    assert scene.listened == [2]
    scene.others((c.DELETE, 2, 2))
    assert (port.take(), other.take()) == (b"", b"GONE 2\n")
    assert scene.listened == []


def test_nothing_is_lost_between_the_look_and_the_listening(scene: Scene) -> None:
    """In the entry of the LISTEN the job ends behind it, when nobody listened yet."""
    connection, port = scene.toy()
    connection.received(b"LISTEN 1\n")
    scene.commit_own((c.DELETE, WORKER, 1))
    assert port.take() == b"OK\nGONE 1\n"
    assert scene.listened == []


def test_the_end_in_the_next_entry_is_told(scene: Scene) -> None:
    connection, port = scene.toy()
    connection.received(b"LISTEN 1\n")
    scene.commit_own((c.TOUCH, WORKER, 1))
    scene.others((c.DELETE, WORKER, 1))
    assert port.take() == b"OK\nGONE 1\n"


def test_results_of_an_entry_come_before_its_effects(scene: Scene) -> None:
    """The client that ends a job hears that it has, and then what listeners hear."""
    connection, port = scene.toy(b"LISTEN 2\n")
    connection.received(b"DONE 2 x\nDONE 2 x\n")
    scene.commit_own()
    assert port.take() == b"OK\nOK\nNO\nGONE 2\n"


def test_a_job_that_is_not_there_cannot_be_listened_to(scene: Scene) -> None:
    _, port = scene.toy(b"LISTEN 9\n")
    assert port.take() == b"NO\n"
    assert scene.listened == []


def test_a_client_that_is_gone_is_forgotten(scene: Scene) -> None:
    connection, _ = scene.toy(b"LISTEN 1\nLISTEN 2\n")
    _, port = scene.toy(b"LISTEN 1\n")
    connection.lost()
    assert scene.listened == [1]
    scene.others((c.DELETE, WORKER, 1))
    assert port.take() == b"OK\nGONE 1\n"


def test_listening_twice_is_listening_once(scene: Scene) -> None:
    _, port = scene.toy(b"LISTEN 1\nLISTEN 1\n")
    scene.others((c.DELETE, WORKER, 1))
    assert port.take() == b"OK\nOK\nGONE 1\n"


@pytest.mark.constants
def test_a_client_listens_to_so_many_jobs(monkeypatch: pytest.MonkeyPatch, scene: Scene) -> None:
    monkeypatch.setattr(listeners, "LISTENS_MAX", 1)
    _, port = scene.toy(b"LISTEN 1\nLISTEN 2\n")
    assert port.take() == b"OK\nNO\n"


def test_a_client_that_does_not_read_is_closed_at_its_limit(scene: Scene) -> None:
    """What is pushed has no request that could be held up instead."""
    connection, port = scene.toy(b"LISTEN 1\n")
    _, other = scene.toy(b"LISTEN 1\n")
    connection.stall()
    port.take()
    scene.others((c.NOTIFY, WORKER, 1, NOTE, b"x"))
    assert port.closed and connection.closed and port.take() == b""
    assert other.take() == b"OK\nRESULT 1 x\n"


def test_a_snapshot_tells_what_was_missed(scene: Scene) -> None:
    """Job 1 ended and queue `default` has its first ready job in entries that never came here."""
    scene.others((c.RESERVE_JOB, 2, 2))
    _, port = scene.toy(b"LISTEN 1\nLISTEN 2\n")
    waiting, wakes = scene.toy(b"POLL default\n")
    machine = copy_of(scene.node.context.machine)
    commands = ((c.DELETE, WORKER, 1), put())
    machine.apply(machine.index + 5, 0, 0, 0, [(1, 1, scene.number + 1, commands)])
    port.take()
    scene.load(machine)
    scene.run()
    assert port.take() == b"GONE 1\n"
    assert wakes.take() == b"READY\n" and not waiting.blocked
    assert scene.listened == [2]
    scene.number += 1
    scene.replica.commit_index = machine.index
    scene.others((c.DELETE, 2, 2))
    assert port.take() == b"GONE 2\n"


def test_nothing_is_told_of_jobs_to_which_nobody_listens(scene: Scene) -> None:
    machine = scene.node.context.machine
    section = (1, 1, scene.number + 1, ((c.DELETE, 2, 2),))
    assert machine.apply(machine.index + 1, 0, 0, 0, [section], own=0).effects == []
    machine.queue.effects.listened[1] = None
    section = (1, 1, scene.number + 2, ((c.DELETE, WORKER, 1),))
    assert machine.apply(machine.index + 1, 0, 0, 0, [section], own=0).effects == [
        (1, DELETED, b"")
    ]


# --- queues ---------------------------------------------------------------------------------------


def test_a_queue_with_a_ready_job_answers_at_once(scene: Scene) -> None:
    connection, port = scene.toy()
    connection.received(b"POLL default\nPOLL default\nPOLL q\n")
    scene.run()
    assert port.take() == b"READY\nREADY\n"
    assert scene.node.context.machine.queue.ready == 1, "it is not reserved"
    assert scene.node.origin.is_idle(), "it costs the log nothing"
    assert not connection.number


def test_a_job_wakes_all_that_wait_once(scene: Scene) -> None:
    first, port = scene.toy(b"POLL q\nHUH\n")
    _, other = scene.toy(b"POLL q\n")
    assert (port.take(), other.take()) == (b"", b"") and first.blocked
    scene.others(put(tube=b"r"))
    assert (port.take(), other.take()) == (b"", b"")
    scene.others(put(tube=b"q"))
    assert (port.take(), other.take()) == (b"READY\nHUH\n", b"READY\n")
    scene.others(put(tube=b"q"))
    assert (port.take(), other.take()) == (b"", b"")


def test_what_the_client_sent_before_is_answered_before(scene: Scene) -> None:
    connection, port = scene.toy()
    connection.received(b"PUT q x\nPOLL q\nTRY q\n")
    scene.commit_own()
    scene.commit_own()
    assert port.take() == b"OK 3\nREADY\nJOB 3 x\n"


def test_a_job_that_is_taken_in_the_same_entry_wakes_nobody(scene: Scene) -> None:
    _, port = scene.toy(b"POLL q\n")
    scene.others((c.WATCH, 2, b"q"), (c.IGNORE, 2, DEFAULT))
    scene.others(put(tube=b"q"), (c.TAKE, 2))
    assert port.take() == b""


def test_a_paused_queue_wakes_at_the_end_of_its_pause(scene: Scene) -> None:
    scene.others((c.WATCH, 2, b"q"), (c.PAUSE_TUBE, 1, b"q", 5), put(tube=b"q"))
    _, port = scene.toy(b"POLL q\n")
    assert port.take() == b""
    scene.others(put(tube=b"q"))
    assert port.take() == b""
    now_us = scene.node.context.machine.queue.now_us + 5_000_000
    scene.apply(c.encode_entry(0, now_us, 0, []))
    scene.run()
    assert port.take() == b"READY\n"


def test_a_delay_that_ends_wakes(scene: Scene) -> None:
    scene.others((c.PUT, 1, b"q", 0, 2, 60, b"x"))
    _, port = scene.toy(b"POLL q\n")
    now_us = scene.node.context.machine.queue.now_us + 2_000_000
    scene.apply(c.encode_entry(0, now_us, 0, []))
    scene.run()
    assert port.take() == b"READY\n"


def test_the_end_of_sending_ends_a_wait(scene: Scene) -> None:
    connection, port = scene.toy(b"POLL q\n" * 3000)
    connection.half_closed()
    scene.run()
    assert port.take() == b"NO\n" * 3000
    assert port.closed


def test_a_waiting_client_that_is_gone_is_forgotten(scene: Scene) -> None:
    connection, port = scene.toy(b"POLL q\n")
    connection.lost()
    scene.others(put(tube=b"q"))
    assert port.take() == b""
    assert scene.node.context.machine.queue.ready_tubes == {}


def test_a_leader_wakes_and_grants() -> None:
    """Both look at the queues that became ready; one client has the job, the other is woken."""
    stage = Stage(frontends={**FRONTENDS, ROW.name: ToyFrontend})
    stage.lead()
    stage.come_up()
    port = Port()
    connection = stage.node.frontends[ROW.name].connected(port)
    assert connection is not None
    connection.received(b"POLL default\n")
    _, worker = stage.client(b"reserve\r\n")
    stage.commit()
    stage.batch("n1", 1, (c.OPEN, 1), (c.PUT, 1, DEFAULT, 0, 1, 60, b"x"), first=True)
    stage.commit()
    assert (port.take(), worker.take()) == (b"", b"")
    stage.pass_us(1_100_000)
    stage.commit()
    assert (port.take(), worker.take()) == (b"READY\n", b"RESERVED 1 1\r\nx\r\n")
    assert stage.node.context.machine.queue.ready_tubes == {}

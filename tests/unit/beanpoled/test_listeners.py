"""Clients of one node that listen to a job or wait for a queue, with the toy protocol."""

from collections.abc import Iterator

import pytest

from beanpole import commands as c
from beanpole.core.jobs.effects import GONE, NOTIFIED_MIN, Effect
from beanpole.core.jobs.job import DONE, FAILED
from beanpoled.frontends import listeners
from beanpoled.frontends.table import FRONTENDS
from tests.toy import frontend
from tests.toy.frontend import ROW, TTL_US, ToyConnection, ToyFrontend
from tests.toy.space import PREFIX, TOY, registered
from tests.unit.core.cluster import copy_of
from tests.unit.node.stage import SECOND, Port, Stage

NOTE = NOTIFIED_MIN
LISTENS = 50
# Sessions 1 and 2 of n1 are open, and 1, a worker, has job 1.
WORKER = 1
OPENED = ((c.OPEN, 1), (c.SET_PROTOCOL, 1, TOY), (c.OPEN, 2), (c.SET_PROTOCOL, 2, TOY))


def put(queue: bytes = b"d", delay_us: int = 0) -> c.Command:
    """Return a put of the toy protocol."""
    return (c.ADD, 1, PREFIX + queue, 0, delay_us, 60 * SECOND, TTL_US, b"", 0, 0, b"x")


def finish(state: int = DONE, result: bytes = b"42") -> c.Command:
    """Return the command with which the worker ends job 1."""
    return (c.FINISH, WORKER, 1, state, result)


@pytest.fixture(autouse=True)
def space() -> Iterator[None]:
    """Give the protocol its own queues."""
    with registered():
        yield


class Scene(Stage):
    """A follower that applies entries of others, and whose clients speak the toy protocol."""

    def __init__(self) -> None:
        super().__init__(frontends={**FRONTENDS, ROW.name: ToyFrontend})
        self.follow()
        self.number = 0
        self.apply_sections((c.LEADER, 0, 0, ((c.RAISE, 3),)))
        self.come_up_behind()
        self.others(*OPENED, put(), put(), (c.RESERVE_JOB, WORKER, 1))

    def others(self, *commands: c.Command) -> None:
        """Apply an entry with a batch of n1."""
        self.number += 1
        self.apply_sections((1, 1, self.number, commands))

    def toy(self, data: bytes = b"") -> tuple[ToyConnection, Port]:
        """Connect a client, and apply its commands."""
        port = Port()
        connection = self.node.frontends[ROW.name].connected(port)
        assert isinstance(connection, ToyConnection)
        connection.received(data)
        self.commit_own()
        return connection, port

    def commit_own(self, *behind: c.Command) -> None:
        """Apply the batch that this node has sent and then, in the same entry, commands of n1."""
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
        assert one.take() == b"TOLD 1 so\nTOLD 1 far\n"
    scene.others((c.DELETE, WORKER, 1))
    assert (port.take(), other.take()) == (b"GONE 1\n", b"GONE 1\n")
    assert scene.listened == [2]
    scene.others((c.DELETE, 2, 2))
    assert (port.take(), other.take()) == (b"", b"GONE 2\n")
    assert scene.listened == []


def test_nothing_is_lost_between_the_look_and_the_listening(scene: Scene) -> None:
    """The job ends after the LISTEN in its entry, before the node has registered a listener."""
    connection, port = scene.toy()
    connection.received(b"LISTEN 1\n")
    scene.commit_own(finish())
    assert port.take() == b"OK\nRESULT 1 42\n"
    assert scene.listened == []


def test_nor_is_the_end_of_a_job_that_leaves_no_trace(scene: Scene) -> None:
    connection, port = scene.toy()
    connection.received(b"LISTEN 1\n")
    scene.commit_own((c.DELETE, WORKER, 1))
    assert port.take() == b"OK\nGONE 1\n"


def test_the_end_in_the_next_entry_is_told(scene: Scene) -> None:
    connection, port = scene.toy()
    connection.received(b"LISTEN 1\n")
    scene.commit_own((c.TOUCH, WORKER, 1))
    scene.others(finish())
    assert port.take() == b"OK\nRESULT 1 42\n"
    scene.others((c.DELETE, WORKER, 1))
    assert port.take() == b"", "it listens no longer"


def test_results_of_an_entry_come_before_its_effects(scene: Scene) -> None:
    """The client that ends a job gets its reply first, and then the notification."""
    connection, port = scene.toy(b"TRY d\nLISTEN 2\n")
    scene.commit_own()
    connection.received(b"DONE 2 x\nDONE 2 x\n")
    scene.commit_own()
    assert port.take() == b"JOB 2 x\nOK\nOK\nNO\nRESULT 2 x\n"


def test_a_job_that_is_not_there_cannot_be_listened_to(scene: Scene) -> None:
    _, port = scene.toy(b"LISTEN 9\n")
    assert port.take() == b"NO\n"
    assert scene.listened == []


def test_listening_does_not_look_through_the_entry_again_and_again(scene: Scene) -> None:
    """Clients that listen in an entry that ends their jobs; thousands of both fit into one."""

    class Effects(list[Effect]):
        looks = 0

        def __iter__(self) -> Iterator[Effect]:
            Effects.looks += 1
            return super().__iter__()

    mine = scene.node.clients.listeners
    connection, port = scene.toy()
    jobs = range(1000, 1000 + LISTENS)
    mine.coming(Effects((number, GONE, b"") for number in jobs))
    for number in jobs:
        assert mine.listen(connection, number) is None
    assert mine.listen(connection, 1) is None, "this one goes on"
    assert mine.listen(connection, 999) is not None, "this one was gone before"
    mine.told()
    scene.run()
    assert port.take() == b"".join(b"GONE %d\n" % number for number in jobs)
    assert Effects.looks == 2, "by `coming` and `told`"
    assert mine.listen(connection, 1000) is not None, "the entry is over"


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
    monkeypatch.setattr(frontend, "LISTENS_MAX", 1)
    connection, port = scene.toy(b"LISTEN 1\nLISTEN 2\n")
    assert port.take() == b"OK\nNO\n"
    scene.others((c.DELETE, WORKER, 1))
    connection.received(b"LISTEN 2\n")
    scene.commit_own()
    assert port.take() == b"GONE 1\nOK\n", "it listens to no other any more"


def test_a_client_that_does_not_read_is_closed_at_its_limit(scene: Scene) -> None:
    """Pushed messages have no request that could be delayed instead."""
    connection, port = scene.toy(b"LISTEN 1\n")
    _, other = scene.toy(b"LISTEN 1\n")
    connection.stall()
    port.take()
    scene.others((c.NOTIFY, WORKER, 1, NOTE, b"x"))
    assert port.closed and connection.closed and port.take() == b""
    assert other.take() == b"OK\nTOLD 1 x\n"


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ([finish()], b"RESULT 1 42\n"),
        ([finish(FAILED, b"why")], b"GONE 1\n"),
        ([(c.DELETE, WORKER, 1)], b"GONE 1\n"),
    ],
)
def test_a_snapshot_tells_what_was_missed(scene: Scene, ends: list[c.Command], told: bytes) -> None:
    """Job 1 ended, and queue `d` has its first ready job, in entries that never arrived here."""
    scene.others((c.RESERVE_JOB, 2, 2))
    _, port = scene.toy(b"LISTEN 1\nLISTEN 2\n")
    waiting, wakes = scene.toy(b"POLL d\n")
    machine = copy_of(scene.node.context.machine)
    commands = (*ends, put())
    machine.apply(machine.index + 5, 0, 0, 0, [(1, 1, scene.number + 1, commands)])
    port.take()
    scene.load(machine)
    scene.run()
    assert port.take() == told
    assert wakes.take() == b"READY\n" and not waiting.blocked
    assert scene.listened == [2]
    scene.number += 1
    scene.replica.commit_index = machine.index
    scene.others((c.DELETE, 2, 2))
    assert port.take() == b"GONE 2\n"


# --- queues ---------------------------------------------------------------------------------------


def test_a_queue_with_a_ready_job_answers_at_once(scene: Scene) -> None:
    connection, port = scene.toy()
    connection.received(b"POLL d\nPOLL d\nPOLL q\n")
    scene.run()
    assert port.take() == b"READY\nREADY\n"
    queue = scene.node.context.machine.queue
    assert queue.tubes[PREFIX + b"d"].ready_count == 1, "it is not reserved"
    assert scene.node.origin.is_idle(), "it costs the log nothing"
    assert not connection.number


def test_a_job_wakes_all_that_wait_once(scene: Scene) -> None:
    first, port = scene.toy(b"POLL q\nHUH\n")
    _, other = scene.toy(b"POLL q\n")
    assert (port.take(), other.take()) == (b"", b"") and first.blocked
    scene.others(put(b"r"))
    assert (port.take(), other.take()) == (b"", b"")
    scene.others(put(b"q"))
    assert (port.take(), other.take()) == (b"READY\nHUH\n", b"READY\n")
    scene.others(put(b"q"))
    assert (port.take(), other.take()) == (b"", b"")


@pytest.mark.constants
def test_many_are_woken_in_several_steps(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "LOOKS_PER_STEP_MAX", 4)
    queue = PREFIX + b"q"
    scene.others((c.WATCH, 2, queue))
    made = [scene.toy(b"POLL q\n") for _ in range(7)]
    host, turn = scene.host, scene.node.context.turn
    scene.others(put(b"q"), (c.TAKE, 2))
    assert not any(port.output for _, port in made), "it is taken already"
    scene.number += 1
    packed = c.pack_commands((put(b"q"),))
    scene.apply(c.encode_entry(0, 0, 0, [(1, 1, scene.number, packed)]))
    assert [bool(port.output) for _, port in made] == [True] * 2 + [False] * 5
    made[3][0].lost()
    made[2][0].half_closed()  # it waits no longer
    soon, host.soon = host.soon, []
    for step in soon:
        step()
    turn()
    assert sum(bool(port.output) for _, port in made) < 5
    scene.run()
    turn()
    answers = [port.take() for _, port in made]
    assert answers == [b"READY\n"] * 2 + [b"NO\n", b""] + [b"READY\n"] * 3
    again, port = made[0]
    again.received(b"POLL r\n")
    scene.others(put(b"r"))
    assert port.take() == b"READY\n"


def test_a_job_wakes_those_that_wait_for_an_alias_of_its_queue(scene: Scene) -> None:
    """This holds even if the alias is set while they wait."""
    scene.apply_sections((c.LEADER, 0, 0, ((c.RAISE, 4),)))
    put_tube = (c.PUT, 3, b"tube", 0, 0, 60, b"x")
    scene.others((c.OPEN, 3), (c.SET_ALIAS, 3, PREFIX + b"a", b"tube"))
    _, port = scene.toy(b"POLL a\n")
    _, late = scene.toy(b"POLL b\n")
    assert port.take() == b""
    scene.others(put_tube)
    assert (port.take(), late.take()) == (b"READY\n", b"")
    scene.others((c.SET_ALIAS, 3, PREFIX + b"a", b""), (c.SET_ALIAS, 3, PREFIX + b"b", b"tube"))
    assert late.take() == b"READY\n"
    _, again = scene.toy(b"POLL b\nPOLL a\n")
    assert again.take() == b"READY\n"
    scene.others(put(b"a"))  # the name is now a queue of its own
    assert again.take() == b"READY\n"


def test_what_the_client_sent_before_is_answered_before(scene: Scene) -> None:
    connection, port = scene.toy()
    connection.received(b"PUT q x\nPOLL q\nTRY q\n")
    scene.commit_own()
    scene.commit_own()
    assert port.take() == b"OK 3\nREADY\nJOB 3 x\n"


def test_a_job_that_is_taken_in_the_same_entry_wakes_nobody(scene: Scene) -> None:
    _, port = scene.toy(b"POLL q\n")
    scene.others((c.WATCH, 2, PREFIX + b"q"))
    scene.others(put(b"q"), (c.TAKE, 2))
    assert port.take() == b""


def test_a_paused_queue_wakes_at_the_end_of_its_pause(scene: Scene) -> None:
    queue = PREFIX + b"q"
    scene.others((c.WATCH, 2, queue), (c.PAUSE_TUBE, 1, queue, 5), put(b"q"))
    _, port = scene.toy(b"POLL q\n")
    assert port.take() == b""
    scene.others(put(b"q"))
    assert port.take() == b""
    now_us = scene.node.context.machine.queue.now_us + 5_000_000
    scene.apply(c.encode_entry(0, now_us, 0, []))
    scene.run()
    assert port.take() == b"READY\n"


def test_a_delay_that_ends_wakes(scene: Scene) -> None:
    scene.others(put(b"q", delay_us=2 * SECOND))
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
    scene.others(put(b"q"))
    assert port.take() == b""
    assert scene.node.context.machine.queue.ready_tubes == {}


def test_a_leader_wakes_and_grants() -> None:
    """Both check the queues that became ready: one client gets the job, the others are woken."""
    stage = Stage(frontends={**FRONTENDS, ROW.name: ToyFrontend})
    stage.lead()
    stage.come_up()
    stage.node.leader.term.commands.append((c.RAISE, 3))
    stage.batch("n1", 1, (c.OPEN, 1), first=True)
    stage.commit()
    ports = [Port(), Port()]
    for port, request in zip(ports, (b"POLL q\n", b"TAKE q\n"), strict=True):
        connection = stage.node.frontends[ROW.name].connected(port)
        assert connection is not None
        connection.received(request)
        stage.run()
        stage.commit()
    stage.batch("n1", 2, (c.SET_PROTOCOL, 1, TOY), put(b"q", delay_us=SECOND))
    stage.commit()
    assert [port.take() for port in ports] == [b"", b""]
    stage.pass_us(1_100_000)
    stage.commit()
    assert [port.take() for port in ports] == [b"READY\n", b"JOB 1 x\n"]
    assert stage.node.context.machine.queue.ready_tubes == {}

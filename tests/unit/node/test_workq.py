"""Workq's connections at one node: the time of each reply, entry by entry."""

from datetime import datetime, timedelta

import pytest

from beanpole import commands as c
from beanpole.core.jobs.job import BURIED, READY
from beanpole.core.operations.administering import BURY, KICK
from beanpole.protocol.workq import replies
from beanpole.protocol.workq.values import format_time
from beanpoled.frontends.workq import inspection
from beanpoled.frontends.workq.shared import OFFSET_SLACK_US
from tests.unit.node.settling import settle
from tests.unit.node.stage import SECOND
from tests.unit.node.workq_scene import (
    ADD,
    JOB,
    LEASED,
    NOT_FOUND,
    OK,
    OTHER,
    OTHERS,
    RUN,
    TIMEOUT,
    Client,
    Scene,
    ended,
)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def client(scene: Scene) -> Client:
    return Client(scene)


# --- jobs and leases ------------------------------------------------------------------------------


def test_a_job_goes_its_way(client: Client) -> None:
    assert client.ask(ADD) == OK
    assert client.ask(ADD) == replies.DUPLICATE_JOB
    assert client.state() == b"0"
    assert client.ask(b"lease q 100\r\n") == LEASED
    assert client.state() == b"4"
    assert client.ask(b"complete %b 2\r\nok\r\n" % JOB) == OK
    assert client.state() == b"1"
    assert client.ask(b"fail %b 2\r\nok\r\n" % JOB) == replies.DUPLICATE_RESULT
    assert client.ask(b"result %b 10\r\n" % JOB) == ended(1, b"ok")
    assert client.ask(ADD) == replies.DUPLICATE_JOB, "an id is taken until the TTL ends"
    assert client.ask(b"delete %b\r\n" % JOB * 2) == OK + NOT_FOUND
    assert client.ask(b"complete %b 0\r\n\r\n" % JOB) == NOT_FOUND


def test_requests_of_a_pipeline_take_effect_in_their_order(client: Client) -> None:
    stream = b"lease q 0\r\n" + ADD * 2 + b"inspect queue q\r\nlease q 0\r\n"
    stream += b"result %b 0\r\nfail %b 1\r\nx\r\nresult %b 0\r\n" % (JOB, JOB, JOB)
    block = b"+OK 1\r\nq 2\r\nready-len 1\r\nscheduled-len 0\r\n"
    expected = TIMEOUT + OK + replies.DUPLICATE_JOB + block + LEASED + TIMEOUT + OK
    assert client.ask(stream) == expected + ended(0, b"x")


def test_a_lease_waits_for_a_job_and_holds_up_what_stands_behind_it(client: Client) -> None:
    other = Client(client.scene)
    assert client.ask(b"lease p q 5000\r\ninspect queue p\r\n") == b""
    assert other.ask(ADD) == OK
    assert client.port.take() == LEASED + b"+OK 1\r\np 2\r\nready-len 0\r\nscheduled-len 0\r\n"


def test_a_lease_times_out(scene: Scene, client: Client) -> None:
    assert client.ask(b"lease q 1000\r\n") == b""
    scene.after(SECOND // 2)
    assert client.port.take() == b""
    scene.after(SECOND)
    assert client.port.take() == TIMEOUT


def test_a_lease_that_waits_behind_other_requests(scene: Scene, client: Client) -> None:
    assert client.ask(b"delete %b\r\nlease q 1000\r\ndelete %b\r\n" % (JOB, JOB)) == NOT_FOUND
    scene.after(2 * SECOND)
    assert client.port.take() == TIMEOUT + NOT_FOUND


def test_a_lease_whose_entry_may_look_no_more_is_repeated(scene: Scene, client: Client) -> None:
    names = [b"q%03d" % number for number in range(1000)]
    scene.others(*[(c.WATCH, OTHERS, b"\x01" + name) for name in names])
    assert client.ask(ADD) == OK
    assert client.send(b"lease q 0\r\n") == b""
    scene.commit_own(*[(c.TAKE, OTHERS)] * 66)
    assert client.port.take() == b""
    settle(scene)
    assert client.port.take() == LEASED


def test_many_queues_are_shown_one_client_after_the_other(scene: Scene, client: Client) -> None:
    names = [b"q%03d" % number for number in range(300)]
    assert client.ask(b"lease %b 0\r\n" % b" ".join(names)) == TIMEOUT
    clients = [Client(scene) for _ in range(3)]
    for one in clients:
        one.send(b"inspect queues 299 100\r\n")
    assert len(scene.node.origin.heavy) == 2
    settle(scene)
    block = b"+OK 1\r\nq299 2\r\nready-len 0\r\nscheduled-len 0\r\n"
    assert [one.port.take() for one in clients] == [block] * 3


def test_a_lease_is_of_its_own_names_only(client: Client) -> None:
    assert client.ask(b"lease q p 0\r\nlease o p 0\r\nlease o p 0\r\n") == TIMEOUT * 3
    assert client.ask(ADD) == OK
    assert client.ask(b"lease o p 0\r\nlease q 0\r\n") == TIMEOUT + LEASED
    assert client.ask(b"inspect queues 0 100\r\n").count(b"ready-len") == 3


def test_a_client_that_sends_nothing_more_does_not_lease(scene: Scene, client: Client) -> None:
    """The client may be gone: a job would be lost for its TTR."""
    assert client.ask(b"lease q 60000\r\n") == b""
    client.connection.half_closed()
    settle(scene)
    assert client.port.take() == TIMEOUT
    assert client.port.closed


def test_a_lease_belongs_to_nobody(scene: Scene, client: Client) -> None:
    other = Client(scene)
    assert client.ask(ADD + b"lease q 0\r\n") == OK + LEASED
    client.connection.lost()
    settle(scene)
    assert other.state() == b"4", "the end of a connection changes no job"
    assert other.ask(b"complete %b 1\r\nx\r\n" % JOB) == OK


def test_the_end_of_a_ttr(scene: Scene, client: Client) -> None:
    add = ADD.replace(b" 4\r\n", b" 4 -max-attempts=2\r\n")
    assert client.ask(add + b"lease q 0\r\n") == OK + LEASED
    scene.after(2 * SECOND)
    assert client.state() == b"3"
    assert client.ask(b"lease q 0\r\n") == LEASED
    scene.after(2 * SECOND)
    assert client.state() == b"2"
    assert client.ask(b"result %b 0\r\n" % JOB) == ended(0, b"")


def test_a_job_may_fail_as_often_as_it_says(client: Client) -> None:
    fail = b"fail %b 3\r\nbad\r\n" % JOB
    assert client.ask(ADD.replace(b" 4\r\n", b" 4 -max-fails=2\r\n") + fail) == OK + OK
    assert client.state() == b"3"
    assert client.ask(b"result %b 0\r\nlease q 0\r\n" % JOB) == TIMEOUT + LEASED
    assert client.ask(fail) == OK
    assert client.state() == b"2"
    assert client.ask(b"result %b 0\r\n" % JOB) == ended(0, b"bad")
    assert b"\r\nfails 2\r\n" in client.ask(b"inspect job %b\r\n" % JOB)


def test_a_failure_is_the_end_without_such_a_limit(client: Client) -> None:
    assert client.ask(ADD + b"fail %b 3\r\nbad\r\n" % JOB) == OK + OK
    assert client.state() == b"2"


def test_the_end_of_a_ttl(scene: Scene, client: Client) -> None:
    assert client.ask(ADD.replace(b"60000", b"3000") + b"result %b 9000\r\n" % JOB) == OK
    scene.after(4 * SECOND)
    assert client.port.take() == NOT_FOUND
    assert client.ask(b"inspect job %b\r\n" % JOB) == NOT_FOUND
    assert b"\r\nevicted-jobs 1\r\n" in client.ask(b"inspect server\r\n")


def test_the_start_of_a_node_follows_a_clock_that_is_set(scene: Scene, client: Client) -> None:
    """A machine may start in 1970, and set its clock later."""
    before = client.ask(b"inspect server\r\n")
    scene.host.walls_us += 86_400 * SECOND
    first, after = before.split(b"started ")[1], client.ask(b"inspect server\r\n")
    day = datetime.strptime(first.decode().strip(), "%Y-%m-%dT%H:%M:%SZ") + timedelta(days=1)
    assert after.endswith(f"\r\nstarted {day:%Y-%m-%dT%H:%M:%SZ}\r\n".encode())


def test_higher_priorities_are_first(client: Client) -> None:
    jobs = [
        (b"%08d-0000-4000-8000-000000000000" % number, priority)
        for number, priority in enumerate((0, -5, 10, -(2**31), 10, 2**31 - 1))
    ]
    for job, priority in jobs:
        line = b"add %b q 60000 60000 0 -priority=%d\r\n\r\n" % (job, priority)
        assert client.ask(line) == OK
    shown = client.ask(b"inspect jobs q 0 100\r\n")
    in_order = [job for job, _ in sorted(jobs, key=lambda pair: -pair[1])]
    assert sorted(in_order, key=shown.index) == in_order
    for job in in_order:
        assert job in client.ask(b"lease q 0\r\n")


# --- schedule -------------------------------------------------------------------------------------


def schedule(scene: Scene, in_s: int, ttl_ms: int = 60_000) -> bytes:
    """Schedule a job that many seconds from now."""
    time = format_time(scene.host.wall_us() + in_s * SECOND)
    return b"schedule %b q 1000 %d %b 4 -priority=-3\r\npong\r\n" % (JOB, ttl_ms, time)


def test_a_job_is_scheduled(scene: Scene, client: Client) -> None:
    request = schedule(scene, 5)
    time = request.split(b" ")[5]
    assert client.ask(request) == OK
    shown = client.ask(b"inspect job %b\r\n" % JOB)
    assert b" 13\r\n" in shown
    assert b"\r\nttl 60000\r\n" in shown
    assert b"\r\npriority -3\r\n" in shown
    assert shown.endswith(b"\r\ntime %b\r\n" % time)
    assert client.state() == b"0"
    assert client.ask(b"inspect scheduled-jobs q 0 9\r\n") == shown
    assert client.ask(b"inspect jobs q 0 9\r\n") == b"+OK 0\r\n"
    assert client.ask(b"lease q 0\r\ninspect queue q\r\n").endswith(b"scheduled-len 1\r\n")
    scene.after(6 * SECOND)
    assert client.ask(b"lease q 0\r\n") == LEASED
    assert client.ask(b"inspect job %b\r\n" % JOB).endswith(b"\r\ntime %b\r\n" % time)


def test_a_time_that_is_past(scene: Scene, client: Client) -> None:
    assert client.ask(schedule(scene, -10, 10_000)) == replies.INVALID_TIME
    assert client.ask(schedule(scene, -10, 13_000)) == OK
    assert client.ask(b"lease q 0\r\n") == LEASED
    scene.after(4 * SECOND)
    assert client.state() == b"", "its TTL counts from the time that was given"


def test_a_time_beyond_the_longest_delay(scene: Scene, client: Client) -> None:
    assert client.ask(schedule(scene, 200 * 365 * 86_400)) == replies.INVALID_TIME


# --- burial ---------------------------------------------------------------------------------------


def test_a_job_that_an_administrator_buries_has_not_failed(scene: Scene, client: Client) -> None:
    """Workq knows no burial; state 2 would promise a result, for which `result` waits in vain."""
    change = (c.CHANGE_JOB, OTHERS, 1)
    bury = (*change, BURY, 1 << READY, b"", b"", 0)
    kick = (*change, KICK, 1 << BURIED, b"", b"", 0)
    assert client.ask(ADD) == OK
    scene.others(bury)
    assert client.state() == b"0"
    assert client.ask(b"result %b 0\r\nlease q 0\r\n" % JOB) == TIMEOUT * 2
    assert client.ask(b"inspect jobs q 0 9\r\n") == b"+OK 0\r\n"
    scene.others(kick)
    assert client.ask(b"lease q 0\r\n") == LEASED
    scene.after(2 * SECOND)
    scene.others(bury)
    assert client.state() == b"3", "it was leased before"
    assert client.ask(b"complete %b 1\r\nx\r\n" % JOB) == OK
    assert client.state() == b"1"


# --- inspect --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alias", "queue", "name"),
    [
        (b"\x01al", b"al", b"al"),
        (b"\x01q", b"tube", b"tube"),
        (b"\x01q", b"\x02function", b"function"),
    ],
)
def test_the_name_of_a_queue_whose_alias_is_removed(
    scene: Scene, client: Client, alias: bytes, queue: bytes, name: bytes
) -> None:
    scene.others((c.SET_ALIAS, OTHERS, alias, queue))
    assert client.ask(b"add %b %b 1000 60000 1\r\nx\r\n" % (JOB, alias[1:])) == OK
    block = b"+OK 1\r\n%b 12\r\nname %b\r\n"
    assert client.ask(b"inspect job %b\r\n" % JOB).startswith(block % (JOB, alias[1:]))
    scene.others((c.SET_ALIAS, OTHERS, alias, b""))
    assert client.ask(b"inspect job %b\r\n" % JOB).startswith(block % (JOB, name))


def test_pages_of_queues_and_jobs(client: Client) -> None:
    for number in range(7):
        job = b"%08d-0000-4000-8000-000000000000" % number
        assert client.ask(b"add %b q%d 9 60000 1\r\nx\r\n" % (job, number % 2)) == OK
    queues = client.ask(b"inspect queues 0 1\r\ninspect queues 1 9\r\ninspect queues 2 1\r\n")
    block = b"%b 2\r\nready-len %d\r\nscheduled-len 0\r\n"
    first, second = block % (b"q0", 4), block % (b"q1", 3)
    assert queues == b"+OK 1\r\n" + first + b"+OK 1\r\n" + second + b"+OK 0\r\n"
    pages = [client.ask(b"inspect jobs q0 %d 3\r\n" % offset) for offset in (0, 3, 4, 999)]
    assert [page[:5] for page in pages] == [b"+OK 3", b"+OK 1", b"+OK 0", b"+OK 0"]
    assert pages[1].startswith(b"+OK 1\r\n00000006-")
    assert client.ask(b"inspect jobs nope 0 1\r\ninspect queue nope\r\n") == NOT_FOUND * 2


def test_a_reply_with_jobs_is_bounded(client: Client) -> None:
    body = b"b" * (1 << 20)
    for number in range(6):
        job = b"%08d-0000-4000-8000-000000000000" % number
        assert client.ask(b"add %b q 9 60000 %d\r\n%b\r\n" % (job, len(body), body)) == OK
    reply = client.ask(b"inspect jobs q 0 100\r\n")
    assert reply.startswith(b"+OK 4\r\n")
    assert len(reply) < inspection.BODIES_MAX_BYTES + 4096
    assert client.ask(b"inspect jobs q 4 100\r\n").startswith(b"+OK 2\r\n00000004-")


def test_replies_with_large_bodies_are_made_one_at_a_time(scene: Scene, client: Client) -> None:
    """Else as many as there are clients would be in memory at once."""
    body = b"b" * (1 << 19)
    add = b"add %b q 9 60000 %d\r\n%b\r\n" % (JOB, len(body), body)
    assert client.ask(add) == OK
    heavy = scene.node.origin.heavy
    for request in (b"inspect jobs q 0 1\r\n", b"inspect job %b\r\n" % JOB):
        clients = [Client(scene) for _ in range(3)]
        for one in clients:
            assert one.send(request) == b""
        assert len(heavy) == 2
        replied = [len(one.ask(b"")) for one in clients]
        assert min(replied) > len(body)
    small = b"inspect scheduled-jobs nope 0 1\r\ninspect queue q\r\n"
    assert client.send(small) == b"" and len(heavy) == 0


def test_wall_times_are_steady(scene: Scene, client: Client) -> None:
    assert client.ask(ADD) == OK
    first = client.ask(b"inspect job %b\r\n" % JOB)
    created = first.partition(b"\r\ncreated ")[2]
    # One of the first two would show another second, whatever its fraction is at the start.
    for jitter_us in (-OFFSET_SLACK_US + 1, 2 * OFFSET_SLACK_US - 2, -OFFSET_SLACK_US):
        scene.host.walls_us += jitter_us
        assert created in client.ask(b"inspect job %b\r\n" % JOB)
    scene.host.walls_us += 2 * SECOND
    assert created not in client.ask(b"inspect job %b\r\n" % JOB)


# --- refusals -------------------------------------------------------------------------------------


def test_without_a_majority(scene: Scene, client: Client) -> None:
    """A command that was not sent certainly had no effect, and its reply says so."""
    scene.become("follower", None, 2)
    requests = ADD + b"lease q 0\r\n"
    clients = [Client(scene) for _ in range(5)]
    for one, request in zip(
        clients,
        (requests, b"lease q 9\r\n", RUN, b"result %b 9\r\n" % JOB, b"inspect server\r\n"),
        strict=True,
    ):
        assert one.send(request) == b""
    scene.pass_us(20 * SECOND)
    answered = [one.port.take() for one in clients]
    assert answered == [replies.NO_MAJORITY * 2, *[replies.NO_MAJORITY] * 4]
    assert not any(one.connection.blocked for one in clients)


def test_a_client_whose_lease_has_failed_waits_no_longer(scene: Scene, client: Client) -> None:
    """A node that stops would close it in its next request."""
    assert client.ask(b"lease q 0\r\n") == TIMEOUT
    scene.become("follower", None, 2)
    assert client.send(b"lease q 500\r\n") == b""
    assert client.connection.is_waiting
    scene.pass_us(6 * SECOND)  # and the node still keeps its clients
    assert client.port.take() == replies.NO_MAJORITY
    assert client.send(ADD) == b""
    assert not client.connection.is_waiting and not client.connection.is_at_rest


def test_a_wait_whose_barrier_is_not_done(scene: Scene, client: Client) -> None:
    other = Client(scene)
    assert client.ask(ADD + b"result %b 1000\r\n" % JOB) == OK
    assert other.ask(RUN.replace(JOB, OTHER).replace(b" 5000 ", b" 1000 ")) == b""
    scene.become("follower", None, 2)
    scene.pass_us(30 * SECOND)
    assert client.port.take() == replies.NO_MAJORITY
    assert other.port.take() == b"", "it was made, and a worker may do it"
    assert other.port.closed
    assert scene.listened == []


def test_a_command_that_was_sent_is_not_answered_without_a_majority(
    scene: Scene, client: Client
) -> None:
    client.send(ADD)
    scene.replica.proposed.clear()
    scene.become("follower", None, 2)
    scene.pass_us(30 * SECOND)
    assert client.port.take() == b""
    assert client.port.closed


def test_a_node_that_drains(scene: Scene, client: Client) -> None:
    scene.node.context.draining = True
    assert client.ask(ADD + RUN) == replies.DRAINING * 2
    assert client.ask(schedule(scene, 5)) == replies.DRAINING
    assert client.ask(b"lease q 0\r\n") == TIMEOUT


def test_a_cluster_that_is_full(scene: Scene, client: Client) -> None:
    machine = scene.node.context.machine
    machine.jobs_max = 1
    assert client.ask(ADD + ADD.replace(JOB, OTHER)) == OK + replies.OUT_OF_MEMORY
    assert client.ask(RUN.replace(JOB, OTHER)) == replies.OUT_OF_MEMORY
    machine.tubes_max = len(machine.queue.tubes)
    assert client.ask(b"lease p 0\r\nlease q 0\r\n") == replies.OUT_OF_MEMORY + LEASED
    machine.puts_refused = True
    assert client.send(ADD) == replies.OUT_OF_MEMORY, "at once, for the sake of the disk"


def test_one_client_too_many() -> None:
    scene = Scene(connections_max=1)
    Client(scene)
    refused = Client(scene)
    assert refused.send(b"inspect server\r\n") == replies.TOO_MANY_CLIENTS
    assert refused.port.closed


def test_what_cannot_be_understood_ends_the_connection_behind_its_answers(client: Client) -> None:
    assert client.ask(ADD + b"foo\r\n\n" + ADD) == OK + replies.UNKNOWN_COMMAND
    assert client.port.closed


def test_garbage_is_answered(client: Client) -> None:
    assert client.ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") == replies.UNKNOWN_COMMAND * 3
    assert client.ask(b"inspect server\r\n").startswith(b"+OK 1\r\nserver 3\r\n")


def test_half_a_command_is_read_to_its_end_however_large(client: Client) -> None:
    size = 1 << 20
    assert client.ask(b"add %b q 1000 60000 %d\r\n" % (JOB, size)) == b""
    for _ in range(16):
        assert client.ask(b"b" * (size // 16)) == b""
        assert client.port.reading
    assert client.ask(b"\r\n") == OK


def test_a_pipeline_behind_a_wait_is_not_read_without_end(scene: Scene, client: Client) -> None:
    assert client.ask(ADD + b"result %b 60000\r\n" % JOB) == OK
    room = scene.node.clients.input_bytes_max
    client.send(b"x" * (room + 1))
    assert not client.port.reading


def test_counters_have_words_of_the_protocol(scene: Scene, client: Client) -> None:
    client.ask(ADD * 2 + b"lease q 0\r\ninspect server\r\ninspect server x\r\nadd\r\n")
    counters = scene.node.frontends["workq"].counters()
    assert (counters["add"], counters["lease"], counters["inspect-server"]) == (3, 1, 2)


def test_a_node_that_stops_gives_no_lease(scene: Scene, client: Client) -> None:
    """Leases belong to no session, so the node closes its clients at once; they go elsewhere."""
    waiting = Client(scene)
    assert waiting.ask(b"lease other 5000\r\n") == b""
    assert client.ask(ADD) == OK
    scene.node.stopping.stop()
    assert client.ask(b"lease q 0\r\nlease q 1000\r\n") == b""
    scene.after(SECOND)
    assert client.port.closed and waiting.port.closed
    assert client.port.take() == waiting.port.take() == b""
    assert scene.node.context.machine.queue.ready == 1

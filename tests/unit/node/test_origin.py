"""The outbox of a node: numbering, resending, giving up, and results lost by a snapshot."""

import pytest

from beanpole import commands as c
from beanpole.constants import BATCH_MAX_BYTES
from beanpole.core.machine import Machine
from beanpole.weights import COMMAND_BYTES
from beanpoled.frontends.beanstalk.connection import BeanstalkConnection
from beanpoled.links import frames
from beanpoled.origin.outbox import LARGE_BATCH_BYTES, LARGE_BYTES_MIN
from tests.unit.node.stage import Port, Stage

PUT = b"put 0 0 60 1\r\nx\r\n"


@pytest.fixture
def stage() -> Stage:
    """A follower whose NODE_UP is applied, with an empty outbox."""
    stage = Stage(fence_timeout_ms=20_000, node_timeout_ms=30_000)
    stage.come_up_behind()
    stage.sent(frames.BATCH)
    return stage


def numbers(stage: Stage) -> list[tuple[int, bool]]:
    """Return (number, first) of the batches sent since the last call."""
    return [
        (decoded[2], decoded[3])
        for decoded in map(frames.decode_batch, stage.sent(frames.BATCH, "n1"))
    ]


# --- sending --------------------------------------------------------------------------------------


def test_a_command_is_answered_when_its_batch_is_applied_here(stage: Stage) -> None:
    _, port = stage.client(PUT)
    (frame,) = stage.sent(frames.BATCH, "n1")
    term, incarnation, number, _, _, hint, payload = frames.decode_batch(frame)
    assert (term, incarnation, number) == (1, 1, 2)
    assert frames.unpack_hint(hint) == {b"default": 1}
    commands = c.unpack_commands(payload)
    assert commands == ((c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 60, b"x"))
    assert port.output == b""
    stage.apply_sections((0, 1, 2, commands))
    assert port.output == b"INSERTED 1\r\n"
    assert stage.node.origin.bytes == 0
    assert stage.node.origin.is_idle()


def test_an_idle_client_does_not_keep_the_bodies_of_its_last_batch(stage: Stage) -> None:
    connection, _ = stage.client(PUT)
    (frame,) = stage.sent(frames.BATCH, "n1")
    batch = connection.batch
    assert batch is not None and batch.payload
    stage.apply_sections((0, 1, 2, c.unpack_commands(frames.decode_batch(frame)[6])))
    assert not (batch.payload or batch.commands or batch.owners or batch.hint)


def test_a_session_is_opened_with_its_clients_host_from_machine_version_4_on(stage: Stage) -> None:
    stage.client(PUT)
    stage.apply_sections((c.LEADER, 0, 0, ((c.RAISE, 4),)))
    stage.sent(frames.BATCH, "n1")
    stage.client(PUT)
    unknown = stage.node.frontends["beanstalk"].connected(Port(b""))
    assert unknown is not None
    unknown.received(PUT)
    stage.run()
    sent = [frames.decode_batch(frame)[6] for frame in stage.sent(frames.BATCH, "n1")]
    commands = [command for payload in sent for command in c.unpack_commands(payload)]
    put = (b"default", 0, 0, 60, b"x")
    assert commands == [
        *[(c.OPEN_FROM, 2, b"10.0.0.1"), (c.PUT, 2, *put)],
        *[(c.OPEN, 3), (c.PUT, 3, *put)],
    ]


def test_what_is_applied_twice_is_answered_once(stage: Stage) -> None:
    _, port = stage.client(PUT)
    commands = ((c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 60, b"x"))
    stage.apply_sections((0, 1, 2, commands), (0, 1, 2, commands))
    stage.apply_sections((0, 1, 2, commands))
    assert port.output == b"INSERTED 1\r\n"


@pytest.mark.parametrize("why", ["link", "term", "gap"])
def test_everything_unapplied_is_sent_again(stage: Stage, why: str) -> None:
    stage.client(PUT)
    assert numbers(stage) == [(2, False)]
    if why == "link":
        stage.node.router.link_down("n1")
        stage.node.router.link_up("n1")
    elif why == "term":
        stage.become("follower", "n1", 2)
    else:
        stage.apply_sections((0, 1, 3, ()))
    stage.run()
    assert numbers(stage) == [(2, True)]


def test_a_full_link_is_tried_again(stage: Stage) -> None:
    stage.host.takes = False
    stage.client(PUT)
    assert numbers(stage) == []
    stage.host.takes = True
    stage.pass_us(20_000)
    assert numbers(stage) == [(2, True)]


def test_waits_and_their_ends_come_again_on_a_new_link(stage: Stage) -> None:
    stage.client(b"reserve-with-timeout 1\r\n")
    stage.apply_sections((0, 1, 2, ((c.OPEN, 1),)))
    stage.pass_us(1_100_000)
    stage.sent(frames.WAITS)
    stage.sent(frames.UNWAITS)
    stage.node.router.link_down("n1")
    stage.node.router.link_up("n1")
    stage.run()
    assert frames.decode_items(stage.sent(frames.WAITS)[0], 3)[2] == [(1, 1, 2)]
    assert frames.decode_items(stage.sent(frames.UNWAITS)[0], 2)[2] == [(1, 1)]


@pytest.mark.parametrize("is_full", [False, True])
def test_the_leader_is_told_that_a_waiting_client_is_gone_while_all_comes_again(
    stage: Stage, is_full: bool
) -> None:
    connection, _ = stage.client(b"reserve\r\n")
    stage.apply_sections((0, 1, 2, ((c.OPEN, 1),)))
    assert frames.decode_items(stage.sent(frames.WAITS)[0], 3)[2] == [(1, 1, 2)]
    stage.host.takes = not is_full
    if not is_full:
        stage.node.origin.resend()
    connection.lost()
    stage.run()
    stage.host.takes = True
    stage.pass_us(20_000)
    assert [frames.decode_items(frame, 2)[2] for frame in stage.sent(frames.UNWAITS)] == [[(1, 1)]]


def test_a_job_for_nobody_is_returned(stage: Stage) -> None:
    connection, _ = stage.client(b"reserve\r\n")
    stage.apply_sections((0, 1, 2, ((c.OPEN, 1),)))
    connection.lost()
    stage.run()
    stage.sent(frames.BATCH)
    stage.apply_sections(
        (1, 1, 1, ((c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 60, b"x"))),
        (c.LEADER, 0, 0, ((c.GRANT, 0, 1, 1, 1, 0),)),
        (0, 1, 3, ((c.CLOSE, 1, 1),)),
    )
    commands = c.unpack_commands(frames.decode_batch(stage.sent(frames.BATCH, "n1")[0])[6])
    assert commands == ((c.RETURN, 1, 1),)


def test_only_the_present_leader_ends_a_wait_without_a_job(stage: Stage) -> None:
    _, port = stage.client(b"reserve-with-timeout 0\r\n")
    stage.apply_sections((0, 1, 2, ((c.OPEN, 1),)))
    stage.pass_us(20_000)
    for peer, term, incarnation, item in [
        ("n2", 1, 1, (1, 1, 9)),
        ("n1", 2, 1, (1, 1, 9)),
        ("n1", 1, 2, (1, 1, 9)),
        ("n1", 1, 1, (1, 2, 9)),
        ("n1", 1, 1, (2, 1, 9)),
    ]:
        stage.node.router.receive(
            peer, frames.NONES, frames.encode_items(term, incarnation, [item])
        )
        stage.run()
        assert port.output == b""
    stage.node.router.receive("n1", frames.NONES, frames.encode_items(1, 1, [(1, 1, 9)]))
    stage.run()
    assert port.output == b"TIMED_OUT\r\n"


# --- giving up ------------------------------------------------------------------------------------


def test_without_a_quorum_a_put_is_refused_as_certainly_not_done(stage: Stage) -> None:
    stage.become("follower", None, 1)
    connection, port = stage.client(PUT + b"delete 7\r\npeek 7\r\nkick 3\r\n")
    stage.pass_us(4_800_000)
    assert port.output == b""
    stage.pass_us(400_000)
    assert port.output == b"DRAINING\r\n" + 3 * b"INTERNAL_ERROR\r\n"
    assert not connection.closed
    stage.become("follower", "n1", 2)
    sent = [frames.decode_batch(frame) for frame in stage.sent(frames.BATCH, "n1")]
    assert [c.unpack_commands(batch[6]) for batch in sent] == [((c.OPEN, 1),)]
    assert all(frames.unpack_hint(batch[5]).get(b"default", 0) == 0 for batch in sent)
    assert stage.node.origin.bytes == len(sent) * COMMAND_BYTES


def test_what_was_numbered_is_unknown_and_closed_between_replies(stage: Stage) -> None:
    connection, port = stage.client(PUT)
    bystander, other = stage.client()
    stage.pass_us(4_800_000)
    assert not connection.closed
    stage.pass_us(400_000)
    assert (connection.closed, port.closed, port.output) == (True, True, b"")
    assert (bystander.closed, other.closed) == (False, False)
    assert not stage.node.origin.is_idle()  # it may still be applied, and is resent until then


def test_the_unnumbered_rest_of_a_closed_client_is_not_answered(stage: Stage) -> None:
    connection, port = stage.client(PUT)
    stage.become("follower", None, 1)
    connection.received(PUT)
    stage.run()
    stage.pass_us(5_300_000)
    assert (connection.closed, port.output) == (True, b"")


def test_at_the_fence_all_that_no_leader_saw_is_answered() -> None:
    """All settings have their defaults."""
    stage = Stage()
    stage.come_up_behind()
    _, sent = stage.client(PUT)
    stage.become("follower", None, 1)
    _, early = stage.client(PUT)
    stage.pass_us(3_000_000)
    late = [stage.client(data) for data in (PUT, b"delete 7\r\n", b"reserve\r\n")]
    stage.pass_us(2_200_000)
    assert early.take() == b"DRAINING\r\n"
    assert not any(port.output for _, port in late)
    stage.pass_us(1_500_000)
    assert all(connection.closed for connection, _ in late)
    assert [port.take() for _, port in late] == [
        b"DRAINING\r\n",
        b"INTERNAL_ERROR\r\n",
        b"INTERNAL_ERROR\r\n",
    ]
    assert (sent.output, sent.closed) == (b"", True), "it may still happen"


def test_a_wait_that_no_leader_saw_is_refused(stage: Stage) -> None:
    stage.become("follower", None, 1)
    connection, port = stage.client(b"reserve-with-timeout 1\r\nlist-tube-used\r\n")
    stage.pass_us(5_900_000)
    assert port.output == b""
    stage.pass_us(400_000)
    assert port.take() == b"INTERNAL_ERROR\r\nUSING default\r\n"
    assert not connection.closed
    stage.become("follower", "n1", 2)
    stage.run()
    assert not stage.sent(frames.WAITS)
    connection.received(b"reserve-with-timeout 0\r\n")
    stage.run()
    stage.apply_sections((0, 1, 2, ((c.OPEN, 1),)))
    assert frames.decode_items(stage.sent(frames.WAITS, "n1")[-1], 3)[2] == [(1, 2, 2)]


def test_later_commands_outlive_the_expiry_of_earlier_ones(stage: Stage) -> None:
    stage.become("follower", None, 1)
    connection, port = stage.client(PUT)
    stage.pass_us(3_000_000)
    connection.received(b"put 0 0 60 1\r\ny\r\n")
    stage.run()
    stage.pass_us(2_300_000)
    assert port.take() == b"DRAINING\r\n"
    stage.become("follower", "n1", 2)
    commands = ((c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 60, b"y"))
    (frame,) = stage.sent(frames.BATCH, "n1")
    assert c.unpack_commands(frames.decode_batch(frame)[6]) == commands
    stage.apply_sections((0, 1, 2, commands))
    assert port.take() == b"INSERTED 1\r\n"


def test_a_wait_that_nobody_ends_is_closed(stage: Stage) -> None:
    connection, port = stage.client(b"reserve-with-timeout 1\r\n")
    stage.apply_sections((0, 1, 2, ((c.OPEN, 1),)))
    stage.become("follower", None, 1)
    stage.pass_us(5_800_000)
    assert not connection.closed
    stage.pass_us(500_000)
    assert (connection.closed, port.output) == (True, b"")


def test_a_wait_without_end_bears_a_long_outage(stage: Stage) -> None:
    connection, _ = stage.client(b"reserve\r\n")
    stage.apply_sections((0, 1, 2, ((c.OPEN, 1),)))
    stage.become("follower", None, 1)
    stage.pass_us(4_000_000)
    stage.become("follower", "n2", 2)
    assert not connection.closed
    assert stage.sent(frames.WAITS, "n2")


# --- snapshots ------------------------------------------------------------------------------------


def image(*sections: c.Section) -> Machine:
    """Return a machine at index 100."""
    machine = Machine()
    machine.apply(100, 0, 0, 0, sections)
    return machine


def test_a_snapshot_over_unanswered_batches_closes_their_clients(stage: Stage) -> None:
    covered, port = stage.client(PUT)
    idle, _ = stage.client()
    stage.load(image((0, 1, 1, ()), (0, 1, 2, ((c.OPEN, 1), (c.PUT, 1, b"t", 0, 0, 1, b"x")))))
    assert (covered.closed, port.output) == (True, b"")
    assert not idle.closed
    (frame,) = stage.sent(frames.BATCH, "n1")[-1:]
    assert c.unpack_commands(frames.decode_batch(frame)[6]) == ((c.CLOSE, 1, 1),)


def test_a_snapshot_before_unanswered_batches_changes_nothing(stage: Stage) -> None:
    connection, port = stage.client(PUT)
    stage.load(image((0, 1, 1, ())))
    assert not connection.closed
    stage.replica.commit_index = 100
    stage.apply_sections((0, 1, 2, ((c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 60, b"x"))))
    assert port.output == b"INSERTED 1\r\n"


def test_a_snapshot_over_a_grant_closes_the_client_that_waited(stage: Stage) -> None:
    connection, _ = stage.client(b"reserve\r\n")
    opened = (0, 1, 2, ((c.OPEN, 1),))
    stage.apply_sections(opened)
    put = (1, 1, 1, ((c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 60, b"x")))
    grant = (c.LEADER, 0, 0, ((c.GRANT, 0, 1, 1, 1, 2),))
    stage.load(image((0, 1, 1, ()), opened, put, grant))
    assert connection.closed


# --- large commands -------------------------------------------------------------------------------

LARGE = b"l" * (2 * LARGE_BYTES_MIN)


def large_put() -> bytes:
    return b"put 0 0 60 %d\r\n" % len(LARGE) + LARGE + b"\r\n"


def sent_and_applied(stage: Stage) -> list[list[c.Command]]:
    """Apply all batches sent since the last call; return their commands."""
    found = [frames.decode_batch(frame) for frame in stage.sent(frames.BATCH, "n1")]
    batches = [(fields[2], c.unpack_commands(fields[-1])) for fields in found]
    for number, commands in batches:
        stage.apply_sections((0, 1, number, commands))
    return [list(commands) for _, commands in batches]


def bodies(batches: list[list[c.Command]]) -> list[list[bytes]]:
    """Return the first letter of each job that the batches put."""
    return [[item[6][:1] for item in batch if item[0] == c.PUT] for batch in batches]


@pytest.fixture
def roomy() -> Stage:
    """Return a `stage` with large jobs allowed."""
    stage = Stage(max_job_size=len(LARGE))
    stage.come_up_behind()
    stage.sent(frames.BATCH)
    return stage


def test_others_pass_clients_that_put_large_jobs(roomy: Stage) -> None:
    ports = [roomy.client(large_put())[1] for _ in range(12)]
    first = sent_and_applied(roomy)
    # The jobs that fit into one batch; the next large batch waits until this one is applied.
    count = LARGE_BATCH_BYTES // len(LARGE)
    assert sum(map(len, bodies(first))) < len(ports)
    _, port = roomy.client(PUT)
    (second,) = [batch for batch in bodies(sent_and_applied(roomy)) if b"x" in batch]
    assert second == [b"x"]
    assert port.output.startswith(b"INSERTED")
    while not all(port.output for port in ports):
        roomy.run()
        found = bodies(sent_and_applied(roomy))
        assert all(len(batch) <= count for batch in found)
        assert found
    assert roomy.node.origin.bytes == 0
    assert roomy.node.origin.is_idle()


def test_what_a_client_sends_behind_a_large_job_stays_behind_it(roomy: Stage) -> None:
    for _ in range(8):
        roomy.client(large_put())
    connection, port = roomy.client(PUT + large_put() + PUT)
    connection.lost()
    commands: list[c.Command] = []
    while not roomy.node.origin.is_idle():
        roomy.run()
        commands += [item for batch in sent_and_applied(roomy) for item in batch]
    own = [item for item in commands if item[1] == connection_number(commands)]
    kinds = [(item[0], item[6][:1] if item[0] == c.PUT else b"") for item in own]
    assert kinds == [(c.OPEN, b""), (c.PUT, b"x"), (c.PUT, b"l"), (c.PUT, b"x"), (c.CLOSE, b"")]
    assert port.output == b""


def test_a_large_job_overtakes_no_full_batch_of_its_client(roomy: Stage) -> None:
    """The open batch, behind which it waits, is empty when the one before has just become full."""
    body = b"m" * (LARGE_BYTES_MIN // 2)
    count = BATCH_MAX_BYTES // 2 // len(body)
    connection, _ = roomy.client()
    connection.received(b"put 0 0 60 %d\r\n%b\r\n" % (len(body), body) * count + large_put())
    origin = roomy.node.origin
    assert len(origin._full) == len(origin._large) == 1 and not origin._open.commands
    found: list[bytes] = []
    while not origin.is_idle():
        roomy.run()
        found += [letter for batch in bodies(sent_and_applied(roomy)) for letter in batch]
    assert found == [b"m"] * count + [b"l"]


def connection_number(commands: list[c.Command]) -> int:
    """Return the session that put a small job."""
    number: int = next(item[1] for item in commands if item[0] == c.PUT and item[6] == b"x")
    return number


def test_large_jobs_that_no_leader_saw_are_certainly_not_done(roomy: Stage) -> None:
    roomy.become("follower", None, 1)
    ports = [roomy.client(large_put())[1] for _ in range(3)]
    roomy.pass_us(roomy.node.context.config.command_timeout_ms * 1000 + 200_000)
    assert [port.output for port in ports] == [b"DRAINING\r\n"] * 3
    assert roomy.node.origin.bytes < LARGE_BYTES_MIN


def test_a_large_job_is_not_starved_by_ordinary_ones(roomy: Stage) -> None:
    """The outbox is full of ordinary jobs, each of them sent again when it is answered."""
    body = b"m" * 65_000
    ordinary = b"put 0 0 60 %d\r\n" % len(body) + body + b"\r\n"
    clients = [roomy.client(ordinary) for _ in range(200)]
    _, large = roomy.client(large_put())
    waiting: list[tuple[int, tuple[c.Command, ...]]] = []
    applied = 0
    while not large.output:
        sent = map(frames.decode_batch, roomy.sent(frames.BATCH, "n1"))
        waiting += [(fields[2], c.unpack_commands(fields[-1])) for fields in sent]
        number, commands = waiting.pop(0)
        roomy.apply_sections((0, 1, number, commands))
        for connection, port in clients:
            if port.output:
                port.output = b""
                connection.received(ordinary)
        roomy.run()
        applied += 1
        # The jobs queued before it, and those that may be in flight.
        assert applied < 40
    assert large.output.startswith(b"INSERTED")


# --- failures, and the commands after them --------------------------------------------------------


def without_leader(stage: Stage, before: bytes, data: bytes) -> tuple[BeanstalkConnection, Port]:
    """Make a client whose first commands are overdue, and a later one whose commands are not."""
    stage.become("follower", None, 1)
    connection, port = stage.client(before)
    for _ in range(25):
        stage.pass_us(10_000)
    connection.received(data)
    while not port.output:
        stage.pass_us(10_000)
    return connection, port


def answered(stage: Stage, port: Port) -> bytes:
    """Let a leader return, and apply everything."""
    port.output = b""
    stage.follow()
    stage.become("follower", "n1", 2)
    while not stage.node.origin.is_idle():
        stage.run()
        sent_and_applied(stage)
    return port.output


def test_a_put_that_fails_lets_nothing_pass_a_kick(stage: Stage) -> None:
    stage.client(b"put 0 100 60 1\r\nx\r\n" * 1500)
    while not stage.node.origin.is_idle():
        stage.run()
        sent_and_applied(stage)
    connection, port = without_leader(stage, PUT, b"kick 5000\r\n")
    assert port.output == b"DRAINING\r\n"
    connection.received(b"delete 1\r\n")
    stage.run()
    assert answered(stage, port) == b"KICKED 1500\r\nDELETED\r\n"


def test_nothing_behind_quit_is_executed_when_a_put_fails(stage: Stage) -> None:
    connection, port = without_leader(stage, PUT + b"quit\r\n" + PUT, b"")
    assert port.output == b"DRAINING\r\n"
    assert connection.closed
    answered(stage, port)
    assert len(stage.node.context.machine.queue.jobs) == 0

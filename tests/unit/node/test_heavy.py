"""Expensive commands are in flight one at a time, and delay no other client."""

import pytest

from beanpole import commands as c
from beanpole.constants import ENTRY_COMMANDS_MAX, WATCHED_TUBES_MAX
from beanpoled.leading import dispatching
from beanpoled.links import frames
from beanpoled.origin.heavy import LIGHT_MAX
from tests.unit.node.stage import DEFAULT, Port, Stage, leading, put

KICK = b"kick 1000\r\n"


@pytest.fixture
def stage() -> Stage:
    """A leader that is also the only origin, with an empty outbox."""
    stage = Stage()
    stage.lead()
    stage.come_up()
    return stage


def delayed(stage: Stage, count: int) -> None:
    """Put jobs with a long delay."""
    _, port = stage.client(b"put 0 9000 60 0\r\n\r\n" * count)
    for _ in range(20):
        stage.commit()
    assert port.output.count(b"INSERTED") == count


def kicks_proposed(stage: Stage) -> int:
    """Return the number of KICKs in the proposed entries."""
    return sum(
        command[0] == c.KICK
        for entry in stage.replica.proposed
        for *_, commands in c.decode_entry(entry)[3]
        for command in commands
    )


def ports_of(stage: Stage, count: int, data: bytes) -> list[Port]:
    """Connect clients, and let all of them send data at once."""
    made = [stage.client() for _ in range(count)]
    for connection, _ in made:
        connection.received(data)
    stage.run()
    return [port for _, port in made]


def test_many_kicks_are_on_their_way_one_at_a_time(stage: Stage) -> None:
    delayed(stage, 500)
    ports = ports_of(stage, 20, b"kick 300\r\n")
    assert kicks_proposed(stage) == 1
    assert len(stage.node.origin.heavy) == 19
    assert stage.node.origin.heavy.bytes > 0
    _, other = stage.client(b"put 0 0 60 1\r\nx\r\n")
    for turn in range(25):
        assert kicks_proposed(stage) <= 1
        stage.commit(1)
        stage.commit(1)
        if turn == 1:
            assert other.output == b"INSERTED 501\r\n"
    answers = [port.output for port in ports]
    assert sorted(answers) == [*[b"KICKED 0\r\n"] * 18, b"KICKED 200\r\n", b"KICKED 300\r\n"]
    assert stage.node.origin.heavy.bytes == 0


def test_heavy_commands_in_the_line_count_for_the_outbox(stage: Stage) -> None:
    delayed(stage, 500)
    ports_of(stage, 20, b"kick 300\r\n")
    clients, origin = stage.node.clients, stage.node.origin
    clients.outbox_bytes_max = origin.bytes + origin.heavy.bytes - 1
    assert clients.outbox_is_full
    assert origin.bytes < clients.outbox_bytes_max


def test_a_long_kick_lets_others_in_between(stage: Stage) -> None:
    delayed(stage, 3000)
    (long,) = ports_of(stage, 1, b"kick 4000000000\r\n")
    (short,) = ports_of(stage, 1, b"kick 300\r\n")
    stage.commit(1)
    assert short.take() == b""
    stage.commit(2)  # the entry proposed before, and the entry with its kick
    assert short.take() == b"KICKED 300\r\n"
    assert long.take() == b""
    stage.commit()
    assert long.output == b"KICKED 2700\r\n"


def test_a_kick_of_few_jobs_does_not_wait(stage: Stage) -> None:
    delayed(stage, 500)
    ports_of(stage, 2, b"kick %d\r\n" % (LIGHT_MAX + 1))
    (light,) = ports_of(stage, 1, b"kick 2\r\n")
    stage.commit(2)
    assert light.output == b"KICKED 2\r\n"


def test_a_client_that_has_gone_is_passed_over(stage: Stage) -> None:
    delayed(stage, 500)
    made = [stage.client() for _ in range(4)]
    for connection, _ in made:
        connection.received(b"kick 400\r\n")
    stage.run()
    for connection, _ in made[1:3]:
        connection.lost()
    for _ in range(5):
        stage.commit()
    assert [port.output for _, port in made] == [b"KICKED 400\r\n", b"", b"", b"KICKED 100\r\n"]
    assert not len(stage.node.origin.heavy)


def test_what_stands_behind_a_heavy_command_waits_for_it(stage: Stage) -> None:
    delayed(stage, 400)
    first, second = ports_of(stage, 2, b"kick 300\r\nput 0 0 60 1\r\nx\r\nlist-tubes\r\n")
    for _ in range(6):
        stage.commit()
    tubes = b"OK 14\r\n---\n- default\n\r\n"
    assert first.output == b"KICKED 300\r\nINSERTED 401\r\n" + tubes
    assert second.output == b"KICKED 100\r\nINSERTED 402\r\n" + tubes


def test_long_reads_are_heavy(stage: Stage) -> None:
    for number in range(LIGHT_MAX + 1):
        stage.node.context.machine.queue.tube(b"t%d" % number)
    ports = ports_of(stage, 3, b"list-tubes\r\n")
    assert len(stage.node.origin.heavy) == 2
    stage.commit()
    assert all(port.output.startswith(b"OK ") for port in ports)


def test_without_a_quorum_those_in_the_line_are_not_done() -> None:
    stage = Stage(fence_timeout_ms=20_000, node_timeout_ms=30_000)
    stage.come_up_behind()
    stage.become("follower", None, 1)
    ports = ports_of(stage, 3, KICK)
    assert len(stage.node.origin.heavy) == 2
    stage.pass_us(4_000_000)
    (late,) = ports_of(stage, 1, KICK)
    assert not any(port.output for port in ports)
    stage.pass_us(1_300_000)
    assert [port.output for port in ports] == [b"INTERNAL_ERROR\r\n"] * 3
    assert late.take() == b""
    stage.become("follower", "n1", 2)
    stage.pass_us(20_000)
    batches = [frames.decode_batch(frame) for frame in stage.sent(frames.BATCH, "n1")]
    commands = [command for batch in batches for command in c.unpack_commands(batch[6])]
    assert [command[0] for command in commands].count(c.KICK) == 1
    for batch in batches:
        stage.apply_sections((0, 1, batch[2], c.unpack_commands(batch[6])))
    assert late.output == b"KICKED 0\r\n"


def test_a_heavy_command_of_unknown_outcome_holds_nobody_up_for_ever() -> None:
    stage = Stage(fence_timeout_ms=20_000, node_timeout_ms=30_000)
    stage.come_up_behind()
    stage.sent(frames.BATCH)
    made = [stage.client(b"list-tube-used\r\n") for _ in range(2)]
    for frame in stage.sent(frames.BATCH, "n1"):
        batch = frames.decode_batch(frame)
        stage.apply_sections((0, 1, batch[2], c.unpack_commands(batch[6])))
    sent, waiting = (port for _, port in made)
    for connection, port in made:
        port.take()
        connection.received(KICK)
    stage.run()
    stage.pass_us(5_300_000)
    assert (sent.closed, sent.output) == (True, b"")
    assert waiting.output == b"INTERNAL_ERROR\r\n"
    (last,) = ports_of(stage, 1, KICK)
    for _ in range(2):
        for frame in stage.sent(frames.BATCH, "n1"):
            batch = frames.decode_batch(frame)
            stage.apply_sections((0, 1, batch[2], c.unpack_commands(batch[6])))
    assert last.output == b"KICKED 0\r\n"


# --- the leader -----------------------------------------------------------------------------------


def test_an_entry_joins_a_bounded_number_of_commands() -> None:
    stage = leading()
    touch = (c.TOUCH, 1, 1)
    count = ENTRY_COMMANDS_MAX // 3
    for peer in ("n1", "n2"):
        for number in range(2, 6):
            frame = frames.encode_batch(
                1, 1, number, False, 0, b"", c.pack_commands([touch] * count)
            )
            stage.node.router.receive(peer, frames.BATCH, frame)
    stage.run()
    sizes = []
    while stage.replica.proposed:
        sections = c.decode_entry(stage.replica.proposed[0])[3]
        sizes.append(sum(len(commands) for *_, commands in sections))
        stage.commit(1)
    assert sizes == [3 * count, 3 * count, 2 * count]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_commands_are_counted_before_they_are_unpacked(count: int) -> None:
    assert c.count_of(c.pack_commands([(c.DIGEST,)] * count)) == count


def test_what_is_no_list_has_no_commands() -> None:
    assert [c.count_of(data) for data in (b"", b"\x01", b"\xc0", b"\xdc")] == [0] * 4


@pytest.mark.constants
def test_waits_of_long_lists_are_registered_a_few_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatching, "LOOKS_PER_TURN_MAX", 2)
    stage = leading()
    line = stage.node.leader.line
    frame = frames.encode_items(1, 1, [(session, 1, 1) for session in (1, 2, 3)])
    stage.node.router.receive("n1", frames.WAITS, frame)
    stage.node.leader.proposer.propose()
    assert len(line) == 1
    # The end of a wait is matched even if the wait is not registered yet.
    stage.node.router.receive("n1", frames.UNWAITS, frames.encode_items(1, 1, [(3, 1)]))
    stage.run()
    assert len(line) == 3
    assert line.waiters[1, 1, 3].until_us


@pytest.mark.constants
def test_clients_of_an_origin_that_sends_again_come_back_a_few_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatching, "LOOKS_PER_TURN_MAX", 1)
    stage = leading()
    stage.items("n1", frames.WAITS, (1, 1, 1), (2, 1, 1), (3, 1, 1))
    stage.run()
    waiters = list(stage.node.leader.line.waiters.values())
    assert len(waiters) == 3
    stage.node.leader.dispatcher.park(1)
    stage.node.leader.dispatcher.unpark(1)
    assert [waiter.parked for waiter in waiters] == [False, True, True]
    stage.node.leader.dispatcher.park(1)
    stage.run()
    assert all(waiter.parked for waiter in waiters)
    stage.node.leader.dispatcher.unpark(1)
    stage.run()
    assert not any(waiter.parked for waiter in waiters)


@pytest.mark.constants
def test_a_grant_that_came_too_late_in_its_entry_is_proposed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from beanpole.core import machine

    stage = leading()
    for session in (1, 2):
        stage.items("n1", frames.WAITS, (session, 1, 1))
    monkeypatch.setattr(machine, "LOOKS_PER_ENTRY_MAX", 1)
    stage.batch("n2", 2, put(), put(), hint={DEFAULT: 2})
    grants = [command for command in stage.proposed() if command[0] == c.GRANT]
    assert len(grants) == 2
    stage.commit(1)
    again = [command for command in stage.proposed() if command[0] == c.GRANT]
    assert again == grants[1:]
    stage.commit()
    assert stage.node.context.machine.queue.reserved == 2
    assert not stage.node.leader.line.waiters


def test_a_client_with_the_longest_list_waits_as_others_do(stage: Stage) -> None:
    watches = b"".join(b"watch t%d\r\n" % number for number in range(WATCHED_TUBES_MAX - 1))
    connection, port = stage.client()
    for start in range(0, len(watches), 4096):
        connection.received(watches[start : start + 4096])
        stage.run()
        stage.commit()
    for _ in range(WATCHED_TUBES_MAX + 9):
        stage.commit()
    assert port.take().endswith(b"WATCHING %d\r\n" % WATCHED_TUBES_MAX)
    connection.received(b"reserve\r\n")
    stage.run()
    stage.client(b"use t7\r\nput 0 0 60 1\r\nx\r\n")
    for _ in range(4):
        stage.commit()
    assert port.output == b"RESERVED 1 1\r\nx\r\n"

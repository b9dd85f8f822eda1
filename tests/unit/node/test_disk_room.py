"""A node with a full disk: it refuses puts, informs the others, and gives up leadership."""

from beanpole import commands as c
from beanpole.core import accounts
from beanpole.replication.consensus import DiskRoom
from beanpoled.links import frames
from beanpoled.node_view import LocalNodeView
from beanpoled.readiness import readiness
from tests.unit.beanpoled.fakes import trust_of
from tests.unit.node.stage import SECOND, Stage, leading, put, ready
from tests.unit.node.test_peers import heartbeat

LOW = DiskRoom(free_bytes=100, reserve_bytes=200, low=True)
FULL = DiskRoom(free_bytes=0, reserve_bytes=200, low=True, full=True)


def flags(stage: Stage) -> list[int]:
    return [c.decode_entry(entry)[0] for entry in stage.replica.proposed]


def test_an_entry_says_that_puts_are_refused_although_nobody_asks() -> None:
    """Origins refuse puts by themselves, so no batch would carry the flag to them."""
    stage = leading()
    stage.come_up()
    stage.replica.space = LOW
    stage.pass_us(20_000)
    assert flags(stage) == [c.FLAG_PUTS_REFUSED]
    stage.commit()
    stage.pass_us(100_000)
    assert flags(stage) == []
    stage.replica.space = DiskRoom()
    stage.pass_us(20_000)
    assert flags(stage) == [0]
    stage.commit()
    assert not stage.node.context.machine.puts_refused


def test_a_put_that_will_be_refused_is_not_logged() -> None:
    stage = leading()
    stage.come_up()
    stage.replica.space = LOW
    stage.pass_us(20_000)
    stage.commit()
    _, port = stage.client(b"put 0 0 60 1\r\nx\r\nlist-tube-used\r\n")
    assert port.take() == b"OUT_OF_MEMORY\r\nUSING default\r\n"
    assert not any(command[0] == c.PUT for command in stage.proposed())
    assert stage.node.context.machine.queue.next_id == 1


def test_workers_go_on_while_puts_are_refused() -> None:
    stage = leading()
    job = ready(stage)
    stage.replica.space = LOW
    stage.pass_us(20_000)
    stage.commit()
    stage.batch("n1", 2, put(), (c.DELETE, 1, job))
    stage.commit()
    assert len(stage.node.context.machine.queue.jobs) == 0


def test_the_others_hear_that_the_disk_is_low() -> None:
    stage = leading()
    stage.replica.space = LOW
    stage.sent(frames.HEARTBEAT)
    stage.pass_us(200_000)
    assert frames.decode_heartbeat(stage.sent(frames.HEARTBEAT)[-1]).disk_low


def test_a_leader_whose_log_has_no_room_hands_over_to_one_with_room() -> None:
    stage = leading()
    asked: list[str | None] = []

    def transfer(to: str | None) -> bool:
        asked.append(to)
        return False

    stage.replica.transfer = transfer  # type: ignore[method-assign]
    stage.replica.space = LOW
    stage.pass_us(20_000)
    assert asked == []
    stage.replica.space = FULL
    stage.pass_us(20_000)
    assert asked and set(asked) <= {"n1", "n2"}


def test_a_full_disk_keeps_clients_away_although_nothing_is_missing() -> None:
    """A lone node whose disk was full carried out no command, and said that it was ready."""
    stage = leading()
    heartbeat(stage, "n2", machine_version=c.BASE_VERSION)  # no RAISE is waited for
    stage.come_up()
    view = LocalNodeView(stage.node, trust_of())

    def missing() -> list[str]:
        return [one.name for one in readiness(view) if not one.passed]

    stage.replica.space = LOW
    assert missing() == [] and view.waits() == "", "puts are refused, and workers go on"
    stage.replica.space = FULL
    assert missing() == ["room"] and stage.node.lifecycle.caught_up()
    assert view.waits() == "waiting for room on the full disk", "which `reporting` repeats"
    stage.replica.space = DiskRoom()
    assert missing() == [] and view.waits() == ""


def test_a_command_that_a_full_disk_keeps_from_its_answer_names_the_disk() -> None:
    """`beanpole backup` said that no majority answers, or that the node was cut off."""
    stage = leading()
    heartbeat(stage, "n2", machine_version=c.BASE_VERSION)  # no RAISE is waited for
    stage.come_up()
    told = stage.node.condition.unanswered
    assert told() == "no answer of a majority, or n0 was cut off"
    stage.replica.space = FULL
    assert told() == "no answer of a majority: n0 is waiting for room on the full disk"


def test_events_go_before_the_reserve_that_counts() -> None:
    stage = leading()
    stage.replica.space = DiskRoom(free_bytes=10**12, reserve_bytes=10**9)
    stage.pass_us(20_000)
    assert stage.node.events.reserve_bytes == 10**9


def test_metrics_show_the_room_and_what_the_queue_takes() -> None:
    stage = leading()
    stage.replica.space = LOW
    ready(stage)
    now = LocalNodeView(stage.node, trust_of()).metrics()
    assert (now.disk_free_bytes, now.disk_reserve_bytes) == (100, 200)
    assert now.queue_bytes == accounts.memory_bytes(stage.node.context.machine) > accounts.JOB_BYTES


def test_a_disk_that_is_full_to_the_end_puts_off_a_new_incarnation() -> None:
    """A node declared down while its disk was filled by another process would have to end."""
    stage = leading()
    stage.come_up()
    stage.host.files.taken_bytes = 2**40
    stage.host.files.capacity_bytes = 0
    stage.node.lifecycle.went_down(stage.node.origin.incarnation)
    stage.pass_us(1_000_000)
    assert sum("when there is room" in line for line in stage.host.lines) == 1
    before = stage.node.origin.incarnation
    stage.host.files.capacity_bytes = None
    stage.pass_us(200_000)
    assert stage.node.origin.incarnation == before + 1


def following(after_us: int = 0) -> Stage:
    """Return a follower that serves, after some time without it."""
    stage = Stage()
    stage.follow()
    stage.pass_us(after_us)
    stage.node.lifecycle._begin_incarnation()
    stage.run()
    stage.apply_sections((0, 1, 1, ()))
    return stage


def pass_led(stage: Stage, us: int, applied: int) -> None:
    """Let time pass while the leader sends heartbeats that name its last applied entry."""
    for _ in range(us // 100_000):
        stage.pass_us(100_000)
        heartbeat(stage, "n1", applied_index=applied)


def test_a_follower_that_is_left_behind_by_its_full_disk_sends_its_clients_away() -> None:
    """They would get INTERNAL_ERROR for each command, from a node that says it is ready."""
    stage = following()
    connection, _ = stage.client()
    index = stage.node.context.machine.index
    fence_us = stage.node.context.config.fence_timeout_ms * 1000
    stage.replica.space = FULL
    pass_led(stage, 2 * fence_us, index)
    assert stage.node.serving and not connection.closed
    pass_led(stage, fence_us - SECOND, index + 1)
    assert stage.node.serving and not connection.closed
    assert stage.node.condition.waits_for() == "waiting for room on the full disk"
    pass_led(stage, 2 * SECOND, index + 1)
    assert connection.closed and not stage.host.clients_open
    assert stage.node.condition.state == "cut off"
    assert sum("disk is full: closing all clients" in line for line in stage.host.lines) == 1
    stage.replica.space = LOW
    pass_led(stage, SECOND, index + 1)
    assert stage.host.clients_open and stage.node.serving


def test_the_time_before_a_node_serves_does_not_count_for_a_full_disk() -> None:
    stage = following(after_us=5 * SECOND)
    stage.replica.space = FULL
    index = stage.node.context.machine.index
    pass_led(stage, 3 * SECOND, index + 1)
    assert stage.node.serving


def test_saves_that_fail_each_second_are_logged_once() -> None:
    stage = following()
    stage.replica.space = FULL

    def pass_saving(failing: OSError | None) -> int:
        stage.host.files.failing = failing
        for _ in range(50):
            stage.pass_us(100_000)
            heartbeat(stage, "n1", cluster_us=SECOND)
            stage.host.clock.run(0.1)
        return sum("cannot write /n0/clock" in line for line in stage.host.lines)

    assert pass_saving(OSError(28, "No space left on device")) == 1
    assert pass_saving(None) == 1
    assert pass_saving(OSError(28, "No space left on device")) == 2

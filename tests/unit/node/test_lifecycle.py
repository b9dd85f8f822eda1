"""The life cycle of a node: it comes up, is declared down, and comes up again."""

import pytest

from beanpole import commands as c
from beanpole.core.machine import Machine
from beanpoled.disk import identity
from beanpoled.leading.saved_clock import CLOCK_FILE
from beanpoled.links import frames
from tests.unit.node.stage import Stage, Stopped
from tests.unit.node.test_peers import heartbeat


def born() -> Stage:
    """Return a follower that has sent NODE_UP, in a cluster that nothing will raise."""
    stage = Stage(c.BASE_VERSION)
    stage.follow()
    stage.node.lifecycle._begin_incarnation()
    stage.run()
    assert stage.sent(frames.BATCH, "n1") != []
    return stage


def image(*sections: c.Section) -> Machine:
    machine = Machine()
    machine.apply(100, 0, 0, 0, sections)
    return machine


def test_clients_are_let_in_when_node_up_is_applied() -> None:
    stage = born()
    assert not stage.host.clients_open
    stage.apply_sections((0, 1, 1, ()))
    assert stage.host.clients_open


def test_whether_it_has_gone_up_lasts_as_long_as_the_process() -> None:
    """What was applied by then stays applied, also while the node is down or cut off."""
    stage = born()
    stage.apply_sections((1, 1, 1, ()))
    assert not stage.node.lifecycle.has_gone_up
    stage.apply_sections((0, 1, 1, ()))
    assert stage.node.lifecycle.has_gone_up
    stage.apply_sections((c.LEADER, 0, 0, ((c.NODE_DOWN, 0, 1),)))
    assert not stage.node.origin.up
    assert stage.node.lifecycle.has_gone_up


def test_an_image_that_holds_node_up_is_as_good() -> None:
    stage = born()
    stage.load(image((0, 1, 1, ())))
    assert (stage.node.origin.up, stage.host.clients_open) == (True, True)
    assert stage.node.lifecycle.has_gone_up


def test_an_image_from_before_node_up_changes_nothing() -> None:
    stage = born()
    stage.load(image((1, 1, 1, ())))
    assert (stage.node.origin.up, stage.host.clients_open) == (False, False)
    assert not stage.node.lifecycle.has_gone_up
    stage.replica.commit_index = 100
    stage.apply_sections((0, 1, 1, ()))
    assert stage.node.origin.up


@pytest.mark.parametrize("was_up", [False, True])
def test_an_image_in_which_this_node_is_down_begins_a_new_incarnation(was_up: bool) -> None:
    stage = born()
    if was_up:
        stage.apply_sections((0, 1, 1, ()))
    connection, _ = stage.client()
    stage.sent(frames.BATCH)
    stage.load(image((0, 1, 1, ()), (c.LEADER, 0, 0, ((c.NODE_DOWN, 0, 1),))))
    assert (connection.closed, stage.node.origin.up) == (True, False)
    (frame,) = stage.sent(frames.BATCH, "n1")
    assert frames.decode_batch(frame)[1:3] == (2, 1)


@pytest.mark.parametrize("was_up", [False, True])
def test_an_image_with_a_later_incarnation_is_another_process(was_up: bool) -> None:
    stage = born()
    if was_up:
        stage.apply_sections((0, 1, 1, ()))
    with pytest.raises(Stopped, match="another process runs as n0"):
        stage.load(image((0, 2, 1, ())))


def test_a_node_that_is_declared_down_closes_its_clients_and_comes_again() -> None:
    stage = born()
    stage.apply_sections((0, 1, 1, ()))
    connection, port = stage.client(b"put 0 0 1 1\r\nx\r\n")
    stage.sent(frames.BATCH)
    stage.apply_sections((c.LEADER, 0, 0, ((c.NODE_DOWN, 0, 1),)))
    assert (connection.closed, port.output) == (True, b"")
    frames_sent = [frames.decode_batch(frame) for frame in stage.sent(frames.BATCH, "n1")]
    assert [(batch[1], batch[2], batch[6]) for batch in frames_sent] == [
        (2, 1, c.pack_commands(())),
    ]
    stage.apply_sections((0, 2, 1, ()))
    assert stage.node.origin.up


def test_incarnations_count_on_over_restarts() -> None:
    stage = born()
    disk = stage.host.files
    found = identity.read(disk, "/n0")
    assert found is not None and found.incarnation == 1
    again = Stage(files=disk)
    again.follow()
    again.node.lifecycle._begin_incarnation()
    assert again.node.origin.incarnation == 2


def test_a_disk_that_is_older_than_the_log_ends_the_node() -> None:
    """Finding 2: the node took the highest of all counters, which hid that its disk was older."""
    stage = Stage()
    stage.follow()
    stage.load(image((0, 3, 1, ())))
    with pytest.raises(Stopped, match="n0 was incarnation 3 before, and this disk knows of 0"):
        stage.node.lifecycle._begin_incarnation()


def test_a_disk_that_counts_again_goes_on_above_the_incarnations_of_the_lost_one() -> None:
    stage = Stage()
    stage.node.context.disks.change(standing=identity.REJOINING)
    stage.follow()
    stage.load(image((0, 3, 1, ())))
    stage.node.callbacks.rejoined()
    stage.host.files.crash()
    found = identity.read(stage.host.files, "/n0")
    assert found is not None and (found.standing, found.incarnation) == (identity.VOTER, 65_539)
    # A batch of the lost disk that was in another node's log is applied only now.
    stage.replica.commit_index = 100
    stage.apply_sections((0, 4, 1, ()))
    stage.node.lifecycle._begin_incarnation()
    assert stage.node.origin.incarnation == 65_540
    stage.apply_sections((0, 4, 2, ()))
    assert not stage.node.origin.up


def test_a_client_between_two_incarnations_is_closed() -> None:
    """Its session was opened in neither incarnation: `watch` was promised and then refused."""
    stage = born()
    stage.apply_sections((0, 1, 1, ()))
    assert stage.host.clients_open
    stage.node.disk_health.writes_hang = True
    stage.apply_sections((c.LEADER, 0, 0, ((c.NODE_DOWN, 0, 1),)))
    assert not (stage.node.origin.up or stage.host.clients_open)
    connection, port = stage.client(b"watch a\r\n")  # sent before the port was closed
    stage.node.disk_health.writes_hang = False
    stage.pass_us(200_000)
    assert stage.node.origin.incarnation == 2
    assert connection.closed and port.closed


@pytest.mark.parametrize("change", ["rejoined", "_begin_incarnation"])
def test_what_cannot_be_written_about_the_disk_ends_the_node(change: str) -> None:
    stage = Stage()
    stage.follow()
    stage.host.files.failing = OSError(5, "Input/output error")
    with pytest.raises(Stopped, match="cannot write the identity of this disk: Input/output error"):
        getattr(stage.node.lifecycle, change)()


def test_a_stop_before_there_is_a_cluster_ends_at_once() -> None:
    stage = Stage()
    stage.node.context.started = False
    stage.node.stopping.stop()
    assert stage.host.lines[-1] == "exit"


def test_a_clock_that_was_never_received_is_not_saved() -> None:
    """Otherwise the pair of an earlier life would be lost, and the next start would stop time."""
    stage = Stage()
    stage.follow()

    def live() -> bool:
        for _ in range(30):
            stage.node.heartbeats.received_from("n1")
            stage.pass_us(90_000)
        stage.host.clock.run(1)
        return stage.host.files.exists(f"/n0/{CLOCK_FILE}")

    assert not live()
    stage.node.context.clock.receive(1, 5, stage.node.context.now_us)
    assert live()


def test_the_clock_of_a_leader_that_told_nothing_is_read_off_its_entries() -> None:
    """Its clock had stopped for 8 s; it failed before it served (a simulated life, seed 436)."""
    stage = Stage()
    stage.follow()
    clock, context = stage.node.context.clock, stage.node.context
    clock.receive(1, 2_000_000, context.now_us)
    stage.pass_us(10_000_000)
    assert clock.estimate_us(context.now_us) == 12_000_000
    stage.replica.newest = (2, c.encode_entry(0, 4_000_000, 0, []))
    stage.become("leader", "n0", 3)
    (epoch,) = stage.replica.proposed
    assert c.entry_times_us(epoch)[0] == 4_000_001  # the earlier leader's jobs keep their grace


def test_the_clock_of_a_leader_that_told_it_is_not_read_off_its_entries() -> None:
    stage = Stage()
    stage.follow()
    clock, context = stage.node.context.clock, stage.node.context
    stage.replica.newest = (1, c.encode_entry(0, 1_000_000, 0, []))
    clock.receive(1, 2_000_000, context.now_us)
    stage.pass_us(10_000_000)
    stage.replica.newest = (2, b"no entry")
    stage.pass_us(1_000_000)
    assert clock.estimate_us(context.now_us) == 13_000_000


@pytest.mark.parametrize(
    ("entry_us", "entry_wall_s", "start_us"),
    [
        (12_000_000, 103, 14_000_000),  # the clock stopped for a second before the entry
        (12_000_000, 111, 12_000_001),  # the leader's wall clock is ahead of this node's
        (12_000_000, 90, 15_000_000),  # it is behind: the pair is used
        (9_000_000, 104, 15_000_000),  # older than the pair: it is ignored
    ],
)
def test_a_cold_start_counts_no_time_before_the_newest_entry(
    entry_us: int, entry_wall_s: int, start_us: int
) -> None:
    """The clock stopped after it was saved and before a job was reserved (seeds 1365 and 2613)."""
    stage = Stage()
    wall_us = stage.host.wall_us()
    second_100_us = wall_us - 105_000_000
    stage.node.lifecycle._saved_clock._pair = (10_000_000, second_100_us + 100_000_000)
    entry = c.encode_entry(0, entry_us, second_100_us + entry_wall_s * 1_000_000, [])
    stage.replica.newest = (1, entry)
    stage.become("leader", "n0", 3)
    (epoch,) = stage.replica.proposed
    assert c.entry_times_us(epoch)[0] == start_us


def test_the_last_entry_of_a_leader_that_came_back_from_a_pause_tells_its_time() -> None:
    """Its clock had stopped for 8 s since its heartbeat, its entry was not applied (seed 71)."""
    stage = Stage()
    stage.follow()
    clock, context = stage.node.context.clock, stage.node.context
    clock.receive(1, 2_000_000, context.now_us)
    stage.pass_us(10_000_000)
    stage.replica.newest = (1, c.encode_entry(0, 4_000_000, 0, []))
    stage.pass_us(1_000_000)
    assert clock.estimate_us(context.now_us) <= 5_000_000
    stage.become("leader", "n0", 2)
    (epoch,) = stage.replica.proposed
    assert 4_000_000 <= c.entry_times_us(epoch)[0] <= 5_000_000


def test_time_goes_on_from_an_entry_that_is_not_applied() -> None:
    stage = Stage()
    stage.follow()
    clock, context = stage.node.context.clock, stage.node.context
    clock.receive(1, 2_000_000, context.now_us)
    stage.replica.newest = (1, c.encode_entry(0, 2_100_000, 0, []))
    for _ in range(20):
        stage.pass_us(100_000)
    assert 4_000_000 <= clock.estimate_us(context.now_us) <= 4_100_000


def test_a_saved_clock_that_is_too_late_is_replaced_at_once() -> None:
    """Otherwise a start from it would count the leader's stopped clock (seed 1482)."""
    stage = Stage()
    stage.follow()
    clock, context = stage.node.context.clock, stage.node.context
    clock.receive(1, 2_000_000, context.now_us)

    def live(us: int) -> int:
        for _ in range(us // 90_000):
            stage.node.heartbeats.received_from("n1")
            stage.pass_us(90_000)
        stage.host.clock.run(0.02)
        return stage.node.lifecycle._saved_clock.saves

    saves = live(1_800_000)
    while live(90_000) == saves:
        pass  # the next save is a second away
    saves = stage.node.lifecycle._saved_clock.saves
    assert live(270_000) == saves
    clock.receive(2, 1_000_000, context.now_us)
    assert live(270_000) == saves + 1
    assert live(270_000) == saves + 1


def test_a_node_cut_off_closes_its_clients_and_opens_again() -> None:
    stage = born()
    stage.apply_sections((0, 1, 1, ()))
    connection, _ = stage.client()
    stage.become("follower", None, 1)
    stage.pass_us(6_400_000)
    assert not connection.closed
    stage.pass_us(300_000)
    assert (connection.closed, stage.host.clients_open) == (True, False)
    stage.become("follower", "n1", 2)
    for _ in range(3):
        heartbeat(stage, "n1")
        stage.pass_us(90_000)
    assert stage.host.clients_open

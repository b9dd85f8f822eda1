"""A node whose disk hangs: which node leads then, and the effect on clients."""

import pytest

from beanpole.replication.consensus import DiskRoom, LogOnDisk
from beanpoled.links import frames
from beanpoled.turn.disk_health import BEHIND_BYTES_MAX
from tests.unit.node.stage import MEMBERS, SECOND, Port, Stage, put
from tests.unit.node.test_peers import heartbeat

HUNG = LogOnDisk(end=5000, written=1000, last=7)


@pytest.fixture
def leader() -> Stage:
    """Return a serving leader whose followers have all of its log."""
    stage = Stage()
    stage.lead()
    stage.come_up()
    follow_up(stage)
    return stage


def follow_up(stage: Stage) -> None:
    stage.replica.commit_index = stage.replica.applied_index = 9
    stage.replica.matches = {"n1": 9, "n2": 8}


def pass_alive(stage: Stage, us: int) -> None:
    """Let time pass while the others send heartbeats."""
    for _ in range(us // 100_000):
        stage.pass_us(100_000)
        for peer in MEMBERS[1:]:
            heartbeat(stage, peer)


def reserving(stage: Stage) -> Port:
    """Return a client that waits for a job."""
    _, port = stage.client(b"reserve\r\n")
    stage.commit()
    follow_up(stage)
    return port


def lines(stage: Stage, words: str) -> int:
    return sum(words in line for line in stage.host.lines)


def test_a_leader_whose_disk_hangs_hands_over_to_a_node_that_has_what_it_lacks(
    leader: Stage,
) -> None:
    leader.replica.on_disk = HUNG
    pass_alive(leader, 900_000)
    assert not leader.node.disk_health.hangs and leader.replica.transfers == []
    pass_alive(leader, 500_000)
    assert leader.node.disk_health.hangs and leader.replica.disk_hangs
    assert set(leader.replica.transfers) == {"n1"}
    assert lines(leader, "the disk is behind: 4000 bytes") == 1
    leader.replica.on_disk = LogOnDisk(5000, 5000, 9)
    pass_alive(leader, 200_000)
    assert not leader.replica.disk_hangs
    assert lines(leader, "the disk goes on") == 1


def test_it_leads_on_while_no_majority_goes_on_without_it(leader: Stage) -> None:
    leader.replica.on_disk = HUNG._replace(last=9)
    pass_alive(leader, 3 * SECOND)
    leader.replica.on_disk = HUNG
    leader.replica.matches = {"n1": 7, "n2": 8}
    pass_alive(leader, SECOND)
    assert leader.node.disk_health.hangs
    assert leader.replica.transfers == []


def test_a_disk_that_is_far_behind_in_bytes_is_no_leader_s(leader: Stage) -> None:
    leader.replica.on_disk = LogOnDisk(BEHIND_BYTES_MAX + 1000, 1000, 7)
    pass_alive(leader, 200_000)
    assert leader.replica.transfers == []
    leader.replica.on_disk = LogOnDisk(BEHIND_BYTES_MAX + 2001, 2000, 7)
    pass_alive(leader, 100_000)
    assert leader.replica.transfers == ["n1"]


def test_a_hand_over_that_did_not_work_is_tried_again_later(
    leader: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str | None] = []

    def transfer(to: str | None) -> bool:
        begun.append(to)
        return True

    monkeypatch.setattr(leader.replica, "transfer", transfer)
    leader.replica.on_disk = HUNG
    pass_alive(leader, 11 * SECOND)
    assert begun == ["n1"]
    pass_alive(leader, SECOND)
    assert begun == ["n1", "n1"]
    assert lines(leader, "handing over to n1") == 2


def test_a_slow_disk_that_goes_on_does_not_hang(leader: Stage) -> None:
    for step in range(30):
        leader.replica.on_disk = LogOnDisk(2000 * step + 3000, 2000 * step, 7)
        pass_alive(leader, 100_000)
    assert not leader.node.disk_health.hangs


def test_a_disk_that_hangs_in_each_sync_does_not_go_on_between_them(leader: Stage) -> None:
    """Each sync takes 1.5 s: a pair of lines came for each, and it was ready in turns."""
    health = leader.node.disk_health
    told: list[bool] = []
    acted: list[bool] = []
    for step in range(1, 28):
        leader.replica.on_disk = LogOnDisk(2000 * step, 2000 * step - 1000, 7)
        for _ in range(15):
            pass_alive(leader, 100_000)
            told.append(health.is_behind)
            acted.append(leader.replica.disk_hangs)
    assert lines(leader, "the disk is behind") == 2 and lines(leader, "the disk goes on") == 1
    assert lines(leader, "again, so it must keep up for 10 s to go on") == 1
    assert all(told[60:])
    # Its permission to lead follows the disk: after each sync it could lead again.
    assert not all(acted[60:]) and any(acted[60:])


def test_a_slow_disk_goes_on_when_it_has_kept_up_for_a_while(leader: Stage) -> None:
    health = leader.node.disk_health
    for end in (2000, 3000):
        leader.replica.on_disk = LogOnDisk(end, 1000, 7)
        pass_alive(leader, 1_500_000)
        assert health.is_behind
        leader.replica.on_disk = LogOnDisk(end, end, 9)
        pass_alive(leader, 200_000)
    assert health.is_behind and not health.writes_hang
    pass_alive(leader, 9_500_000)
    assert health.is_behind
    pass_alive(leader, 600_000)
    assert not health.is_behind and lines(leader, "the disk goes on") == 2
    # Another hang, long after it, is one by itself.
    pass_alive(leader, 10 * SECOND)
    leader.replica.on_disk = LogOnDisk(4000, 3000, 9)
    pass_alive(leader, 1_500_000)
    assert health.is_behind
    leader.replica.on_disk = LogOnDisk(4000, 4000, 9)
    pass_alive(leader, 200_000)
    assert not health.is_behind and lines(leader, "the disk goes on") == 3


def test_a_leader_with_a_slow_disk_hands_over_at_once(leader: Stage) -> None:
    for end in (2000, 3000):
        leader.replica.transfers.clear()
        leader.replica.on_disk = LogOnDisk(end, 1000, 7)
        pass_alive(leader, 1_200_000)
        assert set(leader.replica.transfers) == {"n1"}
        leader.replica.on_disk = LogOnDisk(end, end, 9)
        pass_alive(leader, 200_000)


def test_an_idle_log_hides_no_disk_that_hangs(leader: Stage) -> None:
    leader.host.files.latency_s = 1e6
    pass_alive(leader, 4 * SECOND)
    assert leader.node.leader.saved_clock.saving
    assert leader.node.disk_health.hangs
    leader.host.files.hasten(0.0)
    leader.host.clock.run(0.1)
    pass_alive(leader, 100_000)
    assert not leader.node.disk_health.hangs


def test_a_disk_that_does_not_tell_its_free_space_hangs(leader: Stage) -> None:
    """Its log is written, so that its clients stay."""
    port = reserving(leader)
    for look in range(20):
        leader.replica.space = DiskRoom(looking=True, looks=look)
        pass_alive(leader, 100_000)
    assert not leader.node.disk_health.hangs
    pass_alive(leader, 2 * SECOND)
    assert leader.node.disk_health.hangs and not leader.replica.disk_hangs
    assert 1_900_000 <= leader.node.disk_health.lag_us <= 2_000_000
    pass_alive(leader, 2 * leader.node.context.config.fence_timeout_ms * 1000)
    leader.replica.commit_index = 10  # its own disk is the slowest one, by a moment
    pass_alive(leader, 100_000)
    assert not port.closed and leader.node.serving
    assert leader.replica.transfers == []
    leader.replica.space = DiskRoom(looking=False, looks=20)
    pass_alive(leader, 100_000)
    assert not leader.node.disk_health.hangs
    assert lines(leader, "does not tell its free space") == 1


def test_a_disk_that_only_does_not_tell_its_free_space_is_closed(leader: Stage) -> None:
    leader.replica.space = DiskRoom(looking=True, looks=5)
    pass_alive(leader, 2 * SECOND)
    leader.node.stopping.stop()
    pass_alive(leader, 20 * SECOND)
    assert leader.host.lines[-2:] == ["stopped", "exit"]


def test_a_pause_of_the_process_is_none_of_the_disk(leader: Stage) -> None:
    leader.replica.on_disk = HUNG
    leader.pass_us(60 * SECOND, step_us=20 * SECOND)
    assert not leader.node.disk_health.hangs


def test_a_node_that_is_left_behind_closes_its_clients_and_comes_back(leader: Stage) -> None:
    port = reserving(leader)
    leader.become("follower", "n1", 2)
    follow_up(leader)
    leader.replica.on_disk = HUNG
    fence_us = leader.node.context.config.fence_timeout_ms * 1000
    pass_alive(leader, fence_us - 100_000)
    assert leader.node.serving and not port.closed
    pass_alive(leader, 400_000)
    assert port.closed and not leader.host.clients_open and not leader.node.serving
    assert lines(leader, "closing all clients") == 1
    leader.replica.on_disk = LogOnDisk(5000, 5000, 9)
    pass_alive(leader, 200_000)
    assert leader.host.clients_open and leader.node.serving


def test_clients_stay_while_nobody_goes_on(leader: Stage) -> None:
    port = reserving(leader)
    leader.replica.on_disk = HUNG._replace(last=9)
    pass_alive(leader, 2 * leader.node.context.config.fence_timeout_ms * 1000)
    assert leader.node.disk_health.hangs
    assert not port.closed and leader.node.serving


def test_a_new_incarnation_does_not_wait_for_a_disk_that_hangs(leader: Stage) -> None:
    """The loop writes the incarnation counter: closing the clients would wait for the disk."""
    port = reserving(leader)
    node = leader.node
    incarnation = node.origin.incarnation
    leader.replica.on_disk = HUNG
    pass_alive(leader, 2 * SECOND)
    node.lifecycle.went_down(incarnation)
    pass_alive(leader, SECOND)
    assert port.closed and node.origin.incarnation == incarnation and not node.origin.up
    leader.replica.on_disk = LogOnDisk(5000, 5000, 9)
    pass_alive(leader, 200_000)
    assert node.origin.incarnation == incarnation + 1


def test_a_stop_does_not_wait_for_a_disk_that_hangs(leader: Stage) -> None:
    leader.become("follower", "n1", 2)
    leader.replica.on_disk = HUNG
    pass_alive(leader, 2 * SECOND)
    leader.node.stopping.stop()
    pass_alive(leader, 20 * SECOND)
    assert leader.host.lines[-2:] == [
        "stopped without a last sync, because the disk hangs",
        "exit",
    ]


def test_batches_are_taken_again_when_there_is_room(leader: Stage) -> None:
    """A leader that may propose nothing queues batches, within the limits of each origin."""
    leader.replica.proposed = [b""] * 8
    leader.batch("n1", 1, put(), first=True)
    assert len(leader.node.leader.proposer.inbox.batches) == 1
    leader.replica.proposed = []
    leader.pass_us(20_000)
    assert len(leader.node.leader.proposer.inbox.batches) == 0
    assert leader.sent(frames.BATCH) == []

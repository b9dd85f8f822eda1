"""A node's conclusions from the silence, the heartbeats and the digests of its peers."""

import pytest

from beanpole import commands as c
from beanpoled.links import frames
from beanpoled.links.frames import Heartbeat
from beanpoled.peers.peers import STALL_US, STEADY_US
from tests.unit.node.stage import MEMBERS, SECOND, Stage, Stopped


def heartbeat(stage: Stage, peer: str, **changes: object) -> None:
    """Receive a heartbeat that agrees with this node, except for the changes."""
    node = stage.node
    values = Heartbeat(
        term=stage.replica.term,
        leading=peer == stage.replica.leader,
        cluster_us=0,
        wall_us=stage.host.walls_us,
        incarnation=1,
        applied_index=node.context.machine.index,
        state_hash=node.context.machine.state_hash,
        machine_version=c.MACHINE_VERSION,
        disk_low=False,
        stopping=False,
        digest_index=0,
        digest=0,
        digest_version=node.context.machine.version,
        active_version=node.context.machine.version,
        kept_index=0,
        sent_us=stage.host.now_us(),
        echo_us=stage.host.us,  # it heard the last heartbeat of this node at once
    )
    frame = frames.encode_heartbeat(values._replace(**changes))  # type: ignore[arg-type]
    node.router.receive(peer, frames.HEARTBEAT, frame)


@pytest.fixture
def leader() -> Stage:
    """Return a leader; the other two nodes are up."""
    stage = Stage()
    stage.lead()
    for peer in MEMBERS[1:]:
        stage.batch(peer, 1, (c.OPEN, 1), first=True)
    stage.commit()
    return stage


def downs(stage: Stage) -> list[c.Command]:
    return [command for command in stage.proposed() if command[0] == c.NODE_DOWN]


# --- diverged replicas ----------------------------------------------------------------------------


def test_a_node_outvoted_by_the_others_stops(leader: Stage) -> None:
    heartbeat(leader, "n1", state_hash=1)
    assert "differs" in leader.host.lines[-1]
    with pytest.raises(Stopped, match="differs from 2 of 3 members"):
        heartbeat(leader, "n2", state_hash=1)


def test_a_node_that_agrees_with_one_goes_on(leader: Stage) -> None:
    heartbeat(leader, "n2")
    heartbeat(leader, "n1", state_hash=1)
    heartbeat(leader, "n1", state_hash=1)
    assert sum("differs" in line for line in leader.host.lines) == 1


def test_digests_of_another_index_are_not_compared(leader: Stage) -> None:
    index = leader.node.context.machine.index
    for peer in MEMBERS[1:]:
        heartbeat(leader, peer, state_hash=1, applied_index=index + 5)
        heartbeat(leader, peer, digest=1, digest_index=index)
    assert not any("differs" in line for line in leader.host.lines)


def test_an_older_index_is_compared_with_what_was_applied_then(leader: Stage) -> None:
    index, chain = leader.node.context.machine.index, leader.node.context.machine.state_hash
    leader.batch("n1", 2, (c.PUT, 1, b"default", 0, 0, 1, b"x"))
    leader.commit()
    assert leader.node.context.machine.state_hash != chain
    heartbeat(leader, "n1", applied_index=index, state_hash=chain)
    assert not any("differs" in line for line in leader.host.lines)
    heartbeat(leader, "n2", applied_index=index, state_hash=leader.node.context.machine.state_hash)
    assert any("differs" in line for line in leader.host.lines)


def test_canonical_digests_are_compared_too(leader: Stage) -> None:
    leader.node.agreement.digested((3, 77, c.BASE_VERSION))
    heartbeat(leader, "n1", digest_index=3, digest=77)
    assert not any("differs" in line for line in leader.host.lines)
    with pytest.raises(Stopped):
        for peer in MEMBERS[1:]:
            heartbeat(leader, peer, digest_index=3, digest=78)


def test_digests_of_images_of_different_versions_are_not_compared(leader: Stage) -> None:
    """The same state has different bytes in another version."""
    leader.node.agreement.digested((3, 77, c.BASE_VERSION))
    for peer in MEMBERS[1:]:
        heartbeat(leader, peer, digest_index=3, digest=78, digest_version=c.BASE_VERSION + 1)
    assert not any("differs" in line for line in leader.host.lines)


def test_the_digest_of_a_machine_that_a_snapshot_replaced_is_not_told_any_more() -> None:
    stage = Stage()
    stage.follow()
    agreement = stage.node.agreement
    agreement.digested((3, 77, c.BASE_VERSION))
    stage.load(stage.node.context.machine)
    assert agreement.image == (0, 0, 0)
    heartbeat(stage, "n1", digest_index=3, digest=78)
    assert not any("differs" in line for line in stage.host.lines)


def test_a_node_that_differs_and_is_agreed_with_by_nobody_stops(leader: Stage) -> None:
    """An absent member used to count as agreeing, so that both other nodes served on."""
    heartbeat(leader, "n2")
    leader.node.router.link_down("n2")
    leader.pass_us(2 * SECOND)
    leader.batch("n1", 2, (c.PUT, 1, b"default", 0, 0, 1, b"x"))
    leader.commit()
    with pytest.raises(Stopped, match=r"differs from n1 at index \d+ .*no majority of the 3"):
        heartbeat(leader, "n1", state_hash=1)


def test_a_member_that_goes_away_before_it_has_agreed_counts_no_more(leader: Stage) -> None:
    heartbeat(leader, "n1", state_hash=1)
    leader.pass_us(20_000)
    leader.node.router.link_down("n2")
    leader.pass_us(1_900_000)
    with pytest.raises(Stopped, match="no majority"):
        leader.pass_us(100_000)


def test_a_member_whose_link_is_dialed_again_is_waited_for(leader: Stage) -> None:
    """Its link was down for 50 ms when another member differed, and the healthy node stopped."""
    heartbeat(leader, "n2")
    leader.node.router.link_down("n2")
    leader.batch("n1", 2, (c.PUT, 1, b"default", 0, 0, 1, b"x"))
    leader.commit()
    heartbeat(leader, "n1", state_hash=1)
    leader.pass_us(50_000)
    leader.node.router.link_up("n2")
    heartbeat(leader, "n2")
    leader.pass_us(5 * SECOND)
    assert sum("differs" in line for line in leader.host.lines) == 1


# --- silence --------------------------------------------------------------------------------------


def test_a_member_is_declared_down_after_node_timeout_of_silence(leader: Stage) -> None:
    for _ in range(78):
        leader.pass_us(100_000)
        heartbeat(leader, "n2")
    assert downs(leader) == []
    leader.commit()
    for _ in range(4):
        leader.pass_us(100_000)
        heartbeat(leader, "n2")
    assert downs(leader) == [(c.NODE_DOWN, 1, 1)]


def test_a_member_that_is_heard_again_is_down_before_its_next_commands(leader: Stage) -> None:
    """Disks that hang may let the leader propose nothing meanwhile (life 115229)."""
    leader.replica.proposed = [b""] * 8
    for _ in range(82):
        leader.pass_us(100_000)
        heartbeat(leader, "n2")
    assert leader.replica.proposed == [b""] * 8
    heartbeat(leader, "n1")
    leader.batch("n1", 2, (c.OPEN, 9))
    leader.replica.proposed = []
    leader.pass_us(100_000)
    assert downs(leader) == [(c.NODE_DOWN, 1, 1)]
    (entry,) = leader.replica.proposed
    assert [section[0] for section in c.decode_entry(entry)[3]] == [c.LEADER, 0, 1]


@pytest.mark.parametrize(("lived_us", "is_heard"), [(STEADY_US, True), (SECOND, False)])
def test_a_new_link_ends_the_silence_unless_the_last_one_stalled_while_it_was_new(
    leader: Stage, lived_us: int, is_heard: bool
) -> None:
    leader.node.router.link_up("n1")
    for _ in range(lived_us // 100_000):
        leader.pass_us(100_000)
        heartbeat(leader, "n1")
    leader.pass_us(STALL_US)
    assert leader.node.peers.peers["n1"].silent
    leader.node.router.link_down("n1")
    leader.node.router.link_up("n1")
    heartbeat(leader, "n1")
    assert leader.node.peers.peers["n1"].silent is not is_heard


def test_a_new_leader_counts_from_its_epoch(leader: Stage) -> None:
    """A node that had contact with the previous leader must have time to notice the new one."""
    leader.become("follower", "n2", 2)
    for _ in range(90):
        leader.pass_us(100_000)
        heartbeat(leader, "n2")
    leader.become("leader", "n0", 3)
    leader.commit()
    for _ in range(78):
        leader.pass_us(100_000)
        heartbeat(leader, "n2")
    assert downs(leader) == []
    for _ in range(4):
        leader.pass_us(100_000)
        heartbeat(leader, "n2")
    assert downs(leader) == [(c.NODE_DOWN, 1, 1)]


def test_a_pause_of_this_process_is_not_the_silence_of_others(leader: Stage) -> None:
    leader.pass_us(60_000_000, step_us=20_000_000)
    assert downs(leader) == []


# --- heartbeats -----------------------------------------------------------------------------------


def test_a_heartbeat_read_after_a_pause_counts_as_received_now() -> None:
    stage = Stage()
    stage.follow()
    stage.host.us += 5_000_000  # this process was suspended, and reads before its next turn
    heartbeat(stage, "n1", cluster_us=10_000_000)
    assert stage.node.context.clock.estimate_us(stage.host.now_us()) == 10_000_000


def test_only_the_leader_of_this_term_tells_the_time() -> None:
    stage = Stage()
    stage.follow()
    heartbeat(stage, "n2", leading=True, cluster_us=10_000_000)
    heartbeat(stage, "n1", term=7, cluster_us=10_000_000)
    heartbeat(stage, "n1", leading=False, cluster_us=10_000_000)
    assert not stage.node.context.clock.was_up()


def test_entries_of_this_term_tell_the_time_too() -> None:
    """Seed 180: n0 led for 40 ms without a heartbeat, its clock 1.2 s behind n2's."""
    stage = Stage()
    stage.follow("n1", term=1)
    now_us = stage.node.context.clock.estimate_us
    stage.apply(c.encode_entry(0, 50 * SECOND, 0, []))
    assert not stage.node.context.clock.was_up(), "what the log repeats after a start is not news"
    stage.node.context.clock.receive(1, 100 * SECOND, stage.host.us)
    stage.pass_us(3 * SECOND)
    stage.apply(c.encode_entry(0, 101 * SECOND, 0, []))
    assert now_us(stage.host.us) == 101 * SECOND
    stage.replica.term = 2
    stage.node.callbacks.apply(4, 1, c.encode_entry(0, 105 * SECOND, 0, []))
    assert now_us(stage.host.us) == 101 * SECOND, "an entry of an earlier term"


def test_a_leader_that_was_down_asks_other_nodes_before_its_wall_clock() -> None:
    """It counted an hour in which the others were stopped: it had saved its clock before."""
    stage = Stage()
    stage.node.leader.saved_clock._pair = (7_000_000, stage.host.walls_us - 3_600_000_000)
    assert stage.node.leader.saved_clock.begin_epoch(1) == 3_607_000_000
    stage = Stage()
    stage.node.leader.saved_clock._pair = (7_000_000, stage.host.walls_us - 3_600_000_000)
    for peer, cluster_us in (("n1", 9_000_000), ("n2", 8_000_000)):
        stage.node.peers.up(peer)
        heartbeat(stage, peer, cluster_us=cluster_us)
    assert stage.node.leader.saved_clock.begin_epoch(1) == 8_000_000


@pytest.mark.parametrize(
    ("entry_age_s", "skew_s", "start_us"),
    [
        (1, 0, 3_100_000),  # the members did not hear its leader, whose clock was behind
        (3600, 0, 8_000_000),  # they know when time stood still
        (-1, 0, 2_100_001),  # its leader's wall clock is ahead: time cannot be told
        (1, 3600, 8_000_000),  # wall clocks that differ bound nothing
        (4, -2, 4_100_000),  # its leader may be the member whose wall clock is behind
    ],
)
def test_what_members_tell_is_bounded_by_the_newest_entry(
    entry_age_s: int, skew_s: int, start_us: int
) -> None:
    """A leader came back from a pause, fell after its first entry, and led again (life 13424)."""
    stage = Stage()
    wall_us = stage.host.walls_us
    stage.node.peers.up("n1")
    heartbeat(stage, "n1", cluster_us=8_000_000, wall_us=wall_us + skew_s * SECOND)
    entry = c.encode_entry(0, 2_100_000, wall_us - entry_age_s * SECOND, [])
    stage.replica.newest = (1, entry)
    assert stage.node.leader.saved_clock.begin_epoch(1) == start_us


def test_what_members_tell_is_bounded_by_the_pair_on_the_disk() -> None:
    """The last leader's wall clock was behind, and no member but it was heard (life 94173)."""
    stage = Stage()
    wall_us = stage.host.walls_us
    stage.node.leader.saved_clock._pair = (5_000_000, wall_us - SECOND)
    stage.node.peers.up("n1")
    heartbeat(stage, "n1", cluster_us=8_000_000)
    entry = c.encode_entry(0, 5_500_000, wall_us - 9 * SECOND, [])
    stage.replica.newest = (1, entry)
    assert stage.node.leader.saved_clock.begin_epoch(1) == 6_000_000


def test_a_member_that_was_not_heard_for_long_keeps_its_wall_clock() -> None:
    """Loop time, in which silence is counted, stood still for an hour (life 94173)."""
    stage = Stage()
    stage.follow()
    heartbeat(stage, "n2", wall_us=stage.host.walls_us + 2 * SECOND)
    stage.host.us += 3600 * SECOND
    stage.host.walls_us += 3600 * SECOND
    stage.run()
    assert stage.node.peers.skews_us() == [2 * SECOND]


@pytest.mark.parametrize(
    ("skews_s", "start_us"),
    [
        ((0, 0), 16_000_000),
        ((-3, 2), 13_000_000),  # the leader of the entry may be n1: it was written 1 s ago
        ((-7, 2), 12_000_000),  # its time cannot be told
        ((3, 2), 16_000_000),
    ],
)
def test_a_cold_start_by_the_entry_of_a_node_whose_wall_clock_is_behind(
    skews_s: tuple[int, int], start_us: int
) -> None:
    """Cluster time stood still after the pair was saved: a TTR ended early (life 92839)."""
    stage = Stage()
    wall_us = stage.host.walls_us
    for peer, skew_s in zip(MEMBERS[1:], skews_s, strict=True):
        stage.node.peers.up(peer)
        heartbeat(stage, peer, wall_us=wall_us + skew_s * SECOND)
    stage.node.leader.saved_clock._pair = (7_000_000, wall_us - 10 * SECOND)
    stage.replica.newest = (1, c.encode_entry(0, 12_000_000, wall_us - 4 * SECOND, []))
    assert abs(stage.node.leader.saved_clock.begin_epoch(1) - start_us) <= 1


@pytest.mark.parametrize(("entry_s", "start_us"), [(4, 75_000_000), (0, 71_000_000)])
def test_a_cold_start_of_a_node_whose_own_wall_clock_was_behind(
    entry_s: int, start_us: int
) -> None:
    """It was days behind when the pair was saved, and right again: a delay of a day ended.

    The newest entry bounds the time, with a minute for clocks that differ.
    """
    stage = Stage()
    wall_us = stage.host.walls_us
    for peer in MEMBERS[1:]:
        stage.node.peers.up(peer)
        heartbeat(stage, peer, wall_us=wall_us)
    stage.node.leader.saved_clock._pair = (12_000_000, wall_us - 3 * 86_400 * SECOND)
    stage.replica.newest = (1, c.encode_entry(0, 11_000_000, wall_us - entry_s * SECOND, []))
    assert abs(stage.node.leader.saved_clock.begin_epoch(1) - start_us) <= 1


@pytest.mark.parametrize(
    ("skew_s", "words"),
    [
        (0, "counting 10 s in which no node was running"),
        (61, "not counting the time in which no node was running: the clocks differ"),
    ],
)
def test_a_cold_start_says_how_much_time_it_counts(skew_s: int, words: str) -> None:
    stage = Stage()
    wall_us = stage.host.walls_us
    for peer in MEMBERS[1:]:
        stage.node.peers.up(peer)
        heartbeat(stage, peer, wall_us=wall_us + skew_s * SECOND)
    stage.node.leader.saved_clock._pair = (7_000_000, wall_us - 10 * SECOND)
    stage.node.leader.saved_clock.begin_epoch(1)
    assert words in stage.host.lines


def test_a_node_that_was_up_tells_the_time_that_it_received() -> None:
    stage = Stage()
    stage.follow()
    heartbeat(stage, "n1", cluster_us=10_000_000)
    stage.node.heartbeats.send()
    told = frames.decode_heartbeat(stage.sent(frames.HEARTBEAT, "n2")[-1])
    assert (told.leading, told.cluster_us) == (False, 10_000_000)


def test_puts_are_refused_below_the_reserve_of_this_disk_or_of_a_majority(leader: Stage) -> None:
    peers = leader.node.peers
    heartbeat(leader, "n1", disk_low=True)
    assert not peers.disk_is_low()
    heartbeat(leader, "n2", disk_low=True)
    assert peers.disk_is_low()
    heartbeat(leader, "n1")
    heartbeat(leader, "n2")
    assert not peers.disk_is_low()
    peers.disk_low = True
    assert peers.disk_is_low()


def test_leadership_goes_to_a_linked_member_that_stays(leader: Stage) -> None:
    heartbeat(leader, "n1")
    heartbeat(leader, "n2")
    assert leader.node.peers.successor() == "n2"
    heartbeat(leader, "n2", stopping=True)
    assert leader.node.peers.successor() == "n1"
    leader.node.router.link_down("n1")
    assert leader.node.peers.successor() is None

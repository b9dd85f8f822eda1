"""The proposals of a leader: batches in order, and one GRANT for each job and waiter."""

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole import pace
from beanpole.errors import ProtocolError
from beanpoled.leading.inbox import INBOX_BATCHES_MAX
from beanpoled.leading.proposing import DIGEST_PERIOD_US, ENTRY_FULL_BYTES
from beanpoled.links import frames
from beanpoled.links.frames import BATCHES_IN_FLIGHT_MAX
from tests.unit.node.stage import DEFAULT, MEMBERS, Stage, grants, leading, put, ready


@pytest.fixture
def stage() -> Stage:
    return leading()


# --- batches --------------------------------------------------------------------------------------


def test_only_contiguous_numbers_of_a_link_are_taken(stage: Stage) -> None:
    stage.batch("n1", 3, put())
    assert stage.replica.proposed == []
    stage.batch("n1", 2, put())
    stage.batch("n1", 4, put())
    stage.batch("n1", 3, put())
    stage.commit()
    assert stage.node.context.machine.origins[1].next_number == 4


def test_a_new_link_begins_anew(stage: Stage) -> None:
    stage.batch("n1", 2, put())
    stage.node.router.link_down("n1")
    stage.node.router.link_up("n1")
    stage.batch("n1", 3, put())
    stage.batch("n1", 2, put(), first=True)
    stage.batch("n1", 3, put())
    stage.commit()
    assert ready(stage) == 2


def test_a_batch_of_another_term_is_not_taken(stage: Stage) -> None:
    frame = frames.encode_batch(7, 1, 2, True, 1, b"", c.pack_commands([put()]))
    stage.node.router.receive("n1", frames.BATCH, frame)
    stage.run()
    assert stage.replica.proposed == []


def test_small_batches_wait_for_the_entry_in_flight_and_share_the_next(stage: Stage) -> None:
    stage.batch("n1", 2, put())
    stage.batch("n1", 3, put())
    stage.batch("n2", 2, put())
    assert len(stage.replica.proposed) == 1
    stage.commit(1)
    (entry,) = stage.replica.proposed
    assert [section[:3] for section in c.decode_entry(entry)[3]] == [(1, 1, 3), (2, 1, 2)]


def test_a_full_entry_does_not_wait(stage: Stage) -> None:
    stage.batch("n1", 2, put())
    stage.batch("n1", 3, put(body=bytes(ENTRY_FULL_BYTES)))
    stage.batch("n1", 4, put())
    assert len(stage.replica.proposed) == 2
    stage.commit()
    assert ready(stage) == 3


def test_what_waited_is_proposed_before_the_commit_is_applied(stage: Stage) -> None:
    stage.batch("n1", 2, put())
    stage.batch("n1", 3, put())
    (entry,) = stage.replica.proposed
    stage.replica.proposed.clear()
    stage.node.callbacks.committed()
    assert len(stage.replica.proposed) == 1
    assert ready(stage) == 0
    stage.apply(entry)
    assert ready(stage) == 1


def test_what_waits_for_the_entry_in_flight_brings_no_turn(stage: Stage) -> None:
    stage.batch("n1", 2, put())
    third, fourth = (
        frames.encode_batch(1, 1, number, False, 1, b"", c.pack_commands([put()]))
        for number in (3, 4)
    )
    stage.node.router.receive("n1", frames.BATCH, third)
    stage.node.router.receive("n2", frames.WAITS, frames.encode_items(1, 1, [(1, 1, 1)]))
    assert stage.host.soon == []
    stage.commit()
    stage.node.router.receive("n1", frames.BATCH, fourth)
    assert stage.host.soon != []
    stage.run()
    assert ready(stage) == 1  # the waiter has the other job


def test_own_commands_join_one_batch_while_an_entry_is_in_flight(stage: Stage) -> None:
    stage.come_up()
    stage.batch("n1", 2, put())
    (entry,) = stage.replica.proposed
    for _ in range(3):
        stage.client(b"put 0 0 60 1\r\nx\r\n")
    stage.replica.proposed.clear()
    stage.node.callbacks.committed()
    (following,) = stage.replica.proposed
    (section,) = c.decode_entry(following)[3]
    assert section[0] == 0
    assert [command[0] for command in section[3]] == [c.OPEN, c.PUT] * 3
    stage.apply(entry)


def test_a_digest_is_asked_for_when_the_one_before_is_done(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "STEPS_PER_SLICE_MAX", 1)
    stage.pass_us(DIGEST_PERIOD_US + 1_000_000)
    stage.apply_sections((1, 1, 2, (put(),)), (c.LEADER, 0, 0, ((c.DIGEST,),)))
    stage.replica.proposed.clear()
    stage.pass_us(50_000)
    assert not stage.node.digest.in_progress
    stage.apply(c.encode_entry(0, 0, 0, [(c.LEADER, 0, 0, c.pack_commands([(c.DIGEST,)]))]))
    stage.batch("n1", 3, put())
    assert (c.DIGEST,) not in stage.proposed()
    stage.commit()
    stage.pass_us(50_000)
    stage.batch("n1", 4, put())
    assert (c.DIGEST,) in stage.proposed()


def test_an_idle_leader_asks_for_digests_while_images_are_disputed(stage: Stage) -> None:
    """A member that had missed the last digest could never show that it agrees."""
    for _ in range(3):
        stage.pass_us(DIGEST_PERIOD_US + 1_000_000)
        stage.commit()
    assert stage.proposed() == [], "nothing was written after the last one"
    agreement, index = stage.node.agreement, stage.node.context.machine.index
    agreement.digested((index, 77, 1))
    agreement.compare("n2", (0, 0), (index, 78, 1), stage.node.context.loop_us)
    stage.pass_us(10_000)
    assert stage.proposed() == [(c.DIGEST,)]
    stage.commit()
    stage.pass_us(DIGEST_PERIOD_US - 1_000_000)
    assert stage.proposed() == [], "not more often"


def test_an_origin_may_not_flood_its_leader(stage: Stage) -> None:
    stage.replica.proposed = [b""] * 8  # the log accepts no more entries
    for number in range(2, 2 + INBOX_BATCHES_MAX):
        stage.batch("n1", number, first=number == 2)
    with pytest.raises(ProtocolError, match="too many"):
        stage.batch("n1", 2 + INBOX_BATCHES_MAX)
    stage.batch("n2", 2, first=True)  # each origin has its own limit
    assert len(stage.node.leader.proposer.inbox.batches) == INBOX_BATCHES_MAX + 1


def test_an_origin_may_go_on_where_an_earlier_leader_s_entries_come_to_be_applied() -> None:
    """They contain the batches that wait here, and come before the EPOCH that lets others leave."""
    stage = Stage()
    stage.follow()
    stage.apply_sections((1, 1, 1, ((c.OPEN, 1),)))
    stage.become("leader", "n0", 2)
    stage.replica.proposed = [b""] * 8
    old = range(2, 2 + BATCHES_IN_FLIGHT_MAX)
    for number in old:
        stage.batch("n1", number, put(), first=number == 2)
    stage.apply_sections(*((1, 1, number, (put(),)) for number in old))
    for number in range(old.stop, old.stop + BATCHES_IN_FLIGHT_MAX):
        stage.batch("n1", number, put())
    stage.replica.proposed = []
    stage.pass_us(50_000)
    stage.commit()
    assert ready(stage) == 2 * BATCHES_IN_FLIGHT_MAX, "each of them once"


def test_a_link_that_flaps_leaves_nothing_behind(stage: Stage) -> None:
    """Copies of waiting batches stayed with each new link, until the leader stopped itself."""
    stage.replica.proposed = [b""] * 8
    inbox = stage.node.leader.proposer.inbox
    for _ in range(20):
        for number in range(2, 18):
            stage.batch("n1", number, put(), first=number == 2)
        assert (len(inbox.batches), inbox.clients) == (16, 16)
        stage.node.router.link_down("n1")
        assert (len(inbox.batches), inbox.bytes, inbox.clients) == (0, 0, 0)
        stage.node.router.link_up("n1")


def test_what_an_origin_sends_again_on_the_same_link_is_there_once(stage: Stage) -> None:
    stage.replica.proposed = [b""] * 8
    stage.batch("n2", 2, put())
    for _ in range(20):
        for number in range(2, 18):
            stage.batch("n1", number, put(), first=number == 2)
    assert len(stage.node.leader.proposer.inbox.batches) == 17
    stage.replica.proposed = []
    stage.run()
    stage.pass_us(10_000)
    stage.commit()
    assert ready(stage) == 17


def test_what_this_node_sends_itself_is_refused_within_the_turn(stage: Stage) -> None:
    stage.come_up()
    stage.replica.proposed = [b""] * 8
    for number in range(1, 1 + INBOX_BATCHES_MAX):
        assert stage.node.origin.leader_link.send(frames.BATCH, _own(number, number == 1))
    assert not stage.node.origin.leader_link.send(frames.BATCH, _own(1 + INBOX_BATCHES_MAX, False))
    assert "too many batches" in stage.host.lines[-1]
    assert stage.node.origin.leader_link.send(frames.BATCH, _own(1, True))


def _own(number: int, first: bool) -> bytes:
    return frames.encode_batch(1, 1, number, first, 1, b"", c.pack_commands([put()]))


@pytest.mark.parametrize("hint", [[1], {1: 1}, {b"a": b"1"}, {b"a": 1.5}])
def test_a_wrong_hint_is_refused_where_it_arrives(stage: Stage, hint: object) -> None:
    """A hint was checked only when the next entry was made, and only if a client waited then."""
    frame = frames.encode_batch(1, 1, 2, True, 1, frames.pack(hint), c.pack_commands([put()]))
    with pytest.raises(ProtocolError, match="hint"):
        stage.node.router.receive("n1", frames.BATCH, frame)


def test_a_batch_right_behind_the_election_is_taken() -> None:
    """The vote and the first batch may be read in one turn; the batch would not be sent again."""
    stage = Stage()
    stage.follow("n2")

    def elected() -> None:
        stage.replica.role, stage.replica.leader, stage.replica.term = "leader", "n0", 2
        stage.node.callbacks.role_changed()

    stage.replica.on_receive = elected
    stage.node.router.receive("n1", frames.RAFT, b"a vote")
    frame = frames.encode_batch(2, 1, 1, True, 1, b"", c.pack_commands([(c.OPEN, 1)]))
    stage.node.router.receive("n1", frames.BATCH, frame)
    stage.run()
    stage.commit()
    assert stage.node.context.machine.origins[1].next_number == 2


# --- GRANTs ---------------------------------------------------------------------------------------


def test_a_put_and_the_grant_of_its_job_share_an_entry(stage: Stage) -> None:
    stage.items("n1", frames.WAITS, (1, 1, 1))
    stage.batch("n2", 2, put(), hint={DEFAULT: 1})
    assert len(stage.replica.proposed) == 1
    assert grants(stage) == [(1, 1, 1)]
    stage.commit()
    assert (ready(stage), len(stage.node.leader.line)) == (0, 0)


def bridged(stage: Stage) -> bytes:
    """Make session 1 of n1 Gearman's, watching the default tube through an alias."""
    alias = b"\x02alias"
    stage.node.leader.term.commands.append((c.RAISE, 4))
    stage.node.context.wake()
    stage.commit()
    entering = (c.SET_PROTOCOL, 1, e.GEARMAN)
    stage.batch("n1", 2, entering, (c.SET_ALIAS, 1, alias, DEFAULT), (c.WATCH, 1, alias))
    stage.commit()
    return alias


def test_a_put_is_granted_to_a_client_that_knows_the_queue_by_an_alias(stage: Stage) -> None:
    bridged(stage)
    stage.items("n1", frames.WAITS, (1, 1, 2))
    stage.batch("n2", 2, put(), hint={DEFAULT: 1})
    assert grants(stage) == [(1, 1, 1)]
    stage.commit()
    assert (ready(stage), len(stage.node.leader.line)) == (0, 0)
    # The same holds for a job that is ready when the client comes.
    stage.batch("n2", 3, put())
    stage.commit()
    stage.items("n1", frames.WAITS, (1, 2, 2))
    stage.commit()
    assert (ready(stage), len(stage.node.leader.line)) == (0, 0)


def test_a_put_by_an_alias_is_granted_to_a_client_that_knows_the_queue(stage: Stage) -> None:
    alias = bridged(stage)
    stage.items("n2", frames.WAITS, (1, 1, 1))
    submit = (c.SUBMIT, 1, alias, 0, 0, b"", 0, 0, b"", b"x")
    stage.batch("n1", 3, submit, hint={alias: 1})
    assert grants(stage) == [(2, 1, 1)]
    stage.commit()
    assert (ready(stage), len(stage.node.leader.line)) == (0, 0)


def test_a_client_waits_for_the_queue_whose_alias_it_watched_before_the_removal(
    stage: Stage,
) -> None:
    alias = bridged(stage)
    stage.batch("n2", 2, (c.SET_ALIAS, 1, alias, b""))
    stage.commit()
    stage.items("n1", frames.WAITS, (1, 1, 2))
    stage.batch("n2", 3, put(), hint={DEFAULT: 1})
    assert grants(stage) == [(1, 1, 1)]
    stage.commit()
    assert (ready(stage), len(stage.node.leader.line)) == (0, 0)


def test_a_wait_behind_a_batch_waits_for_it(stage: Stage) -> None:
    stage.batch("n2", 2, put())
    stage.commit()
    stage.items("n1", frames.WAITS, (1, 1, 2))
    assert grants(stage) == []
    stage.batch("n1", 2, (c.TOUCH, 1, 9))
    stage.commit()
    assert ready(stage) == 0


def test_a_wait_that_comes_again_on_a_new_link_gets_one_grant(stage: Stage) -> None:
    stage.batch("n2", 2, put(), put())
    stage.commit()
    stage.items("n1", frames.WAITS, (1, 1, 1))
    assert grants(stage) == [(1, 1, 1)]
    stage.node.router.link_down("n1")
    stage.node.router.link_up("n1")
    stage.items("n1", frames.WAITS, (1, 1, 1))
    assert grants(stage) == [(1, 1, 1)]
    stage.commit()
    stage.items("n1", frames.WAITS, (2, 1, 1))
    stage.commit()
    assert ready(stage) == 0


def test_a_grant_for_a_put_in_flight_hides_no_ready_job(stage: Stage) -> None:
    """A job is ready for the second waiter, whatever the first one gets."""
    stage.items("n1", frames.WAITS, (1, 1, 1))
    stage.batch("n2", 2, put(), hint={DEFAULT: 1})
    stage.batch("n2", 3, put())
    stage.items("n1", frames.WAITS, (2, 1, 1))
    stage.commit(2)
    assert grants(stage) == [(1, 2, 1)]


def test_a_client_that_found_a_ready_job_and_does_not_get_it_stands_in_line(stage: Stage) -> None:
    stage.batch("n2", 2, put())
    stage.commit()
    stage.batch("n2", 3, (c.DELETE, 1, 1))
    stage.items("n1", frames.WAITS, (1, 1, 1))  # the job still exists
    stage.items("n1", frames.WAITS, (2, 1, 1))
    stage.commit()
    assert (grants(stage), len(stage.node.leader.line)) == ([], 2)
    stage.batch("n2", 4, put())
    stage.commit(1)
    assert grants(stage) == [(1, 1, 1)]


def test_a_client_that_waits_already_comes_before_one_that_finds_a_ready_job(stage: Stage) -> None:
    stage.items("n1", frames.WAITS, (1, 1, 1))
    stage.node.leader.dispatcher.park(1)
    stage.batch("n2", 2, put())
    stage.commit()
    waiter = stage.node.leader.line.waiters[1, 1, 1]
    waiter.parked = False
    stage.node.leader.line.put_back(waiter)
    stage.items("n2", frames.WAITS, (1, 1, 1))
    assert grants(stage) == [(1, 1, 1)]


def test_a_client_that_finds_a_ready_job_in_a_paused_tube_waits(stage: Stage) -> None:
    stage.batch("n2", 2, put(), (c.PAUSE_TUBE, 1, DEFAULT, 60))
    stage.commit()
    stage.items("n1", frames.WAITS, (1, 1, 1))
    assert (grants(stage), ready(stage)) == ([], 1)


def test_a_waiter_of_two_tubes_that_took_the_other_s_job_leaves_one(stage: Stage) -> None:
    stage.batch("n1", 2, (c.WATCH, 1, b"other"), (c.WATCH, 2, b"other"), (c.IGNORE, 2, DEFAULT))
    stage.commit()
    stage.items("n1", frames.WAITS, (1, 1, 2))
    stage.batch("n2", 2, put(tube=b"other", priority=9))
    stage.commit(1)
    assert grants(stage) == [(1, 1, 1)]  # it is promised the job of the other tube
    stage.items("n1", frames.WAITS, (2, 1, 2))
    assert grants(stage) == [(1, 1, 1)]
    (entry,) = stage.replica.proposed
    stage.replica.proposed = []
    stage.apply_sections((2, 1, 3, (put(priority=0),)))  # better, and applied before the GRANT
    stage.replica.proposed.insert(0, entry)
    stage.commit()
    assert (ready(stage), ready(stage, b"other")) == (0, 0)


def test_a_silent_origin_is_passed_over_and_keeps_its_place(stage: Stage) -> None:
    stage.items("n1", frames.WAITS, (1, 1, 1))
    stage.items("n2", frames.WAITS, (1, 1, 1))
    stage.pass_us(60_000)
    stage.node.heartbeats.received_from("n2")
    stage.pass_us(60_000)
    stage.node.heartbeats.received_from("n2")
    stage.commit()
    stage.batch("n2", 2, put(2), hint={DEFAULT: 1})
    assert grants(stage) == [(2, 1, 1)]
    stage.commit()
    stage.items("n2", frames.WAITS, (1, 2, 1))
    stage.node.heartbeats.received_from("n1")
    stage.batch("n2", 3, put(2), hint={DEFAULT: 1})
    assert grants(stage) == [(1, 1, 1)]


def test_the_waiters_of_a_dead_incarnation_are_nobody(stage: Stage) -> None:
    """The link may outlive the incarnation, and session numbers restart in the next one."""
    stage.items("n1", frames.WAITS, (1, 1, 1), (2, 5, 1))
    stage.node.leader.term.node_down(1, 1)
    stage.pass_us(10_000)
    stage.commit()
    assert len(stage.node.leader.line) == 0
    stage.batch("n1", 1, (c.OPEN, 1), first=True, incarnation=2)
    stage.commit()
    stage.items("n1", frames.WAITS, (1, 1, 1), incarnation=2)
    stage.batch("n2", 2, put(), hint={DEFAULT: 1})
    assert [command[:5] for command in stage.proposed()] == [(c.GRANT, 1, 2, 1, 1)]
    stage.commit()
    assert ready(stage) == 0


def test_a_link_that_ends_takes_its_waiters_along(stage: Stage) -> None:
    stage.items("n1", frames.WAITS, (1, 1, 1), (2, 1, 9))
    stage.items("n1", frames.UNWAITS, (2, 1))
    stage.node.router.link_down("n1")
    stage.batch("n2", 2, put(), hint={DEFAULT: 1})
    assert grants(stage) == []
    stage.commit()
    assert ready(stage) == 1


# --- terms ----------------------------------------------------------------------------------------


def test_the_clock_goes_on_from_what_was_applied_before_the_epoch() -> None:
    """A node that was elected before it applied its log must not stop the clock."""
    stage = Stage()
    for peer in MEMBERS[1:]:
        stage.node.router.link_up(peer)
    stage.become("leader", "n0", 2)
    far_us = 3600 * 1_000_000
    epoch = stage.replica.proposed.pop(0)
    stage.apply(c.encode_entry(0, far_us, 0, []))
    stage.replica.proposed.insert(0, epoch)
    stage.commit()
    assert stage.node.context.clock.estimate_us(stage.node.context.now_us) >= far_us


def test_nothing_of_an_earlier_term_is_proposed_in_a_later_one(stage: Stage) -> None:
    stage.replica.proposed = [b""] * 8
    stage.batch("n1", 2, put())
    stage.become("follower", "n1", 2)
    stage.replica.proposed = []
    stage.become("leader", "n0", 3)
    assert len(stage.replica.proposed) == 1
    assert [command[0] for command in stage.proposed()] == [c.EPOCH]

"""Sessions, origins and their incarnations: valid commands, and the losses when each ends."""

import pytest

from beanpole import commands as c
from beanpole.constants import TRANSITIONS_PER_ENTRY_MAX, U32_MAX
from beanpole.core import machine as machine_module
from beanpole.core.accounts import TUBE_BYTES, WATCH_BYTES, memory_bytes
from beanpole.core.applied import GRANTED, NONE_READY, VOID
from beanpole.core.jobs.policies import Policy
from beanpole.core.machine import Machine
from beanpole.core.operations.changes import GRACE_MAX_US, SECRET_MAX_BYTES, SECRET_MIN_BYTES
from beanpole.core.operations.operation import ClientOperation
from beanpole.core.operations.table import OPERATIONS
from tests.unit.core.cluster import DEFAULT, Cluster, copy_of, image_of

SECRET = b"s" * SECRET_MIN_BYTES
SECOND = 1_000_000


# --- sessions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [0, 1])
def test_close_returns_the_jobs_at_once_and_moves_no_counter(cluster: Cluster, lost: int) -> None:
    cluster.open(2)
    job = cluster.put(priority=3, delay_s=0)
    cluster.reserve(2)
    assert cluster.do(c.CLOSE, 2, lost) == c.OK
    stats = cluster.stats_job(job)
    assert (stats["state"], stats["pri"], stats["left"]) == (b"ready", 3, 0)
    assert [stats[n] for n in ("reserves", "timeouts", "releases")] == [1, 0, 0]
    cluster.pass_s(60)  # its old TTR would end now, and must have no effect
    assert cluster.stats_job(job)["timeouts"] == 0


def test_a_session_is_opened_once_and_closed_once(cluster: Cluster) -> None:
    assert cluster.do(c.OPEN, 1) == c.BAD_COMMAND
    assert cluster.do(c.OPEN, 0) == c.BAD_COMMAND
    assert cluster.do(c.OPEN, -1) == c.BAD_COMMAND
    assert cluster.do(c.OPEN, 2**64 - 1) == c.BAD_COMMAND
    assert cluster.do(c.CLOSE, 1, 0) == c.OK
    assert cluster.do(c.CLOSE, 1, 0) == c.BAD_COMMAND


def test_commands_of_no_session_are_bad_commands(cluster: Cluster) -> None:
    cluster.put()
    cluster.put(delay_s=5)
    cluster.lead((c.RAISE, c.MACHINE_VERSION))
    before = cluster.do(c.STATS, 1)
    commands: list[c.Command] = [
        (c.CLOSE, 9, 0),
        (c.PUT, 9, DEFAULT, 0, 0, 1, b""),
        (c.USE, 9, b"t"),
        (c.WATCH, 9, b"t"),
        (c.IGNORE, 9, b"t"),
        (c.DELETE, 9, 1),
        (c.RELEASE, 9, 1, 0, 0),
        (c.BURY, 9, 1, 0),
        (c.TOUCH, 9, 1),
        (c.KICK, 9, DEFAULT, 1, 0),
        (c.KICK_JOB, 9, 2),
        (c.RESERVE_JOB, 9, 1),
        (c.PAUSE_TUBE, 9, DEFAULT, 1),
        (c.RETURN, 9, 1),
        (c.KEEP, 9, SECRET, 1),
        (c.RESUME, 9, SECRET),
        (c.PUT_KEYED, 9, DEFAULT, 0, 0, 1, b"", b"key"),
        (c.SET_PROTOCOL, 9, 2),
        (c.TAKE, 9),
        (c.NOTIFY, 9, 1, 16, b""),
        (c.ADD, 9, b"q", 0, 0, 0, 0, b"", 0, 0, b""),
        (c.FINISH, 9, 1, 5, b""),
        (c.PROGRESS, 9, 1, b""),
        (c.SUBMIT, 9, b"q", 0, 0, b"", 0, 0, b"", b""),
        (c.FINISH_NAMED, 9, b"", 5, b""),
        (c.DELETE_NAMED, 9, b""),
        (c.SET_TTR, 9, 1, 0),
        *[(queues, 9, b"q") for queues in (c.CREATE_QUEUE, c.DROP_QUEUE)],
        (c.LIMIT_QUEUE, 9, b"q", 0, 0, 0),
        (c.SET_ALIAS, 9, b"\x02q", b"q"),
        (c.CHANGE_JOB, 9, 1, 1, -1, b"", b"", 0),
        (c.PAUSE_QUEUE, 9, DEFAULT, 1),
        (c.SET_POLICY, 9, DEFAULT, *Policy(3)),
        (c.DROP_POLICY, 9, DEFAULT),
        *((c.AS_USER, 9, b"u", b""), (c.DROP_USER, 9, b"u"), (c.SET_USER, 9, b"u", b"", 0, 0, 0)),
        *((c.SET_TOKEN, 9, b"u", bytes(32), 1), (c.SET_RULES, 9, b"\x90")),
        *[(call, 9, 1, 1, 0, b"\x90") for call in (c.QLESS, c.QLESS_READ)],
        (c.FIND, 9, b""),
        (c.RESULT, 9, 1),
        (c.PEEK, 9, 1),
        *[(peek, 9, DEFAULT) for peek in (c.PEEK_READY, c.PEEK_DELAYED, c.PEEK_BURIED)],
        (c.STATS, 9),
        (c.STATS_JOB, 9, 1),
        (c.STATS_TUBE, 9, DEFAULT),
        (c.LIST_TUBES, 9),
    ]
    known = {code for code, entry in OPERATIONS.items() if isinstance(entry, ClientOperation)}
    assert {command[0] for command in commands} == known - {c.OPEN, c.OPEN_FROM}
    for command in commands:
        assert cluster.do(*command) == c.BAD_COMMAND, command
    assert cluster.do(c.STATS, 1) == before
    assert (cluster.state(1), cluster.state(2)) == (b"ready", b"delayed")


def test_a_put_after_a_refused_open_makes_no_job(cluster: Cluster) -> None:
    cluster.lead((c.EPOCH, 1, 0, 100, 100, 1, 10_000))  # one session, which is open already
    put = (c.PUT, 2, DEFAULT, 0, 0, 1, b"")
    assert cluster.batch((c.OPEN, 2), put) == [c.OUT_OF_MEMORY, c.BAD_COMMAND]
    assert cluster.do(*put) == c.BAD_COMMAND
    assert cluster.machine.queue.jobs_total == 0
    cluster.do(c.CLOSE, 1, 0)
    assert cluster.batch((c.OPEN, 2), put) == [c.OK, 1]


@pytest.mark.constants
def test_the_jobs_of_a_dead_session_are_not_ready_until_they_are_returned(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_module, "TRANSITIONS_PER_ENTRY_MAX", 2)
    cluster.open(2)
    for _ in range(5):
        cluster.put()
    for _ in range(5):
        cluster.reserve(2)
    cluster.do(c.CLOSE, 2, 0)
    machine = cluster.machine
    assert (machine.queue.ready, machine.queue.reserved, machine.has_work()) == (2, 3, True)
    assert cluster.do(c.DELETE, 2, 1) == c.BAD_COMMAND
    assert machine.queue.ready == 4
    assert cluster.do(c.DELETE, 1, 1) == c.NOT_FOUND  # dead sessions are processed later
    assert (machine.queue.ready, machine.has_work()) == (5, False)


@pytest.mark.constants
def test_jobs_return_from_the_last_that_was_reserved(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_module, "TRANSITIONS_PER_ENTRY_MAX", 1)
    for _ in range(3):
        cluster.put()
    cluster.open(2)
    for job in (2, 3, 1):
        cluster.do(c.RESERVE_JOB, 2, job)
    cluster.do(c.CLOSE, 2, 0)
    assert cluster.state(1) == b"ready"
    cluster.machine = copy_of(cluster.machine)
    cluster.pass_s(0)
    assert (cluster.state(2), cluster.state(3)) == (b"reserved", b"ready")


@pytest.mark.constants
def test_a_ttr_fires_for_a_job_whose_dead_session_is_not_done(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_module, "TRANSITIONS_PER_ENTRY_MAX", 1)
    cluster.open(2)
    for _ in range(3):
        cluster.put(ttr_s=5)
        cluster.reserve(2)
    cluster.do(c.CLOSE, 2, 0)
    cluster.pass_s(5)
    assert [cluster.stats_job(job)["timeouts"] for job in (1, 2, 3)] == [1, 1, 0]
    assert not cluster.machine.ending


@pytest.mark.constants
def test_due_jobs_are_bounded_work_and_keep_their_order(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_module, "TRANSITIONS_PER_ENTRY_MAX", 2)
    for delay_s in (3, 2, 1, 2):
        cluster.put(delay_s=delay_s)
    cluster.pass_s(10)
    assert [cluster.state(job) for job in (1, 2, 3, 4)] == [
        *(b"delayed", b"ready", b"ready", b"delayed"),
    ]
    due_us = cluster.machine.next_due_us(cluster.time_us)
    assert due_us is not None
    assert due_us <= cluster.time_us
    cluster.pass_s(0)
    assert cluster.machine.queue.ready == 4


def test_ending_sessions_that_watch_many_tubes_is_bounded_work(cluster: Cluster) -> None:
    watched = 100
    watches = [(c.WATCH, 2, b"t%d" % number) for number in range(watched)]
    for session in range(2, 2 + 2 * TRANSITIONS_PER_ENTRY_MAX // watched):
        cluster.open(session)
        cluster.batch(*[(c.WATCH, session, name) for _, _, name in watches])
    cluster.incarnations[0] = 2
    cluster.batch()
    left = len(cluster.machine.ending)
    assert left >= TRANSITIONS_PER_ENTRY_MAX // watched
    cluster.pass_s(0)
    cluster.pass_s(0)
    assert not cluster.machine.ending
    assert list(cluster.machine.queue.tubes) == [DEFAULT]


# --- origins --------------------------------------------------------------------------------------


def test_a_batch_is_applied_once(cluster: Cluster) -> None:
    section = cluster.section((c.PUT, 1, DEFAULT, 0, 0, 1, b""))
    first = cluster.apply([section, section])
    again = cluster.apply([section])
    assert first.results == [(1, 2, [1])]
    assert (first.gaps, again.gaps, again.results) == ([], [], [])
    assert cluster.machine.queue.jobs_total == 1


def test_a_gap_is_reported_and_nothing_of_it_is_applied(cluster: Cluster) -> None:
    second = cluster.section((c.PUT, 1, DEFAULT, 0, 0, 1, b"second"))
    third = cluster.section((c.PUT, 1, DEFAULT, 0, 0, 1, b"third"))
    early = cluster.apply([third])
    assert (early.gaps, early.results) == ([0], [])
    both = cluster.apply([second, third])
    assert both.results == [(1, 2, [1]), (1, 3, [2])]
    assert cluster.machine.queue.jobs[2].body == b"third"


def test_an_origin_begins_with_batch_one(cluster: Cluster) -> None:
    put = (c.PUT, 1, DEFAULT, 0, 0, 1, b"")
    assert cluster.apply([(1, 1, 2, (put,))], own=1).results == []
    applied = cluster.apply([(1, 1, 1, ((c.OPEN, 1), put))], own=1)
    assert (applied.ups, applied.results) == ([(1, 1)], [(1, 1, [c.OK, 1])])


def test_results_are_for_the_own_origin_only(cluster: Cluster) -> None:
    sections = [cluster.section((c.OPEN, 2)), cluster.section((c.OPEN, 1), origin=1)]
    assert cluster.apply(sections, own=1).results == [(1, 1, [c.OK])]


def test_node_up_releases_what_the_older_life_held(cluster: Cluster) -> None:
    job = cluster.put()
    cluster.reserve()
    cluster.incarnations[0] = 2
    applied = cluster.apply([cluster.section()])
    assert applied.ups == [(0, 2)]
    assert cluster.state(job) == b"ready"
    assert cluster.machine.sessions == 0
    assert cluster.apply([(0, 1, 99, ((c.OPEN, 5),))]).results == []
    assert cluster.open(1) == 1
    assert cluster.reserve() == job


def test_node_down_releases_the_jobs_and_ends_the_incarnation(cluster: Cluster) -> None:
    cluster.open(1, origin=1)
    job = cluster.put()
    cluster.reserve(1, origin=1)
    applied = cluster.lead((c.NODE_DOWN, 1, 1))
    assert applied.downs == [(1, 1)]
    assert cluster.state(job) == b"ready"
    assert cluster.lead((c.NODE_DOWN, 1, 1)).downs == []
    assert cluster.batch((c.OPEN, 2), origin=1) == []
    cluster.incarnations[1] = 2
    assert cluster.batch((c.OPEN, 2), origin=1) == [c.OK]


@pytest.mark.parametrize(("origin", "incarnation"), [(0, 2), (0, 0), (7, 1), (2**63, -1)])
def test_node_down_of_what_is_not_current_is_ignored(
    cluster: Cluster, origin: int, incarnation: int
) -> None:
    assert cluster.lead((c.NODE_DOWN, origin, incarnation)).downs == []
    assert cluster.do(c.OPEN, 2) == c.OK


# --- GRANT ----------------------------------------------------------------------------------------


def test_a_request_is_granted_once(cluster: Cluster) -> None:
    cluster.put()
    cluster.put()
    assert cluster.grant(request=5) == (GRANTED, 1)
    assert cluster.grant(request=5) == (VOID, 0)
    assert cluster.grant(request=4) == (VOID, 0)
    assert cluster.grant(request=6) == (GRANTED, 2)
    assert cluster.grant(request=7) == (NONE_READY, 0)
    cluster.put()
    assert cluster.grant(request=7) == (GRANTED, 3)


def test_a_grant_is_void_until_the_batch_it_stands_behind_is_applied(cluster: Cluster) -> None:
    cluster.put()  # batch 2
    assert cluster.grant(request=1, behind=3) == (VOID, 0)
    cluster.open(2)
    assert cluster.grant(request=1, behind=3) == (GRANTED, 1)


def test_a_grant_is_void_for_an_unknown_or_closed_session(cluster: Cluster) -> None:
    job = cluster.put()
    assert cluster.grant(session=9, request=1)[0] == VOID
    assert cluster.grant(session=1, origin=9, request=1)[0] == VOID
    cluster.do(c.CLOSE, 1, 0)
    assert cluster.grant(session=1, request=1)[0] == VOID
    assert cluster.state(job) == b"ready"


def test_a_grant_is_void_for_another_or_a_dead_incarnation(cluster: Cluster) -> None:
    cluster.put()
    for incarnation in (0, 2):
        applied = cluster.lead((c.GRANT, 0, incarnation, 1, 1, 0))
        assert applied.grants == [(0, incarnation, 1, 1, VOID, None)]
    cluster.lead((c.NODE_DOWN, 0, 1))
    assert cluster.grant(request=1)[0] == VOID


def test_a_put_and_its_grant_share_an_entry(cluster: Cluster) -> None:
    applied = cluster.apply(
        [
            cluster.section((c.PUT, 1, DEFAULT, 0, 0, 9, b"quick")),
            (c.LEADER, 0, 0, ((c.GRANT, 0, 1, 1, 1, 0), (c.GRANT, 0, 1, 1, 2, 0))),
        ]
    )
    outcomes = [(grant[4], grant[5].body if grant[5] else None) for grant in applied.grants]
    assert outcomes == [(GRANTED, b"quick"), (NONE_READY, None)]


# --- KEEP and RESUME ------------------------------------------------------------------------------


def keep(cluster: Cluster, session: int = 1, grace_s: int = 30, secret: bytes = SECRET) -> None:
    assert cluster.do(c.KEEP, session, secret, grace_s * SECOND) == c.OK


def test_a_lost_session_with_a_secret_keeps_its_jobs_until_its_grace_ends(
    cluster: Cluster,
) -> None:
    job = cluster.put(ttr_s=100)
    cluster.reserve()
    keep(cluster, grace_s=30)
    cluster.do(c.CLOSE, 1, 1)
    assert cluster.machine.next_due_us(0) is not None
    cluster.pass_s(29.999_999)
    assert cluster.state(job) == b"reserved"
    cluster.pass_s(0.000_001)
    assert cluster.state(job) == b"ready"
    assert cluster.machine.sessions == 0
    assert cluster.machine.resumable == {}


def test_a_client_that_says_goodbye_is_not_kept(cluster: Cluster) -> None:
    job = cluster.put()
    cluster.reserve()
    keep(cluster)
    cluster.do(c.CLOSE, 1, 0)
    assert cluster.state(job) == b"ready"
    assert cluster.machine.resumable == {}


@pytest.mark.parametrize("loss", ["close", "down", "up"])
def test_a_kept_session_is_resumed_at_another_node(cluster: Cluster, loss: str) -> None:
    job = cluster.put()
    cluster.reserve()
    cluster.batch((c.USE, 1, b"t"), (c.WATCH, 1, b"t"))
    keep(cluster)
    if loss == "close":
        cluster.do(c.CLOSE, 1, 1)
    elif loss == "down":
        cluster.lead((c.NODE_DOWN, 0, 1))
    else:
        cluster.incarnations[0] = 2
        cluster.batch()
    cluster.pass_s(20)
    cluster.open(8, origin=1)
    assert cluster.do(c.RESUME, 8, SECRET, origin=1) == c.OK
    cluster.pass_s(20)  # the grace of the loss no longer applies
    assert cluster.do(c.TOUCH, 8, job, origin=1) == c.OK
    session = cluster.machine.origins[1].sessions[8]
    assert (session.epoch, session.used and session.used.name, list(session.watched)) == (
        *(2, b"t", [DEFAULT, b"t"]),
    )
    assert cluster.machine.sessions == 1


def test_resume_takes_a_session_away_from_its_old_attachment(cluster: Cluster) -> None:
    job = cluster.put()
    cluster.reserve()
    keep(cluster)
    cluster.open(2)
    assert cluster.do(c.RESUME, 2, SECRET) == c.OK
    assert cluster.do(c.TOUCH, 1, job) == c.BAD_COMMAND
    assert cluster.do(c.TOUCH, 2, job) == c.OK
    assert cluster.grant(session=1, request=100)[0] == VOID


def test_a_session_is_resumed_again_and_again(cluster: Cluster) -> None:
    keep(cluster, grace_s=3600)
    for number in range(2, 300):
        cluster.do(c.CLOSE, number - 1, 1)
        cluster.open(number)
        assert cluster.do(c.RESUME, number, SECRET) == c.OK
    assert not cluster.machine.detached
    assert not len(cluster.machine.returning)
    cluster.do(c.CLOSE, 299, 1)
    cluster.pass_s(3600)
    assert cluster.machine.sessions == 0


def test_the_grace_of_an_older_loss_does_not_end_a_later_one(cluster: Cluster) -> None:
    keep(cluster, grace_s=10)
    cluster.do(c.CLOSE, 1, 1)
    cluster.pass_s(9)
    cluster.open(2)
    cluster.do(c.RESUME, 2, SECRET)
    cluster.do(c.CLOSE, 2, 1)
    cluster.pass_s(9.999_999)
    assert cluster.machine.sessions == 1
    cluster.pass_s(0.000_001)
    assert cluster.machine.sessions == 0


def test_what_the_fresh_session_held_returns(cluster: Cluster) -> None:
    keep(cluster)
    cluster.do(c.CLOSE, 1, 1)
    cluster.open(2)
    job = cluster.put(session=2)
    assert cluster.reserve(2) == job
    cluster.do(c.RESUME, 2, SECRET)
    assert cluster.state(job) == b"ready"


def test_a_late_second_grant_stays_void_after_resume(cluster: Cluster) -> None:
    keep(cluster)
    cluster.do(c.CLOSE, 1, 1)
    cluster.open(2)
    cluster.put(session=2)
    cluster.put(session=2)
    assert cluster.grant(session=2, request=1) == (GRANTED, 1)
    cluster.do(c.RESUME, 2, SECRET)
    # Two leaders may have proposed the same request; the second must not reserve another job.
    assert cluster.grant(session=2, request=1)[0] == VOID
    assert cluster.grant(session=2, request=2)[0] == GRANTED


def test_secrets_are_unique_and_bounded_and_given_once(cluster: Cluster) -> None:
    cluster.open(2)
    for secret, grace_us in [
        (b"short", SECOND),
        (b"l" * (SECRET_MAX_BYTES + 1), SECOND),
        (SECRET, 0),
        (SECRET, -1),
        (SECRET, GRACE_MAX_US + 1),
        (SECRET, 2**64 - 1),
    ]:
        assert cluster.do(c.KEEP, 1, secret, grace_us) == c.BAD_COMMAND
    keep(cluster, grace_s=U32_MAX)
    assert cluster.do(c.KEEP, 1, b"o" * 16, SECOND) == c.BAD_COMMAND
    assert cluster.do(c.KEEP, 2, SECRET, SECOND) == c.BAD_COMMAND
    cluster.do(c.CLOSE, 1, 1)
    assert image_of(copy_of(cluster.machine)) == image_of(cluster.machine)


def test_resume_needs_the_secret_and_a_fresh_session(cluster: Cluster) -> None:
    keep(cluster)
    cluster.open(2)
    assert cluster.do(c.RESUME, 2, b"x" * 16) == c.NOT_FOUND
    assert cluster.do(c.RESUME, 9, SECRET) == c.BAD_COMMAND
    assert cluster.do(c.RESUME, 1, SECRET) == c.NOT_FOUND
    keep(cluster, 2, secret=b"o" * 16)
    assert cluster.do(c.RESUME, 2, SECRET) == c.NOT_FOUND


def test_the_chain_knows_nothing_of_an_incarnation_without_sessions() -> None:
    """Its last session was resumed elsewhere; images hold sessions, not incarnations."""
    secret = b"s" * 16
    machine = Machine()
    logs: list[list[c.Section]] = [[(origin, 1, 1, ())] for origin in (0, 1, 2)]
    logs += [
        [(0, 1, 2, tuple((c.OPEN, number) for number in range(1, 3501)))],
        [(1, 1, 2, ((c.OPEN, 1), (c.KEEP, 1, secret, 10**9)))],
        [(2, 1, 2, ((c.OPEN, 1),))],
        [(c.LEADER, 0, 0, ((c.NODE_DOWN, 0, 1), (c.NODE_DOWN, 1, 1)))],
        [(2, 1, 3, ((c.RESUME, 1, secret),))],
    ]
    for index, sections in enumerate(logs, 1):
        machine.apply(index, 0, 1000, 0, sections)
    assert machine.lost
    restored = copy_of(machine)
    for index in range(len(logs) + 1, len(logs) + 5):
        machine.apply(index, 0, 1000, 0, [])
        restored.apply(index, 0, 1000, 0, [])
        assert machine.state_hash == restored.state_hash


def test_watched_tubes_are_counted_as_long_as_they_take_memory() -> None:
    cluster = Cluster()
    cluster.open(1)
    before = memory_bytes(cluster.machine)
    cluster.batch(*((c.WATCH, 1, b"t%d" % number) for number in range(100)))
    machine = cluster.machine
    assert machine.watches == 101
    assert memory_bytes(machine) - before == 100 * (TUBE_BYTES + WATCH_BYTES)
    assert copy_of(machine).watches == 101
    cluster.batch((c.IGNORE, 1, b"t7"), (c.IGNORE, 1, b"t7"), (c.WATCH, 1, b"t8"))
    assert machine.watches == 100
    cluster.batch((c.CLOSE, 1, 0))
    assert machine.watches == 0
    assert memory_bytes(machine) == TUBE_BYTES

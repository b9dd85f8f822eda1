"""CHANGE_JOB and PAUSE_QUEUE: changes by an administrator to jobs and queues of every space."""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole.constants import SECOND_US, U32_MAX
from beanpole.core.image.image import Image
from beanpole.core.jobs import moving
from beanpole.core.jobs.job import BURIED, DELAYED, DONE, GONE, READY, RESERVED
from beanpole.core.operations import administering as a
from beanpole.core.operations.administering import FROM_STATES
from tests.unit.core.cluster import Cluster, chunks_of, events_of, image_of
from tests.unit.core.guests import PING, TURN, TWIST, Guests

ANY = -1
DEAD = b"dead"


@pytest.fixture
def cluster(guests: Guests) -> Guests:
    return guests


def change(
    cluster: Cluster,
    job: int,
    action: int,
    value: int = 0,
    to: bytes = b"",
    states: int = ANY,
    queue: bytes = b"",
) -> Any:
    return cluster.do(c.CHANGE_JOB, 1, job, action, states, queue, to, value)


def buried(cluster: Cluster, **fields: Any) -> int:
    """Put and bury a job, and return its id."""
    job = cluster.put(**fields)
    assert cluster.do(c.RESERVE_JOB, 1, job)[0] == job
    assert cluster.do(c.BURY, 1, job, fields.get("priority", 0)) == c.OK
    return job


def order_of(cluster: Cluster, tube: bytes) -> list[int]:
    """Return the ids of a tube's ready jobs, in the order in which workers get them."""
    queue = cluster.machine.queue
    return [queue.ready_job(key).id for key in queue.tubes[tube].ready]


# --- moves ----------------------------------------------------------------------------------------


def test_a_moved_job_stands_where_its_priority_and_id_say(cluster: Guests) -> None:
    early, urgent = cluster.put(priority=5), cluster.put(priority=1)
    there = cluster.put(priority=5, tube=DEAD)
    late = cluster.put(priority=5)
    for job in (late, urgent, early):
        assert change(cluster, job, a.MOVE, to=DEAD) == c.OK
    assert order_of(cluster, DEAD) == [urgent, early, there, late]
    stats = cluster.stats_tube(DEAD)
    assert (stats["ready"], stats["urgent"], stats["total"]) == (4, 4, 1)
    assert cluster.stats_tube()["ready"] == 0
    space = cluster.machine.queue.beanstalk
    assert (space.ready, space.urgent) == (4, 4)


def test_a_move_has_an_event_at_each_end(cluster: Guests) -> None:
    job = buried(cluster, tube=b"work")
    work, number = (cluster.machine.queue.tubes[b"work"].number, cluster.machine.queue.tubes_total)
    cluster.time_us += SECOND_US
    events_of(cluster.machine)
    assert change(cluster, job, a.MOVE, a.READY_IF_BURIED, to=DEAD) == c.OK
    left, came = events_of(cluster.machine)
    assert (left.kind, left.before, left.state, left.tube) == (e.MOVED, BURIED, e.MOVING, work)
    assert (came.kind, came.before, came.state) == (e.MOVED, e.MOVING, READY)
    assert came.tube == number + 1
    assert {left.reason, came.reason} == {e.ADMIN}
    assert came.ready_us == cluster.machine.queue.now_us
    assert (came.buries, came.kicks) == (1, 0)
    assert b"work" not in cluster.machine.queue.tubes


@pytest.mark.parametrize(
    ("value", "states"),
    [
        (a.AS_IT_WAS, (READY, DELAYED, BURIED)),
        (a.READY_IF_BURIED, (READY, DELAYED, READY)),
        (READY, (READY, READY, READY)),
        (BURIED, (BURIED, BURIED, BURIED)),
    ],
)
def test_a_move_says_what_becomes_of_the_state(
    cluster: Guests, value: int, states: tuple[int, ...]
) -> None:
    jobs = (cluster.put(), cluster.put(delay_s=9), buried(cluster))
    due_us = cluster.machine.queue.jobs[jobs[1]].due_us
    cluster.pass_s(1)
    for job in jobs:
        assert change(cluster, job, a.MOVE, value, to=DEAD) == c.OK
    moved = [cluster.machine.queue.jobs[job] for job in jobs]
    assert tuple(job.state for job in moved) == states
    assert [job.buries for job in moved] == [0, 0, 1]
    if states[1] == DELAYED:
        assert moved[1].due_us == due_us
        cluster.pass_s(8)
        assert cluster.state(jobs[1]) == b"ready"


def test_a_job_moves_within_its_space_only(cluster: Guests) -> None:
    gearman = cluster.submitted(2)
    assert change(cluster, gearman, a.MOVE, to=TWIST) == c.OK
    assert cluster.machine.queue.jobs[gearman].tube.name == TWIST
    for queue in (b"tube", PING, b"", b"\x03q", b"x" * 201):
        assert change(cluster, gearman, a.MOVE, to=queue) == c.BAD_COMMAND
    assert change(cluster, cluster.put(), a.MOVE, to=TURN) == c.BAD_COMMAND


def test_a_queue_is_meant_by_its_alias_too(cluster: Guests) -> None:
    assert cluster.do(c.SET_ALIAS, 1, b"twist", TWIST) == c.OK
    job = cluster.submitted(2)
    assert change(cluster, job, a.MOVE, to=b"twist") == c.OK
    assert cluster.machine.queue.jobs[job].tube.name == TWIST
    assert change(cluster, cluster.put(), a.MOVE, to=b"twist") == c.BAD_COMMAND


def test_a_move_to_where_it_is_changes_nothing(cluster: Guests) -> None:
    job = cluster.put()
    before = image_of(cluster.machine)[1:]
    assert change(cluster, job, a.MOVE, to=b"default") == c.EXISTS
    assert image_of(cluster.machine)[1:] == before


def test_a_full_queue_takes_only_buried_jobs(cluster: Guests) -> None:
    assert cluster.do(c.CREATE_QUEUE, 2, TWIST) == c.OK
    assert cluster.do(c.LIMIT_QUEUE, 2, TWIST, 1, 1, 1) == c.OK
    jobs = [cluster.submitted(2) for _ in range(2)]
    assert change(cluster, jobs[0], a.MOVE, to=TWIST) == c.OK
    assert change(cluster, jobs[1], a.MOVE, to=TWIST) == c.FULL
    assert change(cluster, jobs[1], a.MOVE, BURIED, to=TWIST) == c.OK


def test_no_queue_is_made_beyond_the_limit(cluster: Guests) -> None:
    job = cluster.put()
    cluster.machine.tubes_max = len(cluster.machine.queue.tubes)
    assert change(cluster, job, a.MOVE, to=DEAD) == c.OUT_OF_MEMORY
    assert cluster.state(job) == b"ready"
    assert cluster.do(c.SET_ALIAS, 1, b"\x02dead", DEAD) == c.OK
    assert change(cluster, job, a.MOVE, to=b"\x02dead") == c.OUT_OF_MEMORY


def test_a_waiting_worker_gets_a_moved_job(cluster: Guests) -> None:
    cluster.do(c.WATCH, 1, DEAD)
    cluster.do(c.IGNORE, 1, b"default")
    job = cluster.put()
    assert cluster.reserve() == 0
    cluster.machine.queue.ready_tubes.clear()
    assert change(cluster, job, a.MOVE, to=DEAD) == c.OK
    assert DEAD in cluster.machine.queue.ready_tubes
    assert cluster.reserve() == job


def test_a_policy_may_move_a_reserved_job(cluster: Guests) -> None:
    """A policy may do it, unlike an administrator: it ends the reservation of the session."""
    job = cluster.put()
    assert cluster.reserve() == job
    queue = cluster.machine.queue
    moving.move(queue, queue.jobs[job], queue.tube(DEAD), BURIED, None, e.TTR)
    left, came = events_of(cluster.machine)[-2:]
    assert (left.before, left.run_us, came.state) == (RESERVED, 0, BURIED)
    assert cluster.do(c.TOUCH, 1, job) == c.NOT_FOUND
    assert len(queue.timers) == 0


# --- other changes --------------------------------------------------------------------------------


def test_another_priority_moves_a_job_in_its_queue(cluster: Guests) -> None:
    first, second = cluster.put(priority=2000), cluster.put(priority=2000)
    ready_us = cluster.machine.queue.jobs[second].ready_us
    cluster.pass_s(1)
    assert change(cluster, second, a.SET_RANK, 7) == c.OK
    assert order_of(cluster, b"default") == [second, first]
    assert cluster.stats_tube()["urgent"] == 1
    assert cluster.machine.queue.jobs[second].ready_us == ready_us
    event = events_of(cluster.machine)[-1]
    assert (event.kind, event.before, event.state, event.priority) == (e.MOVED, READY, READY, 7)


def test_a_buried_job_keeps_its_place_with_another_priority(cluster: Guests) -> None:
    jobs = [buried(cluster), buried(cluster)]
    assert change(cluster, jobs[0], a.SET_RANK, 9) == c.OK
    assert list(cluster.machine.queue.tubes[b"default"].buried) == jobs
    assert cluster.stats_job(jobs[0])["pri"] == 9


def test_a_delay_is_changed_set_and_ended(cluster: Guests) -> None:
    delayed, ready = cluster.put(delay_s=100), cluster.put()
    assert change(cluster, delayed, a.SET_DELAY, 5 * SECOND_US) == c.OK
    assert change(cluster, ready, a.SET_DELAY, 5 * SECOND_US) == c.OK
    assert cluster.stats_job(ready)["state"] == b"delayed"
    cluster.pass_s(5)
    assert order_of(cluster, b"default") == [delayed, ready]
    later = cluster.put(delay_s=100)
    assert change(cluster, later, a.SET_DELAY, 0) == c.OK
    assert cluster.stats_job(later)["state"] == b"ready"
    assert cluster.stats_job(later)["kicks"] == 0


def test_a_ready_job_is_buried_and_kicked(cluster: Guests) -> None:
    for job in (cluster.put(), cluster.submitted(2)):
        assert change(cluster, job, a.BURY) == c.OK
        assert cluster.state(job) == b"buried"
        assert change(cluster, job, a.KICK) == c.OK
        assert cluster.state(job) == b"ready"


def test_jobs_of_every_space_are_deleted_in_every_state(cluster: Guests) -> None:
    held = cluster.put()
    assert cluster.reserve() == held
    gearman = cluster.submitted(2)
    workq, _ = cluster.do(c.ADD, 5, PING, 1, 0, 0, 60 * SECOND_US, b"u" * 16, 0, 0, b"")
    done, _ = cluster.do(c.ADD, 5, PING, 1, 0, 0, 60 * SECOND_US, b"v" * 16, 0, 0, b"")
    assert cluster.do(c.FINISH, 5, done, DONE, b"result") == c.OK
    events_of(cluster.machine)
    for job in (held, gearman, workq, done):
        assert change(cluster, job, a.DELETE) == c.OK
        event = events_of(cluster.machine)[-1]
        assert (event.kind, event.state, event.reason) == (e.DELETED, GONE, e.ADMIN)
    assert len(cluster.machine.queue.jobs) == 0
    assert cluster.do(c.TOUCH, 1, held) == c.NOT_FOUND


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [a.KICK, a.BURY, a.SET_RANK, a.SET_DELAY, a.MOVE])
def test_a_reservation_is_its_workers(cluster: Guests, action: int) -> None:
    job = cluster.put()
    assert cluster.reserve() == job
    before = image_of(cluster.machine)[1:]
    assert change(cluster, job, action, to=DEAD) == c.BUSY
    assert image_of(cluster.machine)[1:] == before


def test_a_job_that_went_on_is_left_alone(cluster: Guests) -> None:
    job = cluster.put()
    assert change(cluster, job, a.DELETE, states=1 << BURIED | 1 << RESERVED) == c.BUSY
    assert change(cluster, job, a.DELETE, queue=b"other") == c.NOT_FOUND
    assert change(cluster, 99, a.DELETE) == c.NOT_FOUND
    assert change(cluster, job, a.DELETE, states=1 << READY, queue=b"default") == c.OK
    assert change(cluster, job, a.DELETE) == c.NOT_FOUND


def test_what_makes_no_sense_is_refused(cluster: Guests) -> None:
    job = cluster.put()
    before = image_of(cluster.machine)[1:]
    for action, value in (
        *((0, 0), (7, 0), (-1, 0), (2**63, 0)),
        *((a.SET_RANK, -1), (a.SET_RANK, U32_MAX + 1)),
        *((a.SET_DELAY, -1), (a.SET_DELAY, U32_MAX * SECOND_US + 1)),
        *((a.MOVE, RESERVED), (a.MOVE, DELAYED), (a.MOVE, -1)),
    ):
        assert change(cluster, job, action, value, to=DEAD) == c.BAD_COMMAND, (action, value)
    assert image_of(cluster.machine)[1:] == before


def test_older_machines_know_none_of_it() -> None:
    cluster = Guests(version=3)
    job = cluster.put()
    for action in FROM_STATES:
        assert change(cluster, job, action, to=DEAD) == c.BAD_COMMAND
    assert cluster.do(c.PAUSE_QUEUE, 1, b"default", 9) == c.BAD_COMMAND


@pytest.mark.parametrize("action", list(FROM_STATES))
def test_an_image_in_progress_keeps_jobs_as_they_were(cluster: Guests, action: int) -> None:
    jobs = [cluster.put(), cluster.put(delay_s=9), buried(cluster), cluster.put(tube=b"other")]
    wanted = image_of(cluster.machine)
    image = Image(cluster.machine)
    for job in jobs:
        change(cluster, job, action, BURIED if action == a.MOVE else 5, to=DEAD)
    assert chunks_of(image) == wanted


# --- queues ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", [b"default", TURN])
def test_a_queue_of_any_space_is_paused_and_resumed(cluster: Guests, queue: bytes) -> None:
    session = 1 if queue == b"default" else 4
    job = cluster.put() if session == 1 else cluster.submitted(2)
    assert cluster.do(c.PAUSE_QUEUE, 1, queue, 60) == c.OK
    assert cluster.reserve(session) == 0
    assert cluster.do(c.PAUSE_QUEUE, 1, queue, 0) == c.OK
    assert cluster.reserve(session) == job
    assert cluster.do(c.PAUSE_QUEUE, 1, b"none", 60) == c.NOT_FOUND
    assert cluster.do(c.PAUSE_QUEUE, 1, queue, -1) == c.BAD_COMMAND

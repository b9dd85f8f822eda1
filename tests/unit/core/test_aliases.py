"""Aliases: two names of one queue, and the end of a job in the terms of each protocol.

`tests/integration/test_bridging.py` tests the frontends.
"""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole.constants import NOBODYS_TTR_US, SECOND_US
from beanpole.core.image import restore
from beanpole.core.jobs import display_names, effects
from beanpole.core.jobs.job import DONE, FAILED, RESERVED
from beanpole.core.operations import queues
from beanpole.errors import Damaged
from tests.unit.core.cluster import Cluster, changed, copy_of, events_of, image_of

BEANSTALK, WORKQ, GEARMAN, OTHER = 1, 2, 3, 4  # sessions; the last speaks beanstalk
TUBE = b"resize"
W, G = b"\x01resize", b"\x02resize"
UUID = bytes(range(16))


class Bridged(Cluster):
    """Sessions of all protocols; a tube of beanstalk has an alias in both other spaces."""

    def __init__(self, *aliases: tuple[bytes, bytes]) -> None:
        super().__init__()
        self.lead((c.RAISE, 4), (c.EPOCH, 1, 0, 10**6, 10**6, 10**6, 2**40))
        for session in (BEANSTALK, WORKQ, GEARMAN, OTHER):
            self.open(session)
        assert self.do(c.SET_PROTOCOL, WORKQ, e.WORKQ) == c.OK
        assert self.do(c.SET_PROTOCOL, GEARMAN, e.GEARMAN) == c.OK
        for alias, queue in aliases or ((W, TUBE), (G, TUBE)):
            assert self.alias(alias, queue) == c.OK

    def alias(self, alias: bytes, queue: bytes) -> Any:
        return self.do(c.SET_ALIAS, BEANSTALK, alias, queue)

    def watch(self, session: int, name: bytes) -> None:
        assert self.do(c.WATCH, session, name) == c.OK

    def take(self, session: int) -> int:
        result = self.do(c.TAKE, session)
        return result[0] if type(result) is tuple else 0

    def submit(self, queue: bytes = G, foreground: int = 1, unique: bytes = b"u") -> int:
        name = b"resize\0" + unique
        result = self.do(c.SUBMIT, GEARMAN, queue, 5, 0, name, 0, foreground, b"", b"body")
        assert result[1] == 0
        return int(result[0])

    def add(self, queue: bytes = W, ttl_us: int = 0) -> int:
        command = (c.ADD, WORKQ, queue, 5, 0, SECOND_US, ttl_us, UUID, 0, 0, b"body")
        result = self.do(*command)
        assert result[1] == 0
        return int(result[0])

    def told(self, job: int, *command: Any) -> list[tuple[int, bytes]]:
        """Return the effects of a successful command on a job, for a node with listeners."""
        self.machine.queue.effects.listened[job] = None
        applied = self.apply([self.section(command)])
        assert applied.results[0][2] == [c.OK]
        return [(kind, data) for job_id, kind, data in applied.effects if job_id == job]

    def last_event(self) -> tuple[int, int, int]:
        event = events_of(self.machine)[-1]
        return event.kind, event.before, event.protocol


# --- the table ------------------------------------------------------------------------------------


def test_what_cannot_be_an_alias_is_refused_and_changes_nothing() -> None:
    cluster = Bridged((G, TUBE))
    cluster.watch(BEANSTALK, b"used")
    cluster.watch(GEARMAN, b"\x02busy")
    before = cluster.machine.queue.aliases.queues.copy()
    for alias, queue, why in (
        (b"other", TUBE, c.BAD_COMMAND),  # of the same space
        (b"", TUBE, c.BAD_COMMAND),
        (b"\x03q", TUBE, c.BAD_COMMAND),  # of no space
        (b"\x02" + b"x" * 513, TUBE, c.BAD_COMMAND),
        (b"\x02q", b"x" * 201, c.BAD_COMMAND),
        (G, b"another", c.EXISTS),
        (b"\x02second", TUBE, c.EXISTS),
        (b"\x01q", G, c.EXISTS),  # the queue is an alias itself
        (TUBE, b"\x02q", c.EXISTS),  # the alias is a queue that has one
        (b"used", b"\x02q", c.BUSY),
        (b"\x02busy", b"any", c.BUSY),
        (b"default", b"\x02q", c.BUSY),
        (b"\x01nothing", b"", c.NOT_FOUND),
    ):
        assert cluster.alias(alias, queue) == why, (alias, queue)
    assert cluster.machine.queue.aliases.queues == before
    assert cluster.alias(G, TUBE) == c.OK  # a repeated command succeeds
    assert cluster.alias(G, b"") == c.OK
    assert cluster.alias(G, b"") == c.NOT_FOUND
    assert not cluster.machine.queue.aliases.queues
    assert cluster.machine.queue.aliases.names_of(TUBE) == []


def test_a_queue_that_nobody_uses_gives_way_to_an_alias() -> None:
    cluster = Bridged((W, TUBE))
    assert cluster.do(c.CREATE_QUEUE, GEARMAN, G) == c.OK
    assert cluster.alias(G, TUBE) == c.OK
    assert G not in cluster.machine.queue.tubes
    assert cluster.do(c.CREATE_QUEUE, GEARMAN, G) == c.OK
    assert TUBE not in cluster.machine.queue.tubes  # the tube is unused
    cluster.put(tube=TUBE)
    assert cluster.do(c.DROP_QUEUE, GEARMAN, G) == c.BUSY


@pytest.mark.constants
def test_there_are_so_many_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "ALIASES_MAX", 2)
    cluster = Bridged()
    assert cluster.alias(b"\x02q", b"another") == c.OUT_OF_MEMORY
    assert cluster.alias(W, b"") == c.OK
    assert cluster.alias(b"\x02q", b"another") == c.OK


def test_below_version_4_there_are_none() -> None:
    cluster = Cluster()
    cluster.lead((c.RAISE, 3))
    cluster.open(1)
    assert cluster.do(c.SET_ALIAS, 1, b"\x02q", b"q") == c.BAD_COMMAND


def test_the_state_hash_knows_aliases() -> None:
    hashes = set()
    for aliases in (((W, TUBE),), ((G, TUBE),), ((W, b"resized"),)):
        hashes.add(Bridged(*aliases).machine.state_hash)
    assert len(hashes) == 3


def test_each_space_lists_and_shows_its_own_names() -> None:
    cluster = Bridged()
    job = cluster.put(tube=TUBE)
    cluster.watch(GEARMAN, b"\x02own")
    assert cluster.do(c.LIST_TUBES, BEANSTALK) == (b"default", TUBE)
    assert cluster.do(c.LIST_TUBES, GEARMAN) == (b"\x02own", G)
    assert cluster.do(c.LIST_TUBES, WORKQ) == (W,)
    for session, name in ((BEANSTALK, TUBE), (WORKQ, W), (GEARMAN, G)):
        assert cluster.do(c.STATS_TUBE, session, name)[0] == name
        assert cluster.do(c.STATS_JOB, session, job)[1] == name
    assert cluster.do(c.STATS_TUBE, WORKQ, G) == c.NOT_FOUND
    assert cluster.do(c.WATCH, WORKQ, G) == c.BAD_COMMAND
    cluster.alias(G, b"")
    assert cluster.do(c.STATS_JOB, GEARMAN, job) == c.NOT_FOUND


def test_without_an_alias_jobs_stay_apart() -> None:
    cluster = Bridged((W, b"elsewhere"))
    job = cluster.put(tube=TUBE)
    cluster.watch(GEARMAN, G)
    assert cluster.take(GEARMAN) == 0
    for session in (WORKQ, GEARMAN):
        assert cluster.do(c.PEEK, session, job) == c.NOT_FOUND
        assert cluster.do(c.DELETE, session, job) == c.NOT_FOUND
    assert cluster.do(c.DELETE_NAMED, WORKQ, display_names.derived(job)) == c.NOT_FOUND


# --- jobs of beanstalk, worked by other protocols -------------------------------------------------


def test_a_job_of_beanstalk_is_done_by_a_worker_of_gearman() -> None:
    cluster = Bridged()
    cluster.watch(GEARMAN, G)
    job = cluster.put(tube=TUBE, ttr_s=60)
    assert cluster.take(GEARMAN) == job
    assert cluster.stats_job(job)["state"] == b"reserved"
    assert cluster.do(c.DELETE, OTHER, job) == c.NOT_FOUND  # the worker has reserved it
    assert cluster.do(c.PROGRESS, GEARMAN, job, b"1\x002") == c.OK
    assert cluster.do(c.FINISH, GEARMAN, job, DONE, b"result") == c.OK
    assert cluster.last_event() == (e.DONE, RESERVED, e.GEARMAN)
    assert cluster.state(job) == b"gone"
    assert TUBE in cluster.machine.queue.tubes  # the worker watches it
    assert cluster.do(c.IGNORE, GEARMAN, G) == c.OK
    assert TUBE not in cluster.machine.queue.tubes


def test_a_job_of_beanstalk_that_fails_is_buried_and_can_be_kicked() -> None:
    cluster = Bridged()
    cluster.watch(GEARMAN, G)
    job = cluster.put(tube=TUBE, priority=7)
    assert cluster.take(GEARMAN) == job
    assert cluster.do(c.FINISH, GEARMAN, job, FAILED, b"") == c.OK
    assert cluster.last_event() == (e.BURIED, RESERVED, e.GEARMAN)
    assert cluster.do(c.PEEK_BURIED, BEANSTALK, TUBE) == (job, b"body")
    assert cluster.do(c.KICK_JOB, BEANSTALK, job) == c.OK
    assert cluster.stats_job(job)["pri"] == 7
    assert cluster.take(GEARMAN) == job


def test_a_touch_begins_a_ttr_that_was_set_to_no_end() -> None:
    """No frontend sends both, but a log may have them."""
    cluster = Bridged()
    job = cluster.put(tube=TUBE, ttr_s=2)
    cluster.watch(GEARMAN, G)
    assert cluster.take(GEARMAN) == job
    assert cluster.do(c.SET_TTR, GEARMAN, job, 0) == c.OK
    assert cluster.do(c.TOUCH, GEARMAN, job) == c.OK
    cluster.pass_s(1)
    assert cluster.state(job) == b"reserved"
    cluster.pass_s(1)
    assert cluster.state(job) == b"ready"


def test_a_worker_of_gearman_that_goes_gives_the_job_back() -> None:
    cluster = Bridged()
    cluster.watch(GEARMAN, G)
    job = cluster.put(tube=TUBE)
    assert cluster.take(GEARMAN) == job
    assert cluster.do(c.CLOSE, GEARMAN, 1) == c.OK
    assert cluster.state(job) == b"ready"
    assert cluster.machine.queue.tubes[TUBE].watchers == 0


def test_a_job_of_beanstalk_that_workq_leases_is_nobodys() -> None:
    cluster = Bridged()
    cluster.watch(WORKQ, W)
    job = cluster.put(tube=TUBE, ttr_s=2)
    uuid = display_names.derived(job)
    assert display_names.job_of(uuid) == job
    assert (uuid[6] >> 4, uuid[8] >> 6) == (4, 2)  # as UUIDs of version 4 are
    assert cluster.take(WORKQ) == job
    assert cluster.machine.queue.jobs[job].holder is None
    assert cluster.do(c.FIND, WORKQ, uuid) == job
    assert cluster.do(c.FIND, WORKQ, display_names.derived(job + 1)) == c.NOT_FOUND
    assert cluster.do(c.DELETE, BEANSTALK, job) == c.NOT_FOUND  # a worker has reserved it
    assert cluster.do(c.CLOSE, WORKQ, 1) == c.OK
    assert cluster.state(job) == b"reserved"
    cluster.pass_s(2)
    assert cluster.state(job) == b"ready"


@pytest.mark.parametrize("state", [DONE, FAILED])
def test_workq_ends_a_job_of_beanstalk_by_its_derived_id(state: int) -> None:
    """This holds for leased and other jobs, as for Workq's own."""
    cluster = Bridged()
    cluster.watch(WORKQ, W)
    leased, ready = cluster.put(tube=TUBE), cluster.put(tube=TUBE)
    assert cluster.take(WORKQ) == leased
    for job in (leased, ready):
        assert cluster.do(c.FINISH_NAMED, WORKQ, display_names.derived(job), state, b"r") == c.OK
        assert cluster.state(job) == (b"gone" if state == DONE else b"buried")
    again = cluster.do(c.FINISH_NAMED, WORKQ, display_names.derived(ready), state, b"r")
    assert again == (c.NOT_FOUND if state == DONE else c.EXISTS)


def test_the_lease_follows_the_session() -> None:
    """Of two jobs in one queue, one has a session as its holder and one has none."""
    cluster = Bridged()
    cluster.watch(WORKQ, W)
    cluster.watch(GEARMAN, G)
    first, second = cluster.put(tube=TUBE), cluster.put(tube=TUBE)
    assert (cluster.take(WORKQ), cluster.take(GEARMAN)) == (first, second)
    holders = [cluster.machine.queue.jobs[job].holder for job in (first, second)]
    assert [holder and holder.number for holder in holders] == [None, GEARMAN]
    assert cluster.do(c.TOUCH, WORKQ, second) == c.NOT_FOUND
    assert cluster.do(c.TOUCH, GEARMAN, first) == c.NOT_FOUND
    # Workq's FINISH needs no lease, so any of its clients may finish the job.
    assert cluster.do(c.FINISH_NAMED, WORKQ, display_names.derived(second), DONE, b"") == c.OK
    assert cluster.do(c.FINISH, GEARMAN, second, DONE, b"") == c.NOT_FOUND


# --- jobs of other protocols ----------------------------------------------------------------------


def reserved_by_beanstalk(cluster: Bridged, job: int) -> None:
    cluster.watch(BEANSTALK, TUBE)
    assert cluster.take(BEANSTALK) == job


def test_the_client_of_gearman_hears_that_a_worker_of_beanstalk_is_done() -> None:
    cluster = Bridged()
    job = cluster.submit()
    assert cluster.stats_job(job)["tube"] == TUBE
    reserved_by_beanstalk(cluster, job)
    assert cluster.told(job, c.DELETE, BEANSTALK, job) == [(effects.DONE, b"")]
    assert cluster.last_event() == (e.DONE, RESERVED, e.BEANSTALK)
    assert cluster.state(job) == b"gone"
    assert cluster.submit() != job  # its unique is free


def test_the_client_of_gearman_hears_that_a_worker_of_beanstalk_has_failed() -> None:
    cluster = Bridged()
    job = cluster.submit()
    reserved_by_beanstalk(cluster, job)
    assert cluster.told(job, c.BURY, BEANSTALK, job, 9) == [(effects.FAILED, b"")]
    assert cluster.last_event() == (e.FAILED, RESERVED, e.BEANSTALK)
    assert cluster.state(job) == b"gone"


def test_beanstalk_deletes_what_nobody_works_on() -> None:
    cluster = Bridged()
    job = cluster.submit()
    assert cluster.told(job, c.DELETE, BEANSTALK, job) == [(effects.DELETED, b"")]


def test_a_release_keeps_the_job_and_its_clients() -> None:
    cluster = Bridged()
    job = cluster.submit()
    reserved_by_beanstalk(cluster, job)
    assert cluster.do(c.RELEASE, BEANSTALK, job, 3, 0) == c.OK
    assert cluster.stats_job(job)["pri"] == 3
    assert cluster.do(c.CLOSE, GEARMAN, 1) == c.OK
    assert cluster.state(job) == b"gone"  # abandoned


@pytest.mark.parametrize("state", [DONE, FAILED])
def test_the_result_of_a_job_of_workq_that_beanstalk_has_ended_is_empty(state: int) -> None:
    cluster = Bridged()
    job = cluster.add(ttl_us=60 * SECOND_US)
    reserved_by_beanstalk(cluster, job)
    end = (c.DELETE, BEANSTALK, job) if state == DONE else (c.BURY, BEANSTALK, job, 1)
    assert cluster.do(*end) == c.OK
    # A worker whose reply was lost repeats its delete, and the result stays.
    assert cluster.do(c.DELETE, BEANSTALK, job) == c.NOT_FOUND
    assert cluster.do(c.RESULT, WORKQ, job) == (state, b"", b"")


@pytest.mark.parametrize("queue", [W, b"\x01own"], ids=["of beanstalk", "of workq"])
@pytest.mark.parametrize("how", ["release", "close", "ttr"])
def test_the_attempts_of_a_job_of_workq_end_however_a_worker_of_beanstalk_ends_them(
    queue: bytes, how: str
) -> None:
    cluster = Bridged((W, TUBE), (b"own", b"\x01own"))
    limits = (9 * SECOND_US, UUID, 2, 0)
    job, _ = cluster.do(c.ADD, WORKQ, queue, 5, 0, SECOND_US, *limits, b"body")
    for session, state in ((BEANSTALK, b"ready"), (OTHER, b"failed")):
        cluster.watch(session, TUBE if queue == W else b"own")
        assert cluster.take(session) == job
        if how == "release":
            assert cluster.do(c.RELEASE, session, job, 5, 1) == c.OK
            assert cluster.do(c.KICK_JOB, session, job) == (
                c.OK if state == b"ready" else c.NOT_FOUND
            )
        elif how == "close":
            assert cluster.do(c.CLOSE, session, 1) == c.OK
        else:
            cluster.pass_s(1)
        assert cluster.state(job) == state
    assert cluster.do(c.RESULT, WORKQ, job) == (FAILED, b"", b"")
    assert image_of(copy_of(cluster.machine)) == image_of(cluster.machine)


def test_a_job_of_gearman_that_workq_leases_comes_back_after_a_while() -> None:
    """It has no TTR of its own, and a lease without a holder does not end with a session."""
    cluster = Bridged()
    cluster.watch(WORKQ, W)
    job = cluster.submit()
    assert cluster.take(WORKQ) == job
    cluster.pass_s(NOBODYS_TTR_US // SECOND_US - 1)
    assert cluster.state(job) == b"reserved"
    cluster.pass_s(1)
    assert cluster.state(job) == b"ready"
    assert cluster.take(WORKQ) == job
    ended = (c.FINISH_NAMED, WORKQ, display_names.derived(job), DONE, b"result")
    assert cluster.told(job, *ended) == [(effects.DONE, b"result")]


@pytest.mark.parametrize("is_put", [True, False])
def test_a_lease_of_workq_outlives_its_alias(is_put: bool) -> None:
    """A worker that watches by the alias goes on, so it must be able to end what it is given."""
    cluster = Bridged()
    cluster.watch(WORKQ, W)
    names = (b"1", b"2", b"3")
    jobs = [cluster.put(tube=TUBE) if is_put else cluster.submit(unique=u) for u in names]
    assert cluster.take(WORKQ) == jobs[0]
    assert cluster.alias(W, b"") == cluster.alias(G, b"") == c.OK
    named = [display_names.derived(job) for job in jobs]
    assert cluster.do(c.FINISH_NAMED, WORKQ, named[1], DONE, b"") == c.NOT_FOUND  # is not leased
    assert cluster.take(WORKQ) == jobs[1]
    assert cluster.do(c.FIND, BEANSTALK, named[1]) == c.NOT_FOUND
    for name in named[:2]:
        assert cluster.do(c.FINISH_NAMED, WORKQ, name, DONE, b"") == c.OK
    assert cluster.take(WORKQ) == jobs[2]
    assert cluster.do(c.RETURN, WORKQ, jobs[2]) == c.OK
    assert cluster.do(c.FINISH, WORKQ, jobs[2], DONE, b"") == c.NOT_FOUND
    assert [job.id for job in cluster.machine.queue.jobs.values()] == jobs[2:]


def test_a_queue_of_workq_that_gearman_works() -> None:
    cluster = Bridged((b"\x02email", b"\x01mail"))
    job = cluster.add(queue=b"\x01mail", ttl_us=60 * SECOND_US)
    cluster.watch(GEARMAN, b"\x02email")
    assert cluster.take(GEARMAN) == job
    assert cluster.do(c.FINISH, GEARMAN, job, DONE, b"sent") == c.OK
    assert cluster.do(c.RESULT, WORKQ, job) == (DONE, b"", b"sent")
    own = cluster.submit(queue=b"\x02email")
    assert cluster.machine.queue.jobs[own].tube.name == b"\x01mail"


def test_the_external_id_of_an_event_is_that_of_the_space_that_made_the_job() -> None:
    cluster = Bridged()
    queue = cluster.machine.queue
    queue.externals.clear()
    total = queue.events_total
    job = cluster.submit()
    reserved_by_beanstalk(cluster, job)
    cluster.put(tube=TUBE)
    assert cluster.do(c.DELETE, BEANSTALK, job) == c.OK
    named = [(total + place, e.GEARMAN, b"resize\0u") for place in (0, 1, 3)]
    assert queue.externals == named


# --- the image ------------------------------------------------------------------------------------


def test_an_image_has_all_of_it_and_the_machine_goes_on_alike() -> None:
    cluster = Bridged()
    cluster.watch(GEARMAN, G)
    cluster.watch(GEARMAN, b"\x02own")
    cluster.watch(WORKQ, W)
    assert cluster.do(c.USE, GEARMAN, G) == c.OK
    submitted = cluster.submit()
    put, third = cluster.put(tube=TUBE, priority=9), cluster.put(tube=TUBE, priority=9)
    assert (cluster.take(WORKQ), cluster.take(GEARMAN)) == (submitted, put)
    machine = copy_of(cluster.machine)
    assert image_of(machine) == image_of(cluster.machine)
    assert machine.queue.aliases.queues == {W: TUBE, G: TUBE}
    assert machine.queue.aliases.name_of(TUBE, e.WORKQ) == W
    assert machine.queue.spaces[e.GEARMAN].external_ids == {b"resize\0u": submitted}
    session = machine.origins[0].sessions[GEARMAN]
    assert list(session.watched) == [G, b"\x02own"]
    assert session.watched[G] is machine.queue.tubes[TUBE]
    cluster.alias(G, b"")  # the session still watches the alias, and can stop watching it
    machine.apply(*cluster.log[-1])
    again = copy_of(machine)
    for command in ((c.FINISH, GEARMAN, put, DONE, b""), (c.TAKE, GEARMAN), (c.IGNORE, GEARMAN, G)):
        result = cluster.do(*command)
        assert result == c.OK or result[0] == third
        for copy in (machine, again):
            copy.apply(*cluster.log[-1])
            assert copy.state_hash == cluster.machine.state_hash
            assert image_of(copy) == image_of(cluster.machine)
    assert list(cluster.machine.origins[0].sessions[GEARMAN].watched) == [b"\x02own"]


@pytest.mark.parametrize(
    "pair",
    [
        *([b"\x02q", b"\x02other"], [b"default", b"\x02q"]),
        [b"\x02second", TUBE],
        [G, b"another"],
        [b"\x05q", TUBE],
        *([1, 2], [G]),
    ],
)
def test_aliases_that_cannot_be_are_damage(pair: list[Any]) -> None:
    cluster = Bridged((G, TUBE))
    with pytest.raises(Damaged):
        restore.load(changed(cluster.machine, "aliases", lambda pairs: pairs.append(pair)))


@pytest.mark.parametrize("watched", [[1, b"q"], [1, G], [1, b"default"], [1], [1, G, 1]])
def test_a_tube_of_another_space_is_watched_by_a_name_of_the_own(watched: list[Any]) -> None:
    cluster = Bridged()
    cluster.watch(BEANSTALK, TUBE)

    def change(sessions: list[Any]) -> None:
        for record in sessions:
            if record[3] == BEANSTALK:
                record[7] = [watched]

    with pytest.raises(Damaged):
        restore.load(changed(cluster.machine, "sessions", change))


def test_a_job_has_another_home_than_its_queue_or_none() -> None:
    cluster = Bridged()
    cluster.submit()

    def to(home: int) -> Any:
        def change(jobs: list[Any]) -> None:
            assert jobs[0][-2][-1] == e.GEARMAN
            jobs[0][-2][-1] = home

        return change

    for home in (e.BEANSTALK, 99, 0):
        with pytest.raises(Damaged):
            restore.load(changed(cluster.machine, "jobs", to(home)))
    restore.load(changed(cluster.machine, "jobs", to(e.GEARMAN)))

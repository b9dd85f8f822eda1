"""Planted defects of qless: in its calls, its image, its messages and its frontend.

The patches and their table; see `mutations` and `mutant_table`. Lives of whole nodes catch all.
"""

from typing import Any, Final

from beanpole import qless as q
from beanpole.core.image import qless as image
from beanpole.core.operations import qless as qless_operations
from beanpole.core.qless import (
    completing,
    dependencies,
    failing,
    locks,
    putting,
    recurring,
    throttles,
)
from beanpole.core.qless.calls import CALLS
from beanpole.core.qless.job import NOWHERE, QlessJob
from beanpole.core.qless.tables import QlessQueue, Tables
from beanpole.core.users import BIRTH_BYTES, User, Users
from beanpole.protocol.qless import answers
from beanpoled.frontends.publications import Publications
from tests.sim.mutant import Mutant, in_lives
from tests.sim.mutations import Patch, nothing
from tests.sim.schedules_qless import (
    a_later_user_of_the_name,
    a_reader_makes_no_job_due,
    a_warned_worker_renews_its_lock,
)

# --- locks ----------------------------------------------------------------------------------------


def locks_end_early() -> list[Patch]:
    """A job goes to another worker a second before its lock ends."""
    invalidate = locks.invalidate

    def wrong(t: Tables, flavour: int, queue: QlessQueue, now: float, count: int) -> Any:
        return invalidate(t, flavour, queue, now + 1.0, count)

    return [(locks, "invalidate", wrong)]


def short_locks() -> list[Patch]:
    """The configured length of a lock is ignored."""
    return [(locks, "end_of_lock", lambda t, queue, now: now + 1.0)]


def lost_in_silence() -> list[Patch]:
    """A worker whose lock is lost is not told."""
    return [(locks, "lose", nothing)]


def moved_in_silence() -> list[Patch]:
    """A worker is not told when another client puts its job into a queue."""
    leave = putting._leave

    def wrong(t: Tables, job: QlessJob, now: float, worker: bytes | None, queue: bytes) -> None:
        leave(t, job, now, job.worker, queue)

    return [(putting, "_leave", wrong)]


def attempts_uncounted() -> list[Patch]:
    """A lost lock uses up no attempt."""
    attempt = locks._attempt

    def wrong(t: Tables, flavour: int, queue: QlessQueue, job: QlessJob, now: float) -> bool:
        job.remaining += 1
        return attempt(t, flavour, queue, job, now)

    return [(locks, "_attempt", wrong)]


def warned_for_good() -> list[Patch]:
    """A worker is warned only once, as in the scripts."""
    heartbeat = locks.heartbeat

    def wrong(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
        job = t.jobs.get(args[0])
        grace = job is not None and job.grace
        result = heartbeat(t, flavour, now, args)
        if job is not None:
            job.grace = grace
        return result

    return [_call(q.HEARTBEAT, wrong)]


def anybody_completes() -> list[Patch]:
    """A worker completes a job that it does not hold."""
    complete = completing.complete

    def wrong(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
        job = t.jobs.get(args[0])
        if job is not None and job.worker:
            args = (args[0], job.worker, job.queue, *args[3:])
        return complete(t, flavour, now, args)

    return [_call(q.COMPLETE, wrong)]


# --- dependencies, throttles, templates -----------------------------------------------------------


def dependents_at_once() -> list[Patch]:
    """A job does not wait for its dependencies."""
    return [(dependencies, "unfinished", lambda t, jids: [])]


def dependents_forgotten() -> list[Patch]:
    """Completing a job frees its dependents, even those with other dependencies."""

    def wrong(t: Tables, flavour: int, job: QlessJob, now: float) -> None:
        dependents = list(job.dependents)
        job.dependents.clear()
        for jid in dependents:
            other = t.jobs[jid]
            t.keep(other)
            del other.dependencies[job.jid]
            dependencies.unlink(t, other, list(other.dependencies))
            dependencies._begin(t, flavour, other, now, None)

    return [(dependencies, "free_dependents", wrong)]


def throttles_exceeded() -> list[Patch]:
    """A throttle grants one lock more than its maximum."""

    def wrong(t: Tables, name: bytes) -> bool:
        throttle = t.throttles.get(name)
        if throttle is None:
            return True
        maximum = throttles._maximum(t, throttle)
        return maximum == 0 or len(throttle.locks) <= maximum

    return [(throttles, "available", wrong)]


def numbers_left_out() -> list[Patch]:
    """A template skips numbers."""
    make = recurring._make

    def wrong(t: Tables, template: Any, jid: bytes, now: float, at: float) -> None:
        if template.count % 3:
            make(t, template, jid, now, at)

    return [(recurring, "_make", wrong)]


# --- jobs -----------------------------------------------------------------------------------------


def retried_is_lost() -> list[Patch]:
    """A job that is retried with a delay is in no queue meanwhile."""
    retry = failing.retry

    def wrong(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
        result = retry(t, flavour, now, args)
        if result[0] == q.OK and args[3] > 0 and result[1] >= 0:
            t.unplace(t.jobs[args[0]])
            t.place(t.jobs[args[0]], NOWHERE, 0.0)
            t.forget(t.jobs[args[0]])
        return result

    return [_call(q.RETRY, wrong)]


def throttles_not_in_image() -> list[Patch]:
    """A node that starts from a snapshot knows no limits of throttles."""

    def wrong(_copy: image.QlessCopy) -> Any:
        yield from ()

    return [(image.QlessCopy, "_throttle_chunks", wrong)]


def image_cut_by_the_past() -> list[Patch]:
    """A chunk of workers ends where a list of their order does, which depends on its past."""
    chunks = image.QlessCopy._chunks

    def wrong(copy: image.QlessCopy) -> Any:
        first = len(copy._workers[0]) if copy._workers else 0
        for word, records in chunks(copy):
            if word == image.WORKERS and len(records) > first:
                yield [word, records[:first]]
                yield [word, records[first:]]
            else:
                yield [word, records]

    return [(image.QlessCopy, "_chunks", wrong)]


# --- messages and replies -------------------------------------------------------------------------


def told_in_reverse() -> list[Patch]:
    """The messages of an entry are published in reverse."""
    published = Publications.published

    def wrong(publications: Publications, messages: list[Any]) -> None:
        published(publications, messages[::-1])

    return [(Publications, "published", wrong)]


def told_twice() -> list[Patch]:
    """Messages are published twice."""
    published = Publications.published

    def wrong(publications: Publications, messages: list[Any]) -> None:
        published(publications, [one for one in messages for _ in range(2)])

    return [(Publications, "published", wrong)]


def told_nothing() -> list[Patch]:
    """No message is published."""

    def wrong(publications: Publications, messages: list[Any]) -> None:
        return None

    return [(Publications, "published", wrong)]


def completed_is_running() -> list[Patch]:
    """The answer has another state than the job."""
    answer = answers.answer

    def wrong(script: Any, call: Any, result: q.Result) -> Any:
        if call.code == q.COMPLETE and result == (q.OK, q.DEPENDS):
            result = (q.OK, q.WAITING)
        return answer(script, call, result)

    return [(answers, "answer", wrong)]


def _call(code: int, handler: Any) -> Patch:
    """Return a patch that replaces the handler of a call."""
    return (CALLS[code], "handler", handler)


# --- users ----------------------------------------------------------------------------------------


def every_clock_counts() -> list[Patch]:
    """The time of a call counts in every queue, whatever rights its user has there."""
    return [(qless_operations, "may_time", lambda machine, session: None)]


def a_name_is_enough() -> list[Patch]:
    """A session by a rule is that of every later user of the name."""
    of = vars(Users)["of"]

    def wrong(self: Users, name: bytes, token: bytes) -> User:
        user: User = of(self, name, token)
        return self.rows.get(name, user) if len(token) == BIRTH_BYTES else user

    return [(Users, "of", wrong)]


QLESS: Final = (
    in_lives(
        "locks_end_early",
        "qless: a lock ends a second early",
        r"a second holder at|its holder was not told|it failed with attempts left",
        locks_end_early,
        seed=3,
    ),
    in_lives("short_locks", "qless: locks have a length of their own", r"a lock of", short_locks),
    in_lives(
        "lost_in_silence",
        "qless: a lost lock is not announced",
        r"its holder was not told",
        lost_in_silence,
    ),
    in_lives(
        "moved_in_silence",
        "qless: a job is put elsewhere, and its worker is not told",
        r"its holder was not told",
        moved_in_silence,
    ),
    Mutant(
        "warned_for_good",
        "qless: a worker is warned once only",
        a_warned_worker_renews_its_lock,
        r"was not warned when the renewed lock",
        warned_for_good,
    ),
    Mutant(
        "every_clock_counts",
        "users: a user without the right makes jobs of qless due",
        a_reader_makes_no_job_due,
        r"a reader made a job due",
        every_clock_counts,
    ),
    Mutant(
        "a_name_is_enough",
        "users: a session by a rule is that of a later user of the name",
        a_later_user_of_the_name,
        r"of a later user",
        a_name_is_enough,
    ),
    in_lives(
        "attempts_uncounted",
        "qless: a lost lock uses up no attempt",
        r"attempts left, not",
        attempts_uncounted,
    ),
    in_lives(
        "anybody_completes",
        "qless: a worker ends a job that it does not have",
        r"by a worker that does not have",
        anybody_completes,
    ),
    in_lives(
        "dependents_at_once",
        "qless: a job does not wait for those that it depends on",
        r"it runs before",
        dependents_at_once,
    ),
    in_lives(
        "dependents_forgotten",
        "qless: a job waits for one of several only",
        r"it runs before",
        dependents_forgotten,
        seed=4,
    ),
    in_lives(
        "throttles_exceeded",
        "qless: a throttle gives a lock too many",
        r"jobs have locks of",
        throttles_exceeded,
    ),
    in_lives(
        "numbers_left_out",
        "qless: a template leaves out a number",
        r"has made \d+ jobs",
        numbers_left_out,
    ),
    in_lives(
        "retried_is_lost", "qless: a job is lost in a delay", r"^lost: |lost: b'", retried_is_lost
    ),
    in_lives(
        "throttles_not_in_image",
        "qless: a snapshot has no throttles",
        r"differs|job \d+ of qless has the state \d, and what does not fit",
        throttles_not_in_image,
    ),
    in_lives(
        "image_cut_by_the_past",
        "qless: the bytes of a snapshot depend on more than its state",
        r"the image of n\d differs, but its state hash does not",
        image_cut_by_the_past,
        seed=5,
    ),
    in_lives(
        "told_in_reverse",
        "qless: messages come in reverse",
        r"was told other messages",
        told_in_reverse,
    ),
    in_lives("told_twice", "qless: messages come twice", r"was told other messages", told_twice),
    in_lives("told_nothing", "qless: no message comes", r"client \d+ was not told", told_nothing),
    in_lives(
        "completed_is_running",
        "qless: another state is answered",
        r"answered otherwise",
        completed_is_running,
    ),
)

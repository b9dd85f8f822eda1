"""Workers: the times at which they were last seen, and their jobs."""

from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import config as configuration
from beanpole.core.qless import limits, ranges
from beanpole.core.qless.scores import Scores
from beanpole.core.qless.tables import Tables

AGE_DEFAULT: Final = 86_400.0  # seconds without a pop until a worker is forgotten
# Locks that end later than this many seconds from now are not listed: a hundred days.
LOCKS_AHEAD: Final = 8_640_000.0
# Workers that one call forgets; further old ones are not listed.
FORGOTTEN_MAX: Final = q.CALL_JOBS_MAX
NOBODY: Final = Scores()


def seen(t: Tables, now: float, worker: bytes) -> None:
    """Record that a worker has asked for jobs.

    If there are too many, or nothing may grow, the one that was not seen for longest is forgotten,
    as by FORGET_WORKERS: names of workers are free, and need not keep others from working.
    """
    if worker not in t.workers and (t.room < 0 or len(t.workers) >= q.WORKERS_MAX):
        for oldest in t.workers.lowest(0, 1):
            t.workers.remove(oldest)
    t.workers.add(worker, now)


def worker_counts(t: Tables, _flavour: int, now: float, _args: tuple[Any, ...]) -> q.Result:
    """WORKER_COUNTS: return the counts of each worker's jobs, the last seen worker first."""
    oldest = _forget_old(t, now)
    if not t.answered:  # a hundred thousand workers take 0.1 s: only the client's node spends that
        return q.OK, ()
    views: list[q.WorkerView] = []
    for name in _younger(t, oldest):
        held = t.leases.get(name)
        jobs, stalled = (0, 0) if held is None else _counts(held, now)
        views.append(q.WorkerView(name, jobs, stalled))
    return q.OK, tuple(views)


def _counts(held: Scores, now: float) -> tuple[int, int]:
    """Return the number of jobs of a worker with a lock, and of those whose locks have ended."""
    until = now + LOCKS_AHEAD
    first, last = held.ends()
    if first >= 0.0 and last <= until:  # the usual cases: all, or none
        if first > now:
            return len(held), 0
        if last < now:
            return 0, len(held)
    return ranges.count_between(held, now, until), ranges.count_between(held, 0.0, now)


def worker_jobs(t: Tables, _flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """WORKER_JOBS: return the jobs of a worker, those whose locks end last first."""
    oldest = _forget_old(t, now)
    name: bytes = args[0]
    if _is_old(t, name, oldest):
        return q.OK, ((), ())
    held = t.leases.get(name, NOBODY)
    jobs = ranges.between_from_top(held, now, now + LOCKS_AHEAD, 0, -1)
    stalled = ranges.between_from_top(held, 0.0, now, 0, -1)
    if jobs is None or stalled is None:
        return limits.LISTED
    return q.OK, (tuple(jobs), tuple(stalled))


def forget_workers(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """FORGET_WORKERS: make workers unknown until they ask for jobs again; they keep their jobs."""
    for name in args[0]:
        t.workers.remove(name)
    return q.OK, None


def _forget_old(t: Tables, now: float) -> float:
    """Remove workers not seen for long, with their leases; returns the time that is too old.

    Those beyond the limit of what a call may touch are left to later calls.
    """
    oldest = now - configuration.number(t, b"max-worker-age", AGE_DEFAULT)
    if t.may_time is not None:  # workers are of no queue
        return oldest
    rest = q.CALL_JOBS_MAX
    for name in ranges.between(t.workers, 0.0, oldest, 0, FORGOTTEN_MAX) or ():
        held = t.leases.get(name, NOBODY)
        jids = held.lowest(0, rest)
        all_of_them = len(jids) == len(held)
        for jid in jids:
            job = t.jobs[jid]
            t.keep(job)
            t.let_go(job)
        rest -= len(jids)
        if not all_of_them:
            break
        t.workers.remove(name)
    return oldest


def _younger(t: Tables, oldest: float) -> list[bytes]:
    """Return the workers that are not `_is_old`, the last seen first."""
    seen_at = t.workers
    below = seen_at.count_below(0.0)
    above = len(seen_at) - max(below, seen_at.count_upto(oldest))
    return seen_at.highest(0, above) + seen_at.lowest(0, below)[::-1]


def _is_old(t: Tables, name: bytes, oldest: float) -> bool:
    seen_at = t.workers.score(name)
    return seen_at is not None and 0 <= seen_at <= oldest

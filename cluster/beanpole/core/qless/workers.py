"""Workers: when each was last seen, and which jobs it has."""

from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import config as configuration
from beanpole.core.qless import limits, ranges
from beanpole.core.qless.scores import Scores
from beanpole.core.qless.tables import Tables

AGE_DEFAULT: Final = 86_400.0  # seconds without a sign of life until a worker is forgotten
# How much later than now a lock may end to be shown, in seconds: a hundred days.
LOCKS_AHEAD: Final = 8_640_000.0
# Workers that one call forgets; those that remain are not shown.
FORGOTTEN_MAX: Final = q.CALL_JOBS_MAX
NOBODY: Final = Scores()


def seen(t: Tables, now: float, worker: bytes) -> None:
    """A worker has asked for jobs. Ask `has_room` before anything is changed."""
    t.workers.add(worker, now)


def has_room(t: Tables, worker: bytes) -> bool:
    """Whether a worker is known, or may become so."""
    return worker in t.workers or len(t.workers) < q.WORKERS_MAX


def worker_counts(t: Tables, _flavour: int, now: float, _args: tuple[Any, ...]) -> q.Result:
    """How many jobs each worker has, the one that was seen last first."""
    oldest = _forget_old(t, now)
    views: list[q.WorkerView] = []
    for name in t.workers.highest(0, len(t.workers)):
        if _is_old(t, name, oldest):
            continue
        held = t.leases.get(name)
        if held is None:
            views.append(q.WorkerView(name, 0, 0))
            continue
        jobs = ranges.count_between(held, now, now + LOCKS_AHEAD)
        views.append(q.WorkerView(name, jobs, ranges.count_between(held, 0.0, now)))
    return q.OK, tuple(views)


def worker_jobs(t: Tables, _flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """The jobs of a worker, those whose locks end last first."""
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
    """Let workers be unknown until they ask for jobs again; they keep their jobs."""
    for name in args[0]:
        t.workers.remove(name)
    return q.OK, None


def _forget_old(t: Tables, now: float) -> float:
    """Forget workers that were not seen for long, and their jobs; give the time that is too old.

    What is more than a call may touch is left to later calls.
    """
    oldest = now - configuration.number(t, b"max-worker-age", AGE_DEFAULT)
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


def _is_old(t: Tables, name: bytes, oldest: float) -> bool:
    seen_at = t.workers.score(name)
    return seen_at is not None and 0 <= seen_at <= oldest

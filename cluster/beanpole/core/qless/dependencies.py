"""Dependencies: jobs that wait until others are complete. Both sides refer to each other."""

from collections.abc import Iterable
from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import limits
from beanpole.core.qless.job import SCHEDULED_AT, WORK, QlessJob
from beanpole.core.qless.queues import work_score
from beanpole.core.qless.tables import Tables

# Dependencies that are followed in each direction to find a cycle: about 5 ms of a node.
SEARCHED_MAX: Final = 10_000
SEARCHED: Final[q.Result] = (q.TOO_MUCH, (b"dependencies that are searched", SEARCHED_MAX))


def unfinished(t: Tables, jids: Iterable[bytes]) -> list[bytes]:
    """Return the jids of those jobs that exist and are not complete."""
    found: list[bytes] = []
    for jid in dict.fromkeys(jids):
        job = t.jobs.get(jid)
        if job is not None and job.state != q.COMPLETE_:
            found.append(jid)
    return found


def refusal(t: Tables, jid: bytes, wanted: tuple[bytes, ...], kept: int) -> q.Result | None:
    """Return why a job cannot depend on `wanted` in addition to `kept` others; None if it can."""
    if jid in wanted:
        return q.DEPENDS_ON_ITSELF, (jid,)
    if len(wanted) > q.DEPENDENCIES_MAX:  # even if some do not exist or are complete
        return limits.DEPENDENCIES
    new = unfinished(t, wanted)
    if len(new) + kept > q.DEPENDENCIES_MAX:
        return limits.DEPENDENCIES
    for one in new:
        dependents = t.jobs[one].dependents
        if len(dependents) >= q.DEPENDENCIES_MAX and jid not in dependents:
            return limits.DEPENDENCIES
    job = t.jobs.get(jid)
    if job is None or not job.dependents or not new:
        return None
    circle = _leads_to(t, [jid], frozenset(new), forward=True)
    if circle is None:
        circle = _leads_to(t, new, frozenset((jid,)), forward=False)
    if circle is None:
        return SEARCHED
    return (q.DEPENDS_ON_ITSELF, (jid,)) if circle else None


def link(t: Tables, job: QlessJob, jids: Iterable[bytes]) -> None:
    """Make a job wait for unfinished others; the caller has called `keep`."""
    for jid in jids:
        other = t.jobs[jid]
        t.keep(other)
        add(job.dependencies, job, jid)
        add(other.dependents, other, job.jid)


def add(links: dict[bytes, None], job: QlessJob, jid: bytes) -> None:
    """Add a jid to the dependencies or to the dependents of a job."""
    if jid not in links:
        links[jid] = None
        job.texts += len(jid)


def unlink(t: Tables, job: QlessJob, jids: Iterable[bytes]) -> None:
    """Remove dependencies of a job; the caller has called `keep`."""
    for jid in jids:
        if jid in job.dependencies:
            del job.dependencies[jid]
            job.texts -= len(jid)
            other = t.jobs[jid]
            t.keep(other)
            del other.dependents[job.jid]
            other.texts -= len(job.jid)


def free_dependents(t: Tables, flavour: int, job: QlessJob, now: float) -> None:
    """Remove a job from the dependencies of all others; the caller has called `keep`."""
    dependents = list(job.dependents)
    job.dependents.clear()
    for jid in dependents:
        other = t.jobs[jid]
        t.keep(other)
        job.texts -= len(jid)
        del other.dependencies[job.jid]
        other.texts -= len(job.jid)
        if not other.dependencies:
            _begin(t, flavour, other, now, other.due)


def depends_on(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """DEPENDS_ON: add dependencies to a job that has some."""
    jid, jids = args
    job = t.jobs.get(jid)
    if job is None or job.state != q.DEPENDS:
        return q.NOT_DEPENDING, (jid, 0 if job is None else job.state)
    wanted = tuple([one for one in jids if one not in job.dependencies])
    refused = refusal(t, jid, wanted, len(job.dependencies))
    if refused is not None:
        return refused
    t.keep(job)
    link(t, job, unfinished(t, wanted))
    return q.OK, True


def depends_off(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """DEPENDS_OFF: remove some dependencies of a job, or all of them.

    A job without any left waits at once, even if it was to be scheduled.
    """
    jid, jids = args
    job = t.jobs.get(jid)
    if job is None or job.state != q.DEPENDS:
        return q.NOT_DEPENDING, (jid, 0 if job is None else job.state)
    t.keep(job)
    unlink(t, job, list(job.dependencies) if jids is None else jids)
    if not job.dependencies:
        _begin(t, flavour, job, now, None)
    return q.OK, True


def _begin(t: Tables, flavour: int, job: QlessJob, now: float, due: float | None) -> None:
    job.due = None
    if due is not None:
        t.place(job, SCHEDULED_AT, due)
        job.state = q.SCHEDULED
        return
    # The SEED flavour puts the job in front of all others of its priority.
    score = job.priority if flavour == q.SEED else work_score(now, job.priority)
    t.place(job, WORK, score)
    job.state = q.WAITING


def _leads_to(
    t: Tables, begin: list[bytes], ends: frozenset[bytes], *, forward: bool
) -> bool | None:
    """Whether a path leads from some jobs to others; None if the search takes too long.

    Forward is from a job to its dependents.
    """
    seen = dict.fromkeys(begin)
    rest = list(begin)
    steps = 0
    while rest:
        job = t.jobs[rest.pop()]
        for jid in job.dependents if forward else job.dependencies:
            if jid in ends:
                return True
            steps += 1
            if steps > SEARCHED_MAX:
                return None
            if jid not in seen:
                seen[jid] = None
                rest.append(jid)
    return False

"""A sequential model of the queue: what each command answers when nothing overlaps.

Written from the guarantees, not from the machine: flat tuples, searched from end to end. A state is
immutable, so that `linear_check` can return to it. The model has no time: the search decides when a
delayed job becomes ready and when a session ends.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from beanpole.core.operations import administering

READY: Final = b"ready"
RESERVED: Final = b"reserved"
DELAYED: Final = b"delayed"
BURIED: Final = b"buried"
# The states after a move, beside ready and buried.
SAME: Final = b"same"
READY_IF_BURIED: Final = b"ready if buried"
NOBODY: Final = -1
FOREVER_S: Final = float("inf")


class Job(NamedTuple):
    """One job."""

    id: int
    tube: bytes
    priority: int
    body: bytes
    state: bytes
    holder: int = NOBODY  # the session that reserved it
    due_s: float = 0.0  # a delayed job is not ready before this


class State(NamedTuple):
    """The whole queue."""

    next_id: int = 1
    jobs: tuple[Job, ...] = ()  # by id
    buried: tuple[int, ...] = ()  # in the order in which they were buried
    paused: tuple[bytes, ...] = ()


class Answer(NamedTuple):
    """The answer to a command: its word, a number (an id or a count), and what follows."""

    word: bytes
    number: int = 0
    body: bytes = b""
    facts: tuple[bytes | int, ...] = ()


class Call(NamedTuple):
    """One command of one session. Times are true seconds."""

    session: int
    kind: str
    args: tuple[int, ...]
    at_s: float
    done_s: float = FOREVER_S  # stays so if there was no answer
    answer: Answer | None = None
    tubes: tuple[bytes, ...] = (b"default",)  # the used tube, or those that a reserve watches
    body: bytes = b""
    ready_s: float = 0.0  # the earliest end of a delay that it asks for

    def __str__(self) -> str:
        words = b" ".join([self.kind.encode(), *map(b"%d".__mod__, self.args), self.body])
        told = "no answer" if self.answer is None else f"{self.answer}"
        names = ", ".join(tube.decode() for tube in self.tubes)
        return (
            f"session {self.session} [{self.at_s:.4f}, {self.done_s:.4f}] "
            f"{words.decode()} ({names}) -> {told}"
        )


Outcome = tuple[State, Answer]
NOT_FOUND: Final = Answer(b"NOT_FOUND")


def outcomes(state: State, call: Call) -> Iterator[Outcome]:
    """Yield what a correct queue can do with a command now: mostly one outcome."""
    return _KINDS[call.kind](state, call)


def wakes(state: State, until_s: float) -> Iterator[State]:
    """Yield the states after the end of one job's delay, if that can be as early."""
    for job in state.jobs:
        if job.state == DELAYED and job.due_s <= until_s:
            yield _change(state, job, state=READY)


def end_session(state: State, session: int) -> State:
    """Return the state after a session ended: the jobs it held are ready again."""
    for job in state.jobs:
        if job.holder == session:
            state = _change(state, job, state=READY, holder=NOBODY)
    return state


def holds(state: State, session: int) -> bool:
    """Whether a session has a job reserved."""
    return any(job.holder == session for job in state.jobs)


# --- look-ups -------------------------------------------------------------------------------------


def _find(state: State, job_id: int) -> Job | None:
    return next((job for job in state.jobs if job.id == job_id), None)


def _change(state: State, job: Job, /, **items: object) -> State:
    """Return the state with one job changed, which also loses its place among buried jobs."""
    changed = job._replace(**items)  # type: ignore[arg-type]
    jobs = tuple(changed if other is job else other for other in state.jobs)
    buried = tuple(job_id for job_id in state.buried if job_id != job.id)
    if changed.state == BURIED:
        buried += (job.id,)
    return state._replace(jobs=jobs, buried=buried)


def _of(state: State, wanted: bytes, tubes: tuple[bytes, ...]) -> list[Job]:
    """Return the jobs of some tubes in a state: ready ones by order, buried ones oldest first."""
    jobs = [job for job in state.jobs if job.state == wanted and job.tube in tubes]
    if wanted == READY:
        jobs.sort(key=lambda job: (job.priority, job.id))
    elif wanted == BURIED:
        jobs.sort(key=lambda job: state.buried.index(job.id))
    return jobs


# --- commands -------------------------------------------------------------------------------------


def _put(state: State, call: Call) -> Iterator[Outcome]:
    priority, delay_s = call.args
    job = Job(state.next_id, call.tubes[0], priority, call.body, READY)
    if delay_s:
        job = job._replace(state=DELAYED, due_s=call.ready_s)
    yield (
        state._replace(next_id=state.next_id + 1, jobs=(*state.jobs, job)),
        Answer(b"INSERTED", job.id),
    )


def _reserve(state: State, call: Call) -> Iterator[Outcome]:
    """Take effect where the job is given, or where there is certainly none."""
    open_tubes = tuple(tube for tube in call.tubes if tube not in state.paused)
    ready = _of(state, READY, open_tubes)
    if ready:
        best = ready[0]
        after = _change(state, best, state=RESERVED, holder=call.session)
        yield after, Answer(b"RESERVED", best.id, best.body)
    else:
        yield state, Answer(b"TIMED_OUT")


def _reserve_job(state: State, call: Call) -> Iterator[Outcome]:
    job = _find(state, call.args[0])
    if job is None or job.state == RESERVED:
        yield state, NOT_FOUND
    else:
        after = _change(state, job, state=RESERVED, holder=call.session)
        yield after, Answer(b"RESERVED", job.id, job.body)


def _delete(state: State, call: Call) -> Iterator[Outcome]:
    job = _find(state, call.args[0])
    if job is None or job.holder not in (NOBODY, call.session):
        yield state, NOT_FOUND
    else:
        after = _change(state, job, state=READY)
        jobs = tuple(other for other in after.jobs if other.id != job.id)
        yield after._replace(jobs=jobs), Answer(b"DELETED")


def _held(word: bytes) -> Callable[[State, Call], Iterator[Outcome]]:
    """Return a command that only the holder of a job may execute."""

    def command(state: State, call: Call) -> Iterator[Outcome]:
        job = _find(state, call.args[0])
        if job is None or job.holder != call.session:
            yield state, NOT_FOUND
        elif word == b"TOUCHED":
            yield state, Answer(word)
        elif word == b"BURIED":
            after = _change(state, job, state=BURIED, holder=NOBODY, priority=call.args[1])
            yield after, Answer(word)
        else:
            new = DELAYED if call.args[2] else READY
            after = _change(
                state,
                job,
                state=new,
                holder=NOBODY,
                priority=call.args[1],
                due_s=call.ready_s if call.args[2] else 0.0,
            )
            yield after, Answer(word)

    return command


def _kick(state: State, call: Call) -> Iterator[Outcome]:
    bound = call.args[0]
    buried = _of(state, BURIED, call.tubes)
    # The model does not know which delays end first, so any delayed jobs may be kicked.
    picks = [tuple(buried[:bound])] if buried else None
    if picks is None:
        delayed = _of(state, DELAYED, call.tubes)
        picks = list(itertools.combinations(delayed, min(bound, len(delayed))))
    for picked in picks:
        after = state
        for job in picked:
            after = _change(after, job, state=READY)
        yield after, Answer(b"KICKED", len(picked))


def _kick_job(state: State, call: Call) -> Iterator[Outcome]:
    job = _find(state, call.args[0])
    if job is None or job.state not in (DELAYED, BURIED):
        yield state, NOT_FOUND
    else:
        yield _change(state, job, state=READY), Answer(b"KICKED")


def _peek(state: State, call: Call) -> Iterator[Outcome]:
    job = _find(state, call.args[0])
    yield state, NOT_FOUND if job is None else Answer(b"FOUND", job.id, job.body)


def _peek_at(wanted: bytes) -> Callable[[State, Call], Iterator[Outcome]]:
    """Return a command that peeks at the next job of a state."""

    def command(state: State, call: Call) -> Iterator[Outcome]:
        jobs = _of(state, wanted, call.tubes)
        if not jobs:
            yield state, NOT_FOUND
        for job in jobs if wanted == DELAYED else jobs[:1]:
            yield state, Answer(b"FOUND", job.id, job.body)

    return command


def _stats_job(state: State, call: Call) -> Iterator[Outcome]:
    job = _find(state, call.args[0])
    if job is None:
        yield state, NOT_FOUND
    else:
        yield state, Answer(b"OK", facts=(job.id, job.tube, job.state, job.priority))


def _stats_tube(state: State, call: Call) -> Iterator[Outcome]:
    counts = [len(_of(state, wanted, call.tubes)) for wanted in (READY, RESERVED, DELAYED, BURIED)]
    yield state, Answer(b"OK", facts=tuple(counts))
    if not any(counts) and call.tubes != (b"default",):
        yield state, NOT_FOUND  # a tube exists only while a session or a job refers to it


def _pause(state: State, call: Call) -> Iterator[Outcome]:
    """Pause for ever or end the pause; only the default tube is paused."""
    paused = call.tubes if call.args[0] else ()
    yield state._replace(paused=paused), Answer(b"PAUSED")


def _changed(state: State, call: Call) -> Iterator[Outcome]:
    """Apply an administrator's change, to a job that no worker holds unless it is a deletion.

    A buried job that only gets another priority keeps its place.
    """
    job_id, action, value = call.args
    job = _find(state, job_id)
    done = Answer(b"OK")
    if job is None:
        yield state, NOT_FOUND
    elif job.state not in _LEADS_FROM[action]:
        yield state, Answer(b"BUSY")
    elif action == administering.DELETE:
        jobs = tuple(other for other in state.jobs if other is not job)
        buried = tuple(one for one in state.buried if one != job_id)
        yield state._replace(jobs=jobs, buried=buried), done
    elif action == administering.KICK:
        yield _change(state, job, state=READY), done
    elif action == administering.BURY:
        yield _change(state, job, state=BURIED), done
    elif action == administering.SET_RANK:
        after = job._replace(priority=value)
        jobs = tuple(after if other is job else other for other in state.jobs)
        yield state._replace(jobs=jobs), done
    elif action == administering.SET_DELAY:
        new = DELAYED if value else READY
        yield _change(state, job, state=new, due_s=call.ready_s), done
    elif job.tube == call.tubes[0]:
        yield state, Answer(b"EXISTS")
    else:
        new = call.body if call.body in (READY, BURIED) else job.state
        if call.body == READY_IF_BURIED and job.state == BURIED:
            new = READY
        yield _change(state, job, state=new, tube=call.tubes[0]), done


_AT_REST: Final = (READY, DELAYED, BURIED)
_LEADS_FROM: Final = {
    administering.DELETE: (*_AT_REST, RESERVED),
    administering.KICK: (DELAYED, BURIED),
    administering.BURY: (READY, DELAYED),
    administering.SET_RANK: _AT_REST,
    administering.SET_DELAY: (READY, DELAYED),
    administering.MOVE: _AT_REST,
}

_KINDS: Final[dict[str, Callable[[State, Call], Iterator[Outcome]]]] = {
    "put": _put,
    "reserve": _reserve,
    "reserve-job": _reserve_job,
    "delete": _delete,
    "release": _held(b"RELEASED"),
    "bury": _held(b"BURIED"),
    "touch": _held(b"TOUCHED"),
    "kick": _kick,
    "kick-job": _kick_job,
    "peek": _peek,
    "peek-ready": _peek_at(READY),
    "peek-delayed": _peek_at(DELAYED),
    "peek-buried": _peek_at(BURIED),
    "stats-job": _stats_job,
    "stats-tube": _stats_tube,
    "pause-tube": _pause,
    "change": _changed,
}
# Commands without an effect: if unanswered, they say nothing.
READS: Final = frozenset(
    {"touch", "peek", "peek-ready", "peek-delayed", "peek-buried", "stats-job", "stats-tube"}
)

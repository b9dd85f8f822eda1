"""Judge answers to clients with tokens that make jobs: each is that of its command in the log.

A node refuses by itself what the machine would deny. The right must be missing during the request.

`verdicts_users` judges the log itself, quotas included, and has gone through it before.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from beanpole import commands as c
from beanpole.core.jobs.spaces import SPACES
from beanpole.events import GEARMAN, QLESS, WORKQ
from tests.sim.cluster import Violation
from tests.sim.gearman import SHARED, Submission
from tests.sim.history import Connected
from tests.sim.qless import Request as QlessRequest
from tests.sim.quotas import BODIES
from tests.sim.rights import NO_NAME, PUT, rights
from tests.sim.senders import NAMES, Senders
from tests.sim.tenants import QUEUES as TENANTS_QUEUES
from tests.sim.verdicts_user_answers import Span, within
from tests.sim.verdicts_users import UserJudge
from tests.sim.workq import Request

MADE, NO_ROOM = b"made", b"no room"
# The request of a Workq client does not say which it was.
QUEUES: Final = tuple(SPACES[WORKQ].prefix + name for name in NAMES)
MAKES: Final = frozenset({"add", "schedule", "run"})
# The answers to each result that is a refusal, by the command.
REFUSALS: Final = {
    c.PUT: {c.FULL: NO_ROOM, c.OUT_OF_MEMORY: NO_ROOM, c.DENIED: b"DENIED"},
    c.SUBMIT: {
        c.FULL: NO_ROOM,
        c.OUT_OF_MEMORY: b"A limit of the cluster is reached",
        c.DENIED: b"The user may not do this",
    },
    c.ADD: {
        c.FULL: NO_ROOM,
        c.OUT_OF_MEMORY: NO_ROOM,
        c.DENIED: b"-CLIENT-ERROR Denied",
        c.EXISTS: b"-CLIENT-ERROR Duplicate job",
    },
}
# Replies of each protocol to a put into a full queue.
FULL: Final = (b"OUT_OF_MEMORY", b"-SERVER-ERROR Out of memory", b"Job queue is full")
# A `run` waits for the end of the job that it made.
RUN_ENDS: Final = (b"-TIMEOUT", b"-NOT-FOUND", b"-CLIENT-ERROR Denied")


class Told(NamedTuple):
    """The answer to a request for a job; `job` is 0 if the client is not told which it is."""

    visit: Connected
    code: int
    body: bytes
    at_s: float
    done_s: float
    said: bytes
    job: int
    queues: tuple[bytes, ...] = ()  # one of them; empty if it is not known
    is_run: bool = False


def told(senders: Senders) -> Iterator[Told]:
    """Yield all answers of a life."""
    for submission in senders.records.submissions:
        yield from _to_submission(submission)
    for request in senders.ledger.requests:
        if request.kind in MAKES and request.done_s is not None:
            yield _to_add(request, request.done_s)
    for put in senders.puts:
        if put.word:
            said = MADE if put.job else _common(put.word)
            yield Told(put.visit, c.PUT, put.body, put.at_s, put.done_s, said, put.job)


def _to_submission(one: Submission) -> Iterator[Told]:
    asked = one.visit, c.SUBMIT, one.data, one.at_s
    queues = (SPACES[GEARMAN].prefix + one.function,)
    if one.created_s is not None:
        yield Told(*asked, one.created_s, MADE, one.number, queues)
    elif one.refused_s is not None:
        yield Told(*asked, one.refused_s, _common(one.refusal[1]), 0, queues)


def _to_add(request: Request, done_s: float) -> Told:
    said = MADE if request.ok else _common(request.line)
    is_run = request.kind == "run"
    asked = request.visit, c.ADD, request.body, request.at_s, done_s
    return Told(*asked, said, 0, QUEUES, is_run)


def _common(words: bytes) -> bytes:
    return NO_ROOM if words in FULL else words


class PutJudge:
    """The checks of one life.

    Attributes:
        made: the number of answers that a job was made, or that it was there.
        full: the number of refusals for lack of room.
        refused: the number of those that a node refused for a missing right.
    """

    def __init__(self, log: UserJudge, senders: Senders) -> None:
        self.made = self.full = self.refused = 0
        self._log = log
        self._senders = senders

    def all(self) -> None:
        """Check everything; raises Violation."""
        for one in told(self._senders):
            self._is_true(one)

    def _is_true(self, one: Told) -> None:
        visit = one.visit
        deeds = self._log.deeds[visit.place, visit.incarnation, visit.number]
        results = [
            deed.result
            for deed in deeds
            if one.at_s <= deed.at_s <= one.done_s
            and deed.command[0] == one.code
            and deed.command[BODIES[one.code]] == one.body
        ]
        is_so = any(_is_answer(one, result) for result in results)
        # A node without a majority, or which is stopping or full, answers without a command. If the
        # data are shared, the commands may be those of other submissions.
        is_done = bool(results) and not one.body.endswith(SHARED)
        if one.code == c.PUT and one.said == b"DENIED":
            return  # perhaps the answer to the `use` before it
        if not is_so and (is_done or one.said == MADE):
            asked = f"client {visit.client} at {visit.node} {one[1:]}"
            raise Violation(f"it is told otherwise than the log has it, {results}: {asked}")
        if not results and one.queues and one.said == REFUSALS[one.code][c.DENIED]:
            _lacked_right(self._log, one)
            self.refused += 1
        self.made += one.said == MADE
        self.full += is_so and one.said == NO_ROOM


def judge_qless(log: UserJudge, refused: list[QlessRequest]) -> None:
    """Check the puts of qless that nodes refused by themselves; raises Violation."""
    for one in refused:
        assert one.done_s is not None
        # A job that exists is in another queue, perhaps.
        queues = tuple(SPACES[QLESS].prefix + name for name in (one.args[0], *TENANTS_QUEUES))
        _lacked_right(log, Told(one.visit, c.QLESS, b"", one.at_s, one.done_s, b"", 0, queues))


def _lacked_right(log: UserJudge, one: Told) -> None:
    """Check that a client that its node refused had not the right at some time of its request."""
    visit = one.visit
    states = log.states[visit.place, visit.incarnation, visit.number]
    time = Span(one.at_s, one.done_s)
    whos = within([(state.at_s, state.who) for state in states], time) or [NO_NAME]
    queues = {*one.queues, *(queue for name in one.queues for queue in log.targets[name])}
    for table in within(log.tables, time):
        if any(not rights(table, who, queue) & PUT for who in whos for queue in queues):
            return
    raise Violation(f"it had the right, and its node refused it: {one}")


def _is_answer(one: Told, result: Any) -> bool:
    """Whether an answer reports this result."""
    if type(result) is int and result <= 0:
        return REFUSALS[one.code].get(result) == one.said
    job = result if type(result) is int else result[0]
    return (one.said == MADE and one.job in (0, job)) or (one.is_run and one.said in RUN_ENDS)

"""Judge what administrators do to jobs by calls, while workers hold them and leaders die.

Each command is compared with the job as its events left it (`recount`), and each call with the
commands that it became. The policies of queues are judged in `verdicts_policies`.
"""

from collections import defaultdict
from typing import Final, NamedTuple

from beanpole import commands as c
from beanpole import events as e
from beanpole.constants import SECOND_US
from beanpole.core.jobs.job import BURIED, DELAYED, GONE, READY, RESERVED
from beanpole.core.operations import administering as a
from beanpole.pb import jobs_pb2
from beanpoled.rpc.jobs import CHANGE_US
from tests.sim.admin_log import Deed, Session
from tests.sim.cluster import Violation
from tests.sim.overseers import Order
from tests.sim.recount import Happened, Known, Recount
from tests.sim.retriers import MARK

AT_REST: Final = frozenset({READY, DELAYED, BURIED})
# By action: the states from which it is allowed, and the kinds of its events.
LEADS_FROM: Final = {
    a.DELETE: AT_REST | {RESERVED},
    a.KICK: frozenset({DELAYED, BURIED}),
    a.BURY: frozenset({READY, DELAYED}),
    a.SET_RANK: AT_REST,
    a.SET_DELAY: frozenset({READY, DELAYED}),
    a.MOVE: AT_REST,
}
KINDS: Final = {
    a.DELETE: (e.DELETED,),
    a.KICK: (e.KICKED,),
    a.BURY: (e.BURIED,),
    a.SET_RANK: (e.MOVED,),
    a.SET_DELAY: (e.MOVED,),
    a.MOVE: (e.MOVED, e.MOVED),
}
ACTIONS: Final = {
    jobs_pb2.JOB_ACTION_DELETE: a.DELETE,
    jobs_pb2.JOB_ACTION_KICK: a.KICK,
    jobs_pb2.JOB_ACTION_BURY: a.BURY,
    jobs_pb2.JOB_ACTION_SET_PRIORITY: a.SET_RANK,
    jobs_pb2.JOB_ACTION_SET_DELAY: a.SET_DELAY,
    jobs_pb2.JOB_ACTION_MOVE: a.MOVE,
}
NO_SESSION: Final = (e.NO_ORIGIN, 0, 0)


class Change(NamedTuple):
    """A CHANGE_JOB, and the job just before it."""

    deed: Deed
    job: int
    state: int
    queue: bytes

    @property
    def done(self) -> bool:
        """Whether the change was made."""
        return bool(self.deed.result == c.OK)


class ChangeJudge:
    """The checks of one life, fed by a recount."""

    def __init__(self, recount: Recount, orders: list[Order]) -> None:
        self.recount = recount
        self.orders = [order for order in orders if order.kind == "change"]
        self.changes: dict[Session, list[Change]] = defaultdict(list)
        self._deed: Deed | None = None
        self._kinds: list[int] = []  # of the events that the current command still has to emit

    # --- the log ----------------------------------------------------------------------------------

    def did(self, deed: Deed) -> None:
        """Check the result of an administrator's command."""
        self._must_be_done()
        if deed.command[0] != c.CHANGE_JOB:
            return
        _, _, job, action, states, queue, to, _ = deed.command
        known = self.recount.jobs.get(job) or Known(job)
        wanted = c.OK
        if known.state == GONE or (queue and known.queue != queue):
            wanted = c.NOT_FOUND
        elif known.state not in LEADS_FROM[action] or not states >> known.state & 1:
            wanted = c.BUSY
        elif action == a.MOVE and known.queue == to:
            wanted = c.EXISTS
        if deed.result != wanted:
            words = f"the job is {known.state} in {known.queue!r}"
            raise Violation(f"it is to say {wanted}, and {words}: {deed}")
        self._deed = deed
        self._kinds = list(KINDS[action]) if wanted == c.OK else []
        if deed.end - deed.first != len(self._kinds):
            raise Violation(f"it has {deed.end - deed.first} events: {deed}")
        change = Change(deed, job, known.state, known.queue)
        self.changes[deed.session].append(change)

    def happened(self, event: Happened) -> None:
        """Check that an event belongs to the last command, or was caused by no administrator."""
        deed = self._deed
        if deed is None or not deed.first <= event.row.offset < deed.end:
            if event.reason == e.ADMIN:
                raise Violation(f"no administrator did it: {event}")
            return
        kind = self._kinds.pop(0)
        if (event.job, event.kind, event.session) != (deed.command[2], kind, deed.session):
            raise Violation(f"{event} of {deed}")
        if event.before == RESERVED and event.kind != e.DELETED:
            raise Violation(f"a worker had it: {event}")
        if self._kinds:
            return
        _, _, _, action, _, _, to, value = deed.command
        known = self.recount.jobs[event.job]
        wanted = known.state, known.queue
        if action == a.DELETE:
            wanted = GONE, known.queue
        elif action == a.MOVE:
            wanted = _moved_state(self.changes[deed.session][-1].state, value), to
        elif action in (a.KICK, a.BURY):
            wanted = (READY if action == a.KICK else BURIED), known.queue
        elif action == a.SET_DELAY:
            wanted = (DELAYED if value else READY), known.queue
        elif event.rank != value:
            raise Violation(f"it has another rank: {event} of {deed}")
        if (event.state, event.row.tube) != wanted:
            raise Violation(f"it is to be {wanted}: {event} of {deed}")

    def _must_be_done(self) -> None:
        if self._kinds:
            raise Violation(f"{len(self._kinds)} events are missing of {self._deed}")

    # --- the calls --------------------------------------------------------------------------------

    def ended(self) -> None:
        """Check the calls at the end of the life; raises Violation."""
        self._must_be_done()
        for order in self.orders:
            changes = [one for session in order.caller.sessions for one in self.changes[session]]
            self._each_job_once(order, changes)
            self._only_what_was_meant(order, changes)
            if order.reply is not None:
                self._counts_are_true(order, changes)
                self._none_was_missed(order, changes)

    def _each_job_once(self, order: Order, changes: list[Change]) -> None:
        done = [one.job for one in changes if one.done]
        if len(set(done)) != len(done):
            raise Violation(f"a job was changed twice, of {done}: {order}")
        if done and order.request.dry_run:
            raise Violation(f"a dry run changed {done}: {order}")

    def _only_what_was_meant(self, order: Order, changes: list[Change]) -> None:
        request = order.request
        queue = request.filter.queue.encode()
        for one in changes:
            if one.deed.command[3] != ACTIONS[request.action]:
                raise Violation(f"{one} of {order}")
            if request.job_ids and one.job not in request.job_ids:
                raise Violation(f"it was not named: {one} of {order}")
            if not one.done:
                continue
            if queue and one.queue != queue:
                raise Violation(f"it was in another queue: {one} of {order}")
            if one.state == RESERVED and not request.reserved:
                raise Violation(f"a worker had it, and was not to lose it: {one} of {order}")
            if not request.job_ids and not self._body(one.job).startswith(MARK):
                raise Violation(f"it has another body: {one} of {order}")

    def _body(self, job: int) -> bytes:
        return self.recount.witness.bodies[job]

    def _counts_are_true(self, order: Order, changes: list[Change]) -> None:
        """Check that the reported numbers are those of the changes made during the call."""
        request, reply = order.request, order.reply
        if request.dry_run:
            return
        done = [one for one in changes if one.done]
        if (reply.matched, reply.changed) != (len(changes), len(done)):
            raise Violation(f"{len(changes)} commands, {len(done)} were done: {order}")
        if request.count_max and reply.changed > request.count_max:
            raise Violation(f"more than were asked for: {order}")
        late = [one for one in changes if not order.at_s <= one.deed.at_s <= order.done_s]
        if late:
            raise Violation(f"answered before it was done: {late[0]} of {order}")
        if not request.job_ids:
            return
        told = [(one.id, one.outcome == jobs_pb2.JOB_OUTCOME_DONE) for one in reply.results]
        if told != [(one.job, one.done) for one in changes]:
            raise Violation(f"other jobs were changed, {changes}: {order}")

    def _none_was_missed(self, order: Order, changes: list[Change]) -> None:
        """Check that a call for all jobs changed each job that matched during the whole call."""
        request = order.request
        if request.job_ids or request.count_max or request.dry_run or order.reply.stopped_by:
            return
        if not order.reply.complete:
            if order.done_s - order.at_s < CHANGE_US / SECOND_US:
                raise Violation(f"it has ended before its end: {order}")
            return  # a node ends a long call between two parts
        queue, to = request.filter.queue.encode(), request.to_queue.encode()
        states = LEADS_FROM[ACTIONS[request.action]]
        if not request.reserved:
            states -= {RESERVED}
        changed = {one.job for one in changes}
        for known in self.recount.jobs.values():
            if known.job in changed or not self._body(known.job).startswith(MARK):
                continue
            for stay in known.stays:
                lasts = stay.from_s < order.at_s and order.done_s < stay.to_s
                fits = stay.state in states and stay.queue != to and queue in (b"", stay.queue)
                if lasts and fits:
                    raise Violation(f"job {known.job} was missed, {stay}: {order}")


def _moved_state(state: int, value: int) -> int:
    if value in (READY, BURIED):
        return value
    return READY if value == a.READY_IF_BURIED and state == BURIED else state

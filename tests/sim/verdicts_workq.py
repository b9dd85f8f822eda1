"""Judge what Workq's clients saw against what was committed.

Every check is named after a guarantee. The witness checks the guarantees for the jobs of all
protocols (no early time-outs, equal nodes).
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from beanpole.core.jobs import effects
from beanpole.core.jobs import transitions as q
from tests.sim.cluster import Violation
from tests.sim.rulers import WORKQ_QUEUE
from tests.sim.senders import QUEUES
from tests.sim.stories import FOREVER_S, WORKQ_PREFIX, Story, Told
from tests.sim.witness import HEARD_S, RATE_MAX, STAMP_S, Event, Witness
from tests.sim.workq import Request

MAKES: Final = frozenset({"add", "schedule", "run"})
ENDS: Final = frozenset({"complete", "fail"})
DUPLICATE: Final = b"-CLIENT-ERROR Duplicate job"
SECOND: Final = b"-CLIENT-ERROR Duplicate result"
NOT_FOUND: Final = b"-NOT-FOUND"
TIMEOUT: Final = b"-TIMEOUT"
# The beginning of every refusal that is not the client's fault.
SERVER: Final = b"-SERVER-ERROR"


class WorkqJudge:
    """The checks of one run."""

    def __init__(
        self,
        requests: list[Request],
        witness: Witness,
        estimated: bool,
        leaves: dict[tuple[int, int], float],
    ) -> None:
        self.requests = requests
        self.witness = witness
        self.estimated = estimated  # cluster time advanced by an estimate of a downtime
        # By place and incarnation: the time from which a stopping node hands out no job.
        self.leaves = leaves
        # Without the jobs of a queue with policies: see `verdicts_ruled`; and of clients with
        # tokens: see `verdicts_user_puts`.
        stories = witness.stories.of(WORKQ_PREFIX)
        apart = (WORKQ_QUEUE, *QUEUES)
        self.stories = [story for story in stories if story.queue not in apart]
        self.of_key: dict[bytes, list[Story]] = defaultdict(list)
        for story in self.stories:
            self.of_key[story.external_id].append(story)
        self.of_body = {request.body: request for request in requests if request.kind in MAKES}
        self.ends = {request.body: request for request in requests if request.kind in ENDS}

    def all(self) -> None:
        """Check everything; raises Violation."""
        self.an_id_is_one_job_at_a_time()
        self.what_is_added_is_made_once()
        self.nothing_goes_by_itself()
        self.duplicates_are_refused()
        self.the_first_result_stays()
        self.no_wait_ended_beside_a_result()
        self.what_was_not_found_was_not_there()
        self.a_lease_is_one_client_s()
        self.no_lease_ended_beside_a_ready_job()

    # --- jobs -------------------------------------------------------------------------------------

    def an_id_is_one_job_at_a_time(self) -> None:
        """The first of two jobs with one id is gone before the second is made."""
        for stories in self.of_key.values():
            for before, after in pairwise(stories):
                if before.gone_index > after.born_index:
                    raise Violation(f"two jobs of one id: {before} and {after}")

    def what_is_added_is_made_once(self) -> None:
        """An acknowledged add is one job, an unacknowledged one at most one, a refused one none."""
        made: dict[bytes, list[Story]] = defaultdict(list)
        for story in self.stories:
            made[story.body].append(story)
            request = self.of_body.get(story.body)
            if request is None or story.born_s < request.at_s:
                raise Violation(f"nobody added it: {story}")
            if story.external_id != request.key:
                raise Violation(f"it has another id: {request!r} made {story}")
        for request in self.of_body.values():
            found = made.get(request.body, [])
            if len(found) > 1:
                raise Violation(f"made twice, {request!r}: {found}")
            # The job of a `run` may be deleted meanwhile, or the majority be lost during its wait.
            runs = request.kind == "run"
            done = request.ok or (runs and request.line in (TIMEOUT, NOT_FOUND))
            if done and (not found or found[0].born_s > _done_s(request)):
                raise Violation(f"lost: {request!r}, made were {found}")
            open_end = not request.line or (runs and request.line.startswith(SERVER))
            if found and not (done or open_end):
                raise Violation(f"refused and done: {request!r} made {found}")

    def nothing_goes_by_itself(self) -> None:
        """A job exists until its TTL ends, a client deletes it, or its `run` ends."""
        known = self.witness.machine.queue.jobs
        deletes: dict[bytes, list[Request]] = defaultdict(list)
        for request in self.requests:
            if request.kind == "delete" and request.line in (b"", b"+OK"):
                deletes[request.key].append(request)
        for story in self.stories:
            if story.gone_s == FOREVER_S:
                if known.get(story.job) is None:
                    raise Violation(f"it is gone, and nothing says how: {story}")
                continue
            last, request = story.told[-1], self.of_body[story.body]
            if request.kind == "run":
                continue
            if last.kind == effects.EXPIRED:
                self._is_old_enough(story, request)
            elif last.kind != effects.DELETED or not any(
                delete.at_s <= last.at_s <= _done_s(delete) for delete in deletes[request.key]
            ):
                raise Violation(f"nobody deleted it: {story}")

    def _is_old_enough(self, story: Story, request: Request) -> None:
        """Check that a TTL did not end earlier than clock errors explain."""
        since_s, ttl_s = story.events[0].stamped_s, request.ttl_s
        if request.kind == "schedule":  # by the wall clock, in whole seconds
            since_s, ttl_s = request.at_s, ttl_s + request.delay_s - 1
        epochs = [at_s for at_s in self.witness.epochs if at_s <= story.gone_s]
        behind_s = 0.0
        if any(since_s < at_s for at_s in epochs):
            behind_s += HEARD_S
        least_s = ttl_s * (1 - RATE_MAX) - STAMP_S - behind_s
        misled = any(since_s < at_s for at_s in self.witness.misled)
        if not (misled or self.estimated) and story.gone_s - since_s < least_s:
            passed_s = story.gone_s - since_s
            raise Violation(f"its TTL ended after {passed_s:.3f} s: {request!r} {story}")

    def duplicates_are_refused(self) -> None:
        """An id in use during the whole request is refused, and only an id in use."""
        for request in self.of_body.values():
            if request.line == DUPLICATE and not self._near(request):
                raise Violation(f"no job had its id: {request!r}")
            if request.ok and request.done_s is not None:
                for story in self._all_the_time(request):
                    raise Violation(f"its id was taken by {story}: {request!r}")

    # --- results ----------------------------------------------------------------------------------

    def the_first_result_stays(self) -> None:
        """One client ends a job; every later `result` and `run` returns that result."""
        for story in self.stories:
            end = story.end
            if end is not None and end.kind == effects.DONE and end.data not in self.ends:
                raise Violation(f"nobody completed it so: {story}")
            told = [one for one in story.told if one.kind in (effects.DONE, effects.FAILED)]
            if len(told) > 1:
                raise Violation(f"ended twice: {story}")
        for request in self.requests:
            if request.kind in ENDS and request.done_s is not None:
                self._check_end(request)
            elif request.kind in ("result", "run") and request.ok:
                self._check_told(request)

    def _check_end(self, request: Request) -> None:
        ended = [
            told
            for story in self.of_key[request.key]
            for told in story.told
            if told.kind in (effects.DONE, effects.FAILED) and told.data == request.body
        ]
        if request.ok and not any(request.at_s <= told.at_s <= _done_s(request) for told in ended):
            raise Violation(f"answered, but not done: {request!r}")
        if not request.ok and ended:
            raise Violation(f"refused and done: {request!r}: {ended}")
        if request.line == SECOND and not any(
            end is not None and end.at_s <= _done_s(request) for _, end in self._ends(request)
        ):
            raise Violation(f"it had no result yet: {request!r}")

    def _check_told(self, request: Request) -> None:
        good = request.lines[0].split()[1] == b"1"
        for story, end in self._ends(request):
            if request.kind == "run" and story.body != request.body:
                continue
            kind = effects.DONE if good else effects.FAILED
            told = end is not None and (end.kind, end.data) == (kind, request.lines[1])
            if told and end is not None and end.at_s <= _done_s(request):
                return
        raise Violation(f"no job of its id ended so: {request!r}")

    def no_wait_ended_beside_a_result(self) -> None:
        """A wait without a result ended only if there was none when its time was over."""
        for request in self.requests:
            if request.kind not in ("result", "run") or request.line != TIMEOUT:
                continue
            over_s = request.at_s + request.wait_s * (1 - RATE_MAX)
            for story, end in self._ends(request):
                if request.kind == "run" and story.body != request.body:
                    continue
                if end is not None and end.at_s < over_s and story.gone_s > _done_s(request):
                    raise Violation(f"it had a result when the wait was over: {request!r} {story}")

    def what_was_not_found_was_not_there(self) -> None:
        """Linearizable: NOT-FOUND is wrong if a job of the id existed during the whole request."""
        for request in self.requests:
            if request.line == NOT_FOUND and request.key:
                for story in self._all_the_time(request):
                    raise Violation(f"it was there: {request!r} {story}")
            found = request.kind in ("delete", "inspect job") and request.ok
            if found and not self._near(request):
                raise Violation(f"it was not there: {request!r}")

    # --- leases -----------------------------------------------------------------------------------

    def a_lease_is_one_client_s(self) -> None:
        """Every job given out was reserved for this session, and no lease is used twice."""
        used: set[int] = set()
        given = [request for request in self.requests if request.kind == "lease" and request.ok]
        for request in sorted(given, key=_done_s):
            who = request.visit
            session = (who.place, who.incarnation, who.number)
            for story in self.of_key[request.key]:
                if story.body != request.body:
                    continue
                event = next((one for one in _leases(story, request, session, used)), None)
                if event is not None:
                    used.add(id(event))
                    break
            else:
                raise Violation(f"it was not leased: {request!r}")

    def no_lease_ended_beside_a_ready_job(self) -> None:
        """Linearizable: -TIMEOUT is wrong if a job was ready during the whole request.

        Except at a stopping node, where it only means that the wait is over.
        """
        leases: dict[tuple[int, int, int], list[float]] = defaultdict(list)
        for request in self.requests:
            if request.kind == "lease":
                who = request.visit
                leases[who.place, who.incarnation, who.number].append(request.at_s)
        ready: dict[bytes, list[tuple[float, float]]] = defaultdict(list)
        for story in self.stories:
            ready[story.queue[1:]] += _ready_spans(story, leases)
        for request in self.requests:
            if request.kind != "lease" or request.line != TIMEOUT:
                continue
            who = request.visit
            if _done_s(request) >= self.leaves.get((who.place, who.incarnation), FOREVER_S):
                continue
            for name in request.names:
                for from_s, to_s in ready[name]:
                    if from_s <= request.at_s and _done_s(request) < to_s:
                        raise Violation(f"a job was ready from {from_s} to {to_s}: {request!r}")

    # --- look-ups ---------------------------------------------------------------------------------

    def _near(self, request: Request) -> list[Story]:
        """Return the jobs with the id of a request that existed at some moment of it."""
        return [
            story
            for story in self.of_key[request.key]
            if story.born_s <= _done_s(request) and request.at_s <= story.gone_s
        ]

    def _all_the_time(self, request: Request) -> list[Story]:
        """Return the jobs with the id of a request that existed during all of it."""
        return [
            story
            for story in self.of_key[request.key]
            if story.born_s <= request.at_s and _done_s(request) < story.gone_s
        ]

    def _ends(self, request: Request) -> list[tuple[Story, Told | None]]:
        """Return the ends of the jobs with the id of a request, as `_near`."""
        return [(story, story.end) for story in self._near(request)]


def _done_s(request: Request) -> float:
    return FOREVER_S if request.done_s is None else request.done_s


def _leases(
    story: Story, request: Request, session: tuple[int, int, int], used: set[int]
) -> Iterator[Event]:
    """Yield the reservations of a job that a lease may have got."""
    for event in story.events:
        right = event.kind == q.RESERVE and event.session == session and id(event) not in used
        if right and request.at_s <= event.at_s <= _done_s(request):
            yield event


def _ready_spans(
    story: Story, leases: dict[tuple[int, int, int], list[float]]
) -> Iterator[tuple[float, float]]:
    """Yield the spans in which a job was ready and its later taker did not wait yet."""
    since_s: float | None = None
    for event in story.events:
        if event.kind == q.MADE_READY:
            since_s = event.at_s
        elif since_s is not None and event.kind != q.PUT:
            to_s = event.at_s
            if event.kind == q.RESERVE and event.session is not None:
                # It may count as taken since the taker asked, although that was committed later.
                takers = [at_s for at_s in leases[event.session] if at_s <= to_s]
                to_s = max(since_s, max(takers, default=to_s))
            yield since_s, to_s
            since_s = None
    if since_s is not None:
        yield since_s, story.gone_s

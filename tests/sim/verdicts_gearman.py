"""Judge what Gearman's clients saw against what was committed.

Every check is named after a guarantee. The witness checks the guarantees for the jobs of all
protocols (no early time-outs, equal nodes); liveness is in `storm`.
"""

from collections import defaultdict
from typing import Final

from beanpole.core.jobs import effects
from beanpole.core.jobs import transitions as q
from beanpole.core.jobs.job import RESERVED
from tests.sim import packets as p
from tests.sim.aliases import FUNCTION as ALIASED
from tests.sim.cluster import Violation
from tests.sim.gearman import End, Grant, Heard, Records, Submission
from tests.sim.history import Connected
from tests.sim.rulers import GEARMAN_QUEUE
from tests.sim.senders import FUNCTIONS as SENT
from tests.sim.stories import FOREVER_S, GEARMAN_PREFIX, Story, Told
from tests.sim.verdicts_admins import removed
from tests.sim.witness import RATE_MAX, STAMP_S, Event, Witness

# The first kind of NOTIFY is WORK_DATA, the second one WORK_WARNING.
NEWS: Final = effects.NOTIFIED_MIN
ENDED: Final = frozenset({effects.DONE, effects.FAILED})
APART: Final = (ALIASED, GEARMAN_QUEUE, *SENT)


def nobody_waits_for_an_abandoned_job(witness: Witness) -> None:
    """A job without a background submission is forgotten when no client waits for it.

    Unless a worker has it. At the end of a life no such job is left: this is looked at meanwhile.
    """
    machine = witness.machine
    here = {
        session.serial
        for origin in machine.origins.values()
        for session in origin.sessions.values()
    }
    for story in witness.stories.of(GEARMAN_PREFIX):
        job = None if story.queue in APART else machine.queue.jobs.get(story.job)
        if job is None or job.ext is None or job.ext.background or job.state == RESERVED:
            continue
        if not here.issuperset(job.ext.clients) or not job.ext.clients:
            raise Violation(f"those that waited for it are gone: {story}")


class GearmanJudge:
    """The checks of one run."""

    def __init__(self, records: Records, witness: Witness, lost_events: set[str]) -> None:
        self.records = records
        self.witness = witness
        # Nodes that loaded a snapshot: NOTIFYs that it skipped did not reach their clients.
        self.lost_events = lost_events
        # Without the jobs of a function shared with beanstalk: see `verdicts_aliases`; of one with
        # policies: see `verdicts_ruled`; and of clients with tokens: see `verdicts_user_puts`.
        stories = witness.stories.of(GEARMAN_PREFIX)
        self.stories = {story.job: story for story in stories if story.queue not in APART}
        self.downs: dict[tuple[int, int], float] = {}
        for place, incarnation, at_s in witness.downs:
            self.downs.setdefault((place, incarnation), at_s)
        self.grants: dict[int, list[Grant]] = defaultdict(list)
        for grant in records.grants:
            self.grants[grant.number].append(grant)
        # Jobs that an administrator may have deleted.
        self.removed = removed(records.orders, self.stories)

    def all(self) -> None:
        """Check everything; raises Violation."""
        self.handles_are_those_of_the_jobs()
        self.what_is_submitted_is_made_once()
        self.equal_jobs_have_one_handle()
        self.a_background_job_is_not_lost()
        self.a_grant_is_one_worker_s()
        self.no_two_workers_have_a_job()
        self.what_comes_back_goes_to_the_end()
        self.an_end_counts_once()
        self.what_is_said_is_told()
        self.each_client_hears_what_happened()
        self.a_status_is_true()

    # --- jobs -------------------------------------------------------------------------------------

    def handles_are_those_of_the_jobs(self) -> None:
        """A handle is the same at each node, and names one job."""
        prefixes = {handle.rpartition(b":")[0] for handle in self.records.handles}
        if len(prefixes) > 1:
            raise Violation(f"handles of several kinds: {sorted(prefixes)}")
        for submission in self.records.submissions:
            if submission.handle:
                story = self.stories.get(submission.number)
                if story is None or story.queue[1:] != submission.function:
                    raise Violation(f"another job has its handle: {submission} {story}")
        for grant in self.records.grants:
            story = self.stories.get(grant.number)
            if story is None or (story.queue[1:], story.body) != (grant.function, grant.data):
                raise Violation(f"another job has its handle: {grant} {story}")

    def what_is_submitted_is_made_once(self) -> None:
        """A submission is one job, its own or that of an equal one; nothing is invented."""
        made: dict[tuple[bytes, bytes], list[Story]] = defaultdict(list)
        sent: dict[tuple[bytes, bytes], float] = {}
        for submission in self.records.submissions:
            sent.setdefault((submission.function, submission.data), submission.at_s)
        for story in self.stories.values():
            made[story.queue[1:], story.body].append(story)
            if sent.get((story.queue[1:], story.body), FOREVER_S) > story.born_s:
                raise Violation(f"nobody submitted it: {story}")
        for submission in self.records.submissions:
            found = made[submission.function, submission.data]
            if submission.unique != b"-" and len(found) > 1:
                raise Violation(f"made twice: {submission} {found}")
            if submission.refusal and submission.unique != b"-" and found:
                raise Violation(f"refused and done: {submission} {found}")
            if submission.created_s is not None:
                self._check_created(submission)

    def _check_created(self, submission: Submission) -> None:
        story = self.stories[submission.number]
        assert submission.created_s is not None
        if story.born_s > submission.created_s or story.gone_s < submission.at_s:
            raise Violation(f"its job was not there: {submission} {story}")
        if story.body != submission.data:
            key = submission.function + b"\0" + submission.unique
            if not submission.unique or story.external_id != key:
                raise Violation(f"it has the handle of another one: {submission} {story}")

    def equal_jobs_have_one_handle(self) -> None:
        """The first of two jobs with one function and unique id ends before the second is made."""
        newest: dict[bytes, Story] = {}
        for story in self.stories.values():
            before = newest.get(story.external_id) if story.external_id else None
            if before is not None and before.gone_index > story.born_index:
                raise Violation(f"there are two: {before} and {story}")
            newest[story.external_id] = story

    def a_background_job_is_not_lost(self) -> None:
        """An acknowledged background job ends by a worker's packet, or still exists."""
        known = self.witness.machine.queue.jobs
        for submission in self.records.submissions:
            if submission.created_s is None or not submission.background:
                continue
            story = self.stories[submission.number]
            if story.gone_s == FOREVER_S:
                if known.get(story.job) is None:
                    raise Violation(f"lost: {submission} {story}")
            elif story.told[-1].kind not in ENDED and story.job not in self.removed:
                raise Violation(f"lost: {submission} {story}")

    # --- workers ----------------------------------------------------------------------------------

    def a_grant_is_one_worker_s(self) -> None:
        """Every job given out was reserved for this session, and no reservation is used twice."""
        used: set[int] = set()
        for grant in sorted(self.records.grants, key=lambda grant: grant.at_s):
            if not uses_a_reservation(grant, self.stories[grant.number].events, used):
                raise Violation(f"it was not reserved: {grant}")

    def no_two_workers_have_a_job(self) -> None:
        """No worker gets a job that another worker certainly holds, by what workers saw."""
        for grants in self.grants.values():
            grants.sort(key=lambda grant: grant.at_s)
            for place, grant in enumerate(grants):
                if self.has_until_s(grant) <= grant.at_s:
                    continue  # its end was in flight, so it may arrive after the next grant
                for earlier in grants[:place]:
                    if grant.at_s < self.has_until_s(earlier):
                        raise Violation(f"two have it: {earlier} and {grant}")

    def has_until_s(self, grant: Grant) -> float:
        """Return until when a worker certainly held a job."""
        until_s = [
            self._stays_until_s(grant.visit),
            FOREVER_S if grant.given_up_s is None else grant.given_up_s,
        ]
        until_s += [end.at_s for end in grant.ends]
        if grant.ttr_s:
            until_s.append(grant.asked_s + grant.ttr_s * (1 - RATE_MAX) - STAMP_S)
            until_s += [at_s for at_s in self.witness.misled if at_s > grant.asked_s]
        return min(until_s)

    def _stays_until_s(self, who: Connected) -> float:
        end_s = FOREVER_S if who.end_s is None else who.end_s
        return min(end_s, self.downs.get((who.place, who.incarnation), FOREVER_S))

    def what_comes_back_goes_to_the_end(self) -> None:
        """Among the jobs of one queue and rank, the one that has waited longest comes first."""
        events = sorted(
            ((event.index, event.place), story.job, event)
            for story in self.stories.values()
            for event in story.events
        )
        # By queue and rank: the ready jobs, with the events that made or returned them.
        ready: dict[tuple[bytes, int], dict[int, tuple[int, int]]] = defaultdict(dict)
        since: dict[int, tuple[int, int]] = {}
        reserved: set[int] = set()
        for index, job, event in events:
            story = self.stories[job]
            line = ready[story.queue, story.rank]
            if event.kind == q.PUT or (event.kind == q.MADE_READY and job in reserved):
                since[job] = index
            if event.kind == q.RESERVE:
                first = min(line.values(), default=index)
                if line.pop(job, index) > first:
                    raise Violation(f"another one waited since {first}: {story} at {index}")
                reserved.add(job)
            elif event.kind == q.MADE_READY:
                reserved.discard(job)
                line[job] = since[job]
            elif event.kind not in (q.PUT, q.TOUCH, q.TIMEOUT):
                reserved.discard(job)
                line.pop(job, None)

    def an_end_counts_once(self) -> None:
        """A job is ended by one worker, its holder; a second end is refused."""
        accepted: dict[int, list[Grant]] = defaultdict(list)
        for grant in self.records.grants:
            story = self.stories[grant.number]
            for end in grant.ends:
                if self.is_swallowed(grant, end):
                    continue
                ends = [told for told in story.told if _is_end(told, end)]
                if end.accepted and not any(told.at_s >= end.at_s for told in ends):
                    raise Violation(f"accepted, but not done: {grant} {story}")
                if end.data and ends and _holder(story, ends[0]) != _session(grant):
                    raise Violation(f"another one had it: {grant} {story}")
                if end.accepted is False and end.data and ends:
                    raise Violation(f"refused and done: {grant} {story}")
                if end.accepted:
                    accepted[grant.number].append(grant)
        for job, grants in accepted.items():
            if len(grants) > 1:
                raise Violation(f"job {job} was ended twice: {grants}")
        for story in self.stories.values():
            last = story.end
            if last is None or last.kind not in ENDED:
                continue
            sent = [end for grant in self.grants[story.job] for end in grant.ends]
            if not any(_is_end(last, end) and end.at_s <= last.at_s for end in sent):
                raise Violation(f"no worker ended it so: {story}")

    def is_swallowed(self, grant: Grant, end: End) -> bool:
        """Whether a worker sent an exception before it learned that it holds the job again.

        The node read the exception after the GRAB_JOB, and ignores the worker's next end.
        """
        return end.kind != p.WORK_EXCEPTION and any(
            earlier.visit is grant.visit
            and one.kind == p.WORK_EXCEPTION
            and grant.asked_s <= one.at_s <= grant.at_s
            for earlier in self.grants[grant.number]
            for one in earlier.ends
        )

    def what_is_said_is_told(self) -> None:
        """No packet of a worker about its job is lost, but a later status may replace one."""
        for grant in self.records.grants:
            told = [_packet(one, True) for one in self.stories[grant.number].told]
            # A worker that got the job again may send a later status in its next turn (life 2970).
            statuses = [
                end
                for one in self.grants[grant.number]
                if one.visit is grant.visit
                for end in one.news
                if end.kind == p.WORK_STATUS
            ]
            # A status that replaces an earlier one has that one's answer: once a status is
            # refused, or may have been, no answer tells the fate of the later ones (lives 2213 at
            # 14236a9 and 2270 at 21e0e82).
            refused = any(not end.accepted for end in statuses)
            for end in grant.news:
                if not end.accepted:
                    continue
                if end.kind == p.WORK_STATUS and (refused or end is not statuses[-1]):
                    continue
                if (end.kind, tuple(end.data.split(b"/"))) not in told:
                    raise Violation(f"{end.data!r} was not told: {grant}")

    # --- what is pushed ---------------------------------------------------------------------------

    def each_client_hears_what_happened(self) -> None:
        """A client hears everything in order, once, from the submission to the end."""
        foreground: dict[tuple[int, bytes], list[Submission]] = defaultdict(list)
        for submission in self.records.submissions:
            if submission.created_s is not None and not submission.background:
                foreground[id(submission.visit), submission.handle].append(submission)
        for submissions in foreground.values():
            first = submissions[0]
            heard = self.records.heard.get((first.visit, first.handle), [])
            self._check_heard(first, heard)

    def _check_heard(self, first: Submission, heard: list[Heard]) -> None:
        story = self.stories[first.number]
        end = story.end
        asked_for = end is None or end.kind != effects.DELETED or story.job in self.removed
        if not asked_for and end is not None and end.at_s < self._stays_until_s(first.visit):
            raise Violation(f"nobody cancelled it: {first} {story}")
        happened = [_packet(told, first.exceptions) for told in story.told]
        found = [(one.kind, one.data) for one in heard]
        assert first.created_s is not None
        # The client was attached at some moment before the JOB_CREATED.
        latest = sum(told.at_s < first.created_s for told in story.told)
        starts = [
            start for start in range(latest + 1) if happened[start : start + len(found)] == found
        ]
        rest = iter(happened)
        in_order = all(one in rest for one in found)
        if not starts and not (in_order and first.visit.node in self.lost_events):
            raise Violation(f"it heard {found} of {happened}: {first} {story}")
        if first.visit.end_s is not None or story.end is None:
            return
        if not found or found[-1][0] not in p.ENDS:
            raise Violation(f"it never heard of the end: {first} heard {found} of {story}")

    def a_status_is_true(self) -> None:
        """Linearizable: GET_STATUS knows the jobs that exist."""
        for status in self.records.statuses:
            story = self.stories.get(int(status.handle.rpartition(b":")[2]))
            if story is None:
                continue
            there = story.born_s <= status.done_s and status.at_s <= story.gone_s
            always = story.born_s <= status.at_s and status.done_s < story.gone_s
            if (status.known and not there) or (always and not status.known):
                raise Violation(f"{status} of {story}")


def uses_a_reservation(grant: Grant, events: list[Event], used: set[int]) -> bool:
    """Whether an unused event reserved a job for the worker that got it.

    The event is added to those that are used.
    """
    session = _session(grant)
    for event in events:
        right = event.kind == q.RESERVE and event.session == session
        if right and grant.asked_s <= event.at_s <= grant.at_s and id(event) not in used:
            used.add(id(event))
            return True
    return False


def _session(grant: Grant) -> tuple[int, int, int]:
    who = grant.visit
    return who.place, who.incarnation, who.number


def _holder(story: Story, end: Told) -> tuple[int, int, int] | None:
    """Return the session that held a job when it ended."""
    found = None
    for event in story.events:
        if event.index > end.entry:
            break
        if event.kind == q.RESERVE:
            found = event.session
        elif event.kind == q.MADE_READY:
            found = None
    return found


def _is_end(told: Told, end: End) -> bool:
    """Whether an effect may come from a worker's packet."""
    kind = effects.DONE if end.kind == p.WORK_COMPLETE else effects.FAILED
    return told[:2] == (kind, end.data)


def _packet(told: Told, exceptions: bool) -> tuple[int, tuple[bytes, ...]]:
    """Return the packet in which a client hears of an effect."""
    kind, data = told[:2]
    if kind == effects.PROGRESS:
        return p.WORK_STATUS, tuple(data.split(b"\0"))
    if kind == NEWS:
        return p.WORK_DATA, (data,)
    if kind == NEWS + 1:
        return p.WORK_WARNING, (data,)
    if kind == effects.DONE:
        return p.WORK_COMPLETE, (data,)
    if kind == effects.FAILED and data and exceptions:
        return p.WORK_EXCEPTION, (data,)
    return p.WORK_FAIL, ()

"""Judge the answers to an administrator of Gearman against what was committed.

The jobs of all of Gearman's clients are judged in `verdicts_gearman`; here are the effects of the
administrator's lines and queries, and the refusals by limits.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from beanpole import commands as c
from beanpole.core.jobs import effects
from beanpole.core.jobs import transitions as q
from beanpole.core.operations.table import is_command
from tests.sim import packets as p
from tests.sim.cluster import Violation
from tests.sim.functions import NO_LIMITS, Limits, Moment
from tests.sim.gearman import FUNCTIONS, Order, Records, Submission
from tests.sim.gearman_admins import IDLE, OWN
from tests.sim.stories import FOREVER_S, GEARMAN_PREFIX, Story

if TYPE_CHECKING:
    from tests.sim.verdicts_gearman import GearmanJudge

OK: Final = b"OK\r\n"
UNKNOWN_JOB: Final = b"ERR UNKNOWN_JOB\r\n"
JOB_RUNS: Final = b"ERR JOB_IS_RUNNING\r\n"
NO_FUNCTION: Final = b"ERR function not found\r\n"
BUSY: Final = b"ERR there are still connected workers or executing clients\r\n"
QUEUE_FULL: Final = b"Job queue is full"
HIGH, NORMAL, LOW = range(3)
RANK_NORMAL: Final = 2**31 - 1
# Of the jobs that an administrator submits.
RANKS: Final = {
    p.SUBMIT_JOB_HIGH_BG: HIGH,
    p.SUBMIT_JOB_BG: NORMAL,
    p.SUBMIT_JOB_LOW_BG: LOW,
}
GONE: Final = frozenset({q.FINISH, q.DELETE, q.EXPIRE})


class Step(NamedTuple):
    """The number of jobs of a function from one transition on, and of those that run."""

    at_s: float
    jobs: int
    running: int


class AdminJudge:
    """The checks of one run."""

    def __init__(self, records: Records, judge: "GearmanJudge") -> None:
        self.judge = judge
        self.stories = judge.stories
        self.functions = judge.witness.functions
        self.submissions = records.submissions
        self.orders: dict[str, list[Order]] = {
            kind: [order for order in records.orders if order.kind == kind]
            for kind in ("cancel", "create", "drop", "limit", "unique", "status")
        }
        self.steps: dict[bytes, list[Step]] = {}

    def all(self) -> None:
        """Check everything; raises Violation."""
        for name in (*OWN, *FUNCTIONS):
            self.steps[name] = self.limits_are_kept(name)
            self.what_changes_was_asked_for(name)
            self.a_dropped_function_has_no_jobs(name)
        self.cancels_are_true()
        self.functions_are_there()
        self.limits_refuse_what_they_should()
        self.uniques_are_true()
        self.rows_are_true()

    # --- jobs -------------------------------------------------------------------------------------

    def cancels_are_true(self) -> None:
        """OK means that the job never runs; a refusal, that it runs or does not exist."""
        cancelled: dict[int, Order] = {}
        for order in self.orders["cancel"]:
            number = int(order.subject.rpartition(b":")[2])
            story = self.stories.get(number)
            if order.line == OK:
                self._check_cancelled(order, story)
                if number in cancelled:
                    raise Violation(f"cancelled twice: {cancelled[number]} and {order}")
                cancelled[number] = order
            elif order.line == JOB_RUNS:
                if story is None or not _overlaps(order, _holds(story)):
                    raise Violation(f"it does not run: {order} {story}")
            elif order.line == UNKNOWN_JOB and story is not None and _is_always(story, order):
                raise Violation(f"it is known all the time: {order} {story}")

    def _check_cancelled(self, order: Order, story: Story | None) -> None:
        if story is None or story.end is None or story.end.kind != effects.DELETED:
            raise Violation(f"cancelled, and it goes on: {order} {story}")
        if not order.at_s <= story.gone_s <= order.until_s:
            raise Violation(f"it was not gone by that: {order} {story}")
        if _ended_in_hands(story):
            raise Violation(f"cancelled while it ran: {order} {story}")
        for grant in self.judge.grants[story.job]:
            held = grant.at_s < order.at_s and self.judge.has_until_s(grant) > order.until_s
            if held or grant.asked_s > order.until_s:
                raise Violation(f"cancelled, and given out: {order} {grant}")

    # --- functions --------------------------------------------------------------------------------

    def what_changes_was_asked_for(self, name: bytes) -> None:
        """A function disappears only by a drop, and its limits are those that were set."""
        line = self.functions.of(name)
        drops = [order for order in self._of("drop", name) if order.may_be_done]
        limits = [order for order in self._of("limit", name) if order.may_be_done]
        makers: list[Order | Submission] = [*self._of("create", name)]
        makers += [one for one in self.submissions if one.function == name]
        for before, now in pairwise(line):
            is_other = now.serial != before.serial
            if before.serial and is_other and not any(_covers(one, now.at_s) for one in drops):
                raise Violation(f"nobody dropped {name!r}, which went at {now.at_s:.4f}")
            made = any(one.at_s <= now.at_s for one in makers)
            if now.serial and is_other and name == IDLE and not made:
                raise Violation(f"nobody made {name!r}, which came at {now.at_s:.4f}")
            if now.limits != (NO_LIMITS if is_other else before.limits) and not any(
                order.limits == now.limits and _covers(order, now.at_s) for order in limits
            ):
                raise Violation(f"nobody set the limits {now} of {name!r} after {before}")

    def a_dropped_function_has_no_jobs(self, name: bytes) -> None:
        """The jobs of a function are removed with it."""
        line = self.functions.of(name)
        for before, now in pairwise(line):
            if not before.serial or now.serial == before.serial:
                continue
            for story in self._stories(name):
                if story.born_index < now.entry < story.gone_index:
                    raise Violation(f"its function was dropped at {now.entry}: {story}")

    def functions_are_there(self) -> None:
        """A created function exists until it is dropped; a refusal to drop it has its reason."""
        for order in self.orders["create"]:
            between = any(
                drop.may_be_done and drop.at_s <= order.until_s and order.at_s <= drop.until_s
                for drop in self._of("drop", order.subject)
            )
            if order.line == OK and not between and not self._has(order, _is_there):
                raise Violation(f"created, and not there: {order}")
        for order in self.orders["drop"]:
            line = self.functions.of(order.subject)
            if order.line == OK and not any(
                before.serial and now.serial != before.serial and _covers(order, now.at_s)
                for before, now in pairwise(line)
            ):
                raise Violation(f"dropped, and still there: {order}")
            if order.line == NO_FUNCTION and self._has_always(order, _is_there):
                raise Violation(f"it was there all the time: {order}")
            if order.line == BUSY and not (
                self._has(order, lambda moment: moment.watched)
                or any(step.running for step, _ in self._steps_of(order, order.subject))
            ):
                raise Violation(f"nobody worked on it: {order}")

    def rows_are_true(self) -> None:
        """Linearizable: `status` has the functions and numbers of some moment."""
        for order in self.orders["status"]:
            if order.line != b"OK":
                continue
            for name in (*OWN, *FUNCTIONS):
                row = order.rows.get(name)
                asked = Order("status", name, (), order.at_s)
                asked.done_s = order.done_s
                if row is None and self._has_always(asked, _is_there):
                    raise Violation(f"{name!r} is not listed: {order}")
                if row is not None and not self._has(asked, _is_there):
                    raise Violation(f"{name!r} is listed: {order}")
                if row is not None and not any(
                    step[1:] == row for step, _ in self._steps_of(order, name)
                ):
                    raise Violation(f"{name!r} never had so many jobs: {order}")

    # --- limits -----------------------------------------------------------------------------------

    def limits_are_kept(self, name: bytes) -> list[Step]:
        """No job was made in a function that was full; returns its numbers of jobs."""
        found = [Step(0.0, 0, 0)]
        held: set[int] = set()
        known: set[int] = set()
        events = sorted(
            ((event.index, event.place), story.job, event)
            for story in self._stories(name)
            for event in story.events
        )
        for _, job, event in events:
            if event.kind == q.PUT:
                rank = self.stories[job].rank
                if all(
                    0 < limit <= len(known) for limit in self._limits_at(name, event.index, rank)
                ):
                    raise Violation(f"{name!r} had {len(known)} jobs: {self.stories[job]}")
                known.add(job)
            elif event.kind == q.RESERVE:
                held.add(job)
            elif event.kind not in (q.TOUCH, q.TIMEOUT):
                held.discard(job)
            if event.kind in GONE:
                known.discard(job)
            found.append(Step(event.at_s, len(known), len(held)))
        return found

    def _limits_at(self, name: bytes, index: int, rank: int) -> list[int]:
        """Return the limits that may have been in force in an entry: before, in and after it."""
        line = self.functions.of(name)
        before = [moment for moment in line if moment.entry < index][-1]
        now = [moment for moment in line if moment.entry <= index][-1]
        set_in_it = _limits_in(self.judge.witness.log[index][1], GEARMAN_PREFIX + name)
        known = (before.limits, now.limits, *set_in_it)
        return [limits[_class_of(rank)] for limits in known]

    def limits_refuse_what_they_should(self) -> None:
        """A job was refused by a limit only if the function was full; and limits are set."""
        for submission in self.submissions:
            if submission.refusal[1:] != (QUEUE_FULL,):
                continue
            asked = Order("limit", submission.function, (), submission.at_s)
            asked.done_s = submission.refused_s
            if not any(
                0 < moment.limits[RANKS[submission.kind]] <= step.jobs
                for moment, moment_end_s in self.functions.spans(submission.function)
                for step, step_end_s in self._steps_of(asked, submission.function)
                if moment.at_s <= min(step_end_s, asked.until_s)
                and max(step.at_s, asked.at_s) <= moment_end_s
            ):
                raise Violation(f"refused, and its limit was not reached: {submission}")
        for order in self.orders["limit"]:
            if order.line != OK or not self._has_always(order, _is_there):
                continue
            if not self._has(order, partial(_has_limits, order.limits)) and not any(
                # Replaced in the same entry, which leaves no moment between (life 1083 at eb01da7).
                other.at_s <= order.until_s and order.at_s <= other.until_s
                for other in self.orders["limit"]
                if other is not order and other.subject == order.subject
            ):
                raise Violation(f"its limits were not set: {order}")

    # --- queries ----------------------------------------------------------------------------------

    def uniques_are_true(self) -> None:
        """Linearizable: GET_STATUS_UNIQUE knows the jobs of all functions."""
        named: dict[bytes, list[Story]] = {}
        for story in self.stories.values():
            named.setdefault(story.external_id.partition(b"\0")[2], []).append(story)
        for order in self.orders["unique"]:
            if order.line[:2] != b"OK":
                continue
            stories = named.get(order.subject, [])
            there = [
                story
                for story in stories
                if story.born_s <= order.until_s and order.at_s <= story.gone_s
            ]
            always = any(_is_always(story, order) for story in there)
            if (order.known and not there) or (always and not order.known):
                raise Violation(f"it has {there}: {order}")
            if order.running and not any(_overlaps(order, _holds(story)) for story in there):
                raise Violation(f"nobody had one of {there}: {order}")

    # --- look-ups ---------------------------------------------------------------------------------

    def _of(self, kind: str, name: bytes) -> list[Order]:
        return [order for order in self.orders[kind] if order.subject == name]

    def _stories(self, name: bytes) -> Iterable[Story]:
        return (story for story in self.stories.values() if story.queue[1:] == name)

    def _has(self, order: Order, holds: Callable[[Moment], bool]) -> bool:
        """Whether a condition held for a function at some moment of an order."""
        return any(
            moment.at_s <= order.until_s and order.at_s <= end_s and holds(moment)
            for moment, end_s in self.functions.spans(order.subject)
        )

    def _has_always(self, order: Order, holds: Callable[[Moment], bool]) -> bool:
        return not self._has(order, lambda moment: not holds(moment))

    def _steps_of(self, order: Order, name: bytes) -> list[tuple[Step, float]]:
        """Return the numbers of jobs that a function had during an order, and their ends."""
        steps = self.steps[name]
        ends = [step.at_s for step in steps[1:]]
        return [
            (step, end_s)
            for step, end_s in zip(steps, [*ends, FOREVER_S], strict=True)
            if step.at_s <= order.until_s and order.at_s <= end_s
        ]


def removed(orders: Iterable[Order], stories: dict[int, Story]) -> set[int]:
    """Return the jobs that an administrator may have deleted: by OK, or without an answer."""
    found = [order for order in orders if order.kind in ("cancel", "drop") and order.may_be_done]
    jobs = set()
    for story in stories.values():
        if story.end is None or story.end.kind != effects.DELETED:
            continue
        for order in found:
            subject = b"%d" % story.job if order.kind == "cancel" else story.queue[1:]
            named = order.subject.rpartition(b":")[2] if order.kind == "cancel" else order.subject
            if named == subject and _covers(order, story.gone_s):
                jobs.add(story.job)
    return jobs


def _is_always(story: Story, order: Order) -> bool:
    """Whether a job existed during a whole order."""
    return story.born_s <= order.at_s and order.until_s < story.gone_s


def _covers(order: Order, at_s: float) -> bool:
    return order.at_s <= at_s <= order.until_s


def _overlaps(order: Order, spans: list[tuple[float, float]]) -> bool:
    return any(first_s <= order.until_s and order.at_s <= end_s for first_s, end_s in spans)


def _holds(story: Story) -> list[tuple[float, float]]:
    """Return the spans in which a worker held a job, until its end if it was held then."""
    found: list[tuple[float, float]] = []
    since_s = None
    for event in story.events:
        if event.kind == q.RESERVE:
            since_s = event.at_s
        elif since_s is not None and event.kind not in (q.TOUCH, q.TIMEOUT):
            found.append((since_s, event.at_s))
            since_s = None
    return found if since_s is None else [*found, (since_s, FOREVER_S)]


def _ended_in_hands(story: Story) -> bool:
    """Whether a worker held a job when it ended."""
    held = False
    for event in story.events:
        if event.kind in GONE:
            break
        held = event.kind == q.RESERVE or (held and event.kind in (q.TOUCH, q.TIMEOUT))
    return held


def _is_there(moment: Moment) -> bool:
    return moment.serial > 0


def _class_of(rank: int) -> int:
    return (rank >= RANK_NORMAL) + (rank > RANK_NORMAL)


def _has_limits(limits: tuple[int, ...], moment: Moment) -> bool:
    return moment.limits == limits


def _limits_in(entry: bytes, function: bytes) -> list[Limits]:
    """Return the limits that an entry sets, also those that its next command replaces."""
    *_, sections = c.decode_entry(entry)
    return [
        tuple(command[3:])
        for *_, commands in sections
        for command in commands
        # An invalid command stands for one of a later version.
        if is_command(command) and command[0] == c.LIMIT_QUEUE and command[2] == function
    ]

"""Planted defects of policies: which applies, how attempts count, where a job goes, its note.

The patches and their table; see `mutations` and `mutant_table`. Lives of whole nodes catch all;
some of them have policies.
"""

from typing import Any, Final

from beanpole import events
from beanpole.core.image import parts
from beanpole.core.image.policies import NOTES, POLICY
from beanpole.core.jobs.attempts import Attempts
from beanpole.core.jobs.policies import Policies, Policy
from beanpole.core.jobs.prefixes import ANY
from beanpole.core.jobs.queue import Queue
from beanpole.core.jobs.states import States
from tests.sim.mutant import in_lives
from tests.sim.mutations import Patch


def one_attempt_more() -> list[Patch]:
    """A job may come back once more than its policy allows."""
    spent = vars(Policies)["spent"]

    def wrong(self: Policies, job_id: int, reserves: int) -> int:
        return int(spent(self, job_id, reserves)) - 1

    return [(Policies, "spent", wrong)]


def one_attempt_less() -> list[Patch]:
    """A job is taken out one attempt too early."""
    spent = vars(Policies)["spent"]

    def wrong(self: Policies, job_id: int, reserves: int) -> int:
        return int(spent(self, job_id, reserves)) + 1

    return [(Policies, "spent", wrong)]


def attempts_never_anew() -> list[Patch]:
    """Attempts from before a job's note count again."""
    return [(Policies, "spent", lambda self, job_id, reserves: reserves)]


def lost_attempts_are_free() -> list[Patch]:
    """A reservation that is lost with its connection or node is no attempt."""
    give_back = vars(Queue)["give_back"]

    def wrong(self: Queue, job: Any, session: Any, reason: int) -> None:
        rows, self.policies.rows = self.policies.rows, {}
        give_back(self, job, session, reason)
        self.policies.rows = rows

    return [(Queue, "give_back", wrong)]


def old_policy_counts() -> list[Patch]:
    """The cached policy of a queue stays when a policy is set."""

    def wrong(self: Policies, pattern: bytes, policy: Policy) -> None:
        self.rows[pattern] = policy

    return [(Policies, "put", wrong)]


def shortest_pattern() -> list[Patch]:
    """The shortest prefix applies, even before a queue's own name."""

    def wrong(self: Policies, queue: bytes) -> Policy | None:
        fits = [one for one in self.rows if one.endswith(ANY) and queue.startswith(one[:-1])]
        found = min(fits, key=len, default=queue)
        return self.rows.get(found)

    return [(Policies, "_look_up", wrong)]


def dead_in_a_delay() -> list[Patch]:
    """A job that its last worker released with a delay is delayed in the dead queue."""
    ends = vars(Attempts)["ends_attempts"]

    def wrong(self: Any, job: Any, holder: Any, reason: int) -> bool:
        delay_us = job.delay_us

        def make_ready(job: Any) -> None:
            if delay_us:
                self.make_delayed(job, delay_us)
            else:
                States.make_ready(self, job)

        self.make_ready = make_ready
        try:
            return bool(ends(self, job, holder, reason))
        finally:
            del self.make_ready

    return [(Attempts, "ends_attempts", wrong)]


def dead_comes_back() -> list[Patch]:
    """A job that should be buried becomes ready, but is reported as buried."""
    make_buried = vars(States)["make_buried"]

    def wrong(self: Any, job: Any, result: bytes = b"") -> None:
        if self.policies.notes.get(job.id, (0, b"", -1))[2] == job.reserves:
            self.make_ready(job)
        else:
            make_buried(self, job, result)

    return [(States, "make_buried", wrong)]


def notes_stay() -> list[Patch]:
    """A note is not forgotten with its job."""
    forget = vars(States)["forget"]

    def wrong(self: States, job: Any) -> None:
        note = self.policies.notes.get(job.id)
        forget(self, job)
        if note is not None:
            self.policies.notes[job.id] = note

    return [(States, "forget", wrong)]


def reason_is_ttr() -> list[Patch]:
    """A note always says that the TTR ended."""
    note = vars(Policies)["note"]

    def wrong(self: Policies, job_id: int, found: Any) -> None:
        note(self, job_id, found._replace(reason=4))

    return [(Policies, "note", wrong)]


def event_says_released() -> list[Patch]:
    """The event of a policy always says that the job was released."""
    return [(events, "USED_UP_BY", {})]


def notes_not_in_image() -> list[Patch]:
    """A node that starts from a snapshot knows no notes."""
    part = parts.PARTS["policies"]

    def wrong(machine: Any, value: Any) -> None:
        if value[0] != NOTES:
            part.read(machine, value)

    return [(parts, "PARTS", {**parts.PARTS, "policies": part._replace(read=wrong)})]


def policies_not_in_image() -> list[Patch]:
    """A node that starts from a snapshot knows no policies."""
    part = parts.PARTS["policies"]

    def wrong(machine: Any, value: Any) -> None:
        if value[0] != POLICY:
            part.read(machine, value)

    return [(parts, "PARTS", {**parts.PARTS, "policies": part._replace(read=wrong)})]


POLICIES: Final = (
    in_lives(
        "one_attempt_more",
        "policies: a job comes back once too often",
        r"attempts, and came back",
        one_attempt_more,
        seed=7,
    ),
    in_lives(
        "one_attempt_less",
        "policies: a job is taken out too early",
        r"given out \d+ times",
        one_attempt_less,
        seed=7,
    ),
    in_lives(
        "attempts_never_anew",
        "policies: attempts from before the note count again",
        r"given out \d+ times",
        attempts_never_anew,
        seed=9,
    ),
    in_lives(
        "lost_attempts_are_free",
        "policies: a reservation that is lost is no attempt",
        r"attempts, and came back",
        lost_attempts_are_free,
        seed=7,
    ),
    in_lives(
        "old_policy_counts",
        "policies: one that was replaced counts on",
        r"differs|attempts, and came back|given out \d+ times|it is to",
        old_policy_counts,
        seed=5,
    ),
    in_lives(
        "shortest_pattern",
        "policies: the shortest pattern counts",
        r"attempts, and came back|given out \d+ times|it is to",
        shortest_pattern,
        seed=7,
    ),
    in_lives(
        "dead_in_a_delay",
        "policies: a job is delayed in the dead queue",
        r"is to be ready in",
        dead_in_a_delay,
        seed=7,
    ),
    in_lives(
        "dead_comes_back",
        "policies: a job that is to be buried comes back",
        r"is to be buried by its policy",
        dead_comes_back,
        seed=8,
    ),
    in_lives(
        "notes_stay", "policies: a note outlives its job", r"the notes are", notes_stay, seed=7
    ),
    in_lives(
        "reason_is_ttr",
        "policies: the note of a job has another reason",
        r"is to have ended by",
        reason_is_ttr,
        seed=7,
    ),
    in_lives(
        "event_says_released",
        "policies: a policy's event does not say how the last attempt ended",
        r"its last attempt is to have ended by",
        event_says_released,
        seed=7,
    ),
    in_lives(
        "notes_not_in_image",
        "policies: a snapshot forgets the notes",
        r"differs?\b",
        notes_not_in_image,
        seed=7,
    ),
    in_lives(
        "policies_not_in_image",
        "policies: a snapshot forgets the policies",
        r"differs?\b",
        policies_not_in_image,
        seed=5,
    ),
)

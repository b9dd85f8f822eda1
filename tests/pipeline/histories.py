"""Random but valid lives of jobs, as the events that a cluster would have written.

A seed drives a small model of a queue, which makes only transitions that the machine permits.
Nothing here judges or computes statistics.
"""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, NamedTuple

from pyspark_beanpole.schema import EVENTS

Event = dict[str, Any]

START: Final = datetime(2026, 3, 1, 22, 30, tzinfo=UTC)
TUBES: Final = ("default", "mail", "images")
WORKERS: Final = (("n0", 1, 7), ("n1", 1, 8), ("n1", 2, 1), ("n2", 4, 90))
# By session: two sessions share a host, and session 1 is from before hosts were recorded.
HOSTS: Final = {7: "10.0.0.7", 8: "10.0.0.7", 90: "unix", 500: "2001:db8::5", 501: "10.0.0.9"}
# Also by session: clients of other protocols that delete jobs.
OTHERS: Final = (("n0", 1, 600), ("n1", 2, 601))
PROTOCOLS: Final = {501: "grpc", 600: "workq", 601: "gearman"}
# The reasons of returned jobs.
RETURNS: Final = ("connection_lost", "node_down", "nobody_waiting")
SECOND_US: Final = 1_000_000
# The steps of time between two events, in microseconds: from nothing to an hour.
STEPS_US: Final = (0, 1, 900, 40_000, SECOND_US, 7 * SECOND_US, 61 * SECOND_US, 3600 * SECOND_US)


class Pace(NamedTuple):
    """The pace of a history: the largest of STEPS_US, jumps of wall clocks, and kinds of events.

    With `results` jobs also end in the ways of protocols other than beanstalk: done or failed with
    a kept result, repeated after a failure, expired, or deleted while reserved. With
    `administered` an administrator also moves, changes, buries and deletes jobs, and policies take
    away jobs that have used up their attempts.
    """

    longest_us: int = STEPS_US[-1]
    jumps: bool = False
    results: bool = False
    administered: bool = False


DAYS: Final = Pace()


class Job:
    """A job of the model, with the state that its events report."""

    def __init__(self, number: int, random: Random) -> None:
        self.id = number
        self.tube = random.choice(TUBES)
        self.state = "gone"
        self.priority = random.choice((0, 10, 1024, 2**32 - 1))
        self.delay_s = 0
        self.ttr_s = random.choice((1, 60, 120))
        self.body_bytes = random.randrange(2000)
        self.counts = dict.fromkeys(("attempt", "timeouts", "releases", "buries", "kicks"), 0)
        self.ready_us: int | None = None
        self.reserved_us = 0
        self.holder: tuple[str, int, int] | None = None


class History:
    """A queue that records every transition in `events`."""

    def __init__(self, seed: int, pace: Pace = DAYS, first: int = 0) -> None:
        self.random = Random(seed)
        self.pace = pace
        self.jobs: list[Job] = []
        self.ended: list[Job] = []
        self.events: list[Event] = []
        self.time_us = self.random.randrange(10**9)
        self.wall = START
        self.offset = first
        self.index = 1
        self.position = 0

    def run(self, count: int) -> "History":
        """Make transitions until there are at least `count` events."""
        while len(self.events) < count:
            self._pass_time()
            self._happen()
        return self

    def _pass_time(self) -> None:
        passed_us = self.random.choice(STEPS_US)
        if passed_us > self.pace.longest_us:
            passed_us = 0
        passed_us = self.random.randint(0, passed_us)
        self.time_us += passed_us
        self.wall += timedelta(microseconds=passed_us)
        if passed_us or self.random.random() < 0.5:
            self.index += self.random.choice((1, 1, 3))
            self.position = 0
        if self.pace.jumps and self.random.random() < 0.01:
            # A new leader with another clock, or a machine that was suspended.
            self.wall += timedelta(seconds=self.random.choice((-150, -3, 2, 700)))

    def _happen(self) -> None:
        random = self.random
        if not self.jobs or random.random() < 0.22:
            self._put()
            return
        job = random.choice(self.jobs)
        if self.pace.administered and random.random() < 0.15:
            self._administer(job)
            return
        match job.state:
            case "ready" if self.pace.results and random.random() < 0.05:
                self._expire(job)
            case "ready":
                self._reserve(job) if random.random() < 0.93 else self._delete(job)
            case "reserved" if self.pace.results and random.random() < 0.5:
                self._finish(job)
            case "reserved":
                self._end(job)
            case "done" | "failed":
                self._expire(job) if random.random() < 0.5 else self._delete(job)
            case _ if self.pace.results and random.random() < 0.05:
                self._expire(job)
            case "delayed":
                choice = random.choice(("due", "due", "due", "kick", "reserve", "delete"))
                self._wake(job, choice)
            case _:
                self._wake(job, random.choice(("kick", "none", "none", "reserve", "delete")))

    def _put(self) -> None:
        job = Job(len(self.jobs) + len(self.ended) + 1, self.random)
        self.jobs.append(job)
        job.delay_s = self.random.choice((0, 0, 0, 5))
        self._move(job, "put", "delayed" if job.delay_s else "ready", self._client())

    def _reserve(self, job: Job) -> None:
        job.holder = self.random.choice(WORKERS)
        job.counts["attempt"] += 1
        self._move(job, "reserved", "reserved", job.holder)

    def _delete(self, job: Job) -> None:
        session = job.holder if job.state == "reserved" else self._client()
        self._move(job, "deleted", "gone", session)
        self.jobs.remove(job)
        self.ended.append(job)

    def _expire(self, job: Job) -> None:
        self._move(job, "expired", "gone", job.holder if job.state == "reserved" else None)
        self.jobs.remove(job)
        self.ended.append(job)

    def _finish(self, job: Job) -> None:
        """End an attempt as in a protocol whose jobs have results."""
        if self.random.random() < 0.2:
            self._take_away(job)
            return
        event = self.random.choice(("done", "done", "failed"))
        keeps, again = self.random.random() < 0.5, self.random.random() < 0.5
        after = event if keeps else "gone"
        if event == "failed" and again:
            after = "ready"
        last = event == "failed" and keeps  # its last attempt timed out
        job.counts["timeouts"] += last
        self._move(job, event, after, job.holder, "ttr" if last else None)
        if after == "gone":
            self.jobs.remove(job)
            self.ended.append(job)

    def _take_away(self, job: Job) -> None:
        """Delete a job, by a client of another protocol or because its last client has gone."""
        if self.random.random() < 0.5:
            self._move(job, "deleted", "gone", job.holder, "abandoned")
        else:
            self._move(job, "deleted", "gone", self.random.choice(OTHERS))
        self.jobs.remove(job)
        self.ended.append(job)

    def _administer(self, job: Job) -> None:
        """Act as an administrator, who can end a reservation only by a deletion."""
        at_rest = job.state in ("ready", "delayed", "buried")
        choice = self.random.choice(("move", "move", "order", "bury", "delete", "policy"))
        if choice == "delete":
            self._move(job, "deleted", "gone", self._client(), "admin")
            self.jobs.remove(job)
            self.ended.append(job)
        elif choice == "policy" and at_rest:
            reason = "retention" if job.state == "buried" else "queue_full"
            self._move(job, "deleted", "gone", None, reason)
            self.jobs.remove(job)
            self.ended.append(job)
        elif choice == "bury" and job.state in ("ready", "delayed"):
            job.counts["buries"] += 1
            self._move(job, "buried", "buried", self._client())
        elif choice == "order" and at_rest:
            job.priority = self.random.choice((1, 2))
            self._move(job, "moved", job.state, self._client(), "admin")
        elif choice == "move" and at_rest:
            after = self.random.choice((job.state, job.state, "ready", "buried"))
            client = self._client()
            self._move(job, "moved", "moving", client, "admin")
            job.tube = self.random.choice([tube for tube in TUBES if tube != job.tube])
            self._move(job, "moved", after, client, "admin")

    def _wake(self, job: Job, choice: str) -> None:
        match choice:
            case "due":
                self._move(job, "due", "ready", None)
            case "kick":
                job.counts["kicks"] += 1
                self._move(job, "kicked", "ready", self._client())
            case "reserve":
                self._reserve(job)
            case "delete":
                self._delete(job)

    def _end(self, job: Job) -> None:
        # fmt: off
        choice = self.random.choices(
            ("deleted", "released", "buried", "timed_out", "returned", "touched"),
            (10, 2, 2, 2, 2, 2),
        )[0]
        # fmt: on
        comes_back = choice in ("released", "timed_out", "returned")
        if self.pace.administered and comes_back and self.random.random() < 0.4:
            self._use_up(job, choice)
            return
        match choice:
            case "deleted":
                self._delete(job)
            case "released":
                job.counts["releases"] += 1
                job.delay_s = self.random.choice((0, 0, 30))
                self._move(job, choice, "delayed" if job.delay_s else "ready", job.holder)
            case "buried":
                job.counts["buries"] += 1
                self._move(job, choice, "buried", job.holder)
            case "timed_out":
                job.counts["timeouts"] += 1
                self._move(job, choice, "ready", job.holder, "ttr")
            case "returned":
                self._move(job, choice, "ready", job.holder, self.random.choice(RETURNS))
            case _:
                self._move(job, choice, "reserved", job.holder)

    def _use_up(self, job: Job, choice: str) -> None:
        """End the last attempt of a job, which a policy buries or moves to a dead tube."""
        reason = "attempts"
        match choice:
            case "released":
                job.counts["releases"] += 1
            case "timed_out":
                job.counts["timeouts"] += 1
                reason = "attempts_ttr"
            case _:
                reason = f"attempts_{self.random.choice(RETURNS)}"
        job.delay_s = 0
        if self.random.random() < 0.5:
            self._move(job, "buried", "buried", job.holder, reason)
            return
        self._move(job, "moved", "moving", job.holder, reason)
        job.tube = self.random.choice([tube for tube in TUBES if tube != job.tube])
        self._move(job, "moved", "ready", job.holder, reason)

    def _client(self) -> tuple[str, int, int]:
        return self.random.choice((("n0", 1, 500), ("n2", 4, 501)))

    def _move(
        self,
        job: Job,
        event: str,
        after: str,
        session: tuple[str, int, int] | None,
        reason: str | None = None,
    ) -> None:
        """Record one transition."""
        before, job.state = job.state, after
        wait_us = run_us = None
        if event == "reserved":
            if before == "ready" and job.ready_us is not None:
                wait_us = self.time_us - job.ready_us
            job.reserved_us = self.time_us
        elif before == "reserved" and event != "touched":
            run_us = self.time_us - job.reserved_us
        if after == "ready" and before != "ready":
            job.ready_us = self.time_us
        works = event == "reserved" or before == "reserved"
        node, incarnation, number = session or (None, None, None)
        values = (
            self.offset,
            self.index,
            self.position,
            self.time_us,
            self.wall,
            None if number is None else PROTOCOLS.get(number, "beanstalk"),
            event,
            job.tube,
            job.id,
            None,
            before,
            after,
            reason,
            job.priority,
            job.delay_s,
            job.ttr_s,
            job.body_bytes,
            node,
            incarnation,
            number,
            f"{node}:{incarnation}:{number}" if works else None,
            None if number is None else HOSTS.get(number),
            *job.counts.values(),
            wait_us,
            run_us,
            job.ready_us,
            None,
        )
        self.events.append(dict(zip(EVENTS.names, values, strict=True)))
        self.offset += 1
        self.position += 1


def rows(events: list[Event]) -> list[tuple[Any, ...]]:
    """Return events as rows for `createDataFrame` with the schema EVENTS."""
    return [tuple(event.values()) for event in events]

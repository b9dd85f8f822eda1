"""Planted defects in the answers to clients, and how each is caught.

A patch is (owner, name, replacement), as in `mutations`.
"""

from typing import Any, Final

from beanpole import commands as c
from beanpole.core.jobs.job import Job
from beanpoled.frontends.beanstalk.connection import BeanstalkConnection
from beanpoled.leading.unwaits import Unwaits
from beanpoled.leading.waiting import Waiter
from beanpoled.origin.batches import KIND_QUIET
from beanpoled.origin.outbox import Origin
from tests.sim import schedules_answers as s
from tests.sim.mutant import Mutant
from tests.sim.mutations import Patch, nothing


def told_at_once() -> list[Patch]:
    """A tube that does not exist is bound as if it existed."""

    def wrong(self: BeanstalkConnection, kind: int, command: c.Command) -> bool:
        self._clients.origin.submit(self, KIND_QUIET, command)
        return True

    return [
        (BeanstalkConnection, "_bind", wrong),
        (BeanstalkConnection, "_refused_later", nothing),
    ]


def refused_quietly() -> list[Patch]:
    """A client that was answered too early is not told of the refusal."""
    return [(BeanstalkConnection, "_refused_later", nothing)]


def fence_without_a_word() -> list[Patch]:
    """A node that is cut off closes its clients without answers to undone commands."""
    return [(Origin, "fence", nothing)]


def only_what_is_ready() -> list[Patch]:
    """A wait ends without a job although a job is due and only its entry is missing."""
    must_stay = vars(Unwaits)["_must_stay"]

    def wrong(self: Unwaits, waiter: Waiter, due_us: int | None) -> Any:
        return must_stay(self, waiter, None)

    return [(Unwaits, "_must_stay", wrong)]


def a_tick_for_everybody() -> list[Patch]:
    """Each poll makes the log carry the time."""
    turn = vars(Unwaits)["turn"]

    def wrong(self: Unwaits) -> None:
        turn(self)
        if self._leaving:
            self._term.commands.append(c.NO_COMMAND)

    return [(Unwaits, "turn", wrong)]


def no_last_warning() -> list[Patch]:
    """A client is warned only by its node's estimate of the time."""
    wait_ended = vars(BeanstalkConnection)["wait_ended"]

    def wrong(self: BeanstalkConnection, job: Job | None, until_us: int = 0) -> None:
        wait_ended(self, job)

    return [(BeanstalkConnection, "wait_ended", wrong)]


ANSWERS: Final = (
    Mutant(
        "told_at_once",
        "answers: one tube too many is watched as far as its client knows",
        s.two_clients_make_one_tube_too_many,
        r"was given a job of default",
        told_at_once,
    ),
    Mutant(
        "refused_quietly",
        "answers: a watch that was answered and refused goes on",
        s.a_tube_vanishes_before_it_is_watched,
        r"was given a job of default",
        refused_quietly,
    ),
    Mutant(
        "fence_without_a_word",
        "answers: a put that no leader saw ends with its connection",
        s.a_node_is_left_alone,
        r"was answered \[\]",
        fence_without_a_word,
    ),
    *(
        Mutant(
            "only_what_is_ready",
            f"answers: TIMED_OUT at the moment at which {what} ends",
            schedule,
            r"TIMED_OUT when it was time for RESERVED",
            only_what_is_ready,
        )
        for what, schedule in (
            ("a delay", s.a_delay_ends_with_a_wait),
            ("a pause", s.a_pause_ends_with_a_wait),
            ("a TTR", s.a_ttr_ends_with_a_wait),
        )
    ),
    Mutant(
        "no_last_warning",
        "answers: TIMED_OUT at the moment at which a warning is due",
        s.a_warning_is_due_with_a_wait,
        r"TIMED_OUT when it was time for DEADLINE_SOON",
        no_last_warning,
    ),
    Mutant(
        "a_tick_for_everybody",
        "answers: idle workers that poll write to the log",
        s.idle_workers_poll,
        r"entries for",
        a_tick_for_everybody,
    ),
)

"""Random walks through calls outside the life cycle of jobs: the tables agree after each step.

The statistics of such a walk agree with the histories of the jobs.
"""

import random
from collections.abc import Callable
from math import isclose
from typing import Any

import pytest

from beanpole import qless as q
from beanpole.core.qless import (
    config,
    flushing,
    history,
    listings,
    queues,
    recurring,
    statistics,
    tracking,
    workers,
)
from beanpole.core.qless import tags as tagging
from tests.unit.core.qless.checking import Qless

QUEUES = (b"q", b"r")
JIDS = tuple([b"j%d" % number for number in range(6)])
TAGS = (b"x", b"y", b"z")
TEMPLATES = (b"t1", b"t2")
STATES = (q.COMPLETE_, q.RUNNING, q.STALLED, q.SCHEDULED, q.DEPENDS, q.THROTTLED, q.RECURRING)


def steps(one: Qless, r: random.Random) -> list[Callable[[float], Any]]:
    """Return the possible next steps; each takes the time."""

    def pick(of: tuple[bytes, ...]) -> bytes:
        return r.choice(of)

    def some(of: tuple[bytes, ...]) -> tuple[bytes, ...]:
        return tuple(r.sample(of, r.randint(0, len(of))))

    def recur(now: float) -> q.Result:
        interval, backlog = r.choice([0.5, 1.0, 30.0]), float(r.randint(0, 3))
        first = (pick(QUEUES), pick(TEMPLATES), b"k", b"{}", interval, float(r.randint(0, 9)))
        return one.call(recurring.recur, now, *first, 1.0, some(TAGS), 2, backlog, ())

    def update(now: float) -> q.Result:
        pairs = ((b"queue", pick(QUEUES)), (b"interval", r.choice([2.0, 20.0])))
        return one.call(recurring.recur_update, now, pick(TEMPLATES), pairs)

    def listed(now: float) -> q.Result:
        return one.call(listings.jobs, now, r.choice(STATES), pick(QUEUES), 0, 25)

    return [
        lambda now: one.put(now, pick(JIDS), queue=pick(QUEUES), tags=some(TAGS)),
        lambda now: one.put(now, pick(JIDS), queue=pick(QUEUES), delay=r.randint(1, 40)),
        lambda now: one.pop(now, r.randint(1, 3), pick((b"w", b"v")), pick(QUEUES)),
        lambda now: one.done(now, pick(JIDS), pick((b"w", b"v"))),
        lambda now: one.call(tagging.tag_add, now, pick(JIDS), some(TAGS)),
        lambda now: one.call(tagging.tag_remove, now, pick(JIDS), some(TAGS)),
        lambda now: one.call(tracking.track, now, pick(JIDS)),
        lambda now: one.call(history.log, now, pick(JIDS), b"said", b""),
        lambda now: one.call(queues.forget_queues, now, (pick(QUEUES),)),
        lambda now: one.call(queues.pause, now, (pick(QUEUES),)),
        lambda now: one.call(queues.unpause, now, QUEUES),
        lambda now: one.call(queues.queue_counts, now, r.choice([None, *QUEUES])),
        lambda now: one.call(workers.worker_counts, now),
        lambda now: one.call(workers.forget_workers, now, (b"w",)),
        lambda now: one.call(config.config_set, now, b"max-worker-age", b"60"),
        lambda now: one.call(recurring.recur_tag, now, pick(TEMPLATES), some(TAGS)),
        lambda now: one.call(recurring.unrecur, now, pick(TEMPLATES)),
        recur,
        update,
        listed,
    ]


@pytest.mark.parametrize("seed", range(12))
def test_the_tables_agree_whatever_is_called(seed: int) -> None:
    r = random.Random(seed)
    one = Qless()
    now = 1000.0
    for _ in range(150):
        now += r.choice([0.0, 0.25, 1.0, 20.0])
        r.choice(steps(one, r))(now)
    one.give(flushing.flush, now)
    assert one.t.bytes == 0
    assert one.give(flushing.keys, now) is False


def seconds_of(one: Qless, jids: list[bytes]) -> tuple[list[float], list[float]]:
    """Compute the wait and run times of these jobs from their histories."""
    waits: list[float] = []
    runs: list[float] = []
    for jid in jids:
        since = 0.0
        for when, what, _, _ in one.job(jid).history:
            if what == q.HAS_POPPED:
                waits.append(when - since)
            elif what == q.HAS_DONE:
                runs.append(when - since)
            since = when
    return waits, runs


def agree(view: q.TimesView, seconds: list[float]) -> None:
    """Assert that a view summarises these durations."""
    mean = sum(seconds) / max(1, len(seconds))
    assert view.count == len(seconds)
    assert isclose(view.mean, mean, abs_tol=1e-9)
    assert isclose(view.vk, sum([(one - mean) ** 2 for one in seconds]), abs_tol=1e-6)
    bins = [0] * q.HISTOGRAM_BINS
    for one in seconds:
        place = statistics.place_in_histogram(one)
        assert place is not None
        bins[place] += 1
    assert view.histogram == tuple(bins)


@pytest.mark.parametrize("seed", range(8))
def test_statistics_are_those_of_the_histories(seed: int) -> None:
    """All jobs run on one day, at whole seconds, and are completed before their locks end."""
    r = random.Random(seed)
    one = Qless()
    now = 86_400.0
    jids = [b"%d" % number for number in range(20)]
    for jid in jids:
        one.put(now, jid, priority=float(r.randint(0, 3)))
        now += r.choice([0, 1, 70])
    running: list[bytes] = []
    for _ in range(80):
        now += r.choice([0, 1, 7])
        if running and r.random() < 0.6:
            jid = running.pop(0)
            one.done(now, jid, following=r.choice([b"q", None]))
        elif len(running) < 3:
            running += one.pop(now)
        while len(running) > 2:
            one.done(now, running.pop(0))
    waits, runs = seconds_of(one, jids)
    view = one.give(statistics.stats, now, b"q", now)
    agree(view.wait, waits)
    agree(view.run, runs)
    assert len(waits) > 20

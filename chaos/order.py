"""Check that jobs leave their tube in order: judge the deliveries of a history by (priority, id).

docs/consistency.md promises that the ready jobs of a tube leave in order of (priority, id), and
that ids grow in the order of the log. These facts are certain, because clients share one clock:

* A put that was answered before another was sent has the smaller id.
* Job A was *surely ready* from the answer to its put, without a delay, until the first command was
  sent that took it or named it. Job B has the priority of its put until a release or a bury of it
  was sent. If A comes before B, a plain reserve that was sent and answered while A was surely
  ready cannot get B from A's tube: it *passed over* A. Reserves that overlap the taking of A, or
  the answer to its put, prove nothing.
* A reserve whose reply is unknown may have taken one job, unseen, until the end of its connection.
  Each such reserve explains one job that was passed over for the first time in its window; a job
  without an explanation is a violation.

The tubes that a client watches do not matter: B proves that the client watched its tube. Histories
from before lines and tubes were recorded are not judged.
"""

import bisect
import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from chaos import record
from chaos.linearizable import FOREVER_S, ends_s
from chaos.record import Op

Key = tuple[int, int]  # priority, id


class Waiting(NamedTuple):
    """A job that was surely ready."""

    from_s: float
    until_s: float
    key: Key


class Passed(NamedTuple):
    """A job that was passed over, and the first reserve that did so."""

    job: int
    by: Op


class Judged(NamedTuple):
    """The result of the check."""

    wrong: list[str]
    passed: int  # jobs passed over, including those that unknown replies explain
    deliveries: int  # the number of deliveries that were judged


def judge(clients: Sequence[Sequence[Op]]) -> Judged:
    """Judge the deliveries of all clients."""
    ops = sorted((op for one in clients for op in one), key=lambda op: op.sent_s)
    job_of = record.jobs_by_body(clients)
    puts = {job_of[op.body]: op for op in ops if op.kind == record.PUT and op.body in job_of}
    taken: dict[int, float] = {}  # by job: the first command that took it or named it
    moved: dict[int, float] = {}  # by job: the first command that may have changed its priority
    for op in ops:
        job = record.job_named(op)
        if job and op.kind not in (record.PUT, record.LOOK):
            taken.setdefault(job, op.sent_s)
            if op.kind in (record.RELEASE, record.BURY):
                moved.setdefault(job, op.sent_s)
    waiting: defaultdict[str, list[Waiting]] = defaultdict(list)
    got: defaultdict[str, list[tuple[Op, Key]]] = defaultdict(list)
    for job, put in puts.items():
        words = put.line.split()
        if len(words) > 2 and put.outcome == "INSERTED" and words[2] == "0":
            until_s = taken.get(job, FOREVER_S)
            waiting[put.tube].append(Waiting(put.done_s, until_s, (int(words[1]), job)))
    for op in ops:
        put_of = puts.get(op.job)
        plain = op.outcome == "RESERVED" and op.line.startswith("reserve-with-timeout")
        if plain and put_of and put_of.line and op.done_s < moved.get(op.job, FOREVER_S):
            got[put_of.tube].append((op, (int(put_of.line.split()[1]), op.job)))
    passed = [one for tube in got for one in _passed(waiting[tube], got[tube])]
    unknown = [op for op in ops if op.kind == record.RESERVE and record.is_unknown(op)]
    wrong = [f"job {one.job} was passed over by {one.by}" for one in _unexplained(passed, unknown)]
    wrong += _ids(op for op in ops if op.outcome == "INSERTED")
    return Judged(wrong, len(passed), sum(map(len, got.values())))


def _passed(waiting: Iterable[Waiting], got: Iterable[tuple[Op, Key]]) -> Iterator[Passed]:
    """Yield each job of one tube that was passed over, once; `got` is in the order of sending."""
    coming = sorted(waiting)
    place = 0
    there: list[tuple[Key, Waiting]] = []
    going: list[tuple[float, Key, Waiting]] = []
    told: set[int] = set()
    for op, key in got:
        while place < len(coming) and coming[place].from_s < op.sent_s:
            one = coming[place]
            bisect.insort(there, (one.key, one))
            heapq.heappush(going, (one.until_s, one.key, one))
            place += 1
        while going and going[0][0] <= op.sent_s:
            _, gone, one = heapq.heappop(going)
            del there[bisect.bisect_left(there, (gone, one))]
        for before, one in there:
            if before >= key:
                break
            if one.until_s > op.done_s and before[1] not in told:
                told.add(before[1])
                yield Passed(before[1], op)


def _unexplained(passed: Iterable[Passed], unknown: Iterable[Op]) -> Iterator[Passed]:
    """Assign an unknown reserve to each job that was passed over; yield the jobs left without one.

    Of all open windows the one that ends first is used, which explains the most jobs.
    """
    coming = sorted((op.sent_s, ends_s(op)) for op in unknown)
    place = 0
    windows: list[float] = []
    for one in sorted(passed, key=lambda one: one.by.done_s):
        while place < len(coming) and coming[place][0] < one.by.done_s:
            heapq.heappush(windows, coming[place][1])
            place += 1
        while windows and windows[0] < one.by.sent_s:
            heapq.heappop(windows)
        if windows:
            heapq.heappop(windows)
        else:
            yield one


def _ids(puts: Iterable[Op]) -> Iterator[str]:
    """Report the puts that got a smaller id than a put answered before they were sent."""
    by_sent = list(puts)
    by_done = sorted(by_sent, key=lambda op: op.done_s)
    place, largest = 0, 0
    for op in by_sent:
        while by_done[place].done_s < op.sent_s:
            largest = max(largest, by_done[place].job)
            place += 1
        if op.job < largest:
            yield f"id {op.job} is not above {largest}, which was answered before: {op}"

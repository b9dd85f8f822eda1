"""Lists of jids by the states of jobs, and of failed jobs by their groups."""

import pytest

from beanpole import qless as q
from beanpole.core.qless import limits, listings
from beanpole.core.qless.job import COMPLETED, DEPENDING, THROTTLED_SINCE
from beanpole.core.qless.scores import Scores
from beanpole.core.qless.tables import Tables
from tests.unit.core.qless.making import empty_tables, running_job, scheduled_job, waiting_job

AS = q.CORE


def listed(t: Tables, state: int, now: float, offset: int = 0, count: int = 25) -> list[bytes]:
    code, jids = listings.jobs(t, AS, now, (state, b"q", offset, count))
    assert code == q.OK
    return list(jids)


def test_jobs_by_their_states() -> None:
    t = empty_tables()
    running_job(t, b"r", b"w", 60.0)
    running_job(t, b"s", b"w", 10.0)
    t.place(waiting_job(t, b"d2"), DEPENDING, 2.0)
    t.place(waiting_job(t, b"d1"), DEPENDING, 1.0)
    t.place(waiting_job(t, b"t"), THROTTLED_SINCE, 1.0)
    t.place(waiting_job(t, b"c1"), COMPLETED, 1.0)
    t.place(waiting_job(t, b"c2"), COMPLETED, 2.0)
    t.queue(b"q").recurring.add(b"template", 3.0)
    assert listed(t, q.RUNNING, 20.0) == [b"r"]
    assert listed(t, q.STALLED, 20.0) == [b"s"]
    assert listed(t, q.DEPENDS, 20.0) == [b"d1", b"d2"]
    assert listed(t, q.DEPENDS, 20.0, 1, 1) == [b"d2"]
    assert listed(t, q.THROTTLED, 20.0) == [b"t"]
    assert listed(t, q.COMPLETE_, 20.0) == [b"c2", b"c1"]
    assert listed(t, q.RECURRING, 20.0) == [b"template"]
    assert listings.jobs(t, q.SEED, 0.0, (q.RECURRING, b"q", 0, 25)) == (q.OK, (b"template",))


def test_scheduled_jobs_that_are_due_wait() -> None:
    t = empty_tables()
    scheduled_job(t, b"due", 10.0)
    scheduled_job(t, b"later", 30.0)
    assert listings.jobs(t, q.SEED, 20.0, (q.SCHEDULED, b"q", 0, 25))[1] == (b"due", b"later")
    assert listed(t, q.SCHEDULED, 20.0) == [b"later"]
    assert t.jobs[b"due"].state == q.WAITING


def test_scheduled_jobs_that_are_due_and_too_many_are_not_shown() -> None:
    t = empty_tables()
    for number in range(q.CALL_JOBS_MAX + 200):
        scheduled_job(t, b"%d" % number, 10.0)
    for jid in (b"x", b"y", b"z"):
        scheduled_job(t, jid, 30.0)
    assert listed(t, q.SCHEDULED, 20.0, 1, 5) == [b"y", b"z"]
    assert len(t.queue(b"q").scheduled) == 203
    assert listed(t, q.SCHEDULED, 20.0) == [b"x", b"y", b"z"]
    assert len(t.queue(b"q").scheduled) == 3


def test_no_list_of_what_is_no_state_of_a_queue() -> None:
    t = empty_tables()
    t.queue(b"q")
    assert listings.jobs(t, AS, 0.0, (q.FAILED, b"q", 0, 25)) == (q.BAD_CALL, ())
    assert listings.jobs(t, AS, 0.0, (q.RUNNING, b"no", 0, 25)) == (q.OK, ())
    assert [*t.queues] == [b"q"]


def test_too_long_a_list_is_refused() -> None:
    t = empty_tables()
    for number in range(q.LISTED_MAX + 1):
        t.completed.add(b"%d" % number, float(number))
    assert listings.jobs(t, AS, 0.0, (q.COMPLETE_, b"", 0, q.LISTED_MAX))[0] == q.OK
    assert listings.jobs(t, AS, 0.0, (q.COMPLETE_, b"", 0, 0))[0] == q.TOO_MUCH


@pytest.fixture
def failed() -> Tables:
    """Make three jobs that failed in one group, the last one named c, and one in another."""
    t = empty_tables()
    for order, (jid, group) in enumerate([(b"a", b"g"), (b"b", b"g"), (b"x", b"f"), (b"c", b"g")]):
        waiting_job(t, jid)
        t.groups.setdefault(group, Scores()).add(jid, float(order))
    return t


def test_failed_jobs_are_counted_by_groups(failed: Tables) -> None:
    assert listings.failed_groups(failed, AS, 0.0, ()) == (q.OK, ((b"f", 1), (b"g", 3)))
    for number in range(q.LISTED_MAX):
        failed.groups[b"%d" % number] = Scores()
    assert listings.failed_groups(failed, AS, 0.0, ()) == limits.LISTED


@pytest.mark.parametrize(
    ("flavour", "start", "limit", "expected"),
    [
        (q.CORE, 0, 25, (b"c", b"b", b"a")),
        (q.CORE, 1, 1, (b"b",)),
        (q.UNIFIED, 1, 2, (b"b",)),
        (q.UNIFIED, 1, 1, ()),
    ],
)
def test_the_job_that_failed_last_comes_first(
    failed: Tables, flavour: int, start: int, limit: int, expected: tuple[bytes, ...]
) -> None:
    found = listings.failed_jobs(failed, flavour, 0.0, (b"g", start, limit))
    assert found == (q.OK, (3, expected))


def test_the_oldest_dialect_is_given_whole_jobs(failed: Tables) -> None:
    total, shown = listings.failed_jobs(failed, q.SEED, 0.0, (b"g", 0, 2))[1]
    assert total == 3
    assert [view.jid for view in shown] == [b"c", b"b"]
    failed.jobs[b"a"].data = b"x" * q.ANSWER_MAX_BYTES
    assert listings.failed_jobs(failed, q.SEED, 0.0, (b"g", 0, 25))[0] == q.TOO_MUCH


def test_a_group_that_is_not_there_has_no_jobs(failed: Tables) -> None:
    assert listings.failed_jobs(failed, AS, 0.0, (b"no", 0, 25)) == (q.OK, (0, ()))

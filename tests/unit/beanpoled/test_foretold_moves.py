"""A dry run of moves into a queue with little room foretells the result of the move itself."""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole.pb import jobs_pb2
from beanpoled.rpc import jobs
from tests.unit.beanpoled.test_jobs_rpc import Admin, run

TURN, TWIST = b"\x02turn", b"\x02twist"
MOVE = jobs_pb2.JOB_ACTION_MOVE
THERE = jobs_pb2.JOB_OUTCOME_ALREADY_THERE
FULL = jobs_pb2.JOB_OUTCOME_QUEUE_FULL
BY_IDS: dict[str, Any] = {"job_ids": range(2, 12)}
BY_FILTER: dict[str, Any] = {"filter": jobs_pb2.JobFilter(queue="gearman:turn")}


def fill(admin: Admin, room: int) -> None:
    """Put ten jobs, and limit another queue, which has one."""
    admin.apply(
        (c.SUBMIT, 2, TWIST, 1, 0, b"", 0, 0, b"", b"x"),
        *((c.SUBMIT, 2, TURN, 1, 0, b"", 0, 0, b"", b"x") for _ in range(10)),
        (c.LIMIT_QUEUE, 2, TWIST, *[room + 1] * 3),
    )


@pytest.mark.constants
@pytest.mark.parametrize("chosen", [BY_IDS, BY_FILTER])
@pytest.mark.parametrize(
    ("state", "room", "moved"),
    [
        (jobs_pb2.MOVED_STATE_READY, 6, 6),
        (jobs_pb2.MOVED_STATE_READY, 10, 10),
        (jobs_pb2.MOVED_STATE_READY, 0, 0),
        (jobs_pb2.MOVED_STATE_BURIED, 0, 10),  # the limit is not for those
    ],
)
def test_each_foretold_move_takes_room(
    monkeypatch: pytest.MonkeyPatch,
    chosen: dict[str, Any],
    state: jobs_pb2.MovedState,
    room: int,
    moved: int,
) -> None:
    monkeypatch.setattr(jobs, "PART_JOBS", 4)

    async def test(admin: Admin) -> None:
        fill(admin, room)
        fields = {"action": MOVE, "to_queue": "gearman:twist", "moved_state": state, **chosen}
        foretold = (await admin.change(**fields, dry_run=True))[-1]
        done = (await admin.change(**fields))[-1]
        assert foretold == done
        assert (done.changed, done.stopped_by) == (
            moved,
            FULL if moved < 10 and chosen is BY_FILTER else 0,
        )

    run(test)


def test_a_job_that_is_there_already_is_foretold() -> None:
    """The dry run said that it would be moved, and took a place in the queue for it."""

    async def test(admin: Admin) -> None:
        fill(admin, 1)
        fields = {"action": MOVE, "to_queue": "gearman:twist", "job_ids": [1, 2, 1]}
        foretold = (await admin.change(**fields, dry_run=True))[-1]
        outcomes = [one.outcome for one in foretold.results]
        assert outcomes == [THERE, jobs_pb2.JOB_OUTCOME_DONE, THERE]
        done = (await admin.change(**fields))[-1]
        assert done == foretold

    run(test)

"""`JobAdmin/Change` of ids with a queue and states: the jobs that are no longer there are left."""

from typing import Any

from beanpole import commands as c
from beanpole.pb import jobs_pb2
from tests.unit.beanpoled.test_jobs_rpc import BURIED, DELAYED, READY, Admin, run

DONE, NOT_FOUND, WRONG_STATE = (
    jobs_pb2.JOB_OUTCOME_DONE,
    jobs_pb2.JOB_OUTCOME_NOT_FOUND,
    jobs_pb2.JOB_OUTCOME_WRONG_STATE,
)


def test_jobs_are_kicked_where_they_were_chosen() -> None:
    async def test(admin: Admin) -> None:
        admin.put(b"1", b"2")
        admin.put(b"3", delay_s=60)
        for job in (1, 2):
            admin.apply((c.RESERVE_JOB, 1, job), (c.BURY, 1, job, 9))
        move: dict[str, Any] = {"action": jobs_pb2.JOB_ACTION_MOVE, "to_queue": "quarantine"}
        await admin.change(**move, job_ids=[2], moved_state=jobs_pb2.MOVED_STATE_BURIED)
        kick: dict[str, Any] = {
            "action": jobs_pb2.JOB_ACTION_KICK,
            "job_ids": [1, 2, 3],
            "filter": jobs_pb2.JobFilter(queue="work", states=[BURIED]),
        }
        for dry_run in (True, False):
            [told] = await admin.change(**kick, dry_run=dry_run)
            assert [one.outcome for one in told.results] == [DONE, NOT_FOUND, WRONG_STATE]
            assert (told.matched, told.changed, told.complete) == (3, 1, True)
        assert [one.state for one in await admin.jobs()] == [READY, BURIED, DELAYED]

    run(test)

"""The gRPC service `JobAdmin`: administrators list, read and change jobs and queues.

This file has the calls, their limits and their refusals. Filters are in `job_scan`, changes in
`job_changes`, the messages of jobs in `job_shapes`.
"""

import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

import grpc
import grpc.aio

from beanpole import commands as c
from beanpole.constants import JOB_ID_MAX, SECOND_US, U32_MAX
from beanpole.core.jobs.job import Job, Tube
from beanpole.pb import jobs_pb2, jobs_pb2_grpc
from beanpoled.rpc import job_shapes
from beanpoled.rpc.callers import Callers
from beanpoled.rpc.job_changes import NAMED_MAX, PART_JOBS, STOPPING, Changes, outcome
from beanpoled.rpc.job_scan import SCAN_MAX, Filter, Scan
from beanpoled.rpc.oldest import OldestJobs
from beanpoled.rpc.queue_names import queue_name
from beanpoled.rpc.server import CallRefused, Context, fail, refuse, write
from beanpoled.turn.node import Node

SERVICE: Final = jobs_pb2.DESCRIPTOR.services_by_name["JobAdmin"].full_name
LIMIT_DEFAULT: Final = 100
# Jobs in one reply: each takes some 15 us to convert, within the slices of a scan.
LIMIT_MAX: Final = 1000
# Queues in one reply, all converted in one step, which takes some 3 ms.
QUEUES_MAX: Final = 250
# Queues of qless in one reply; they come after all others.
QLESS_QUEUES_MAX: Final = 1000
# From here on `after` is the number of qless queues that were listed: no other serial is as large.
QLESS_AFTER: Final = 2**62
# The size of bodies (and results) in one reply: it stays far below gRPC's 4 MiB.
REPLY_BYTES_MAX: Final = 1024 * 1024
# The size of one body in a list; `GetJob` returns all of it.
BODY_MAX_BYTES: Final = 65_536
# Ids that the search for the oldest job of each queue visits: some seconds, in slices.
OLDEST_SCAN_MAX: Final = 1_000_000
# Each holds a machine's jobs for seconds, and takes a part of a core.
SCANS_MAX: Final = 4
# A reader that takes no message of a stream in this time is considered gone.
WRITE_TIMEOUT_S: Final = 30.0
# A feature of the cluster from machine version 4 on.
CHANGES: Final = "changes by administrators"
# A call that changes jobs ends between two of its parts after this time, and its caller continues.
# A caller's own time limit would end it within a part, whose result it would never get.
CHANGE_US: Final = 20 * SECOND_US


class JobAdminServicer(jobs_pb2_grpc.JobAdminServicer):
    """Lists and changes jobs and queues for administrators."""

    def __init__(self, node: Node, callers: Callers | None = None) -> None:
        self._context = node.context
        self._callers = callers or Callers(node)
        self._scans = 0
        self._oldest: OldestJobs | None = None  # of the most recent list

    def add_to(self, server: grpc.aio.Server) -> str:
        """Add the service to a server; return its full name."""
        jobs_pb2_grpc.add_JobAdminServicer_to_server(self, server)
        return SERVICE

    # --- queues ----------------------------------------------------------------------------------

    async def ListQueues(
        self, request: jobs_pb2.ListQueuesRequest, context: Context
    ) -> jobs_pb2.ListQueuesReply:
        try:
            name = queue_name(request.queue, "queue") if request.queue else b""
        except CallRefused as error:
            await refuse(context, error)
        if not request.local:
            await self._callers.barrier(context)
        queue = self._context.machine.queue
        limit = min(request.limit or QUEUES_MAX, QUEUES_MAX)
        if name:
            tube = queue.find(name)
            tubes, complete = ([] if tube is None else [tube]), True
        elif request.after >= QLESS_AFTER:
            return self._list_qless([], request.after - QLESS_AFTER)
        else:
            behind = (tube for tube in queue.tubes.values() if tube.serial > request.after)
            tubes = list(islice(behind, limit + 1))
            complete = len(tubes) <= limit
            tubes = tubes[:limit]
        now_us = self._now_us()
        found = [job_shapes.queue(self._context, tube, now_us) for tube in tubes]
        oldest_complete = False
        if request.oldest:
            oldest_complete = await self._add_oldest(request, tubes, found, context)
        after = tubes[-1].serial if tubes else request.after
        if complete and not name:
            return self._list_qless(found, 0, oldest_complete)
        return jobs_pb2.ListQueuesReply(
            queues=found, next_after=after, complete=complete, oldest_complete=oldest_complete
        )

    def _list_qless(
        self, found: list[jobs_pb2.AdminQueue], listed: int, oldest_complete: bool = True
    ) -> jobs_pb2.ListQueuesReply:
        """Add the next queues of qless to the end of the others, as far as one reply has room.

        Their order is the same at all nodes. A queue that is removed during a list can hide
        another one, because they are counted.
        """
        queues = self._context.machine.qless.queues
        listed = min(listed, len(queues))  # a caller may send any number
        size = 0
        for queue in islice(queues.values(), listed, listed + QLESS_QUEUES_MAX):
            found.append(job_shapes.qless_queue(queue))
            size += len(found[-1].name)  # of up to 16 KiB each
            listed += 1
            if size >= REPLY_BYTES_MAX:
                break
        return jobs_pb2.ListQueuesReply(
            queues=found,
            next_after=QLESS_AFTER + listed,
            complete=listed >= len(queues),
            oldest_complete=oldest_complete,
        )

    async def _add_oldest(
        self,
        request: jobs_pb2.ListQueuesRequest,
        tubes: list[Tube],
        found: list[jobs_pb2.AdminQueue],
        context: Context,
    ) -> bool:
        """Add the oldest job of each queue; return False if a scan did not find all of them."""
        wanted = {
            tube.serial: one
            for tube, one in zip(tubes, found, strict=True)
            if job_shapes.has_jobs(tube)
        }
        if not wanted:
            return True
        machine, now_s = self._context.machine, time.monotonic()
        oldest = self._oldest
        if request.queue:
            oldest = OldestJobs(tubes[0].serial - 1, tubes, now_s)
        elif not request.after or oldest is None or not oldest.covers(tubes, now_s):
            oldest = OldestJobs(request.after, machine.queue.tubes.values(), now_s)
            self._oldest = oldest
        if oldest.misses(wanted):
            newest_id = machine.queue.next_id - 1
            scan = Scan(self._context, oldest.at_id, newest_id, OLDEST_SCAN_MAX)
            await self._scan(scan, Filter(jobs_pb2.JobFilter(), machine), oldest.take, context)
            oldest.at_id = max(oldest.at_id, scan.at_id)
        now_us = self._now_us()
        for serial in wanted.keys() & oldest.jobs.keys():
            one = wanted[serial]
            one.oldest_id, put_us = oldest.jobs[serial]
            one.oldest_age_us = max(0, now_us - put_us)
        return wanted.keys() <= oldest.jobs.keys()

    async def PauseQueue(
        self, request: jobs_pb2.PauseQueueRequest, context: Context
    ) -> jobs_pb2.PauseQueueReply:
        try:
            name = queue_name(request.queue, "queue")
            if request.seconds > U32_MAX:
                words = f"a pause of {request.seconds} s; at most {U32_MAX}"
                raise CallRefused("BAD_PAUSE", "seconds", words)
        except CallRefused as error:
            await refuse(context, error)
        await self._callers.check_known(c.PAUSE_QUEUE, CHANGES, context)
        seconds = request.seconds
        results = await self._callers.do(
            context, lambda call: call.submit(c.PAUSE_QUEUE, name, seconds)
        )
        if results[0] != c.OK:
            await fail(
                context, grpc.StatusCode.NOT_FOUND, f"no queue {request.queue!r}", "NO_QUEUE"
            )
        return jobs_pb2.PauseQueueReply()

    # --- reading jobs ----------------------------------------------------------------------------

    async def ListJobs(
        self, request: jobs_pb2.ListJobsRequest, context: Context
    ) -> jobs_pb2.ListJobsReply:
        if not request.local:
            await self._callers.barrier(context)
        try:
            wanted = Filter(request.filter, self._context.machine)
        except CallRefused as error:
            await refuse(context, error)
        limit = min(request.limit or LIMIT_DEFAULT, LIMIT_MAX)
        body_bytes = min(request.body_bytes, BODY_MAX_BYTES)
        scan = Scan(self._context, request.after_id, JOB_ID_MAX, SCAN_MAX)
        reply = jobs_pb2.ListJobsReply()
        size = 0

        def take(job: Job) -> bool:
            nonlocal size
            one = job_shapes.job(self._context, job, body_bytes, self._now_us())
            reply.jobs.append(one)
            size += len(one.body) + len(one.result)
            return len(reply.jobs) == limit or size >= REPLY_BYTES_MAX

        await self._scan(scan, wanted, take, context)
        reply.complete = scan.complete
        reply.next_after_id = self._last_id(scan)
        reply.scanned = scan.scanned
        return reply

    def _last_id(self, scan: Scan) -> int:
        return min(scan.at_id, self._context.machine.queue.next_id - 1)

    async def _scan(
        self, scan: Scan, wanted: Filter, take: Callable[[Job], bool], context: Context
    ) -> None:
        if self._scans >= SCANS_MAX:
            message = f"{SCANS_MAX} searches are under way here; ask another node, or later"
            await fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, message, "TOO_MANY_SCANS")
        self._scans += 1
        try:
            await scan.run(wanted, take)
        finally:
            self._scans -= 1

    async def GetJob(self, request: jobs_pb2.GetJobRequest, context: Context) -> jobs_pb2.AdminJob:
        if not request.local:
            await self._callers.barrier(context)
        machine = self._context.machine
        job = machine.queue.jobs.get(request.id)
        if job is not None:
            return job_shapes.job(self._context, job, len(job.body), self._now_us())
        if request.id in machine.qless.by_id:
            message = f"job {request.id} is one of qless: read it with a client of qless"
            await fail(context, grpc.StatusCode.FAILED_PRECONDITION, message, "QLESS")
        await fail(context, grpc.StatusCode.NOT_FOUND, f"there is no job {request.id}", "NO_JOB")

    # --- changing jobs ---------------------------------------------------------------------------

    async def Change(self, request: jobs_pb2.ChangeRequest, context: Context) -> None:
        if request.dry_run:
            await self._callers.barrier(context)
        else:
            await self._callers.check_known(c.CHANGE_JOB, CHANGES, context)
            await self._callers.barrier(context)
        try:
            change = Changes(request, self._context.machine)
        except CallRefused as error:
            await refuse(context, error)
        if change.job_ids:
            results = await self._tell(change, change.job_ids, request.dry_run, context)
            done = sum(one.outcome == jobs_pb2.JOB_OUTCOME_DONE for one in results)
            message = jobs_pb2.ChangeProgress(
                matched=len(results), changed=done, complete=True, results=results
            )
            await write(context, message, WRITE_TIMEOUT_S)
            return
        await self._change_many(change, request, context)

    async def _tell(
        self,
        change: Changes,
        job_ids: tuple[int, ...],
        dry_run: bool,
        context: Context,
        begun: bool = False,
    ) -> list[jobs_pb2.JobResult]:
        """Apply the change to some jobs, or predict it; `begun`: others are changed already."""
        machine = self._context.machine
        if dry_run:
            outcomes = [change.foretell(machine, job_id) for job_id in job_ids]
        else:
            outcomes = []
            for first in range(0, len(job_ids), PART_JOBS):
                part = job_ids[first : first + PART_JOBS]
                give = partial(change.give, part)
                results = await self._callers.do(context, give, begun=begun or first > 0)
                outcomes += map(outcome, [self._context.machine] * len(part), part, results)
        return [
            jobs_pb2.JobResult(id=job_id, outcome=one)
            for job_id, one in zip(job_ids, outcomes, strict=True)
        ]

    async def _change_many(
        self, change: Changes, request: jobs_pb2.ChangeRequest, context: Context
    ) -> None:
        machine = self._context.machine
        up_to_id = request.up_to_id or machine.queue.next_id - 1
        told = jobs_pb2.ChangeProgress(
            after_id=request.after_id, up_to_id=up_to_id, to_scan=len(machine.queue.jobs)
        )
        # The reader learns how to resume before anything is changed.
        await write(context, told, WRITE_TIMEOUT_S)
        scanned, end_us = 0, self._context.host.now_us() + CHANGE_US
        while not told.complete and not told.stopped_by:
            scan = Scan(self._context, told.after_id, up_to_id, SCAN_MAX)
            left = request.count_max - told.changed if request.count_max else PART_JOBS
            part = await self._part(scan, change, min(left, PART_JOBS), context)
            begun = told.changed > 0
            results = await self._tell(change, tuple(part), request.dry_run, context, begun)
            scanned += scan.scanned
            _add(told, results)
            told.scanned = scanned
            told.after_id = self._last_id(scan)
            told.complete = scan.complete or (0 < request.count_max <= told.changed)
            await write(context, told, WRITE_TIMEOUT_S)
            if self._context.host.now_us() >= end_us:
                return

    async def _part(
        self, scan: Scan, change: Changes, jobs_max: int, context: Context
    ) -> list[int]:
        """Return the ids of the next jobs to change."""
        part: list[int] = []

        def take(job: Job) -> bool:
            part.append(job.id)
            return len(part) == jobs_max

        await self._scan(scan, change.wanted, take, context)
        return part

    # --- conditions ------------------------------------------------------------------------------

    def _now_us(self) -> int:
        """Return the cluster's time, as far as this node knows it."""
        context = self._context
        now_us = context.clock.estimate_us(context.host.now_us())
        return max(now_us, context.machine.queue.now_us)


def _add(told: jobs_pb2.ChangeProgress, results: list[jobs_pb2.JobResult]) -> None:
    """Add the results of some jobs to the progress of a stream."""
    told.matched += len(results)
    for one in results:
        if one.outcome == jobs_pb2.JOB_OUTCOME_DONE:
            told.changed += 1
        elif len(told.results) < NAMED_MAX:
            told.results.append(one)
        if one.outcome in STOPPING:
            told.stopped_by = one.outcome

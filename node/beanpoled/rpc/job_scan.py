"""The search for jobs: filters of requests, and a scan over all jobs in short slices.

Nothing here changes a job. The calls are in `jobs`, the messages of jobs in `job_shapes`.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from beanpole.core.jobs.job import BURIED, DELAYED, DONE, FAILED, READY, RESERVED, Job
from beanpole.core.jobs.spaces import SPACES, Space
from beanpole.core.machine import Machine
from beanpole.events import PROTOCOL_NUMBERS, QLESS
from beanpole.pb import jobs_pb2
from beanpoled.rpc.queue_names import NO_QLESS, queue_name
from beanpoled.rpc.server import CallRefused
from beanpoled.shared.context import Context

# A call visits at most this many ids: a second or two of a node's time, with bodies. Then its
# caller decides whether to go on.
SCAN_MAX: Final = 200_000
# A slice holds the loop no longer than this, except for a search of the largest body. Clients then
# get the same time: a scan takes half of a core at most.
SLICE_S: Final = 0.002
# The clock is read after this many bytes of bodies, which are searched at several GB/s. An id
# counts as ID_BYTES, because most ids take no longer than that many bytes: 1 us.
LOOK_BYTES: Final = 512 * 1024
ID_BYTES: Final = 4096
# A longer text would not speed up the search.
TEXT_MAX_BYTES: Final = 1024

STATES: Final = {
    jobs_pb2.JOB_STATE_READY: READY,
    jobs_pb2.JOB_STATE_RESERVED: RESERVED,
    jobs_pb2.JOB_STATE_DELAYED: DELAYED,
    jobs_pb2.JOB_STATE_BURIED: BURIED,
    jobs_pb2.JOB_STATE_DONE: DONE,
    jobs_pb2.JOB_STATE_FAILED: FAILED,
}


class Filter:
    """The conditions that a job must meet.

    Attributes:
        queue: the queue's own name, with its prefix; empty for any.
        states: a bit for each accepted state (1 << state).
        text: a text that the body must contain; empty for any body.
    """

    def __init__(self, request: jobs_pb2.JobFilter, machine: Machine) -> None:
        """Parse a filter.

        Raises:
            CallRefused: it is wrong, with the field.
        """
        self.queue = b""
        if request.queue:
            name = queue_name(request.queue, "filter.queue")
            self.queue = machine.queue.aliases.queue_of(name)
        self.states = 0
        for state in request.states:
            if state not in STATES:
                words = f"{state} is no state of a job: ready, reserved, delayed, buried, done"
                raise CallRefused("BAD_STATE", "filter.states", f"{words}, failed")
            self.states |= 1 << STATES[state]
        self.states = self.states or -1
        self.text = request.body_contains
        if len(self.text) > TEXT_MAX_BYTES:
            words = f"a text of {len(self.text)} bytes to look for; at most {TEXT_MAX_BYTES}"
            raise CallRefused("TEXT_TOO_LONG", "filter.body_contains", words)
        if request.age_max_us and request.age_max_us < request.age_min_us:
            words = "no job is older than age_min_us and younger than age_max_us, which is less"
            raise CallRefused("BAD_AGE", "filter.age_max_us", words)
        now_us = machine.queue.now_us
        # Ages are those at the beginning of the call, so that no job grows into a filter during it.
        self._until_us = now_us - request.age_min_us
        self._from_us = now_us - request.age_max_us if request.age_max_us else None
        self._space = _space(request.protocol)

    def keep_to(self, space: Space, to_queue: str) -> None:
        """Accept only jobs of one space, because others cannot move to the given queue.

        Raises:
            CallRefused: the filter asks for jobs of another space.
        """
        if self._space not in (0, space.number):
            words = f"{to_queue!r} is no queue of the protocol that is asked for"
            raise CallRefused("OTHER_PROTOCOL", "to_queue", f"{words}; a job stays in its own")
        self._space = space.number

    def matches(self, job: Job) -> bool:
        """Whether a job meets all conditions now."""
        return (
            (not self.queue or job.tube.name == self.queue)
            and bool(self.states >> job.state & 1)
            and job.created_us <= self._until_us
            and (self._from_us is None or job.created_us >= self._from_us)
            and (not self._space or job.tube.space.number == self._space)
            and (not self.text or self.text in job.body)
        )


def _space(protocol: str) -> int:
    if not protocol:
        return 0
    spaces = {name: number for name, number in PROTOCOL_NUMBERS.items() if number in SPACES}
    number = spaces.get(protocol, 0)
    if number == QLESS:
        raise CallRefused("QLESS", "filter.protocol", NO_QLESS)
    if not number:
        known = ", ".join(name for name, number in spaces.items() if number != QLESS)
        words = f"{protocol!r} is no protocol with queues of its own: {known}"
        raise CallRefused("BAD_PROTOCOL", "filter.protocol", words)
    return number


class Scan:
    """A walk over the present jobs, in the order of their ids.

    Attributes:
        at_id: all jobs up to this id were visited.
        scanned: the number of jobs visited.
        complete: whether all jobs were visited.
    """

    def __init__(self, context: Context, after_id: int, up_to_id: int, ids_max: int) -> None:
        self._context = context
        self._up_to_id = up_to_id
        self._ids_max = ids_max
        self.at_id = after_id
        self.scanned = 0
        self.complete = False

    async def run(self, wanted: Filter, take: Callable[[Job], bool]) -> None:
        """Pass the jobs that match, in their present state, to `take` until it returns True."""
        jobs = self._context.machine.queue.jobs
        begun_s, looked = time.perf_counter(), 0
        for count, job_id in enumerate(jobs.ids_behind(self.at_id)):
            if job_id > self._up_to_id:
                break
            if count == self._ids_max:
                return
            if looked >= LOOK_BYTES:
                spent_s, looked = time.perf_counter() - begun_s, 0
                if spent_s >= SLICE_S:
                    await asyncio.sleep(spent_s)
                    begun_s = time.perf_counter()
                    jobs = self._context.machine.queue.jobs  # a snapshot may have replaced it
            self.at_id = job_id
            looked += ID_BYTES
            job = jobs.get(job_id)
            if job is not None:
                self.scanned += 1
                looked += len(job.body) if wanted.text else 0
                if wanted.matches(job) and take(job):
                    return
        self.complete = True
        self.at_id = self._up_to_id

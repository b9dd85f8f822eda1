"""A double of a node: real gRPC, with events from a list and a dictionary as its queue.

Tests with real nodes do not replace it: no real node can be made to drop events between planning
and reading, to fail after the second batch, to send the columns of another version or to lose a
reply.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NoReturn

import grpc
import pyarrow as pa

from beanpole.client.rpc import ERROR_KEY
from beanpole.pb import (
    errors_pb2,
    events_pb2,
    events_pb2_grpc,
    jobs_pb2,
    jobs_pb2_grpc,
    node_pb2,
    queue_pb2,
    queue_pb2_grpc,
)
from pyspark_beanpole.schema import EVENTS, arrow_schema

BATCH_ROWS: Final = 64
# Event n of a double happens n seconds after this time.
BEGAN: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)


def event(offset: int, **changes: object) -> dict[str, object]:
    """Return the columns of an event; the defaults are those of a put."""
    return {
        **dict.fromkeys(EVENTS.names),
        "offset": offset,
        "log_index": offset // 2 + 1,
        "position": offset % 2,
        "time_us": offset * 1_000_000,
        "wall_time": datetime.fromtimestamp(BEGAN.timestamp() + offset, UTC),
        "protocol": "beanstalk",
        "event": "put",
        "tube": "default",
        "job_id": offset + 1,
        "state_before": "gone",
        "state": "ready",
        "priority": 0,
        "host": "10.0.0.1",
        **changes,
    }


@dataclass
class Log:
    """The events that the nodes of a cluster share."""

    cluster: str = "double"
    # Its birth id; empty as of a node of release 0.3.0.
    birth: str = ""
    events: list[dict[str, object]] = field(default_factory=list)
    # The number of jobs in each state after the last event.
    jobs: dict[str, int] = field(default_factory=dict)
    batches: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def grow(self, count: int) -> None:
        """Append put events."""
        self.events += [event(len(self.events) + number) for number in range(count)]

    def batch(self, first: int, end: int) -> bytes:
        """Return a range of events in the format that nodes send."""
        if (first, end) not in self.batches:
            schema = arrow_schema(EVENTS)
            self.batches[first, end] = stream(
                pa.RecordBatch.from_pylist(self.events[first:end], schema)
            )
        return self.batches[first, end]


def stream(batch: pa.RecordBatch) -> bytes:
    """Return an Arrow IPC stream of one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    sent: bytes = sink.getvalue().to_pybytes()
    return sent


class Double(
    events_pb2_grpc.EventsServicer, queue_pb2_grpc.QueueServicer, jobs_pb2_grpc.JobAdminServicer
):
    """A double of one node."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.first = 0
        # Offsets in which this node has a gap.
        self.missing = range(0)
        # The number of events that this node lags behind the log.
        self.behind = 0
        # The number of batches after which each stream of this node breaks; None for never.
        self.breaks_after: int | None = None
        # The source of the batches, which tests replace to send others than the log's.
        self.send: Callable[[int, int], bytes] = log.batch
        self.reads: list[tuple[int, int]] = []
        self.jobs: dict[bytes, queue_pb2.PutJob] = {}
        # Replies to Put still to be lost, repeated keys so far, and calls still to find no room.
        self.lost_replies = 0
        self.duplicates = 0
        self.full = 0
        self.full_outcome = queue_pb2.PUT_OUTCOME_OUT_OF_MEMORY
        self.body_bytes_max = 65535
        self.kicked: list[int] = []
        self.filters: list[tuple[str | int, ...]] = []  # the queue and states of each kick
        # Jobs that are no longer where they were chosen.
        self.moved: set[int] = set()
        # The kicks that are done and get no answer, by their number, and those that are not begun.
        self.lost_kicks = range(0)
        self.kicks_max: int | None = None
        self.kicks = 0
        self._server = grpc.server(ThreadPoolExecutor(8), options=(("grpc.so_reuseport", 0),))
        events_pb2_grpc.add_EventsServicer_to_server(self, self._server)
        queue_pb2_grpc.add_QueueServicer_to_server(self, self._server)
        jobs_pb2_grpc.add_JobAdminServicer_to_server(self, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        self._server.start()

    def stop(self) -> None:
        """Stop at once, as a killed process does."""
        self._server.stop(None).wait()

    @property
    def end(self) -> int:
        return len(self.log.events) - self.behind

    @property
    def spans(self) -> list[tuple[int, int]]:
        gap = self.missing or range(self.end, self.end)
        spans = [(self.first, gap.start), (gap.stop, self.end)]
        return [(first, end) for first, end in spans if first < end]

    def EventRange(
        self, request: events_pb2.EventRangeRequest, context: grpc.ServicerContext
    ) -> events_pb2.EventRangeReply:
        walls = enumerate(self.log.events[self.first : self.end], self.first)
        wanted = datetime.fromtimestamp(request.wall_us / 1_000_000, UTC)
        return events_pb2.EventRangeReply(
            cluster=self.log.cluster,
            birth=self.log.birth,
            spans=[events_pb2.Span(first=first, end=end) for first, end in self.spans],
            end=self.end,
            jobs=node_pb2.Jobs(**self.log.jobs),
            offset_at_wall=next(
                (at for at, one in walls if at not in self.missing and _moment(one) >= wanted),
                self.end,
            ),
        )

    def ReadEvents(
        self, request: events_pb2.ReadEventsRequest, context: grpc.ServicerContext
    ) -> Iterator[events_pb2.EventBatch]:
        end = min(request.end or self.end, self.end)
        self.reads.append((request.start, end))
        if request.start >= end:
            return
        held = next((last for first, last in self.spans if first <= request.start < last), 0)
        if held < end:
            _refuse(context, "EVENTS_MISSING" if request.start >= self.first else "EVENTS_GONE")
        begin = request.start - request.start % BATCH_ROWS
        for count, first in enumerate(range(begin, end, BATCH_ROWS)):
            if count == self.breaks_after:
                context.abort(grpc.StatusCode.UNAVAILABLE, "broken on purpose")
            last = min(first + BATCH_ROWS, held)
            yield events_pb2.EventBatch(
                first=first, rows=last - first, arrow=self.send(first, last)
            )

    def Put(
        self, request: queue_pb2.PutRequest, context: grpc.ServicerContext
    ) -> queue_pb2.PutReply:
        if self.full:
            self.full -= 1
            full = queue_pb2.PutResult(outcome=self.full_outcome)
            return queue_pb2.PutReply(results=[full] * len(request.jobs))
        for place, job in enumerate(request.jobs):
            if len(job.body) > self.body_bytes_max:
                field = f"jobs[{place}].body"
                detail = errors_pb2.ErrorDetail(reason="JOB_TOO_BIG", field=field)
                context.set_trailing_metadata(((ERROR_KEY, detail.SerializeToString()),))
                words = f"a body of {len(job.body)} bytes; max_job_size is {self.body_bytes_max}"
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, words)
        results = []
        for job in request.jobs:
            known = job.key in self.jobs
            self.duplicates += known
            self.jobs.setdefault(job.key, job)
            outcome = queue_pb2.PUT_OUTCOME_DUPLICATE if known else queue_pb2.PUT_OUTCOME_INSERTED
            results.append(queue_pb2.PutResult(job_id=len(self.jobs), outcome=outcome))
        if self.lost_replies:
            self.lost_replies -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "the reply is lost on purpose")
        return queue_pb2.PutReply(results=results)

    def Change(
        self, request: jobs_pb2.ChangeRequest, context: grpc.ServicerContext
    ) -> Iterator[jobs_pb2.ChangeProgress]:
        assert request.action == jobs_pb2.JOB_ACTION_KICK
        if self.kicks == self.kicks_max:
            context.abort(
                grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses: on purpose"
            )
        told = jobs_pb2.ChangeProgress(matched=len(request.job_ids), complete=True)
        for job in request.job_ids:
            outcome = jobs_pb2.JOB_OUTCOME_NOT_FOUND
            if job not in self.moved | set(self.kicked):
                outcome = jobs_pb2.JOB_OUTCOME_DONE
                self.kicked.append(job)
                told.changed += 1
            told.results.append(jobs_pb2.JobResult(id=job, outcome=outcome))
        self.filters.append((request.filter.queue, *request.filter.states))
        self.kicks += 1
        if self.kicks - 1 in self.lost_kicks:
            context.abort(grpc.StatusCode.INTERNAL, "the reply is lost on purpose")
        yield told


def _moment(one: dict[str, object]) -> datetime:
    found = one["wall_time"]
    assert isinstance(found, datetime)
    return found


def _refuse(context: grpc.ServicerContext, reason: str) -> NoReturn:
    detail = errors_pb2.ErrorDetail(reason=reason).SerializeToString()
    context.set_trailing_metadata(((ERROR_KEY, detail),))
    context.abort(grpc.StatusCode.OUT_OF_RANGE, "on purpose")
    raise AssertionError("abort always raises")

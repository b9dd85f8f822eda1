"""The commands of the synchronous client. `blocking` has its connection.

`make references` writes this file from `aio_commands`: change them there.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from beanpole.client.blocking_wire import Wire
from beanpole.client.client_base import ClientBase
from beanpole.client.sansio import batches
from beanpole.client.sansio.shapes import (
    DEFAULT_DELAY,
    DEFAULT_PRIORITY,
    DEFAULT_TTR,
    Job,
    JobOrID,
    Stats,
    StatsJob,
    StatsTube,
    TBody,
)
from beanpole.client.sansio.steps import Steps

_Result = TypeVar("_Result")


class BlockingCommands(ClientBase[TBody]):
    """The commands of beanstalk, each of which asks a node."""

    _wire: Wire

    def put(
        self,
        body: TBody,
        priority: int = DEFAULT_PRIORITY,
        delay: int = DEFAULT_DELAY,
        ttr: int = DEFAULT_TTR,
        *,
        key: str | None = None,
    ) -> int:
        """Put a job into the used tube and return its id. Delay and TTR are in seconds.

        Args:
            body: the body of the job.
            priority: 0 is the most urgent.
            delay: how long to wait before the job is ready.
            ttr: how long a worker may hold the job before it is ready again.
            key: an idempotency key of 1 to 64 printable characters: of all puts with one key, in
                any tube, the first makes a job and the others return its id. The client repeats
                such a put when a reply is lost.

        Raises:
            MayBeDoneError: the outcome is unknown: the reply was lost, and for a put with a key the
                repetition had no answer or was refused. A second put without a key may make a
                second job.
            DrainingError: no node accepts puts now.
            NotAvailableError: the put has a key, and the server does not support keys.
        """
        return self._run(self._commands.put(body, priority, delay, ttr, key))

    def use(self, tube: str) -> None:
        """Use this tube for puts from now on, also on later connections."""
        self._run(self._commands.use(tube))

    def reserve(self, timeout: int | None = None) -> Job[TBody]:
        """Wait for a job of the watched tubes, for `timeout` seconds or without limit.

        Raises:
            TimedOutError: no job was ready in time.
            DeadlineSoonError: the TTR of a job reserved by this client ends within a second.
        """
        return self._run(self._commands.reserve(timeout))

    def reserve_job(self, id: int) -> Job[TBody]:
        """Reserve one job by its id, in any tube and state, unless it is reserved.

        Raises:
            NotFoundError: there is no such job, or it is reserved.
            MayBeDoneError: the connection ended, and the second attempt did not find the job. The
                first may have reserved it; the cluster then releases it when it notices the loss.
        """
        return self._run(self._commands.reserve_job(id))

    def delete(self, job: JobOrID[TBody], *, wait_s: float | None = None) -> None:
        """Delete a job that no other client has reserved; for `wait_s` see `touch`."""
        self._run(self._commands.delete(job, wait_s))

    def release(
        self,
        job: JobOrID[TBody],
        priority: int = DEFAULT_PRIORITY,
        delay: int = DEFAULT_DELAY,
        *,
        wait_s: float | None = None,
    ) -> None:
        """Release a job reserved by this client; it is ready again after `delay` seconds.

        For `wait_s` see `touch`.
        """
        self._run(self._commands.release(job, priority, delay, wait_s))

    def bury(
        self,
        job: JobOrID[TBody],
        priority: int = DEFAULT_PRIORITY,
        *,
        wait_s: float | None = None,
    ) -> None:
        """Bury a job reserved by this client: it is not given out until it is kicked.

        For `wait_s` see `touch`.
        """
        self._run(self._commands.bury(job, priority, wait_s))

    def touch(self, job: JobOrID[TBody], *, wait_s: float | None = None) -> None:
        """Restart the TTR of a job reserved by this client.

        Args:
            job: the job, or its id.
            wait_s: how long to wait for the first node's connection or reply, above 0. It doubles
                with each next node; the time-outs of the client remain the upper limit.
        """
        self._run(self._commands.touch(job, wait_s))

    def holds(self, job: JobOrID[TBody]) -> bool:
        """Whether this client has a job reserved, after a `MayBeDoneError` at its end.

        A client whose session is kept resumes it, and the cluster tells. If so, the end may be
        repeated. If not, the job has been ended, or was lost.

        Raises:
            NoNodeError: no node answers.
        """
        return self._run(self._commands.holds(job))

    def watch(self, tube: str) -> int:
        """Add this tube to the watch list; return the number of watched tubes."""
        return self._run(self._commands.watch(tube))

    def ignore(self, tube: str) -> int:
        """Remove this tube from the watch list; return the number of watched tubes."""
        return self._run(self._commands.ignore(tube))

    def peek(self, id: int) -> Job[TBody]:
        """Return a job by its id, without reserving it."""
        return self._run(self._commands.peek(id))

    def peek_ready(self) -> Job[TBody]:
        """Return the used tube's next ready job, without reserving it."""
        return self._run(self._commands.peek_next("ready"))

    def peek_delayed(self) -> Job[TBody]:
        """Return the used tube's next delayed job, without reserving it."""
        return self._run(self._commands.peek_next("delayed"))

    def peek_buried(self) -> Job[TBody]:
        """Return the used tube's next buried job, without reserving it."""
        return self._run(self._commands.peek_next("buried"))

    def kick(self, bound: int) -> int:
        """Make up to `bound` jobs of the used tube ready: buried ones, or else delayed ones.

        Returns:
            The number of jobs that became ready.

        Raises:
            MayBeDoneError: the reply was lost; a second kick may kick other jobs.
        """
        return self._run(self._commands.kick(bound))

    def kick_job(self, job: JobOrID[TBody]) -> None:
        """Make one buried or delayed job ready.

        If the reply is lost, the command is repeated. It kicks the job once more if the job was
        buried again in between.

        Raises:
            MayBeDoneError: the reply was lost, and the repetition found no such job or was refused.
        """
        self._run(self._commands.kick_job(job))

    def stats_job(self, job: JobOrID[TBody]) -> StatsJob:
        """Return the statistics of a job."""
        return self._run(self._commands.stats_job(job))

    def stats_tube(self, tube: str) -> StatsTube:
        """Return the statistics of a tube."""
        return self._run(self._commands.stats_tube(tube))

    def stats(self) -> Stats:
        """Return the statistics of the node and its cluster."""
        return self._run(self._commands.stats())

    def tubes(self) -> list[str]:
        """Return the names of all tubes."""
        return self._run(self._commands.tubes())

    def using(self) -> str:
        """Return the tube for puts."""
        return self._run(self._commands.using())

    def watching(self) -> list[str]:
        """Return the tubes for reserves."""
        return self._run(self._commands.watching())

    def pause_tube(self, tube: str, delay: int) -> None:
        """Stop reserves from a tube for `delay` seconds."""
        self._run(self._commands.pause_tube(tube, delay))

    def put_many(
        self,
        bodies: Iterable[TBody],
        priority: int = DEFAULT_PRIORITY,
        delay: int = DEFAULT_DELAY,
        ttr: int = DEFAULT_TTR,
    ) -> list[int]:
        """Put jobs into the used tube together and return their ids, in order.

        Raises:
            BatchError: some jobs were not put, or it is unknown whether they were; it has the
                result of each.
        """
        return self._run(batches.put_many(self._commands, bodies, priority, delay, ttr))

    def reserve_many(
        self,
        count: int,
        timeout: int | None = None,
    ) -> list[Job[TBody]]:
        """Wait for a job as `reserve` does, and reserve up to `count` jobs that are ready then.

        Raises:
            TimedOutError: no job was ready in time.
            BatchError: a body is not in the client's encoding; `results` has the other jobs, and
                `held` the ids of all.
            ValueError: `count` is not from 1 to 1000.
        """
        return self._run(batches.reserve_many(self._commands, count, timeout))

    def delete_many(self, jobs: Sequence[JobOrID[TBody]]) -> list[bool]:
        """Delete jobs together; return for each whether it existed and could be deleted.

        Raises:
            BatchError: the outcome of some jobs is unknown; it has the result of each.
        """
        return self._run(batches.delete_many(self._commands, jobs))

    def _run(self, steps: Steps[_Result]) -> _Result:
        return self._wire.run(steps)

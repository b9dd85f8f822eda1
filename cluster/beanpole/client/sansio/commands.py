"""The commands of a client: the request, the reply, and whether the request may be repeated.

A command whose reply was lost is repeated if it is idempotent. Ids are never reused, so a second
delete, release or bury of the same reservation changes nothing. A second kick-job changes nothing
unless the job was buried again in between; then the job is tried once more. When the second attempt
finds nothing, the first may have been done: the command raises `MayBeDoneError`.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, cast

from beanpole.client.interrupts import is_of_handler
from beanpole.client.patience import PAUSE_MIN_S, WAIT_SLICE_S, jitter
from beanpole.client.sansio import faults
from beanpole.client.sansio.session import TRIES_MAX, Session
from beanpole.client.sansio.shapes import (
    Job,
    JobOrID,
    Stats,
    StatsJob,
    StatsTube,
    TBody,
    parse_list,
    parse_stats,
)
from beanpole.client.sansio.steps import Endpoint, Pause, Steps
from beanpole.protocol.beanstalk.client import Reply, encode, encode_put, encode_put_unique
from beanpole.protocol.beanstalk.requests import is_tube_name


class Commands(Generic[TBody]):
    """The commands of one client as generators of steps."""

    def __init__(self, session: Session, encoding: str | None, clock: Callable[[], float]) -> None:
        self.session = session
        self.encoding = encoding
        self.clock = clock

    # --- producing ------------------------------------------------------------------------------

    def put(self, body: TBody, priority: int, delay: int, ttr: int, key: str | None) -> Steps[int]:
        """See the clients. A put with a key is idempotent, so it is repeated."""
        numbers = whole(priority), whole(delay), whole(ttr)
        if key is not None:
            data = encode_put_unique(key.encode(), self.encoded(body), *numbers)
            reply = yield from self._put(data, needs=b"put-unique")
            found: int = expected(reply, b"EXISTS" if reply[0] == b"EXISTS" else b"INSERTED")[1][0]
            return found
        request = encode_put(self.encoded(body), *numbers)
        reply = yield from self._put(request, repeat=False)
        job: int = expected(reply, b"INSERTED")[1][0]
        return job

    def use(self, tube: str) -> Steps[None]:
        """See the clients."""
        name = tube.encode("ascii")
        reply, _ = yield from self.session.ask(encode(b"use", name))
        expected(reply, b"USING")
        self.session.used = name

    # --- reserving ------------------------------------------------------------------------------

    def reserve(self, timeout: int | None) -> Steps[Job[TBody]]:
        """See the clients."""
        jobs = yield from self.reserve_up_to(1, timeout)
        return jobs[0]

    def reserve_up_to(self, count: int, timeout: int | None) -> Steps[list[Job[TBody]]]:
        """Wait for a job, and reserve the others that are ready then, up to `count` in all.

        The wait is done in slices. If a reply is lost and the session is kept, the jobs that it
        reserved are returned first. Otherwise they returned to their queues, and the wait goes on
        with what is left of it.
        """
        session = self.session
        # The protocol has whole seconds: with the fraction, another slice would follow.
        left_s = WAIT_SLICE_S if timeout is None else whole(timeout)
        until = None if timeout is None else self.clock() + left_s
        losses = 0
        while True:
            if jobs := (yield from self._orphans(count)):
                return jobs
            slice_s = max(0, min(WAIT_SLICE_S, left_s))
            requests = [encode(b"reserve-with-timeout", slice_s)]
            requests += [encode(b"reserve-with-timeout", 0)] * (count - 1)
            replies: list[Reply] = []
            try:
                got, _ = yield from session.ask_all(requests, repeat=False, wait_s=slice_s)
                self._check_reserved(requests, got)
                replies, losses = got, 0
            except faults.MayBeDoneError:
                losses += 1
                if losses == TRIES_MAX:
                    raise
                yield Pause(jitter(PAUSE_MIN_S))
            reserved = [one for one in replies if one[0] == b"RESERVED"]
            if reserved:
                return self._all_reserved(reserved)
            if until is not None:
                left_s = round(until - self.clock())
            if not replies:
                continue
            if replies[0][0] != b"TIMED_OUT" or left_s <= 0:
                expected(replies[0], b"RESERVED")

    def reserve_job(self, job: int) -> Steps[Job[TBody]]:
        """See the clients."""
        reply, again = yield from self.session.ask(encode(b"reserve-job", job))
        if again and job in self.session.orphans:
            return self._job((yield from self._orphan(job)))
        if again and reply[0] == b"NOT_FOUND":
            raise faults.MayBeDoneError("the connection that ended may have reserved it")
        if reply[0] == b"RESERVED":
            self._check_reserved([encode(b"reserve-job", job)], [reply])
        return self._reserved(reply)

    def delete(self, job: JobOrID[TBody], wait_s: float | None = None) -> Steps[None]:
        """See the clients."""
        with self.session.waits.at_first(wait_s):
            yield from self._end(encode(b"delete", job_id(job)), b"DELETED", job)

    def release(
        self, job: JobOrID[TBody], priority: int, delay: int, wait_s: float | None = None
    ) -> Steps[None]:
        """See the clients."""
        request = encode(b"release", job_id(job), whole(priority), whole(delay))
        with self.session.waits.at_first(wait_s):
            yield from self._end(request, b"RELEASED", job)

    def bury(self, job: JobOrID[TBody], priority: int, wait_s: float | None = None) -> Steps[None]:
        """See the clients."""
        with self.session.waits.at_first(wait_s):
            yield from self._end(encode(b"bury", job_id(job), whole(priority)), b"BURIED", job)

    def touch(self, job: JobOrID[TBody], wait_s: float | None = None) -> Steps[None]:
        """See the clients."""
        session = self.session
        with session.waits.at_first(wait_s):
            reply, _ = yield from session.ask(encode(b"touch", job_id(job)))
        if reply[0] == b"NOT_FOUND" and session.held.pop(job_id(job), 0) is None:
            session.lost([job_id(job)])
        expected(reply, b"TOUCHED")

    def holds(self, job: JobOrID[TBody]) -> Steps[bool]:
        """See the clients."""
        session, number = self.session, job_id(job)
        if session.is_kept:
            yield from session.connect(session.until())
        if number in session.orphans:
            del session.orphans[number]
            session.held[number] = None
        return number in session.held

    def watch(self, tube: str) -> Steps[int]:
        """See the clients."""
        name = tube.encode("ascii")
        reply, _ = yield from self.session.ask(encode(b"watch", name))
        count: int = expected(reply, b"WATCHING")[1][0]
        self.session.watched[name] = None
        return count

    def ignore(self, tube: str) -> Steps[int]:
        """See the clients."""
        name = tube.encode("ascii")
        reply, _ = yield from self.session.ask(encode(b"ignore", name))
        count: int = expected(reply, b"WATCHING")[1][0]
        self.session.watched.pop(name, None)
        return count

    # --- others ---------------------------------------------------------------------------------

    def peek(self, job: int) -> Steps[Job[TBody]]:
        """See the clients."""
        return (yield from self._peek(encode(b"peek", job)))

    def peek_next(self, state: str) -> Steps[Job[TBody]]:
        """Look at the used tube's next job that is ready, delayed or buried."""
        return (yield from self._peek(encode(b"peek-" + state.encode("ascii"))))

    def kick(self, bound: int) -> Steps[int]:
        """See the clients."""
        reply, _ = yield from self.session.ask(encode(b"kick", whole(bound)), repeat=False)
        count: int = expected(reply, b"KICKED")[1][0]
        return count

    def kick_job(self, job: JobOrID[TBody]) -> Steps[None]:
        """See the clients."""
        yield from self._once(encode(b"kick-job", job_id(job)), b"KICKED")

    def stats_job(self, job: JobOrID[TBody]) -> Steps[StatsJob]:
        """See the clients."""
        payload = yield from self._payload(encode(b"stats-job", job_id(job)))
        return cast(StatsJob, parse_stats(payload))

    def stats_tube(self, tube: str) -> Steps[StatsTube]:
        """See the clients."""
        payload = yield from self._payload(encode(b"stats-tube", tube.encode("ascii")))
        return cast(StatsTube, parse_stats(payload))

    def stats(self) -> Steps[Stats]:
        """See the clients."""
        return cast(Stats, parse_stats((yield from self._payload(encode(b"stats")))))

    def tubes(self) -> Steps[list[str]]:
        """See the clients."""
        return parse_list((yield from self._payload(encode(b"list-tubes"))))

    def using(self) -> Steps[str]:
        """See the clients."""
        reply, _ = yield from self.session.ask(encode(b"list-tube-used"))
        name: bytes = expected(reply, b"USING")[1][0]
        return name.decode("ascii")

    def watching(self) -> Steps[list[str]]:
        """See the clients."""
        return parse_list((yield from self._payload(encode(b"list-tubes-watched"))))

    def pause_tube(self, tube: str, delay: int) -> Steps[None]:
        """See the clients."""
        request = encode(b"pause-tube", tube.encode("ascii"), whole(delay))
        reply, _ = yield from self.session.ask(request)
        expected(reply, b"PAUSED")

    def set_tubes(self, use: str, watch: list[str]) -> None:
        """Set the tube for puts and the watch list before the first connection.

        Raises:
            BadFormatError: a node would answer so at each connection.
            ValueError: there is no tube to watch.
        """
        if not watch:
            raise ValueError("a client needs a tube to watch")
        tubes = [tube.encode("ascii") for tube in (use, *watch)]
        if not all(map(is_tube_name, tubes)):
            raise faults.BadFormatError
        self.session.used = tubes[0]
        self.session.watched = dict.fromkeys(tubes[1:])

    def connect(self) -> Steps[None]:
        """Connect to a node, also after the client was closed."""
        yield from self.session.open()

    # --- parts ----------------------------------------------------------------------------------

    def encoded(self, body: TBody) -> bytes:
        """Return the bytes of a body."""
        if isinstance(body, bytes):
            return body
        if not isinstance(body, str):
            # A bytearray or a memoryview, as in greenstalk. `bytes` alone makes five NULs of 5.
            return bytes(memoryview(body))
        if self.encoding is None:
            raise TypeError("a client without an encoding takes bytes only")
        return body.encode(self.encoding)

    def _job(self, reply: Reply) -> Job[TBody]:
        body = reply[2] or b""
        shown = body if self.encoding is None else body.decode(self.encoding)
        return Job(reply[1][0], cast(TBody, shown))

    def _check_reserved(self, requests: list[bytes], replies: list[Reply]) -> None:
        """Check that the connection that has reserved jobs still holds them."""
        for request, reply in zip(requests, replies, strict=True):
            if (wrong := faults.misfit(request, reply)) is not None:
                raise wrong
            if not faults.fits(request, reply):
                expected(reply, b"RESERVED")
        if self.session.at is None:
            raise faults.may_be_done("a reply too many has ended the connection")

    def _reserved(self, reply: Reply) -> Job[TBody]:
        """Note the job of a reply as held and return it, or raise the error of the reply."""
        self.session.held[expected(reply, b"RESERVED")[1][0]] = None
        return self._job(reply)

    def _all_reserved(self, replies: list[Reply]) -> list[Job[TBody]]:
        """Note all jobs as held, then return them.

        Raises:
            UnicodeDecodeError: of the only job.
            BatchError: of several jobs, if a body is not in the client's encoding.
        """
        for reply in replies:
            self.session.held[reply[1][0]] = None
        results: list[Job[TBody] | UnicodeDecodeError] = []
        for reply in replies:
            try:
                results.append(self._job(reply))
            except UnicodeDecodeError as error:
                error.add_note(f"in the body of job {reply[1][0]}")
                results.append(error)
        jobs = [one for one in results if isinstance(one, Job)]
        if len(jobs) == len(results):
            return jobs
        if isinstance(results[0], UnicodeDecodeError) and len(results) == 1:
            raise results[0]
        raise faults.BatchError(results)

    def _orphans(self, count: int) -> Steps[list[Job[TBody]]]:
        """Return up to `count` jobs of the session whose replies were lost.

        Raises:
            UnicodeDecodeError, BatchError: see `_all_reserved`.
        """
        session = self.session
        if session.is_kept or session.at is None:
            # Whether a session is kept, and so whether a reserve is repeated, shows then.
            yield from session.connect(session.until())
        replies: list[Reply] = []
        failure: Exception | None = None
        try:
            while session.orphans and len(replies) < count:
                with suppress(faults.NotFoundError):
                    replies.append((yield from self._orphan(next(iter(session.orphans)))))
        except (OSError, faults.BeanstalkdError, faults.NotAvailableError) as error:
            if is_of_handler(error):
                session.let_go([one[1][0] for one in replies])  # for the next reserve
                raise
            failure = error
        # Without those that were lost meanwhile with the session.
        replies = [one for one in replies if one[1][0] in session.held]
        if replies:
            # The caller gets what it holds; the next reserve meets the failure, if it lasts.
            return self._all_reserved(replies)
        if failure is not None:
            raise failure
        return []

    def _orphan(self, job: int) -> Steps[Reply]:
        """Read a job whose reply was lost, and note it as held, whatever its body is."""
        reply, _ = yield from self.session.ask(encode(b"peek", job))
        if reply[0] != b"INTERNAL_ERROR":  # the job is still there for the next attempt
            self.session.orphans.pop(job, None)
        expected(reply, b"FOUND")
        self.session.held[job] = None
        return reply

    def _peek(self, request: bytes) -> Steps[Job[TBody]]:
        reply, _ = yield from self.session.ask(request)
        return self._job(expected(reply, b"FOUND"))

    def _payload(self, request: bytes) -> Steps[bytes]:
        reply, _ = yield from self.session.ask(request)
        return expected(reply, b"OK")[2] or b""

    def _put(self, request: bytes, *, repeat: bool = True, needs: bytes = b"") -> Steps[Reply]:
        """Put a job at one node after the other, until one is not draining. See `ask`."""
        session = self.session
        reply, again = yield from session.ask(request, repeat=repeat, needs=needs)
        asked: set[Endpoint | None] = set()
        try:
            while reply[0] == b"DRAINING" and (yield from session.leave(asked)):
                reply, more = yield from session.ask(request, repeat=repeat, needs=needs)
                again = again or more
        except faults.UNCONNECTED as error:
            if again:
                raise faults.may_be_done(error) from error
            raise
        if again:
            faults.check_repeated(reply)
        if faults.is_misread(reply):
            yield from session.drop()
        return reply

    def _once(self, request: bytes, word: bytes) -> Steps[None]:
        """Send an idempotent request that may find nothing when it is repeated."""
        reply, again = yield from self.session.ask(request)
        if again:
            if reply[0] == b"NOT_FOUND":
                raise faults.MayBeDoneError("it may have been done before the connection ended")
            faults.check_repeated(reply)
        expected(reply, word)

    def _end(self, request: bytes, word: bytes, job: JobOrID[TBody]) -> Steps[None]:
        """End a reservation."""
        session = self.session
        session.ending[job_id(job)] = None  # not reported as lost if the connection ends
        is_held = False
        try:
            yield from self._once(request, word)
        except (faults.BeanstalkdError, *faults.UNCONNECTED) as error:
            is_held = not isinstance(error, faults.NotFoundError)  # a kept one also unconnected
            raise
        except faults.RepeatRefusedError:
            is_held = True  # the node has resumed a kept session, which tells what it still holds
            raise
        finally:
            session.ending.pop(job_id(job), None)
            if not is_held:
                session.let_go([job_id(job)])


def whole(number: float) -> int:
    """Return what greenstalk sends for a number: a delay of 1.5 s is one of 1 s."""
    return number if isinstance(number, int) else int(b"%d" % number)


def job_id(job: JobOrID[TBody]) -> int:
    """Return the id of a job."""
    return job.id if isinstance(job, Job) else job


def expected(reply: Reply, word: bytes) -> Reply:
    """Return the reply if it begins with this word; otherwise raise its error."""
    if reply[0] == word:
        return reply
    unknown = faults.unknown(reply)
    error = faults.ERROR_RESPONSES.get(reply[0])
    raise unknown if error is None else error(unknown.values)

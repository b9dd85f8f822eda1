"""Commands for many jobs at once: the requests are pipelined.

Every item has a result of its own. If some items are not done, a `BatchError` has all results; the
rules of repetition are those of the single commands.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from beanpole.client.interrupts import is_of_handler
from beanpole.client.patience import PAUSE_MIN_S, jitter
from beanpole.client.sansio import faults
from beanpole.client.sansio.commands import Commands, expected, job_id, whole
from beanpole.client.sansio.session import TRIES_MAX, Session
from beanpole.client.sansio.shapes import Job, JobOrID, TBody
from beanpole.client.sansio.steps import Endpoint, Pause, Steps
from beanpole.errors import ProtocolError
from beanpole.protocol.beanstalk.client import Reply, encode, encode_put

# Requests in flight before replies are read. They fit into the buffers of a plain beanstalkd and of
# the kernels, so that client and server cannot deadlock.
WINDOW_REQUESTS: Final = 100
WINDOW_BYTES: Final = 128 * 1024
# Jobs of one reserve_many: all their bodies, by default of up to 64 KiB, are in memory together.
RESERVE_MAX: Final = 1000

_Item = TypeVar("_Item")
_Result = Reply | faults.UnknownResponseError | faults.MayBeDoneError | faults.Unconnected | None


def put_many(
    commands: Commands[TBody], bodies: Iterable[TBody], priority: int, delay: int, ttr: int
) -> Steps[list[int]]:
    """See the clients."""
    session = commands.session
    numbers = whole(priority), whole(delay), whole(ttr)
    requests = [encode_put(commands.encoded(body), *numbers) for body in bodies]
    results, _ = yield from _ask_each(session, requests, repeat=False)
    asked: set[Endpoint | None] = set()
    while refused := [at for at, one in enumerate(results) if _says(one, b"DRAINING")]:
        try:
            if not (yield from session.leave(asked)):
                break
        except faults.UNCONNECTED:
            break  # the puts that were done have ids, which the caller needs
        again, _ = yield from _ask_each(session, [requests[at] for at in refused], repeat=False)
        for at, one in zip(refused, again, strict=True):
            results[at] = one
    return _all([_read(one, b"INSERTED") for one in results])


def delete_many(commands: Commands[TBody], jobs: Sequence[JobOrID[TBody]]) -> Steps[list[bool]]:
    """See the clients."""
    session = commands.session
    ids = [job_id(one) for one in jobs]
    requests = [encode(b"delete", job) for job in ids]
    session.ending |= dict.fromkeys(ids)  # not reported as lost if the connection ends
    gone = ids  # any of them, if the batch is interrupted
    try:
        results, again = yield from _ask_each(session, requests, repeat=True)
        answers = zip(ids, results, strict=True)
        gone = [job for job, one in answers if _says(one, b"DELETED") or _says(one, b"NOT_FOUND")]
    finally:
        for job in ids:
            session.ending.pop(job, None)
        session.let_go(gone)
    done: list[bool | Exception | None] = []
    for at, one in enumerate(results):
        if not _says(one, b"NOT_FOUND"):
            found = _read(one, b"DELETED", is_repeated=at in again)
            done.append(True if isinstance(found, int) else found)
        elif at in again:
            done.append(faults.MayBeDoneError("it may have been done before the connection ended"))
        else:
            done.append(False)
    return _all(done)


def reserve_many(
    commands: Commands[TBody], count: int, timeout: int | None
) -> Steps[list[Job[TBody]]]:
    """See the clients. The first request waits; the others reserve jobs that are ready then."""
    if not 0 < count <= RESERVE_MAX:
        raise ValueError(f"from 1 to {RESERVE_MAX} jobs can be reserved together")
    return (yield from commands.reserve_up_to(count, timeout))


def _ask_each(
    session: Session, requests: Sequence[bytes], *, repeat: bool
) -> Steps[tuple[list[_Result], set[int]]]:
    """Send requests in windows; return the results and the indices that have lost a reply."""
    results: list[_Result] = [None] * len(requests)
    left = list(range(len(requests)))
    again: set[int] = set()
    losses = 0
    session.refusals.begin(session.until())
    while left:
        try:
            yield from session.refusals.wait()
            yield from session.connect(session.until())
        except faults.UNCONNECTED as error:
            _doubt(results, again.intersection(left), error)
            results[left[0]] = results[left[0]] or error
            break
        window = _window(requests, left)
        asked = [requests[at] for at in window]
        place = session.at
        got, lost_by = yield from _exchanged(session, asked)
        for at, reply in zip(window, got, strict=False):
            results[at] = reply
        left = left[len(got) :]
        if got:  # the next window is a command of its own
            session.refusals.begin(session.until())
        if (wrong := _wrong_at(asked, got, is_put=not repeat)) is not None:
            results[window[wrong]] = faults.misfit(asked[wrong], got[wrong]) or got[wrong]
            is_misread = not repeat and faults.is_misread(got[wrong])
            why = "misread a put" if is_misread else "sent a reply that does not fit"
            _doubt(results, window[wrong + 1 : len(got)], f"{place} {why}")
            yield from session.drop()
        if lost_by is not None and not session.refusals.note(place, lost_by):
            losses += 1
            again.update(window[len(got) :])
            if not repeat or losses == TRIES_MAX:
                _doubt(results, window[len(got) :], f"{place}: {lost_by}")
                break
            yield Pause(jitter(PAUSE_MIN_S))
    return results, again


def _exchanged(
    session: Session, requests: Sequence[bytes]
) -> Steps[tuple[list[Reply], Exception | None]]:
    """Return the replies that came, and the error by which the connection was lost, if it was."""
    got: list[Reply] = []
    try:
        yield from session.exchange_all(requests, 0, got)
    except (OSError, ProtocolError) as error:
        if is_of_handler(error):
            raise
        yield from session.drop()
        return got, error
    return got, None


def _wrong_at(requests: Sequence[bytes], got: Sequence[Reply], *, is_put: bool) -> int | None:
    """Return the index of the first reply after which replies answer other requests, if any."""
    for at, (request, reply) in enumerate(zip(requests, got, strict=False)):
        if not faults.fits(request, reply) or (is_put and faults.is_misread(reply)):
            return at
    return None


def _doubt(results: list[_Result], places: Iterable[int], why: object) -> None:
    """Note that the requests at these places may have been done."""
    for at in places:
        results[at] = faults.may_be_done(why)


def _window(requests: Sequence[bytes], left: Sequence[int]) -> list[int]:
    window: list[int] = []
    size = 0
    for at in left[:WINDOW_REQUESTS]:
        size += len(requests[at])
        if window and size > WINDOW_BYTES:
            break
        window.append(at)
    return window


def _says(result: _Result, word: bytes) -> bool:
    return isinstance(result, tuple) and result[0] == word


def _read(result: _Result, word: bytes, *, is_repeated: bool = False) -> int | Exception | None:
    """Return the number in a reply, 1 if it has none, or the error; None if it was not sent."""
    if not isinstance(result, tuple):
        return result
    try:
        if is_repeated:
            faults.check_repeated(result)
        arguments = expected(result, word)[1]
    except (faults.Error, faults.MayBeDoneError) as error:
        return error
    return int(arguments[0]) if arguments else 1


def _all(results: Sequence[_Item | Exception | None]) -> list[_Item]:
    """Return the results; raise BatchError if one is an error or missing."""
    good = [item for item in results if item is not None and not isinstance(item, Exception)]
    if len(good) < len(results):
        raise faults.BatchError(list(results))
    return good

"""The client's side of a Gearman connection: submissions, and notifications about their jobs.

A client that submits in the foreground is attached to the job in the replicated state, and is
notified by its own node. It gets each notification as often as it has submitted the job.
"""

import hashlib
import re
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from beanpole import commands as c
from beanpole.constants import SECOND_US, SUBMITS_OF_JOB_MAX, U32_MAX
from beanpole.core.jobs import effects
from beanpole.core.jobs import job as jobs
from beanpole.core.jobs.spaces import RANK_NORMAL
from beanpole.events import GEARMAN
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpole.protocol.gearman.parser import Request
from beanpoled.frontends.clients import NO_RIGHT, Clients
from beanpoled.frontends.gearman.session import Asked
from beanpoled.frontends.gearman.shared import PREFIX, Shared
from beanpoled.frontends.gearman.worker import DATA, WARNING, WorkerSide
from beanpoled.frontends.requests import (
    PUT_ALLOWED,
    PUT_BEYOND_QUOTA,
    PUT_DENIED,
    PUT_DRAINING,
    PUT_NO_MAJORITY,
    PUT_NO_ROOM,
)
from beanpoled.host.seam import ClientPort

RANK_HIGH: Final = 0
RANK_LOW: Final = U32_MAX
# (rank, whether in the foreground), by packet type.
_SUBMITS: Final[dict[int, tuple[int, int]]] = {
    p.SUBMIT_JOB: (RANK_NORMAL, 1),
    p.SUBMIT_JOB_BG: (RANK_NORMAL, 0),
    p.SUBMIT_JOB_HIGH: (RANK_HIGH, 1),
    p.SUBMIT_JOB_HIGH_BG: (RANK_HIGH, 0),
    p.SUBMIT_JOB_LOW: (RANK_LOW, 1),
    p.SUBMIT_JOB_LOW_BG: (RANK_LOW, 0),
    p.SUBMIT_JOB_EPOCH: (RANK_NORMAL, 0),
    p.SUBMIT_REDUCE_JOB: (RANK_NORMAL, 1),
    p.SUBMIT_REDUCE_JOB_BACKGROUND: (RANK_NORMAL, 0),
}
_PUT_REFUSALS: Final = {
    PUT_DRAINING: replies.DRAINING,
    PUT_NO_ROOM: replies.NO_ROOM,
    PUT_DENIED: replies.DENIED,
    PUT_BEYOND_QUOTA: replies.QUEUE_FULL,
    PUT_NO_MAJORITY: replies.NO_MAJORITY,
}
_REFUSALS: Final = {c.FULL: replies.QUEUE_FULL, c.DENIED: replies.DENIED}
# As many bytes as a digest.
_FOUR_NUMBERS: Final = struct.Struct("4d")
_is_seconds = re.compile(rb"[0-9]{1,18}").fullmatch
_ENDED: Final = (jobs.DONE, jobs.FAILED)


class ClientSide(WorkerSide):
    """A connection that submits jobs."""

    __slots__ = ("_awaited", "_exceptions")

    def __init__(self, clients: Clients, protocol: str, port: ClientPort, shared: Shared) -> None:
        super().__init__(clients, protocol, port, shared)
        self._exceptions = False  # whether the client wants exceptions
        self._awaited: dict[int, int] = {}  # how often it submitted each job that it hears of

    # --- submissions ----------------------------------------------------------------------------

    def _submit_job(self, request: Request) -> None:
        kind, (function, unique, body) = request
        self._submit(kind, function, unique, body, 0, b"")

    def _submit_job_epoch(self, request: Request) -> None:
        kind, (function, unique, word, body) = request
        if not _is_seconds(word):
            self._replies.reply(replies.BAD_TIME)
            return
        # From here on only cluster time counts, whatever the clocks of the nodes show.
        delay_us = max(0, int(word) * SECOND_US - self._clients.host.wall_us())
        if delay_us > U32_MAX * SECOND_US:
            self._replies.reply(replies.BAD_TIME)
        else:
            self._submit(kind, function, unique, body, delay_us, b"")

    def _submit_reduce_job(self, request: Request) -> None:
        kind, (function, unique, reducer, _, body) = request
        self._submit(kind, function, unique, body, 0, reducer)

    def _submit(
        self, kind: int, function: bytes, unique: bytes, body: bytes, delay_us: int, reducer: bytes
    ) -> None:
        if not self._admit_any_put():
            return
        clients = self._clients
        session = self._session()
        why = self._why_not_submitted(function, unique, body)
        if why != PUT_ALLOWED:
            again = partial(self._submit, kind, function, unique, body, delay_us, reducer)
            self._hold_or_refuse_put(why, len(body), again)
            return
        rank, foreground = _SUBMITS[kind]
        name = external_id(function, unique, body, clients.host.random)
        command = (
            *(c.SUBMIT, session, PREFIX + function, rank, delay_us),
            *(name, 0, foreground, reducer, body),
        )
        self._making += 1
        self._replies.expect(kind)
        self._asked.append((foreground, b"", b""))
        clients.origin.submit_put(self, kind, command)

    def _why_not_submitted(self, function: bytes, unique: bytes, body: bytes) -> int:
        """Return `_why_not_put`, where a job that is there already needs no room."""
        why, clients = self._why_not_put(PREFIX + function, len(body)), self._clients
        if why == PUT_BEYOND_QUOTA:
            known = clients.machine.queue.spaces[GEARMAN].external_ids
            if external_id(function, unique, body, clients.host.random) in known:
                return PUT_ALLOWED
        return why

    def _refuse_put(self, reason: int) -> None:
        self._replies.reply(_PUT_REFUSALS[reason])

    def _submitted(self, kind: int, result: Any, asked: Asked) -> None:
        self._making -= 1
        if type(result) is int:
            self._answer(_REFUSALS.get(result, replies.NO_ROOM))
            return
        job_id = result[0]
        times = self._awaited.get(job_id, 0) if asked[0] else 0
        if times >= SUBMITS_OF_JOB_MAX:
            # The job is as it was: an equal submission of an attached client changes nothing.
            self._answer(replies.TOO_MANY_SUBMITS)
            return
        self._answer(replies.reply(p.JOB_CREATED, self._shared.handle(job_id)))
        if not asked[0] or self.closed:
            return
        self._awaited[job_id] = times + 1
        if not times:
            ended = self._clients.listeners.listen(self, job_id)
            if ended is not None:
                self.job_told(*ended)

    # --- notifications about jobs ---------------------------------------------------------------

    def job_told(self, job_id: int, kind: int, data: bytes) -> None:
        """See `Connection`."""
        times = self._awaited.get(job_id, 0)
        if kind == effects.GONE:
            # This node has missed how the job ended; WORK_FAIL might be wrong.
            self.drop()
            return
        packet = self._notification(job_id, kind, data)
        if kind < effects.NOTIFIED_MIN:
            self._awaited.pop(job_id, None)
        if times * len(packet) > self._clients.client_output_bytes_max and times > 1:
            self.abort()
            return
        if packet and times and not self.closed:
            self._clients.listeners.count(times - 1)
            self._push(packet, times)

    def rights_changed(self) -> int:
        """See `Connection`. A client loses its connection: no packet ends a job that goes on."""
        looks = super().rights_changed()
        clients = self._clients
        if not self.closed and not all(clients.may_hear(self, job) for job in self._awaited):
            clients.refused_client(NO_RIGHT)
            self.drop()
        return looks + len(self._awaited)

    def notifications_missed(self, job_id: int) -> None:
        """See `Connection`. A result may come in pieces, and a piece may have been lost."""
        job = self._clients.machine.queue.jobs.get(job_id)
        if job is None or job.reserves:
            self.drop()

    def _notification(self, job_id: int, kind: int, data: bytes) -> bytes:
        """Return the packet that reports an effect; empty if the protocol has none for it."""
        packet = self._shared.notification
        if kind == effects.DONE:
            return packet(p.WORK_COMPLETE, job_id, data)
        if kind == effects.FAILED and data and self._exceptions:
            return packet(p.WORK_EXCEPTION, job_id, data)
        if kind < effects.NOTIFIED_MIN:
            return replies.reply(p.WORK_FAIL, self._shared.handle(job_id))
        if kind == effects.PROGRESS:
            return packet(p.WORK_STATUS, job_id, data)
        if kind == DATA:
            return packet(p.WORK_DATA, job_id, data)
        return packet(p.WORK_WARNING, job_id, data) if kind == WARNING else b""

    # --- queries --------------------------------------------------------------------------------

    def _get_status(self, request: Request) -> None:
        handle = request[1][0]
        job = self._shared.job_of(handle)
        if job:
            self._ask(p.GET_STATUS, (c.RESULT, self._session(), job), (job, handle, b""))
        else:
            self._replies.reply(replies.status(handle, False, False, b""))

    def _status_found(self, kind: int, result: Any, asked: Asked) -> None:
        if type(result) is int:
            self._answer(replies.status(asked[1], False, False, b""))
            return
        state, progress, _ = result
        self._answer(
            replies.status(asked[1], state not in _ENDED, state == jobs.RESERVED, progress)
        )

    def _get_status_unique(self, request: Request) -> None:
        """Look for the unique id among all functions, as gearmand does: see `listings`."""
        asked = (0, request[1][0], b"")
        self._ask_alone(p.GET_STATUS_UNIQUE, (c.STATS, self._session()), asked)

    def _echo(self, request: Request) -> None:
        self._replies.reply(replies.reply(p.ECHO_RES, request[1][0]))

    def _option(self, request: Request) -> None:
        name = request[1][0]
        # As in gearmand, the option ends at a NUL, and the reply has all that came.
        if name.partition(b"\0")[0].lower() == b"exceptions":
            self._exceptions = True
            self._replies.reply(replies.reply(p.OPTION_RES, name))
        else:
            self._replies.reply(replies.UNKNOWN_OPTION)

    def _set_client_id(self, request: Request) -> None:
        self.client_id = request[1][0]

    def _end(self, lost: bool) -> None:
        super()._end(lost)
        self._awaited.clear()


def external_id(function: bytes, unique: bytes, body: bytes, random: Callable[[], float]) -> bytes:
    """Return the identity of a submission among equal ones; empty if it is always a new job.

    Without a body, a job with the unique "-" is always new, too. Its identity is random and not
    empty, because the unique that lists and workers are sent is read from it.
    """
    if not unique:
        return b""
    if unique != b"-":
        return function + b"\0" + unique
    if body:  # it is the identity
        return function + b"\0\0" + hashlib.sha256(body).digest()
    return function + b"\0\0" + _FOUR_NUMBERS.pack(random(), random(), random(), random())

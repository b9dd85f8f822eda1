"""The Gearman protocol at a node: dispatch of packets to the sides, and handling common to all.

The codec is `beanpole.protocol.gearman`; the sides are `worker`, `client` and `admin`; the life
cycle of a connection is in `requests`.
"""

from collections.abc import Callable
from typing import Any, Final, final

from beanpole import commands as c
from beanpole.core.jobs.job import Job
from beanpole.protocol.gearman import admin, replies
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.parser import BAD, CLOSE, TEXT, Request
from beanpoled.frontends.gearman.admin import AdminSide
from beanpoled.frontends.gearman.session import Asked
from beanpoled.origin.batches import KIND_OPEN, NOT_DONE

_GRABS: Final = (p.GRAB_JOB, p.GRAB_JOB_UNIQ, p.GRAB_JOB_ALL)


@final
class GearmanConnection(AdminSide):
    """A Gearman client, worker or administrator; one connection may be all three."""

    __slots__ = ()

    def _act(self) -> bool:
        request = self._parser.next()
        if request is None:
            return False
        kind = request[0]
        self._shared.counts[kind] += 1
        _HANDLERS[kind](self, request)
        return True

    def _bad(self, request: Request) -> None:
        reply = request[1][0]
        if reply not in replies.ERRORS:  # otherwise it is counted where it is written
            self._shared.errors[replies.error_code(reply)] += 1
        self._replies.reply(reply)

    def _cannot_go_on(self, request: Request) -> None:
        """Close the connection: the input that follows cannot be parsed."""
        if request[1][0]:
            self._bad(request)
        self._quit()

    def _refuse(self) -> bool:
        request = self._parser.next()
        if request is None:
            return False
        is_text = request[0] == TEXT
        text = admin.error(b"QUEUE_ERROR", b"The node has as many connections as it may")
        self._replies.push(text if is_text else replies.CROWDED)
        return True

    def _arm(self) -> None:
        """Do nothing: no wait of this protocol has a time-out."""

    def wait_ended(self, job: Job | None, until_us: int = 0) -> None:
        """See `origin.Client`."""
        raise AssertionError("no wait of this protocol reserves")

    def answered(self, kind: int, result: Any) -> None:
        """See `origin.Client`."""
        if self.closed:
            if kind == TEXT:
                self._answered_late(result)
            return
        if kind == KIND_OPEN:
            if result != c.OK:  # so that no request behind it is executed
                self._replies.push(replies.NO_ROOM)
                self._close()
        elif result == c.BAD_COMMAND:
            self.drop()  # the session is gone
        elif kind >= 0:
            _ANSWERS[kind](self, kind, result, self._asked.popleft())

    def failed(self, kind: int, why: int) -> None:
        """See `origin.Client`."""
        if self.closed:
            if kind == TEXT:
                self._failed_late(why)
            return
        if why != NOT_DONE:
            self.drop()
            return
        asked = self._asked.popleft()
        if kind in _GRABS:
            self._answer_alone(replies.NO_JOB)  # nothing was reserved
        elif kind == TEXT:
            self._change_failed()
        elif kind == p.GET_STATUS_UNIQUE:
            self._answer_alone(replies.NO_MAJORITY)
        elif kind == p.CAN_DO:
            self._not_registered(asked, replies.NO_MAJORITY)
        else:
            self._making -= kind in p.SUBMITS
            if kind == p.WORK_EXCEPTION:
                self._excepted.pop(asked[0], None)  # the job has not ended
            self._answer_report(replies.NO_MAJORITY)


_HANDLERS: Final[dict[int, Callable[[GearmanConnection, Request], None]]] = {
    p.CAN_DO: GearmanConnection._can_do,
    p.CAN_DO_TIMEOUT: GearmanConnection._can_do_timeout,
    p.CANT_DO: GearmanConnection._cant_do,
    p.RESET_ABILITIES: GearmanConnection._reset_abilities,
    p.PRE_SLEEP: GearmanConnection._pre_sleep,
    p.WORK_DATA: GearmanConnection._work_data,
    p.WORK_WARNING: GearmanConnection._work_data,
    p.WORK_STATUS: GearmanConnection._work_status,
    p.WORK_COMPLETE: GearmanConnection._work_complete,
    p.WORK_FAIL: GearmanConnection._work_fail,
    p.WORK_EXCEPTION: GearmanConnection._work_exception,
    p.GET_STATUS: GearmanConnection._get_status,
    p.GET_STATUS_UNIQUE: GearmanConnection._get_status_unique,
    p.ECHO_REQ: GearmanConnection._echo,
    p.OPTION_REQ: GearmanConnection._option,
    p.SET_CLIENT_ID: GearmanConnection._set_client_id,
    TEXT: GearmanConnection._text,
    BAD: GearmanConnection._bad,
    CLOSE: GearmanConnection._cannot_go_on,
    **dict.fromkeys(_GRABS, GearmanConnection._grab),
    **dict.fromkeys(p.SUBMITS, GearmanConnection._submit_job),
    p.SUBMIT_JOB_EPOCH: GearmanConnection._submit_job_epoch,
    p.SUBMIT_REDUCE_JOB: GearmanConnection._submit_reduce_job,
    p.SUBMIT_REDUCE_JOB_BACKGROUND: GearmanConnection._submit_reduce_job,
}
_ANSWERS: Final[dict[int, Callable[[GearmanConnection, int, Any, Asked], None]]] = {
    p.CAN_DO: GearmanConnection._registered,
    p.WORK_DATA: GearmanConnection._told,
    p.WORK_WARNING: GearmanConnection._told,
    p.WORK_STATUS: GearmanConnection._told,
    p.WORK_COMPLETE: GearmanConnection._told,
    p.WORK_FAIL: GearmanConnection._told,
    p.WORK_EXCEPTION: GearmanConnection._told,
    p.GET_STATUS: GearmanConnection._status_found,
    p.GET_STATUS_UNIQUE: GearmanConnection._answer_unique,
    TEXT: GearmanConnection._answer_text,
    **dict.fromkeys(_GRABS, GearmanConnection._grabbed),
    **dict.fromkeys(p.SUBMITS, GearmanConnection._submitted),
}

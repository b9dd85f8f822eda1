"""The removal of all data of qless by a client, and its lines in the audit log."""

from typing import Any, Final

from beanpole import qless as q
from beanpole.protocol.resp.values import OK, Error, Value
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.qless.calls import MODES, SYNTAX, CallSide, refused
from beanpoled.frontends.qless.shared import Shared
from beanpoled.host.seam import ClientPort
from beanpoled.origin.batches import NOT_DONE

FLUSH_IS_OFF: Final = Error(
    b"ERR nothing was removed: qless_flush is off in the configuration of this node"
)


class FlushSide(CallSide):
    """A connection that may remove everything."""

    __slots__ = ("_flush",)

    def __init__(self, clients: Clients, protocol: str, port: ClientPort, shared: Shared) -> None:
        super().__init__(clients, protocol, port, shared)
        # The line and the time of a flush in progress whose user had not the right, as far as this
        # node knew; the one that is recorded may be left out as a refusal. So its end is recorded
        # if it is no refusal, also when the client has gone.
        self._flush: tuple[bytes, int] | None = None

    def flush_all(self, arguments: list[bytes]) -> None:
        """FLUSHDB and FLUSHALL [ASYNC | SYNC]."""
        if len(arguments) > 2 or (len(arguments) == 2 and arguments[1].lower() not in MODES):
            self.say(SYNTAX)
        elif self._clients.config.qless_flush != "on":
            self.say(FLUSH_IS_OFF)
        else:
            # Recorded before it is done, because it cannot be undone.
            now_us, line = self._clients.host.now_us(), b" ".join(arguments)
            self._session()  # a rule may make the client a user with that
            allowed = self._may(q.FLUSH, ())
            begun = "BEGUN" if allowed else "BEGUN without the right"
            self._clients.record(self, "flushall", line, begun, now_us, refused=not allowed)
            if not allowed:
                self._flush = (line, now_us)
            self._ask(q.FLUSH, (), _flushed)

    def _flush_answered(self, result: Any) -> None:
        """Record a flush that the machine allowed: the right was given a moment ago."""
        if isinstance(result, tuple) and result[0] == q.OK:
            self._flush_ended("OK")
        self._flush = None

    def _flush_failed(self, why: int) -> None:
        """Record a flush whose result will perhaps never be known."""
        if why != NOT_DONE:
            self._flush_ended("UNKNOWN")
        self._flush = None

    def _flush_ended(self, outcome: str) -> None:
        if self._flush is not None:
            line, begun_us = self._flush
            self._clients.record(self, "flushall", line, outcome, begun_us)

    def drop(self) -> None:
        """See `Connection`; the result of a flush in progress may be lost with a snapshot."""
        super().drop()
        self._flush_ended("UNKNOWN")
        self._flush = None


def _flushed(result: q.Result) -> Value:
    return OK if result[0] == q.OK else refused(result)

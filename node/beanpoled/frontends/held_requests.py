"""Requests that would have no effect in the state that their node knows: held until it knows more.

The machine decides about rights and jobs, but only on a command that is in the log with its body,
at every node: anybody could fill the log with jobs that nobody may put, and with results of jobs
that do not exist. So such a request waits for a barrier, a command without a body behind which the
node knows all that was committed before: rights, jobs, reservations. The request becomes
a command only if it has an effect then. `requests` holds the request itself.

One barrier serves all requests that wait when it is submitted, and one is in flight at a time: any
number of them costs the log one small command in each of its round trips.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, final

from beanpole import commands as c
from beanpole.core.jobs.job import Job
from beanpoled.frontends.connection import Connection
from beanpoled.origin.batches import Batch, Wait
from beanpoled.origin.outbox import Origin

# A request with a smaller body is submitted at once, if it makes no job: it costs the log not much
# more than the barrier that it would wait for.
HELD_BYTES_MIN: Final = 1024
# Clients that go on in one step of the loop: the refusals of 256 take 5 ms.
CLIENTS_IN_A_ROW_MAX: Final = 256
# A job that never exists.
_NO_JOB: Final = 0
_KIND_BARRIER: Final = 0


@final
class HeldRequests:
    """The connections of a node that hold a request; each has one at most."""

    def __init__(self, origin: Origin, call_soon: Callable[[Callable[[], None]], None]) -> None:
        self._origin = origin
        self._call_soon = call_soon
        self._barrier: _Barrier | None = None  # the one in flight
        # Dicts and not sets: the order is the same in every run.
        self._next: dict[Connection, None] = {}  # those that came after it was submitted
        # Those whose barrier has ended, with whether this node knows more since.
        self._checked: deque[tuple[Connection, bool]] = deque()
        self._is_going_on = False

    def hold(self, connection: Connection) -> None:
        """Call the connection's `request_checked` when this node knows what is committed now."""
        self._next[connection] = None
        barrier = self._barrier
        # An incarnation that ends answers nothing; the connections in it end, too.
        if barrier is None or barrier.incarnation != self._origin.incarnation:
            self._begin()

    def forget(self, connection: Connection) -> None:
        """Forget a connection that ended."""
        self._next.pop(connection, None)
        if self._barrier is not None:
            self._barrier.waiting.pop(connection, None)

    def ended(self, barrier: "_Barrier", is_applied: bool) -> None:
        """Go on with those that waited for a barrier.

        Args:
            barrier: the barrier, which ends once.
            is_applied: whether this node has applied what was committed before it. If not, no
                majority answers, and those behind the barrier do not wait as long again.
        """
        if barrier is not self._barrier:
            return
        self._barrier = None
        self._checked.extend((connection, is_applied) for connection in barrier.waiting)
        if not is_applied:
            self._checked.extend((connection, False) for connection in self._next)
            self._next = {}
        if self._next:
            self._begin()
        if not self._is_going_on:
            self._go_on()

    def _begin(self) -> None:
        waiting, self._next = self._next, {}
        number = next(iter(waiting)).number
        self._barrier = barrier = _Barrier(self, waiting, self._origin.incarnation)
        # Earlier commands of these clients may affect the held requests, so the barrier must not
        # overtake these commands in the line of large ones.
        in_line = next(filter(self._origin.is_in_line, waiting), None)
        if in_line is not None:
            barrier.batch = in_line.batch
        # If that session ends first, the command is refused in its place of the log, which is
        # acceptable.
        self._origin.submit(barrier, _KIND_BARRIER, (c.PEEK, number, _NO_JOB))

    def _go_on(self) -> None:
        checked = self._checked
        for _ in range(min(CLIENTS_IN_A_ROW_MAX, len(checked))):
            connection, is_known = checked.popleft()
            connection.request_checked(is_known)
        self._is_going_on = bool(checked)
        if checked:
            self._call_soon(self._go_on)


@final
class _Barrier:
    """A command whose answer says that this node knows all before it; an `origin.Client`."""

    __slots__ = (
        "_held",
        "batch",
        "client_host",
        "client_names",
        "incarnation",
        "number",
        "token",
        "user",
        "wait",
        "waiting",
    )

    def __init__(
        self, held: HeldRequests, waiting: dict[Connection, None], incarnation: int
    ) -> None:
        self._held = held
        self.waiting = waiting
        self.incarnation = incarnation
        self.client_host = self.user = self.token = b""
        self.client_names: tuple[bytes, ...] = ()
        self.number = 0  # it has no session of its own
        self.batch: Batch | None = None
        self.wait: Wait | None = None

    def answered(self, kind: int, result: Any) -> None:
        """See `origin.Client`."""
        self._end(True)

    def wait_ended(self, job: Job | None, until_us: int = 0) -> None:
        """See `origin.Client`; a barrier never waits for a job."""

    def failed(self, kind: int, why: int) -> None:
        """See `origin.Client`. The requests that wait for it are not submitted."""
        self._end(False)

    def drop(self) -> None:
        """See `origin.Client`. This node has loaded a state that has the barrier."""
        self._end(True)

    def _end(self, is_applied: bool) -> None:
        self.batch = None  # it refers to this barrier as an owner: a cycle
        self._held.ended(self, is_applied)

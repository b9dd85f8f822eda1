"""How long the gRPC server waits for a client: for its request, and until it takes the answer.

Each such wait occupies one of the server's calls, also before authentication. A wait ends in time,
and the oldest ones earlier where there are many, so that they never occupy all calls.
"""

import asyncio
import gc
from collections.abc import Callable
from typing import Any, Final

# A message of 5 MiB takes it at 0.7 Mbit/s.
PATIENCE_S: Final = 60.0
# Waits of one kind before the oldest ones end: as many as calls of `Queue` may be in progress.
WAITS_MAX: Final = 64
# A wait never ends before: many calls that arrive or end at once are no attack.
GRACE_S: Final = 0.25

# gRPC's name of the task that has a call until its client has heard the end.
_OUTER: Final = "rpc_task"


class Wait:
    """A wait for a client."""

    __slots__ = ("begun_s", "end", "timer")

    timer: asyncio.TimerHandle

    def __init__(self, begun_s: float, end: Callable[[], Any]) -> None:
        self.begun_s = begun_s
        self.end = end


class Patience:
    """The waits of one kind."""

    def __init__(self) -> None:
        self._waits: dict[Wait, None] = {}  # the oldest one first

    def begin(self, end: Callable[[], Any]) -> Wait:
        """Begin a wait; `end` is called once when it has lasted too long, unless it was stopped."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        if len(self._waits) >= WAITS_MAX:
            oldest = next(iter(self._waits))
            del self._waits[oldest]
            oldest.timer.cancel()
            oldest.timer = loop.call_at(max(now_s, oldest.begun_s + GRACE_S), oldest.end)
        wait = Wait(now_s, end)
        wait.timer = loop.call_at(now_s + PATIENCE_S, self._too_long, wait)
        self._waits[wait] = None
        return wait

    def stop(self, wait: Wait) -> None:
        """Stop a wait whose event has come."""
        wait.timer.cancel()
        self._waits.pop(wait, None)

    def _too_long(self, wait: Wait) -> None:
        # Its task stops it only when it runs next. Until then a call that begins must not choose it
        # as the oldest one: a timeout that expires fails when it is told to again.
        self._waits.pop(wait, None)
        wait.end()


class Endings:
    """Calls that have nothing to do but to tell their clients how they ended.

    A client can hold up the end of its call: it takes a reply, and the status behind it, when it
    opens its window, and nothing at all when it does not read its connection. Its stream is reset
    in the end, as soon as the server has its next call: until then gRPC keeps the last one.
    """

    def __init__(self) -> None:
        self._patience = Patience()
        self._waits: dict[asyncio.Task[Any], Wait] = {}

    def begin(self) -> None:
        """Give the running task, which is that of a call, its last time: then it is cancelled.

        gRPC resets the stream of a cancelled call.
        """
        task = asyncio.current_task()
        if task is not None and task not in self._waits:
            self._waits[task] = self._patience.begin(lambda: cancel_call(task))
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._patience.stop(self._waits.pop(task))


def cancel_call(task: asyncio.Task[Any]) -> None:
    """Cancel a call by its task, and gRPC's own task around it.

    That one waits for the client, which may never come, and counts as a call until then. gRPC has
    no API for it; but its coroutine has the inner task.
    """
    task.cancel()
    for outer in asyncio.all_tasks():
        if outer.get_name() == _OUTER:
            held = gc.get_referents(*gc.get_referents(outer.get_coro()))
            if any(one is task for one in held):
                outer.cancel()


# Of the process: a node has one server.
ENDINGS: Final = Endings()

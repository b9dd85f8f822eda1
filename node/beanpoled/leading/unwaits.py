"""Waits that end without a job: the leader confirms that there was none once it is certain.

An origin asks with an UNWAIT (time-out, DEADLINE_SOON, half-close). This module checks the
conditions for a NONE; `dispatching` assigns jobs to clients. Its state is volatile.
"""

from collections.abc import Callable

from beanpoled.leading.term import Term
from beanpoled.leading.waiting import LOOKS_PER_TURN_MAX, Key, Waiter, WaitingLine
from beanpoled.links import frames
from beanpoled.origin.outbox import Origin
from beanpoled.shared.context import Context


class Unwaits:
    """The waiters that want to leave.

    Attributes:
        awaited_us: cluster time; effects that are due until then must happen now, because a waiter
            that wants to leave waits for them.
    """

    def __init__(self, context: Context, term: Term, line: WaitingLine, origin: Origin) -> None:
        self._context = context
        self._term = term
        self._line = line
        self._origin = origin
        self.awaited_us = 0
        self._leaving: dict[Key, Waiter] = {}
        self._confirming = False

    def clear(self) -> None:
        """Forget all leaving waiters: leadership is lost."""
        self.awaited_us = 0
        self._leaving.clear()
        self._confirming = False

    def add(self, waiter: Waiter) -> None:
        """Note that a waiter wants to leave; it leaves once it is certain that nothing is ready."""
        self._leaving[waiter.key] = waiter

    def forget(self, key: Key) -> None:
        """Forget a waiter that is gone."""
        self._leaving.pop(key, None)

    def wake(self) -> None:
        """Ask for a turn if a waiter that wants to leave has not been processed by `turn`."""
        if self._leaving and not self._confirming:
            self._context.wake()

    def turn(self) -> None:
        """Ask for proof that the waiters that want to leave may do so. Called once in each turn.

        More calls would be wrong: a turn begins with a reading of the clock, so that the end of a
        wait is not judged by an earlier time.
        """
        context, term = self._context, self._term
        if not self._leaving or self._confirming or not term.serving:
            return
        self._confirming = True
        leaving: list[Waiter] = []
        looks = 0
        now_us = context.clock.estimate_us(context.now_us)
        for waiter in self._leaving.values():
            waiter.until_us = waiter.until_us or now_us
            leaving.append(waiter)
            looks += len(waiter.tubes)
            if looks >= LOOKS_PER_TURN_MAX:
                break
        read_index = context.replica.commit_index
        context.replica.confirm(self._confirmation(leaving, read_index, term.number))

    def _confirmation(
        self, leaving: list[Waiter], read_index: int, term: int
    ) -> Callable[[], None]:
        """The step after a majority has confirmed that this node still led after `leaving`."""

        def confirmed() -> None:
            context = self._context
            if self._term.number != term:
                return
            self._confirming = False
            context.wake()
            if context.replica.applied_index < read_index:
                return  # they are still leaving: the next turn asks again
            self._answer(leaving)

        return confirmed

    def _answer(self, leaving: list[Waiter]) -> None:
        context = self._context
        due_us = context.machine.next_due_us(context.clock.estimate_us(context.now_us))
        ended: dict[tuple[int, int], list[Waiter]] = {}
        for waiter in leaving:
            if self._line.waiters.get(waiter.key) is not waiter or waiter.granting:
                continue
            if self._must_stay(waiter, due_us):
                self._keep(waiter)
                continue
            ended.setdefault(waiter.key[:2], []).append(waiter)
        for (origin, incarnation), waiters in ended.items():
            for at in range(0, len(waiters), frames.ITEMS_MAX):
                self._end(origin, incarnation, waiters[at : at + frames.ITEMS_MAX])

    def _end(self, origin: int, incarnation: int, waiters: list[Waiter]) -> None:
        """Answer NONE to waiters of one origin; they stay, and leave later, if its link is full."""
        items = [(waiter.key[2], waiter.request, waiter.until_us) for waiter in waiters]
        frame = frames.encode_items(self._term.number, incarnation, items)
        is_sent = self._send(origin, frame)
        for waiter in waiters:
            if is_sent:
                self._line.remove(waiter.key)
                self.forget(waiter.key)
            else:
                self._keep(waiter)

    def _keep(self, waiter: Waiter) -> None:
        """Let a waiter stay: the next turn asks again, the waiters behind it first."""
        del self._leaving[waiter.key]
        self._leaving[waiter.key] = waiter

    def _send(self, origin: int, frame: bytes) -> bool:
        context = self._context
        if origin == context.index:
            self._origin.nones(context.name, frame)
            return True
        return context.host.send_peer(context.members[origin], frames.NONES, frame)

    def _must_stay(self, waiter: Waiter, due_us: int | None) -> bool:
        """Whether a job may still come for a waiter that wants to leave.

        Args:
            waiter: its origin asked for the end at `waiter.until_us`.
            due_us: the next time at which time has an effect; effects due by the end of a wait come
                first.
        """
        tubes = self._context.machine.queue.tubes
        time_is_behind = due_us is not None and due_us <= waiter.until_us
        for name in waiter.tubes:
            tube = tubes.get(name)
            if tube is None:
                continue
            if tube.ready_count and not tube.closed:
                # A GRANT for that job is in flight, perhaps to another waiter; if that waiter
                # finally takes another job, the answer NONE would have been wrong.
                return True
            if time_is_behind and (tube.delayed_count or tube.reserved_count or tube.closed):
                # Deadlines share entries within TICK_GRAIN_US; this deadline needs its entry now. A
                # poll of tubes in which nothing can be due asks for no entry.
                self.awaited_us = max(self.awaited_us, waiter.until_us)
                return True
        return False

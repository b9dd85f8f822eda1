"""How waits end without a job: the leader says that there was none when it is certain.

An origin asks with an UNWAIT (time-out, DEADLINE_SOON, half-close). Here is what must be true
before NONE is sent; who waits, and who is granted what, is in `leader`. All of it is volatile.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from beanpoled.leading.waiting import LOOKS_PER_TURN_MAX, Key, Waiter
from beanpoled.links import frames

if TYPE_CHECKING:
    from beanpoled.turn.node import Node


class Ends:
    """The waiters that want to leave.

    Attributes:
        awaited_us: cluster time; what is due until then must have its effect now, because somebody
            waits for it who wants to leave.
    """

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.awaited_us = 0
        self._leaving: dict[Key, Waiter] = {}
        self._confirming = False

    def clear(self) -> None:
        """Leadership is lost."""
        self.awaited_us = 0
        self._leaving.clear()
        self._confirming = False

    def add(self, waiter: Waiter) -> None:
        """A waiter wants to leave; it does when it is certain that nothing is ready."""
        self._leaving[waiter.key] = waiter

    def forget(self, key: Key) -> None:
        """A waiter is gone."""
        self._leaving.pop(key, None)

    def wake(self) -> None:
        """Ask for a turn if somebody wants to leave whom nobody has looked at."""
        if self._leaving and not self._confirming:
            self._node.wake()

    def turn(self) -> None:
        """Ask for the proof that those who want to leave may. Called once in each turn.

        Not more often: a turn begins with a look at the clock, so that their end is not judged by
        a time before it.
        """
        node = self._node
        if not self._leaving or self._confirming or not node.leader.serving:
            return
        self._confirming = True
        leaving: list[Waiter] = []
        looks = 0
        now_us = node.clock.estimate_us(node.now_us)
        for waiter in self._leaving.values():
            waiter.until_us = waiter.until_us or now_us
            leaving.append(waiter)
            looks += len(waiter.tubes)
            if looks >= LOOKS_PER_TURN_MAX:
                break
        read_index = node.replica.commit_index
        node.replica.confirm(self._confirmation(leaving, read_index, node.leader.term))

    def _confirmation(
        self, leaving: list[Waiter], read_index: int, term: int
    ) -> Callable[[], None]:
        """What to do once a majority has confirmed that this node still led after `leaving`."""

        def confirmed() -> None:
            node = self._node
            if node.leader.term != term:
                return
            self._confirming = False
            node.wake()
            if node.replica.applied_index < read_index:
                return  # they are still leaving: the next turn asks again
            self._answer(leaving)

        return confirmed

    def _answer(self, leaving: list[Waiter]) -> None:
        node = self._node
        leader = node.leader
        due_us = node.machine.next_due_us(node.clock.estimate_us(node.now_us))
        nones: dict[tuple[int, int], list[frames.NoneItem]] = {}
        for waiter in leaving:
            if leader.line.waiters.get(waiter.key) is not waiter or waiter.granting:
                continue
            if self._must_stay(waiter, due_us):
                # It is still leaving: the next turn asks again, and first for those behind it.
                del self._leaving[waiter.key]
                self._leaving[waiter.key] = waiter
                continue
            leader.drop(waiter)
            origin, incarnation, session = waiter.key
            item = (session, waiter.request, waiter.until_us)
            nones.setdefault((origin, incarnation), []).append(item)
        for (origin, incarnation), items in nones.items():
            for frame in frames.encode_all(leader.term, incarnation, items):
                node.send_origin(origin, frames.NONES, frame)

    def _must_stay(self, waiter: Waiter, due_us: int | None) -> bool:
        """Whether a job may still come for a waiter that wants to leave.

        Args:
            waiter: its origin asked for the end at `waiter.until_us`.
            due_us: when time has its next effect; what is due by the end of a wait comes first.
        """
        tubes = self._node.machine.queue.tubes
        time_is_behind = due_us is not None and due_us <= waiter.until_us
        for name in waiter.tubes:
            tube = tubes.get(name)
            if tube is None:
                continue
            if tube.ready_count and not tube.paused_until_us:
                # A GRANT is on its way for that job, perhaps another waiter's; if that one takes
                # another job in the end, "there is none" was wrong.
                return True
            if time_is_behind and (
                tube.delayed_count or tube.reserved_count or tube.paused_until_us
            ):
                # Deadlines share entries within TICK_GRAIN_US; this one needs its entry now. Who
                # polls tubes in which nothing can be due does not ask for any.
                self.awaited_us = max(self.awaited_us, waiter.until_us)
                return True
        return False

"""Log the condition of a node: each change of its state, and regularly what it waits for.

The words are those of `turn.condition`; the caller provides the clock.
"""

from collections.abc import Callable
from typing import Final, Protocol

from beanpoled.host.seam import WARNING, Log
from beanpoled.turn.condition import SERVING, STARTING

# At this period, a wait is logged within the time that an operator needs to look at the log.
LOOK_PERIOD_S: Final = 0.5
# An election, or a simultaneous start of all nodes, is not worth a line. Longer than the time-out
# of a dialed member.
WAIT_FIRST_S: Final = 3.0
WAIT_PERIOD_S: Final = 10.0
# An absent member while the others serve: logged soon, and then so often that any day's log has it.
ABSENCE_FIRST_S: Final = 10.0
ABSENCE_PERIOD_S: Final = 300.0


class Observed(Protocol):
    """The condition of a node, see `Condition`."""

    @property
    def state(self) -> str: ...
    def waits_for(self) -> str: ...
    def absent_words(self) -> str: ...


class Reminder:
    """Allows a line `first_s` after its cause began, then once in `period_s` while it lasts."""

    def __init__(self, first_s: float, period_s: float) -> None:
        self._first_s = first_s
        self._period_s = period_s
        self._due_s: float | None = None
        self.is_logged = False

    def is_due(self, now_s: float) -> bool:
        """Whether the line is due, given that the cause lasts."""
        if self._due_s is None:
            self._due_s = now_s + self._first_s
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._period_s
        self.is_logged = True
        return True

    def end(self) -> None:
        """Note that the cause is gone."""
        self._due_s = None
        self.is_logged = False


class Reporter:
    """Observes one node and logs its condition."""

    def __init__(self, condition: Observed, log: Log, show: Callable[[str], None]) -> None:
        """Observe `condition`; `log` lines, and `show` it in words each time it changes."""
        self._condition = condition
        self._log = log
        self._show = show
        self._shown = ""
        self._state = STARTING
        self._waits = Reminder(WAIT_FIRST_S, WAIT_PERIOD_S)
        self._absence = Reminder(ABSENCE_FIRST_S, ABSENCE_PERIOD_S)

    def look(self, now_s: float) -> None:
        """Log what is due at this time of a monotonic clock."""
        state = self._condition.state
        if state != self._state:
            self._log(f"state: {state}, was {self._state}")
            self._state = state
        waits = self._condition.waits_for()
        words = f"{state}: {waits}" if waits else state
        if words != self._shown:
            self._shown = words
            self._show(words)
        if not waits:
            self._waits.end()
        elif self._waits.is_due(now_s):
            self._log(words, WARNING)
        absent = "" if waits or state != SERVING else self._condition.absent_words()
        if absent:
            if self._absence.is_due(now_s):
                self._log(f"serving without {absent}", WARNING)
        else:
            if self._absence.is_logged and state == SERVING and not waits:
                self._log("all members are linked again")
            self._absence.end()

"""Gearman's functions in the order of the log: when each existed, with which limits.

Belongs here: what the witness sees of the functions that a life watches. The verdicts on the
answers to an administrator are in `verdicts_admins`.
"""

from typing import TYPE_CHECKING, NamedTuple

from tests.sim.cluster import Violation
from tests.sim.stories import FOREVER_S, GEARMAN_PREFIX

if TYPE_CHECKING:
    from beanpole.core.machine import Machine

Limits = tuple[int, int, int]
NO_LIMITS: Limits = (0, 0, 0)


class Moment(NamedTuple):
    """A function from one entry on; `serial` is 0 while it does not exist."""

    at_s: float
    entry: int
    serial: int
    limits: Limits
    watched: bool


class Functions:
    """The timelines of some functions."""

    def __init__(self) -> None:
        self._lines: dict[bytes, list[Moment]] = {}

    def watch(self, name: bytes) -> None:
        """Watch a function from now on; no function of this name exists yet."""
        self._lines[GEARMAN_PREFIX + name] = [Moment(0.0, 0, 0, NO_LIMITS, False)]

    def of(self, name: bytes) -> list[Moment]:
        """Return the timeline of a function: each moment lasts until the next one."""
        return self._lines[GEARMAN_PREFIX + name]

    def spans(self, name: bytes) -> list[tuple[Moment, float]]:
        """Return the timeline of a function, with the ends of the moments."""
        line = self.of(name)
        ends = [moment.at_s for moment in line[1:]]
        return list(zip(line, [*ends, FOREVER_S], strict=True))

    def applied(self, machine: "Machine", at_s: float, index: int) -> None:
        """Note the functions after an entry that the witness's machine has just applied."""
        tubes = machine.queue.tubes
        for serial, name in machine.queue.tubes_named:
            if name in self._lines:  # an entry may also have dropped it again
                self._lines[name].append(Moment(at_s, index, serial, NO_LIMITS, False))
        for name, line in self._lines.items():
            tube = tubes.get(name)
            found = (0, NO_LIMITS, False)
            if tube is not None:
                found = (tube.serial, tube.limits, tube.watchers > 0)
            if found == line[-1][2:]:
                continue
            if line[-1].serial and found[0] == 0:
                _check_dropped(machine, name)
            line.append(Moment(at_s, index, *found))


def _check_dropped(machine: "Machine", name: bytes) -> None:
    """Check that no worker is left with a function that was dropped."""
    for origin in machine.origins.values():
        for session in origin.sessions.values():
            if name in session.watched:
                raise Violation(f"the function {name!r} was dropped beside a worker of it")

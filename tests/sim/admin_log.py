"""What administrators did, in the order of the log: each command, its result and its events.

Belongs here: how a machine is watched while it applies such commands. Who sent them is in
`overseers`; what they may do is judged in `verdicts_changes` and `verdicts_policies`.
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from beanpole import commands as c
from beanpole.core.operations.operation import ClientOperation
from beanpole.core.operations.table import OPERATIONS
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState

if TYPE_CHECKING:
    from beanpole.core.machine import Machine

WATCHED: Final = (c.CHANGE_JOB, c.SET_POLICY, c.DROP_POLICY)

Session = tuple[int, int, int]


class Deed(NamedTuple):
    """A command as it was applied. `at_s` is when that was first."""

    session: Session  # origin, incarnation, number
    command: c.Command
    result: Any
    first: int  # its events: the offset of the first one,
    end: int  # and that behind the last one
    at_s: float


class AdminLog:
    """All commands of administrators of a life."""

    def __init__(self, machine: "Machine") -> None:
        self.deeds: list[Deed] = []
        self._new: list[Deed] = []
        _WATCHED[machine] = self._new

    def applied(self, at_s: float) -> None:
        """The machine has applied an entry."""
        if self._new:
            self.deeds += [deed._replace(at_s=at_s) for deed in self._new]
            self._new.clear()


_WATCHED: Final[WeakKeyDictionary[MachineState, list[Deed]]] = WeakKeyDictionary()


def _watch(code: int) -> None:
    operation = OPERATIONS[code]
    assert isinstance(operation, ClientOperation)
    handler = operation.handler

    def watched(machine: MachineState, origin: Origin, command: c.Command) -> Any:
        deeds = _WATCHED.get(machine)
        if deeds is None:
            return handler(machine, origin, command)
        first = machine.queue.events_total
        result = handler(machine, origin, command)
        session = (origin.index, origin.incarnation, command[1])
        deeds.append(Deed(session, command, result, first, machine.queue.events_total, 0.0))
        return result

    operation.handler = watched


for _code in WATCHED:
    _watch(_code)

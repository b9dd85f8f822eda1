"""Commands of administrators, and all puts, in the order of the log, with results and events.

Belongs here: watching a machine while it applies such commands. The clients that send them are in
`overseers`, `retriers` and `rulers`; the results are judged in `verdicts_changes`,
`verdicts_policies`, `verdicts_rules` and `verdicts_ruled`.
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

PUTS: Final = (c.PUT, c.PUT_KEYED)
WATCHED: Final = (c.CHANGE_JOB, c.SET_POLICY, c.DROP_POLICY, c.ADD, c.SUBMIT, *PUTS)

Session = tuple[int, int, int]


class Deed(NamedTuple):
    """A command as it was applied: first at `at_s`, at cluster time `time_us`."""

    session: Session  # origin, incarnation, number
    command: c.Command
    result: Any
    first: int  # its events: the offset of the first one,
    end: int  # and the offset behind the last one
    time_us: int
    at_s: float


class AdminLog:
    """All commands of administrators, and all puts, of a life."""

    def __init__(self, machine: "Machine") -> None:
        self.deeds: list[Deed] = []
        self._new: list[Deed] = []
        _WATCHED[machine] = self._new

    def applied(self, at_s: float) -> None:
        """Note the commands of an entry that the machine has just applied."""
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
        queue = machine.queue
        deed = Deed(session, command, result, first, queue.events_total, queue.now_us, 0.0)
        deeds.append(deed)
        return result

    operation.handler = watched


for _code in WATCHED:
    _watch(_code)

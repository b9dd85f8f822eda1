"""The witness's record of qless: every call in the order of the log, its result, its messages.

Belongs here: watching a machine while it applies calls. Clients are in `qless`; their answers are
judged in `verdicts_qless`.
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from beanpole import commands as c
from beanpole.core.operations.operation import ClientOperation
from beanpole.core.operations.table import OPERATIONS
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState
from beanpole.qless import Message

if TYPE_CHECKING:
    from beanpole.core.machine import Machine

Session = tuple[int, int, int]


class Made(NamedTuple):
    """A call that may change something, as it was applied. `at_s` is when that first happened."""

    session: Session  # origin, incarnation, number
    call: int
    bits: int  # of the client's time
    args: bytes
    result: tuple[int, Any]
    messages: tuple[Message, ...]
    at_s: float


class Calls:
    """All calls of a life."""

    def __init__(self, machine: "Machine") -> None:
        self.made: list[Made] = []
        self.messages: list[tuple[float, Message]] = []
        self._new: list[Made] = []
        machine.qless.heard = True  # so that it makes messages, as for a subscribed client
        _WATCHED[machine] = self._new

    def applied(self, messages: list[Message], at_s: float) -> None:
        """Note the calls and the messages of an entry that the machine has just applied."""
        self.made += [one._replace(at_s=at_s) for one in self._new]
        self._new.clear()
        self.messages += [(at_s, message) for message in messages]


_WATCHED: Final[WeakKeyDictionary[MachineState, list[Made]]] = WeakKeyDictionary()


def _watch() -> None:
    operation = OPERATIONS[c.QLESS]
    assert isinstance(operation, ClientOperation)
    handler = operation.handler

    def watched(machine: MachineState, origin: Origin, command: c.Command) -> Any:
        made = _WATCHED.get(machine)
        if made is None:
            return handler(machine, origin, command)
        before = len(machine.qless.messages)
        result = handler(machine, origin, command)
        _, session, call, _, bits, args = command
        who = (origin.index, origin.incarnation, session)
        messages = tuple(machine.qless.messages[before:])
        made.append(Made(who, call, bits, args, result, messages, 0.0))
        return result

    operation.handler = watched


_watch()

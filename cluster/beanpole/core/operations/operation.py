"""The description of an operation: its code, version, fields, size and handler.

The entries themselves are in `core.operations.table`. A command is a flat tuple: the operation's
code and a value for each field. Each field below has the largest packed size of a legal value; the
operation's handler checks whether a value is legal.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from beanpole import commands as c
from beanpole.core.applied import Applied
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState
from beanpole.weights import (
    BODY_HEAD_BYTES,
    COMMAND_BYTES,
    LONG_NAME_HEAD_BYTES,
    NAME_HEAD_BYTES,
    NUMBER_32_BYTES,
    NUMBER_BYTES,
)

# The handler of a client's operation, which returns its result. It is total: it validates its
# numbers before it changes anything. The machine has checked that the command's session exists.
Handler = Callable[[MachineState, Origin, c.Command], Any]
# The handler of a leader's command; it adds the results that the node needs to `Applied`.
Leading = Callable[[MachineState, Applied, c.Command], None]


class Field:
    """One field of commands: its name, its type, its packed bytes (without those of a string)."""

    __slots__ = ("name", "packed_bytes", "type")

    def __init__(self, name: str, kind: type, packed_bytes: int) -> None:
        self.name = name
        self.type = kind
        self.packed_bytes = packed_bytes


def _number(name: str) -> Field:
    return Field(name, int, NUMBER_BYTES)


def _number_32(name: str) -> Field:
    return Field(name, int, NUMBER_32_BYTES)


SESSION: Final = _number("session")
JOB: Final = _number("job")
TUBE: Final = Field("tube", bytes, NAME_HEAD_BYTES)
QUEUE: Final = Field("queue", bytes, LONG_NAME_HEAD_BYTES)
ALIAS: Final = Field("alias", bytes, LONG_NAME_HEAD_BYTES)
PRIORITY: Final = _number_32("priority")
DELAY_S: Final = _number_32("delay_s")
TTR_S: Final = _number_32("ttr_s")
RANK: Final = _number_32("rank")
DELAY_US: Final = _number("delay_us")
TTR_US: Final = _number("ttr_us")
TTL_US: Final = _number("ttl_us")
EXTERNAL_ID: Final = Field("external_id", bytes, LONG_NAME_HEAD_BYTES)
ATTEMPTS_MAX: Final = _number_32("attempts_max")
FAILURES_MAX: Final = _number_32("failures_max")
RESULT: Final = Field("result", bytes, BODY_HEAD_BYTES)
FOREGROUND: Final = _number_32("foreground")  # 1 if the session is to be attached to the job
EXTRA: Final = Field("extra", bytes, LONG_NAME_HEAD_BYTES)
HIGH: Final = _number_32("high")  # limits of jobs, by their ranks
NORMAL: Final = _number_32("normal")
LOW: Final = _number_32("low")
PROGRESS: Final = Field("progress", bytes, NAME_HEAD_BYTES)
BODY: Final = Field("body", bytes, BODY_HEAD_BYTES)
KIND: Final = _number_32("kind")
DATA: Final = Field("data", bytes, BODY_HEAD_BYTES)
KEY: Final = Field("key", bytes, NAME_HEAD_BYTES)
SECRET: Final = Field("secret", bytes, NAME_HEAD_BYTES)
GRACE_US: Final = _number("grace_us")
HOST: Final = Field("host", bytes, NAME_HEAD_BYTES)
LOST: Final = _number_32("lost")  # 1 if the client did not request the end of its session
BOUND: Final = _number_32("bound")
STATE: Final = _number_32("state")  # of the jobs; 0: see the operation's function
ACTION: Final = _number_32("action")
STATES: Final = _number_32("states")  # one bit for each state
FROM: Final = Field("from", bytes, LONG_NAME_HEAD_BYTES)
TO: Final = Field("to", bytes, LONG_NAME_HEAD_BYTES)
VALUE: Final = _number("value")
PATTERN: Final = Field("pattern", bytes, LONG_NAME_HEAD_BYTES)
WHEN_FULL: Final = _number_32("when_full")
RETAIN_BURIED_US: Final = _number("retain_buried_us")
RETAIN_DELAYED_US: Final = _number("retain_delayed_us")
UNIQUE_WINDOW_US: Final = _number("unique_window_us")
RATE: Final = _number_32("rate")
RATE_PERIOD_US: Final = _number("rate_period_us")
PROTOCOL: Final = _number_32("protocol")
ORIGIN: Final = _number("origin")
INCARNATION: Final = _number("incarnation")
REQUEST: Final = _number("request")
BEHIND: Final = _number("behind")  # the origin's batch that must be applied before a wait
TERM: Final = _number("term")
EXPIRY_FLOOR_US: Final = _number("expiry_floor_us")
JOBS_MAX: Final = _number("jobs_max")
TUBES_MAX: Final = _number("tubes_max")
SESSIONS_MAX: Final = _number("sessions_max")
BYTES_MAX: Final = _number("bytes_max")
VERSION: Final = _number("version")
CALL: Final = _number_32("call")
FLAVOUR: Final = _number_32("flavour")
NOW: Final = _number("now")  # the 64 bits of a float
ARGS: Final = Field("args", bytes, BODY_HEAD_BYTES)
USER: Final = Field("user", bytes, NAME_HEAD_BYTES)
TOKEN: Final = Field("token", bytes, NAME_HEAD_BYTES)  # its digest
KEEPS: Final = _number_32("keeps")  # 1 to add the token, 0 to drop it
RIGHTS: Final = Field("rights", bytes, BODY_HEAD_BYTES)
RULES: Final = Field("rules", bytes, BODY_HEAD_BYTES)


class Need(NamedTuple):
    """The rights that an operation requires of a session's user; see `permission`.

    Attributes:
        rights: any one of these (`core.users`) is sufficient; 0 if none is needed, or if the
            operation checks permission itself.
        on: the fields that name a queue, or a job in one: the right is needed in each. If empty, it
            is needed in every queue of every protocol.
    """

    rights: int
    on: tuple[Field, ...] = ()


FREE: Final = Need(0)


class Operation:
    """One entry of the table.

    Attributes:
        code: the first item of its commands.
        fields: the fields of its commands, after the code.
        shape: the types of all items, which are checked before a command is handled.
        since: the machine version that introduced it. Below it, the operation is BAD_COMMAND on
            every node, as on a node whose program does not have it.
    """

    __slots__ = ("code", "fields", "shape", "since")

    def __init__(self, code: int, fields: tuple[Field, ...], since: int) -> None:
        self.code = code
        self.fields = fields
        self.shape: tuple[type, ...] = (int, *[field.type for field in fields])
        self.since = since

    def place(self, field: Field) -> int:
        """Return the index of a field in its commands."""
        return self.fields.index(field) + 1


class ClientOperation(Operation):
    """An operation of a batch. Its first field is the session.

    Attributes:
        handler: the function that executes it.
        rights: any one of these is needed; 0 if none is.
        guarded: the fields in whose queues the right is needed, with their indexes.
        opens: whether it begins its session; for all others, the session must exist.
        reads: whether it changes nothing, so that it is answered at its origin only.
        weight: the largest size of a command in its batch, if its numbers are legal, without its
            strings.
        strings: the indexes of the strings.
        ready_tube: the index of the tube in which it makes a job ready; 0 if it makes none, or its
            origin cannot know which.
        ready_unless: the index of a number that must be 0 for that; 0 if none.
    """

    __slots__ = (
        "guarded",
        "handler",
        "opens",
        "reads",
        "ready_tube",
        "ready_unless",
        "rights",
        "strings",
        "weight",
    )

    def __init__(
        self,
        code: int,
        fields: tuple[Field, ...],
        handler: Handler,
        needs: Need,
        reads: bool = False,
        weight: int = COMMAND_BYTES,
        makes_ready: Field | None = None,
        unless: Field | None = None,
        since: int = c.BASE_VERSION,
        opens: bool = False,
    ) -> None:
        super().__init__(code, fields, since)
        self.handler = handler
        self.rights = needs.rights
        self.guarded: tuple[tuple[Field, int], ...] = tuple(
            [(field, self.place(field)) for field in needs.on]
        )
        self.opens = opens
        self.reads = reads
        self.weight = weight
        self.strings: tuple[int, ...] = tuple(
            [place for place in range(1, len(self.shape)) if self.shape[place] is bytes]
        )
        self.ready_tube = 0 if makes_ready is None else self.place(makes_ready)
        self.ready_unless = 0 if unless is None else self.place(unless)


class LeaderOperation(Operation):
    """An operation of the leader; all its fields are numbers.

    Attributes:
        handler: the function that executes it.
    """

    __slots__ = ("handler",)

    def __init__(
        self,
        code: int,
        fields: tuple[Field, ...],
        handler: Leading,
        since: int = c.BASE_VERSION,
    ) -> None:
        super().__init__(code, fields, since)
        self.handler = handler


def fits(command: tuple[Any, ...], shape: tuple[type, ...]) -> bool:
    """Whether a command has exactly these types: commands in the log are not trusted."""
    if len(command) != len(shape):
        return False
    for place in range(len(shape)):  # noqa: SIM110 - compiled, four times as fast as all()
        if type(command[place]) is not shape[place]:
            return False
    return True

"""The border between an origin and its clients: batches, waits, and results of commands.

How they are numbered, sent and answered is in `origin`.
"""

from typing import Any, Final, Protocol

from beanpole import commands as c
from beanpole.core.jobs.job import Job
from beanpoled.links import frames

# Bytes on their way, over all batches (a single larger batch still travels).
BATCH_BYTES_IN_FLIGHT_MAX: Final = 8 * 1024 * 1024
# The cost of batches on their way and of one of them, in units of 10 us of every node. With what is
# in HeavyLine, three nodes have 0.2 s on their way at most: less than an election waits for.
COST_IN_FLIGHT_MAX: Final = 2500
BATCH_COST_MAX: Final = 1250

# Kinds of commands that are no requests of a client.
KIND_OPEN: Final = -2
KIND_QUIET: Final = -1  # the client has its answer already, or none waits for one
KIND_WAIT: Final = -3  # no command at all: the client waits for a job

# Reasons that `failed` gives a client's connection.
NOT_DONE: Final = 1  # certainly never done
UNKNOWN: Final = 2  # its batch was numbered: it may still happen


class Client(Protocol):
    """A client's connection as its origin sees it; each protocol has one."""

    client_host: bytes  # empty if nobody knows it
    client_names: tuple[bytes, ...]  # in its certificate, if that was checked
    user: bytes  # whose the session is, as its node knows; empty for nobody's
    token: bytes  # the digest of the token by which it became that; empty if that was by a rule
    number: int  # the session's number in this incarnation, 0 before OPEN
    batch: "Batch | None"  # the last batch that holds a command of this client
    wait: "Wait | None"

    def answered(self, kind: int, result: Any) -> None:
        """A command was applied; `result` is what the machine said."""

    def wait_ended(self, job: Job | None, until_us: int = 0) -> None:
        """The wait is over: with a job, or without one until that cluster time."""

    def failed(self, kind: int, why: int) -> None:
        """A command will not be answered in time: NOT_DONE or UNKNOWN."""

    def drop(self) -> None:
        """The session is gone or its state is unknown: close without another reply."""


# (client, kind, when it came); the client is None for commands without one that waits.
Owner = tuple[Client | None, int, int]


class Batch:
    """Commands that travel together, and the clients that wait for their results."""

    __slots__ = (
        "behind",
        "bytes",
        "clients",
        "commands",
        "cost",
        "hint",
        "is_large",
        "latest",
        "number",
        "owners",
        "packed_hint",
        "payload",
    )

    def __init__(self) -> None:
        self.clients = 0  # how many commands have a client that waits for the answer
        self.commands: list[c.Command] = []
        self.owners: list[Owner] = []
        self.hint: frames.Hint = {}
        self.bytes = 0
        self.cost = 0  # of those that are charged, in units of 10 us; see `Origin.charge`
        # Where the last command of a kind stands that only the last one counts of; see `Origin`.
        self.latest: dict[tuple[int, int, int], int] = {}
        self.number = 0  # 0: still open
        self.is_large = False  # it waits where others pass it, but behind this batch
        self.behind: Batch | None = None
        self.payload = b""
        self.packed_hint = b""


class Wait:
    """A client blocked in `reserve`."""

    __slots__ = (
        "batch",
        "client",
        "ending",
        "ending_at_us",
        "is_local",
        "request",
        "sent",
        "session",
        "told",
        "withdrawn",
    )

    def __init__(self, client: Client, session: int, request: int, batch: Batch | None) -> None:
        self.client = client
        self.session = session
        self.request = request
        self.batch = batch
        self.sent = False  # to the present leader
        self.told = False  # to any leader: a job may be given to it
        self.ending = False  # its client asked for the end
        self.ending_at_us = 0
        self.withdrawn = False  # the node leaves, and asked for the end
        self.is_local = False  # no leader knows of it: it ends by time alone

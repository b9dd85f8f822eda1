"""The interface between an origin and its clients: batches, waits, and results of commands.

The numbering, sending and answering of batches is in `outbox`.
"""

from typing import Any, Final, Protocol

from beanpole import commands as c
from beanpole.core.jobs.job import Job
from beanpoled.links import frames

# Bytes in flight, over all batches (a single larger batch still travels).
BATCH_BYTES_IN_FLIGHT_MAX: Final = 8 * 1024 * 1024
# The cost of all batches in flight and of one batch, in units of 10 us of every node. Together with
# HeavyLine, three nodes have at most 0.2 s of work in flight: less than the time-out of an
# election.
COST_IN_FLIGHT_MAX: Final = 2500
BATCH_COST_MAX: Final = 1250

# Kinds of commands that are not requests of a client.
KIND_OPEN: Final = -2
KIND_QUIET: Final = -1  # the client has its answer already, or no client waits for one
KIND_WAIT: Final = -3  # no command at all: the client waits for a job
KIND_HELD: Final = -4  # no command yet: a request that may be refused (`held_requests`)

# Reasons that a client's connection receives in `failed`.
NOT_DONE: Final = 1  # certainly never done
UNKNOWN: Final = 2  # its batch was numbered: it may still happen


class Client(Protocol):
    """A client's connection as its origin sees it; each protocol has one."""

    client_host: bytes  # empty if unknown
    client_names: tuple[bytes, ...]  # in its certificate, if that was verified
    user: bytes  # the user of the session, as this node knows it; empty for none
    token: bytes  # the digest of the token that set the user, or its birth if a rule did
    number: int  # the session's number in this incarnation, 0 before OPEN
    batch: "Batch | None"  # the last batch that holds a command of this client
    wait: "Wait | None"

    def answered(self, kind: int, result: Any) -> None:
        """Deliver the result of a command that was applied, as the machine returned it."""

    def wait_ended(self, job: Job | None, until_us: int = 0) -> None:
        """End the wait, with a job or without one until that cluster time."""

    def failed(self, kind: int, why: int) -> None:
        """Report that a command will not be answered in time: NOT_DONE or UNKNOWN."""

    def drop(self) -> None:
        """Close without another reply: the session is gone or its state is unknown."""


# (client, kind, loop time of submission); the client is None if no client waits for the answer.
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
        self.clients = 0  # the number of commands whose clients wait for the answer
        self.commands: list[c.Command] = []
        self.owners: list[Owner] = []
        self.hint: frames.Hint = {}
        self.bytes = 0
        self.cost = 0  # of the charged commands, in units of 10 us; see `Origin.charge`
        # Positions of commands that a later one of their kind replaces; see `Origin.submit_latest`.
        self.latest: dict[tuple[int, int, int], int] = {}
        self.number = 0  # 0: still open
        self.is_large = False  # queued with the large commands, after the batch in `behind`
        self.behind: Batch | None = None
        self.payload = b""
        self.packed_hint = b""

    def release(self) -> None:
        """Drop everything but the number and the sums, when its clients have their results.

        A client refers to its last batch for as long as it is idle, and so to the bodies of others.
        """
        self.commands.clear()
        self.owners.clear()
        self.hint.clear()
        self.latest.clear()
        self.payload = self.packed_hint = b""


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
        self.told = False  # to any leader: it may be granted a job
        self.ending = False  # its client asked for the end
        self.ending_at_us = 0
        self.withdrawn = False  # the node stops, and asked for the end
        self.is_local = False  # unknown to every leader: it ends by time alone

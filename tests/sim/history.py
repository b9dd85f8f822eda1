"""Records of clients' requests and replies, and the words that may answer each kind.

The judging is in `verdicts`.
"""

from typing import Any, Final

from beanpole.protocol.beanstalk.client import Reply

_RESERVE: Final = frozenset({b"RESERVED", b"DEADLINE_SOON", b"TIMED_OUT", b"INTERNAL_ERROR"})
# The replies that each request allows. INTERNAL_ERROR and DRAINING come only after a wait.
WORDS: Final[dict[str, frozenset[bytes]]] = {
    # OUT_OF_MEMORY: a disk is below its reserve.
    "put": frozenset({b"INSERTED", b"DRAINING", b"OUT_OF_MEMORY"}),
    "reserve": _RESERVE,
    "reserve-with-timeout": _RESERVE,
    "reserve-job": frozenset({b"RESERVED", b"NOT_FOUND", b"INTERNAL_ERROR"}),
    "delete": frozenset({b"DELETED", b"NOT_FOUND", b"INTERNAL_ERROR"}),
    "release": frozenset({b"RELEASED", b"NOT_FOUND", b"INTERNAL_ERROR"}),
    "bury": frozenset({b"BURIED", b"NOT_FOUND", b"INTERNAL_ERROR"}),
    "touch": frozenset({b"TOUCHED", b"NOT_FOUND", b"INTERNAL_ERROR"}),
    "kick": frozenset({b"KICKED", b"INTERNAL_ERROR"}),
    "kick-job": frozenset({b"KICKED", b"NOT_FOUND", b"INTERNAL_ERROR"}),
    "pause-tube": frozenset({b"PAUSED", b"NOT_FOUND", b"INTERNAL_ERROR"}),
    "peek": frozenset({b"FOUND", b"NOT_FOUND", b"INTERNAL_ERROR"}),
    "peek-ready": frozenset({b"FOUND", b"NOT_FOUND", b"INTERNAL_ERROR"}),
    "peek-delayed": frozenset({b"FOUND", b"NOT_FOUND", b"INTERNAL_ERROR"}),
    "peek-buried": frozenset({b"FOUND", b"NOT_FOUND", b"INTERNAL_ERROR"}),
    "stats": frozenset({b"OK", b"INTERNAL_ERROR"}),
    "stats-job": frozenset({b"OK", b"NOT_FOUND", b"INTERNAL_ERROR"}),
    "stats-tube": frozenset({b"OK", b"NOT_FOUND", b"INTERNAL_ERROR"}),
    "list-tubes": frozenset({b"OK", b"INTERNAL_ERROR"}),
    "list-tube-used": frozenset({b"USING"}),
    "list-tubes-watched": frozenset({b"OK"}),
    "use": frozenset({b"USING", b"INTERNAL_ERROR"}),
    "watch": frozenset({b"WATCHING", b"INTERNAL_ERROR"}),
    "ignore": frozenset({b"WATCHING", b"NOT_IGNORED"}),
    "nonsense": frozenset({b"UNKNOWN_COMMAND"}),
    "quit": frozenset(),
}
# The command was withdrawn unsent: certainly not done, and refused only after its time limit.
NOT_DONE: Final = frozenset({b"DRAINING", b"INTERNAL_ERROR"})


def host_of(client: int) -> bytes:
    """Return the host of a client; some clients share one."""
    return b"unix" if client % 5 == 4 else b"10.0.0.%d" % (client % 7)


class Connected:
    """One connection of one client, to be judged."""

    __slots__ = ("client", "end_s", "incarnation", "node", "number", "place")

    def __init__(self, client: int, node: str, place: int) -> None:
        self.client = client
        self.node = node
        self.place = place  # of the node as an origin
        self.number = 0  # of the session
        self.incarnation = 0
        self.end_s: float | None = None  # when either side ended it


class Op:
    """One request. Times are true seconds."""

    __slots__ = ("args", "at_s", "body", "connected", "done_s", "kind", "reply", "tubes")

    def __init__(self, connected: Connected, kind: str, args: tuple[Any, ...], at_s: float) -> None:
        self.connected = connected
        self.kind = kind
        self.args = args
        self.at_s = at_s
        self.body = b""
        self.tubes: tuple[bytes, ...] = ()  # watched by the session when it was sent
        self.done_s: float | None = None
        self.reply: Reply | None = None  # stays None if the connection ended first

    @property
    def word(self) -> bytes:
        """The reply's first word; empty if there was none."""
        return b"" if self.reply is None else self.reply[0]

    @property
    def job(self) -> int:
        """The job of the reply, or else of the request."""
        if self.reply is not None and self.word in (b"INSERTED", b"RESERVED", b"FOUND"):
            number = self.reply[1][0]
        else:
            number = self.args[0]
        assert isinstance(number, int)
        return number

    def __repr__(self) -> str:
        until = "lost" if self.done_s is None else f"{self.done_s:.4f}"
        reply = "" if self.reply is None else f" -> {self.reply[0].decode()} {self.reply[1]}"
        return (
            f"client {self.connected.client} at {self.connected.node} [{self.at_s:.4f}, {until}] "
            f"{self.kind} {self.args} {self.body!r}{reply}"
        )

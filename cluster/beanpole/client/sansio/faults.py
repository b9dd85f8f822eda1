"""The exceptions of the beanstalk clients, with the names of greenstalk and a few additional ones.

Where greenstalk raises a ConnectionError, the exception here derives from ConnectionError and not
from `ClientError` too: a compiled class and OSError cannot both be bases of one class.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from beanpole.client.pickling import reduced
from beanpole.errors import ClientError
from beanpole.protocol.beanstalk.client import Reply


class Error(ClientError):
    """Base of the errors in replies; a lost connection is a ConnectionError instead."""

    __reduce__ = reduced


class UnknownResponseError(Error):
    """The reply does not belong to the command.

    Attributes:
        status: the first word of the reply.
        values: the words after it.
    """

    def __init__(self, status: bytes, values: list[bytes]) -> None:
        super().__init__(status.decode(errors="replace"))
        self.status = status
        self.values = values


class BeanstalkdError(Error):
    """Base of the errors that a node answers."""

    # Details beyond the name of the class.
    reason: ClassVar[str] = ""

    def __init__(self, values: Sequence[bytes] = ()) -> None:
        super().__init__(self.reason or type(self).__name__)


class BadFormatError(BeanstalkdError):
    """The node could not read the command."""


class BuriedError(BeanstalkdError):
    """The node had no memory for the job and buried it; `id` is the job's, if it is known."""

    def __init__(self, values: Sequence[bytes] = ()) -> None:
        super().__init__(values)
        self.id: int | None = int(values[0]) if values else None


class DeadlineSoonError(BeanstalkdError):
    """The TTR of a job reserved by this client ends within a second."""


class DeniedError(BeanstalkdError):
    """The client's user lacks the right for this command, or its token is unknown."""

    reason = "no user has this token, or the user of it, or of clients without one, lacks the right"


class DrainingError(BeanstalkdError):
    """The node does not accept puts now; this put was not done."""

    reason = "no node takes jobs now: each drains, or reaches no majority; nothing was put"


class ExpectedCrlfError(BeanstalkdError):
    """The size of a body was not the announced size."""


class InternalError(BeanstalkdError):
    """The node cannot execute the command now (a Beanpole node did not reach a majority)."""


class JobTooBigError(BeanstalkdError):
    """The body is larger than the node accepts."""


class NotFoundError(BeanstalkdError):
    """There is no such job, or this client has not reserved it."""


class NotIgnoredError(BeanstalkdError):
    """The only watched tube cannot be ignored."""


class OutOfMemoryError(BeanstalkdError):
    """A limit of the node or the cluster is reached."""

    reason = "a limit of the cluster, of the queue or of its user is reached"


class TimedOutError(BeanstalkdError):
    """No job was ready in time."""


class UnknownCommandError(BeanstalkdError):
    """The node does not know the command."""


ERROR_RESPONSES: dict[bytes, type[BeanstalkdError]] = {
    b"BAD_FORMAT": BadFormatError,
    b"BURIED": BuriedError,
    b"DEADLINE_SOON": DeadlineSoonError,
    b"DENIED": DeniedError,
    b"DRAINING": DrainingError,
    b"EXPECTED_CRLF": ExpectedCrlfError,
    b"INTERNAL_ERROR": InternalError,
    b"JOB_TOO_BIG": JobTooBigError,
    b"NOT_FOUND": NotFoundError,
    b"NOT_IGNORED": NotIgnoredError,
    b"OUT_OF_MEMORY": OutOfMemoryError,
    b"TIMED_OUT": TimedOutError,
    b"UNKNOWN_COMMAND": UnknownCommandError,
}


def is_misread(reply: Reply) -> bool:
    """Whether a node has not read a put, so that it reads its body as commands.

    The replies that follow on this connection answer those commands, not a request.
    """
    return reply[0] in (b"BAD_FORMAT", b"UNKNOWN_COMMAND")


# The replies to each command, besides REPLIES_TO_ALL. The other extensions are checked where they
# are used.
REPLIES: Final[dict[bytes, frozenset[bytes]]] = {
    command.encode(): frozenset(words.encode().split())
    for command, words in {
        "put": "INSERTED BURIED EXPECTED_CRLF JOB_TOO_BIG DRAINING",
        "put-unique": "INSERTED EXISTS BURIED EXPECTED_CRLF JOB_TOO_BIG DRAINING",
        "use": "USING",
        "reserve-with-timeout": "RESERVED TIMED_OUT DEADLINE_SOON",
        "reserve-job": "RESERVED NOT_FOUND",
        "delete": "DELETED NOT_FOUND",
        "release": "RELEASED BURIED NOT_FOUND",
        "bury": "BURIED NOT_FOUND",
        "touch": "TOUCHED NOT_FOUND",
        "watch": "WATCHING",
        "ignore": "WATCHING NOT_IGNORED",
        "peek": "FOUND NOT_FOUND",
        "peek-ready": "FOUND NOT_FOUND",
        "peek-delayed": "FOUND NOT_FOUND",
        "peek-buried": "FOUND NOT_FOUND",
        "kick": "KICKED",
        "kick-job": "KICKED NOT_FOUND",
        "stats": "OK",
        "stats-job": "OK NOT_FOUND",
        "stats-tube": "OK NOT_FOUND",
        "list-tubes": "OK",
        "list-tubes-watched": "OK",
        "list-tube-used": "USING",
        "pause-tube": "PAUSED NOT_FOUND",
    }.items()
}
REPLIES_TO_ALL: Final = frozenset({b"BAD_FORMAT", b"DENIED", b"INTERNAL_ERROR", b"OUT_OF_MEMORY"})
COMMAND_BYTES_MAX: Final = max(map(len, REPLIES)) + 1  # a longer word is none of them
COMMANDS_OF_LATER_RELEASES: Final = frozenset({b"kick-job", b"pause-tube", b"reserve-job"})


def fits(request: bytes, reply: Reply) -> bool:
    """Whether a reply can be the answer to a request.

    After one that cannot, each reply on this connection may answer another request. Each reply fits
    a command that is not in REPLIES: an extension other than `put-unique`.
    """
    command = request[:COMMAND_BYTES_MAX].split(None, 1)[0]  # a body of megabytes is not copied
    if command not in REPLIES or reply[0] in REPLIES[command] or reply[0] in REPLIES_TO_ALL:
        return True
    return reply[0] == b"UNKNOWN_COMMAND" and command in COMMANDS_OF_LATER_RELEASES


def unknown(reply: Reply) -> UnknownResponseError:
    """Return the error of a reply that does not belong to its command."""
    values = [b"%d" % item if isinstance(item, int) else item for item in reply[1]]
    return UnknownResponseError(reply[0], values)


def misfit(request: bytes, reply: Reply) -> UnknownResponseError | None:
    """Return the error of a reply that does not fit; None if it fits or is a plain refusal."""
    if reply[0] == b"UNKNOWN_COMMAND" or reply[0] in _REFUSALS or fits(request, reply):
        return None
    return unknown(reply)


# Replies that depend on the node and the time, so that they tell nothing of an earlier attempt.
_REFUSALS: Final = frozenset(
    {b"DENIED", b"DRAINING", b"INTERNAL_ERROR", b"JOB_TOO_BIG", b"OUT_OF_MEMORY"}
)


class NoNodeError(ConnectionError):
    """No node answered within `patience_s`. Nothing was done."""


class ClosedError(NoNodeError):
    """The client is closed, and so asks no node."""


def inherited() -> ClosedError:
    """Return the error of a command in a fork of the process that connected the client."""
    return ClosedError("this client belongs to the process that connected it; make a new one")


class MayBeDoneError(ConnectionError):
    """The connection ended before the reply: the command was done once or not at all."""


class RepeatRefusedError(MayBeDoneError):
    """The same, and a node that answers refused the repetition."""


def may_be_done(why: object) -> MayBeDoneError:
    """Return the error of a command whose reply was lost, with the reason."""
    return MayBeDoneError(f"it may have been done: {why}")


def check_repeated(reply: Reply) -> None:
    """Raise an error if this reply to a repeated request is a refusal.

    Raises:
        RepeatRefusedError: an earlier attempt may have been done; the refusal is the cause.
    """
    if reply[0] in _REFUSALS:
        refusal = ERROR_RESPONSES[reply[0]]()
        words = f"it may have been done: its repetition was refused: {reply[0].decode()}"
        raise RepeatRefusedError(words) from refusal


class NotAvailableError(ClientError):
    """The node lacks an extension: it is a plain beanstalkd, or a Beanpole of an older release."""


def missing(needs: bytes, place: object, sent: int) -> Exception:
    """Return the error of a command that needs an extension which this node lacks."""
    words = f"{place} does not know {needs.decode()!r}"
    if sent:
        return MayBeDoneError(f"it may have been done, and {words}")
    return NotAvailableError(words)


# Without a connection: no request was sent by the attempt that raises one of these.
Unconnected = NoNodeError | DeniedError | NotAvailableError
UNCONNECTED: Final = (NoNodeError, DeniedError, NotAvailableError)


class BatchError(Error):
    """Some commands of a batch are not done, or their outcome is unknown.

    Attributes:
        results: for each item, in order: its result; a BeanstalkdError, a MayBeDoneError, a
            NoNodeError or a NotAvailableError; or None if it was not sent.
    """

    def __init__(self, results: list[Any]) -> None:
        wrong = [item for item in results if item is None or isinstance(item, Exception)]
        first = next((_words(item) for item in wrong if item is not None), "not sent")
        super().__init__(f"{len(wrong)} of {len(results)} are not done; the first: {first}")
        self.results = results


def _words(error: Exception) -> str:
    # The repr of an error of decoding has the whole body of the job.
    return str(error) if isinstance(error, UnicodeError) else repr(error)

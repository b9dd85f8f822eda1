"""A connection of Redis clients: which command is which, and what every command has in common.

The codec is `beanpole.protocol.resp`; what commands do is in `calls`, `subscriptions` and `plain`,
the life of a connection in `requests`.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, final

from beanpole import commands as c
from beanpole.core.jobs.job import Job
from beanpole.protocol.resp.values import OK, Error, encode
from beanpoled.frontends.qless import plain
from beanpoled.frontends.qless.calls import KIND_AUTH, NO_ROOM, WRONG_USER
from beanpoled.frontends.qless.patterns import PatternSide
from beanpoled.origin.batches import KIND_OPEN, KIND_QUIET, NOT_DONE

# As much of what a client has sent stands in the error of an unknown command.
QUOTED_MAX_BYTES: Final = 128
CROWDED: Final = Error(b"ERR max number of clients reached")


@final
class QlessConnection(PatternSide):
    """A client that speaks RESP."""

    __slots__ = ()

    # --- requests -------------------------------------------------------------------------------

    def _act(self) -> bool:
        arguments: list[bytes]
        if self._deferred:
            arguments, self._deferred = self._deferred, []
        else:
            request = self._parser.next()
            if request is None:
                return False
            if isinstance(request, bytes):
                self._replies.reply(request)
                self._quit()
                return True
            arguments = request
        name = _name_of(arguments)
        command = COMMANDS.get(name)
        if command is None:
            self.is_spoiled = True
            if name in _HTTP:
                self._quit()
            else:
                self.say(_unknown(name, arguments))
            return True
        if command.is_alone and self._replies.pending:
            self._deferred = arguments
            self.blocked = True
            return True
        self._shared.counts[name] += 1
        if not command.least <= len(arguments) <= command.most:
            self.is_spoiled = True
            self.say(Error(b"ERR wrong number of arguments for '%b' command" % name))
        elif self.is_restricted and not command.is_always:
            self.say(Error(_RESTRICTED % name))
        elif self.queued is not None and name not in _AT_ONCE:
            self.queue(arguments)
        else:
            command.handler(self, arguments)
        return True

    def _refuse(self) -> bool:
        if self._parser.next() is None:
            return False
        self._replies.push(encode(CROWDED))
        return True

    def quit(self, arguments: list[bytes]) -> None:
        """QUIT."""
        self.say(OK)
        self._quit()

    def reset(self, arguments: list[bytes]) -> None:
        """RESET."""
        self.queued = None
        plain.reset(self, arguments)

    def command_count(self, arguments: list[bytes]) -> None:
        """COMMAND COUNT."""
        self.say(sum(b"|" not in name for name in COMMANDS))

    def command_list(self, arguments: list[bytes]) -> None:
        """COMMAND LIST."""
        self.say([name for name in COMMANDS if b"|" not in name])

    # --- users ----------------------------------------------------------------------------------

    def _logged_in(self, result: int) -> None:
        """AUTH, or a HELLO with it, is answered: the second changes nothing before that."""
        hello, self._hello = self._hello, None
        accepted = encode(OK, self.version)
        refused = encode(WRONG_USER, self.version)
        if hello is not None and result == c.OK:
            self.version, self.name = hello
            accepted = encode(plain.facts_of(self, self.version), self.version)
        self._authenticated(result, accepted, refused)

    # --- results --------------------------------------------------------------------------------

    def answered(self, kind: int, result: Any) -> None:
        """See `origin.Client`."""
        if self.closed:
            return
        if kind == KIND_OPEN:
            if result != c.OK:  # so that nothing behind it is done
                self._replies.push(encode(NO_ROOM))
                self._close()
        elif kind == KIND_QUIET:
            if result != c.OK:
                self.drop()
        elif kind == KIND_AUTH:
            self._logged_in(result)
        elif isinstance(result, int):
            self.drop()  # the session is gone
        else:
            self._called(result)

    def failed(self, kind: int, why: int) -> None:
        """See `origin.Client`."""
        if self.closed:
            return
        if why == NOT_DONE and kind == KIND_AUTH:
            self._answer_alone(encode(plain.AUTH_UNKNOWN, self.version))
        elif why == NOT_DONE:
            self._not_called()
        else:
            self.drop()

    def _arm(self) -> None:
        """No wait of this protocol has a time-out."""

    def wait_ended(self, job: Job | None, until_us: int = 0) -> None:
        """See `origin.Client`."""
        raise AssertionError("clients of this protocol do not wait")

    def watches(self, tube: bytes) -> bool:
        """See `Connection`."""
        return False


# --- the commands ---------------------------------------------------------------------------------

_Handler = Callable[[QlessConnection, list[bytes]], None]
_ANY: Final = 1 << 30


class Command(NamedTuple):
    """A command of Redis.

    Attributes:
        handler: does it, and answers.
        least, most: how many words it has, with its own name.
        is_always: whether a client of RESP2 that has subscribed may use it.
        is_alone: whether it waits until all before it is answered, because it changes what the
            client is told, or how.
    """

    handler: _Handler
    least: int
    most: int
    is_always: bool = False
    is_alone: bool = False


COMMANDS: Final[dict[bytes, Command]] = {
    # Scripts.
    b"evalsha": Command(QlessConnection.eval_sha, 3, _ANY),
    b"eval": Command(QlessConnection.eval_text, 3, _ANY),
    b"script|load": Command(QlessConnection.script_load, 3, 3),
    b"script|exists": Command(QlessConnection.script_exists, 3, _ANY),
    b"script|flush": Command(QlessConnection.script_flush, 2, _ANY),
    # What is published.
    b"subscribe": Command(QlessConnection.subscribe, 2, _ANY, True, True),
    b"unsubscribe": Command(QlessConnection.unsubscribe, 1, _ANY, True, True),
    b"psubscribe": Command(QlessConnection.psubscribe, 2, _ANY, True, True),
    b"punsubscribe": Command(QlessConnection.punsubscribe, 1, _ANY, True, True),
    b"publish": Command(QlessConnection.publish, 3, 3),
    # Keys.
    b"zscore": Command(QlessConnection.zscore, 3, 3),
    b"keys": Command(QlessConnection.keys, 2, 2),
    b"dbsize": Command(QlessConnection.dbsize, 1, 1),
    b"flushdb": Command(QlessConnection.flush_all, 1, _ANY),
    b"flushall": Command(QlessConnection.flush_all, 1, _ANY),
    # Patterns.
    b"hgetall": Command(QlessConnection.hgetall, 2, 2),
    b"lrange": Command(QlessConnection.lrange, 4, 4),
    b"hset": Command(QlessConnection.edit, 4, _ANY),
    b"rpush": Command(QlessConnection.edit, 3, _ANY),
    b"del": Command(QlessConnection.edit, 2, 2),
    b"multi": Command(QlessConnection.multi, 1, 1),
    b"exec": Command(QlessConnection.exec, 1, 1),
    b"discard": Command(QlessConnection.discard, 1, 1),
    # Of Beanpole.
    b"beanpole.import": Command(QlessConnection.import_one, 3, 3),
    # The connection.
    b"hello": Command(plain.hello, 1, _ANY, False, True),
    b"auth": Command(plain.auth, 2, _ANY, False, True),
    b"ping": Command(plain.ping, 1, 2, True),
    b"echo": Command(plain.echo, 2, 2),
    b"quit": Command(QlessConnection.quit, 1, _ANY, True),
    b"reset": Command(QlessConnection.reset, 1, 1, True, True),
    b"select": Command(plain.select, 2, 2),
    b"client|id": Command(plain.client_id, 2, 2),
    b"client|getname": Command(plain.client_getname, 2, 2),
    b"client|setname": Command(plain.client_setname, 3, 3),
    b"client|setinfo": Command(plain.client_setinfo, 4, 4),
    b"client|no-evict": Command(plain.client_switch, 3, 3),
    b"client|no-touch": Command(plain.client_switch, 3, 3),
    b"client|info": Command(plain.client_info, 2, 2),
    # The server.
    b"info": Command(plain.info, 1, _ANY),
    b"time": Command(plain.time, 1, 1),
    b"config|get": Command(plain.config_get, 3, _ANY),
    b"command": Command(plain.command_info, 1, 1),
    b"command|count": Command(QlessConnection.command_count, 2, 2),
    b"command|list": Command(QlessConnection.command_list, 2, 2),
    b"command|docs": Command(plain.command_docs, 2, _ANY),
    b"command|info": Command(plain.command_info, 2, _ANY),
}
# Commands whose second word says what they do.
_CONTAINERS: Final = (b"client", b"command", b"config", b"script")
# What does not wait for EXEC.
_AT_ONCE: Final = (b"multi", b"exec", b"discard", b"quit", b"reset")
# How a page of HTTP begins that a browser sends to this port: its body could be lines of commands.
_HTTP: Final = (b"post", b"host:")
_RESTRICTED: Final = (
    b"ERR Can't execute '%b': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are "
    b"allowed in this context"
)


def _name_of(arguments: list[bytes]) -> bytes:
    """The name by which a command stands in the table."""
    name = arguments[0].lower()
    if name in _CONTAINERS and len(arguments) > 1:
        return b"%b|%b" % (name, arguments[1].lower())
    return name


def _unknown(name: bytes, arguments: list[bytes]) -> Error:
    """The error of a name that stands not in the table."""
    if name in _CONTAINERS:
        return Error(b"ERR wrong number of arguments for '%b' command" % name)
    container = arguments[0].lower()
    if container in _CONTAINERS:
        text = b"ERR unknown subcommand '%b'. Try %b HELP."
        return Error(text % (arguments[1][:QUOTED_MAX_BYTES], container.upper()))
    quoted = b""
    for word in arguments[1:]:
        if len(quoted) >= QUOTED_MAX_BYTES:
            break
        quoted += b"'%b' " % word[: QUOTED_MAX_BYTES - len(quoted)]
    text = b"ERR unknown command '%b', with args beginning with: %b"
    return Error(text % (arguments[0][:QUOTED_MAX_BYTES], quoted))

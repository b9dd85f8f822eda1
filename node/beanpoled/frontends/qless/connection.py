"""The connection of a Redis client: the table of commands, and handling common to all of them.

The codec is `beanpole.protocol.resp`; the commands are in `calls`, `subscriptions` and `plain`; the
life cycle of a connection is in `requests`.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, final

from beanpole import commands as c
from beanpole.core.jobs.job import Job
from beanpole.protocol.resp.values import OK, Error, encode
from beanpoled.frontends.qless import plain
from beanpoled.frontends.qless.calls import KIND_AUTH, KIND_FLUSH, NO_ROOM, WRONG_USER
from beanpoled.frontends.qless.patterns import PatternSide
from beanpoled.origin.batches import KIND_OPEN, KIND_QUIET, NOT_DONE

# The error of an unknown command quotes up to this much of the client's input.
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
            if not request:
                return True  # it is charged as any other: a flood of them costs as much
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
        self.take_queued()
        plain.reset(self, arguments)

    def command_count(self, arguments: list[bytes]) -> None:
        """COMMAND COUNT."""
        self.say(sum(b"|" not in name for name in COMMANDS))

    def command_list(self, arguments: list[bytes]) -> None:
        """COMMAND LIST."""
        self.say([name for name in COMMANDS if b"|" not in name])

    # --- users ----------------------------------------------------------------------------------

    def _logged_in(self, result: int) -> None:
        """Answer an AUTH, or a HELLO with AUTH, which changes nothing before it is answered."""
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
        if kind == KIND_FLUSH:
            self._flush_answered(result)
        if self.closed:
            return
        if kind == KIND_OPEN:
            if result != c.OK:  # so that no request behind it is executed
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
        if kind == KIND_FLUSH:
            self._flush_failed(why)
        if self.closed:
            return
        if why == NOT_DONE and kind == KIND_AUTH:
            self._answer_alone(encode(plain.AUTH_UNKNOWN, self.version))
        elif why == NOT_DONE:
            self._not_called()
        else:
            self.drop()

    def _arm(self) -> None:
        """Do nothing: no wait of this protocol has a time-out."""

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
        handler: executes and answers it.
        least, most: bounds of its number of words, including its own name.
        is_always: whether a RESP2 client with subscriptions may use it.
        is_alone: whether it waits until all requests before it are answered, because it changes
            the replies or their format.
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
    # Publications.
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
    # Beanpole's own.
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
# Commands whose second word is a subcommand.
_CONTAINERS: Final = (b"client", b"command", b"config", b"script")
# Commands that EXEC does not defer.
_AT_ONCE: Final = (b"multi", b"exec", b"discard", b"quit", b"reset")
# The beginning of an HTTP request from a browser: its body could contain lines of commands.
_HTTP: Final = (b"post", b"host:")
_RESTRICTED: Final = (
    b"ERR Can't execute '%b': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are "
    b"allowed in this context"
)


def _name_of(arguments: list[bytes]) -> bytes:
    """Return the name of a command in the table."""
    name = arguments[0].lower()
    if name in _CONTAINERS and len(arguments) > 1:
        return b"%b|%b" % (name, arguments[1].lower())
    return name


def _unknown(name: bytes, arguments: list[bytes]) -> Error:
    """Return the error for a name that is not in the table."""
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

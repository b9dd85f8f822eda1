"""The two keys in which reqless clients keep patterns of queues, and transactions on them.

`qmore:dynamic` is a hash of lists of patterns, `qmore:priority` a list of JSON objects. They hold
the patterns of reqless-core, too. A transaction changes one of the two, so it is one command.
"""

from collections.abc import Callable
from typing import Final

from beanpole import qless as q
from beanpole.protocol.resp.parser import ARGUMENT_BYTES
from beanpole.protocol.resp.values import OK, Error, Map, Simple, Value
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.qless.calls import NO_NUMBER, number, refused
from beanpoled.frontends.qless.shared import Shared
from beanpoled.frontends.qless.subscriptions import SubscriberSide
from beanpoled.host.seam import ClientPort

KINDS: Final = {
    b"qmore:dynamic": q.PATTERNS_OF_QUEUES,
    b"qmore:priority": q.PATTERNS_OF_PRIORITIES,
}
# The commands allowed in a transaction: those that change one of the keys.
DELETE: Final = b"del"
SET: Final = b"hset"
PUSH: Final = b"rpush"
EDITS: Final = (DELETE, SET, PUSH)
# The kind of key that each command requires.
_WANTED: Final = {
    SET: q.PATTERNS_OF_QUEUES,
    b"hgetall": q.PATTERNS_OF_QUEUES,
    PUSH: q.PATTERNS_OF_PRIORITIES,
    b"lrange": q.PATTERNS_OF_PRIORITIES,
}
# Commands of one transaction: more than clients have patterns.
QUEUED_MAX: Final = 1024
# ... and their size with their objects. EXEC makes one call of them, with as many bytes at most.
QUEUED_MAX_BYTES: Final = q.ARGS_MAX_BYTES

QUEUED: Final = Simple(b"QUEUED")
OTHER_KEY: Final = Error(b"ERR the only keys are qmore:dynamic and qmore:priority")
WRONG_TYPE: Final = Error(
    b"WRONGTYPE Operation against a key holding the wrong kind of value",
)
WRONG_COUNT: Final = Error(b"ERR wrong number of arguments for '%b' command" % SET)
NESTED: Final = Error(b"ERR MULTI calls can not be nested")
NO_EXEC: Final = Error(b"ERR EXEC without MULTI")
NO_DISCARD: Final = Error(b"ERR DISCARD without MULTI")
ABORTED: Final = Error(b"EXECABORT Transaction discarded because of previous errors.")
NOT_IN_TRANSACTION: Final = Error(b"ERR a transaction has DEL, HSET and RPUSH, and changes one key")
TOO_LONG: Final = Error(b"ERR a transaction has %d commands at most" % QUEUED_MAX)
TOO_LARGE: Final = Error(b"ERR a transaction has %d bytes at most" % QUEUED_MAX_BYTES)


class PatternSide(SubscriberSide):
    """A connection that reads and writes patterns.

    Attributes:
        queued: the commands after MULTI; None without MULTI.
        is_spoiled: whether a command among them was wrong, so that EXEC does nothing.
    """

    __slots__ = ("_queued_bytes", "is_spoiled", "queued")

    def __init__(self, clients: Clients, protocol: str, port: ClientPort, shared: Shared) -> None:
        super().__init__(clients, protocol, port, shared)
        self.queued: list[list[bytes]] | None = None
        self._queued_bytes = 0
        self.is_spoiled = False

    def _unfinished_bytes(self) -> int:
        return super()._unfinished_bytes() + self._queued_bytes

    def hgetall(self, arguments: list[bytes]) -> None:
        """HGETALL qmore:dynamic."""
        wrong = _wrong_key(arguments)
        if wrong is not None:
            self.say(wrong)
        else:
            self._ask(q.PATTERNS, (q.PATTERNS_OF_QUEUES,), _all)

    def lrange(self, arguments: list[bytes]) -> None:
        """LRANGE qmore:priority start stop."""
        wrong = _wrong_key(arguments)
        start, stop = number(arguments[2]), number(arguments[3])
        if wrong is not None:
            self.say(wrong)
        elif start is None or stop is None:
            self.say(NO_NUMBER)
        else:
            self._ask(q.PATTERNS, (q.PATTERNS_OF_PRIORITIES,), _range(start, stop))

    def edit(self, arguments: list[bytes]) -> None:
        """DEL key, HSET key field value..., RPUSH key value..."""
        wrong = _wrong_edit(arguments)
        if wrong is not None:
            self.say(wrong)
        else:
            self._edit([arguments], _first)

    def multi(self, arguments: list[bytes]) -> None:
        """MULTI."""
        if self.queued is not None:
            self.say(NESTED)
        else:
            self.queued, self.is_spoiled = [], False
            self.say(OK)

    def discard(self, arguments: list[bytes]) -> None:
        """DISCARD."""
        self.say(NO_DISCARD if self.take_queued() is None else OK)

    def exec(self, arguments: list[bytes]) -> None:
        """EXEC."""
        queued = self.take_queued()
        if queued is None:
            self.say(NO_EXEC)
        elif self.is_spoiled:
            self.say(ABORTED)
        elif not queued:
            self.say([])
        else:
            self._edit(queued, _each)

    def take_queued(self) -> list[list[bytes]] | None:
        """End the transaction, if there is one, and return its commands."""
        queued, self.queued = self.queued, None
        self._queued_bytes = 0
        return queued

    def queue(self, arguments: list[bytes]) -> None:
        """Queue a command that follows MULTI."""
        assert self.queued is not None
        size = sum([ARGUMENT_BYTES + len(word) for word in arguments])
        wrong = _wrong_edit(arguments) if arguments[0].lower() in EDITS else NOT_IN_TRANSACTION
        if wrong is None and self.queued and self.queued[0][1] != arguments[1]:
            wrong = NOT_IN_TRANSACTION
        if wrong is None and len(self.queued) >= QUEUED_MAX:
            wrong = TOO_LONG
        if wrong is None and self._queued_bytes + size > QUEUED_MAX_BYTES:
            wrong = TOO_LARGE
        if wrong is not None:
            self.is_spoiled = True
            self.say(wrong)
        else:
            self.queued.append(arguments)
            self._queued_bytes += size
            self.say(QUEUED)

    def _edit(self, edits: list[list[bytes]], answer: Callable[[list[Value]], Value]) -> None:
        all_go = False
        pairs: list[tuple[bytes, bytes]] = []
        for words in edits:
            name = words[0].lower()
            if name == DELETE:
                all_go = True
                pairs.clear()
            elif name == SET:
                pairs += zip(words[2::2], words[3::2], strict=True)
            else:
                pairs += [(b"", text) for text in words[2:]]

        def formatter(result: q.Result) -> Value:
            if result[0] != q.OK:
                return refused(result)
            return answer(_replies(edits, dict.fromkeys(result[1])))

        self._ask(q.EDIT_PATTERNS, (KINDS[edits[0][1]], all_go, tuple(pairs)), formatter)


def _wrong_key(arguments: list[bytes]) -> Error | None:
    kind = KINDS.get(arguments[1]) if len(arguments) > 1 else None
    if kind is None:
        return OTHER_KEY
    return WRONG_TYPE if _WANTED.get(arguments[0].lower(), kind) != kind else None


def _wrong_edit(arguments: list[bytes]) -> Error | None:
    if arguments[0].lower() == SET and (len(arguments) < 4 or len(arguments) % 2):
        return WRONG_COUNT
    return _wrong_key(arguments)


def _replies(edits: list[list[bytes]], names: dict[bytes, None]) -> list[Value]:
    """Return the reply to each edit, given the names that existed before all of them."""
    replies: list[Value] = []
    for words in edits:
        name = words[0].lower()
        if name == DELETE:
            replies.append(int(bool(names)))
            names.clear()
        elif name == SET:
            before = len(names)
            names.update(dict.fromkeys(words[2::2]))
            replies.append(len(names) - before)
        else:
            for _ in words[2:]:
                names[b"%d" % len(names)] = None
            replies.append(len(names))
    return replies


def _first(replies: list[Value]) -> Value:
    return replies[0]


def _each(replies: list[Value]) -> Value:
    return replies


def _all(result: q.Result) -> Value:
    return Map(list(result[1])) if result[0] == q.OK else refused(result)


def _range(start: int, stop: int) -> Callable[[q.Result], Value]:
    def formatter(result: q.Result) -> Value:
        if result[0] != q.OK:
            return refused(result)
        texts: list[Value] = [text for _name, text in result[1]]
        first = max(0, start + len(texts) if start < 0 else start)
        last = stop + len(texts) if stop < 0 else stop
        return texts[first : last + 1] if last >= first else []

    return formatter

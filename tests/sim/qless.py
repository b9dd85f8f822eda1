"""Simulated clients of qless: workers that put and do jobs, and a subscriber of all messages.

Each worker does what its library would: it loads the script, and calls it with its own clock. It
keeps its name and its jobs over a reconnect. The judging is in `verdicts_qless`.
"""

import json
from struct import Struct
from typing import Final

from beanpole.protocol.resp.client import Reply, ReplyParser, encode
from beanpole.protocol.resp.values import Error
from tests.sim.cluster import Violation
from tests.sim.guests import Guest, SingleGuest
from tests.sim.history import Connected
from tests.sim.world import World
from tests.unit.protocol.qless.scripts import throttles

QUEUES: Final = (b"left", b"right")
THROTTLE: Final = b"both"
DATA: Final = b'{"n":1}'
# Locks expire within a life; a worker that was warned has the grace period in addition.
HEARTBEAT_S: Final = 1.5
GRACE_S: Final = 0.5
# The number of newest jobs that workers cancel, move or depend on.
RECENT: Final = 8
# Actions per second: locks expire and throttles are reached only under load.
PACES: Final = (5.0, 15.0)
# Clients' clocks differ.
SKEW_MAX_S: Final = 0.3
# No life has as many calls, and a thousand of them take one millisecond of a stamp.
APART_CALLS: Final = 500_000
# Replies to a pop without jobs, by dialect.
NO_JOBS: Final = (b"{}", b"[]")
SCRIPT: Final = throttles()  # the dialect of reqless 0.13
_FLOAT: Final = Struct("<d")
_BITS: Final = Struct("<Q")


class Request:
    """One call, and its reply."""

    def __init__(self, visit: Connected, name: bytes, args: tuple[bytes, ...], at_s: float) -> None:
        self.visit = visit
        self.name = name
        self.args = args
        self.at_s = at_s
        self.now = 0.0  # by the client's clock; unique among all calls
        self.done_s: float | None = None
        self.reply: Reply = None

    @property
    def bits(self) -> int:
        """The client's time in the form that the log has."""
        found: int = _BITS.unpack(_FLOAT.pack(self.now))[0]
        return found

    def __repr__(self) -> str:
        until = "lost" if self.done_s is None else f"{self.done_s:.4f}"
        return (
            f"client {self.visit.client} at {self.visit.node} [{self.at_s:.4f}, {until}] "
            f"{self.name!r} {self.args} now {self.now} -> {self.reply!r}"
        )


class Heard:
    """The messages published to one connection, in order."""

    def __init__(self, visit: Connected) -> None:
        self.visit = visit
        self.messages: list[tuple[float, bytes, bytes]] = []  # when, channel, message
        self.at_s = 0.0  # when the subscription was confirmed
        self.is_open = True


class Notes:
    """The records of all clients of qless in a life."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.jids: list[bytes] = []
        self.heard: list[Heard] = []
        self.calls = 0

    def apart(self) -> "Notes":
        """Return notes for clients with their own jobs; their calls are judged with all others."""
        notes = Notes()
        notes.requests, notes.heard = self.requests, self.heard
        notes.calls = APART_CALLS
        return notes

    def stamp(self, now_s: float) -> float:
        """Return a time that no other call has."""
        self.calls += 1
        return round(now_s, 3) + self.calls * 1e-6


class Laborer(SingleGuest[Request]):
    """A worker, which also puts jobs."""

    protocol = "qless"

    def __init__(self, world: World, number: int, notes: Notes, first: bool) -> None:
        super().__init__(world, number)
        self.pace = self.dice.choice(PACES)
        self.notes = notes
        self.name = b"worker-%d" % number
        self.queues: tuple[bytes, ...] = QUEUES
        self.data: tuple[bytes, ...] = (DATA,)
        self.held: dict[bytes, bytes] = {}  # jids, and their queues
        self._skew_s = self.dice.uniform(-SKEW_MAX_S, SKEW_MAX_S)
        self._sets = first  # it sets the configuration before all else
        self._sha = b""
        self._jobs = 0
        self._parser = ReplyParser()

    def began(self) -> None:
        """See `Guest`."""
        self._parser = ReplyParser()
        self._sha = b""
        self.send(encode((b"SCRIPT", b"LOAD", SCRIPT)))

    # --- requests ---------------------------------------------------------------------------------

    def act(self) -> None:
        """See `Guest`."""
        if not (self.active and self._sha) or self.waiting is not None:
            return
        luck = self.dice.random()
        if luck < 0.01:
            self.drop()
            return
        if self._sets:
            self._configure()
        elif self.held and luck < 0.4:
            self._end(self.dice.choice(list(self.held)))
        elif luck < 0.6:
            self._put()
        elif luck < 0.85:
            count = self.dice.choice((b"1", b"1", b"2"))
            self._call(b"pop", self.dice.choice(self.queues), self.name, count)
        else:
            self._other()
        if self.dice.random() < 0.01:
            self.drop()  # with a request open

    def _call(self, name: bytes, *args: bytes) -> None:
        assert self.visit is not None
        request = Request(self.visit, name, args, self.world.clock.now_s)
        request.now = self.notes.stamp(request.at_s + self._skew_s)
        self.notes.requests.append(request)
        self.wait_for(request)
        self.send(encode((b"EVALSHA", self._sha, b"0", name, repr(request.now).encode(), *args)))

    def _configure(self) -> None:
        """Set the next option that is not set yet; the other workers may begin before."""
        done = [
            request.args[0]
            for request in self.notes.requests
            if request.name == b"config.set"
            and request.done_s is not None
            and not isinstance(request.reply, Error)
        ]
        for option, seconds in ((b"heartbeat", HEARTBEAT_S), (b"grace-period", GRACE_S)):
            if option not in done:
                self._call(b"config.set", option, repr(seconds).encode())
                return
        self._sets = False
        self._call(b"throttle.set", THROTTLE, b"2", b"0")

    def choose_jid(self) -> bytes:
        """Return the jid of a put: a new one, or sometimes one that is known."""
        if self.notes.jids and self.dice.random() < 0.1:
            return self.dice.choice(self.notes.jids[-RECENT:])
        self._jobs += 1
        return b"j%d-%d" % (self.number, self._jobs)

    def _put(self) -> None:
        dice, jids = self.dice, self.notes.jids
        jid = self.choose_jid()
        delay = dice.choice((b"0", b"0", b"0", b"1"))
        more = [b"priority", b"%d" % dice.randrange(3), b"retries", b"%d" % dice.randrange(3)]
        if jids and dice.random() < 0.25:
            some = {dice.choice(jids[-RECENT:]).decode() for _ in range(2)} - {jid.decode()}
            more += [b"depends", json.dumps(sorted(some)).encode()]
        if dice.random() < 0.4:
            more += [b"throttles", json.dumps([THROTTLE.decode()]).encode()]
        queue = dice.choice(self.queues)
        data = self.data[self._jobs % len(self.data)]
        self._call(b"put", self.name, queue, jid, b"klass", data, delay, *more)
        if jid not in jids[-RECENT:]:
            jids.append(jid)

    def _end(self, jid: bytes) -> None:
        dice, queue = self.dice, self.held[jid]
        luck = dice.random()
        if luck < 0.15:
            self._call(b"heartbeat", jid, self.name)
        elif luck < 0.3:
            self._call(b"fail", jid, self.name, b"group", b"a message")
        elif luck < 0.45:
            self._call(b"retry", jid, queue, self.name, dice.choice((b"0", b"1")))
        elif luck < 0.6:
            following = dice.choice(self.queues)
            more: list[bytes] = []
            if dice.random() < 0.3:
                others = [one for one in self.notes.jids[-RECENT:] if one != jid]
                more = [b"depends", json.dumps([one.decode() for one in others[:1]]).encode()]
            self._call(b"complete", jid, self.name, queue, b"{}", b"next", following, *more)
        else:
            self._call(b"complete", jid, self.name, queue, b"{}")

    def _other(self) -> None:
        dice, jids = self.dice, self.notes.jids
        luck = dice.random()
        jid = dice.choice(jids[-RECENT:]) if jids else b"none"
        if luck < 0.2:
            self._call(b"get", jid)
        elif luck < 0.35:
            self._call(b"cancel", jid)
        elif luck < 0.45:
            self._call(b"timeout", jid)
        elif luck < 0.55:
            self._call(b"track", b"track", jid)
        elif luck < 0.65:
            self._call(b"unfail", dice.choice(self.queues), b"group", b"2")
        elif luck < 0.75:
            self._call(b"throttle.set", THROTTLE, dice.choice((b"1", b"2", b"3")), b"0")
        elif luck < 0.9:
            template = b"r%d" % self.number
            rest = (b"retries", b"1", b"backlog", b"0")
            args = (
                dice.choice(self.queues),
                template,
                b"klass",
                b"{}",
                b"interval",
                b"2",
                b"0",
                *rest,
            )
            self._call(b"recur", *args)
        else:
            # It tries to complete another worker's job, which is refused.
            self._call(b"complete", jid, self.name, dice.choice(self.queues), b"{}")

    # --- replies ----------------------------------------------------------------------------------

    def took(self, data: bytes) -> None:
        """See `Guest`."""
        self._parser.feed(data)
        found = self._parser.next()
        if found is None:
            return
        value = found[0]
        request = self.waiting
        if not self._sha:
            # A node without a majority may refuse the script; the next act loads it again.
            self._sha = value if isinstance(value, bytes) else b""
            self.later()
            return
        more = self._parser.next()
        if request is None or more is not None:
            raise Violation(f"client {self.number} got {value!r} for nothing, or {more!r}")
        request.reply, request.done_s = value, self.world.clock.now_s
        self.waiting = None
        self._learn(request)
        word = "refused" if isinstance(value, Error) else "done"
        self.world.counts[f"qless {request.name.decode()} {word}"] += 1
        self.later()

    def _learn(self, request: Request) -> None:
        """Update the jobs that the worker holds after a reply."""
        name, args = request.name, request.args
        if name == b"pop" and isinstance(request.reply, bytes):
            for job in json.loads(request.reply):
                self.held[job["jid"].encode()] = job["queue"].encode()
        elif name in (b"complete", b"fail", b"retry") and args[0] in self.held:
            if not isinstance(request.reply, Error) or b"no majority" not in _text(request):
                del self.held[args[0]]
        elif name == b"heartbeat" and isinstance(request.reply, Error):
            self.held.pop(args[0], None)


class Subscriber(Guest):
    """A client that receives all messages, and does nothing else."""

    protocol = "qless"

    def __init__(self, world: World, number: int, notes: Notes) -> None:
        super().__init__(world, number)
        self.pace = 0.2
        self._notes = notes
        self._heard: Heard | None = None
        self._parser = ReplyParser()

    def began(self) -> None:
        """See `Guest`."""
        assert self.visit is not None
        self._parser = ReplyParser()
        self._heard = Heard(self.visit)
        self._notes.heard.append(self._heard)
        self.send(encode((b"PSUBSCRIBE", b"ql:*")))

    def left(self) -> None:
        """See `Guest`."""
        if self._heard is not None:
            self._heard.is_open = False
        self._heard = None

    @property
    def quiet(self) -> bool:
        """True: it never waits for a reply."""
        return True

    def act(self) -> None:
        """Disconnect now and then."""
        if self.active and self.dice.random() < 0.2:
            self.drop()
        else:
            self.later()

    def took(self, data: bytes) -> None:
        """See `Guest`."""
        assert self._heard is not None
        self._parser.feed(data)
        while (found := self._parser.next()) is not None:
            value = found[0]
            now_s = self.world.clock.now_s
            match value:
                case [b"psubscribe", _, _]:
                    self._heard.at_s = now_s
                case [b"pmessage", _, bytes(channel), bytes(what)]:
                    self._heard.messages.append((now_s, channel, what))
                    self.world.counts["qless messages"] += 1
                case _:
                    raise Violation(f"client {self.number} was told {value!r}")


def _text(request: Request) -> bytes:
    """Return the text of the error with which a request was answered."""
    return request.reply.text if isinstance(request.reply, Error) else b""

"""Beanstalk clients with tokens: valid, revoked or wrong ones, or none; some are users by rule.

They share queues with each other and with no other client; `stewards` change their rights there.
Some keep their sessions and resume them with the same or another token. Requests and answers are
recorded; the judging is in `verdicts_users`.
"""

import random
from collections import deque
from functools import partial
from typing import Any, Final

from beanpole.constants import DEFAULT_TUBE
from beanpole.errors import ProtocolError
from beanpole.protocol.beanstalk.client import Reply, ReplyParser, encode, encode_put
from beanpole.protocol.beanstalk.requests import KEEP_MAX_S
from tests.sim.cluster import Violation
from tests.sim.guests import Guest
from tests.sim.history import WORDS, Connected
from tests.sim.world import World

TUBES: Final = (b"vault", b"vault", b"vault-a", b"vault-b", b"safe")
# No client puts jobs into this queue, so waits for its jobs are long.
EMPTY: Final = b"vault-empty"
# The beginning of their bodies.
MARK: Final = b"vault "
# Names in certificates; the empty name stands for no certificate.
CERTIFICATES: Final = (b"", b"one.example", b"two.example")
HELD_MAX: Final = 3
PACE: Final = 10.0
TTRS_S: Final = (1, 2, 60, 60)
# Clients ask about the newest jobs, up to this number.
RECENT: Final = 12
_LATER: Final = frozenset({b"INTERNAL_ERROR", b"UNKNOWN_COMMAND"})
ANSWERS: Final[dict[str, frozenset[bytes]]] = {
    **{kind: words | {b"DENIED"} for kind, words in WORDS.items()},
    "ignore": WORDS["ignore"],
    "auth": _LATER | {b"ACCEPTED", b"DENIED"},
    "keep": _LATER | {b"KEPT"},
    "resume": _LATER | {b"RESUMED", b"NOT_FOUND"},
}
ABOUT_JOBS: Final = ("peek", "stats-job", "kick-job", "delete", "reserve-job", "release", "bury")
ABOUT_USED: Final = ("peek-ready", "peek-delayed", "peek-buried")


class Keyring:
    """Every token that was ever drawn, with its user; most are dropped in time."""

    def __init__(self) -> None:
        self.drawn: dict[bytes, str] = {}
        self.dropped: set[bytes] = set()  # tokens whose removal was requested

    def draw(self, dice: random.Random, user: str) -> bytes:
        """Return a token for a user: a new one, or sometimes another user's."""
        if self.drawn and dice.random() < 0.1:
            return self.any(dice)
        token = dice.randbytes(8).hex().encode()
        self.drawn[token] = user
        return token

    def any(self, dice: random.Random) -> bytes:
        """Return a token, more often one that should be valid, and a recent one."""
        tokens = list(self.drawn)
        if dice.random() < 0.75:
            tokens = [token for token in tokens if token not in self.dropped] or tokens
        return dice.choice(tokens[-6:] if dice.random() < 0.5 else tokens)


class Ask:
    """One request, and its answer."""

    __slots__ = (
        *("args", "at_s", "body", "certificate", "done_s", "job", "kind", "knew_s", "known_s"),
        *("visit", "word"),
    )

    def __init__(self, visit: Connected, kind: str, args: tuple[Any, ...], at_s: float) -> None:
        self.visit = visit
        self.kind = kind
        self.args = args
        self.body = b""
        self.certificate = b""  # the name in the client's certificate
        self.job = 0  # the job that a put made or a reserve got
        self.at_s = at_s
        self.known_s = 0.0  # when its node's newest entry at `at_s` was first applied
        self.knew_s = 0.0  # the same, when the time of a wait was up
        self.done_s = float("inf")
        self.word = b""  # stays empty if the connection ended first

    @property
    def session(self) -> tuple[int, int, int]:
        """The session of its connection."""
        return self.visit.place, self.visit.incarnation, self.visit.number

    def __repr__(self) -> str:
        return (
            f"client {self.visit.client} at {self.visit.node} [{self.at_s:.4f}, {self.done_s:.4f}] "
            f"{self.kind} {self.args} {self.body!r} as {self.session} {self.certificate!r} "
            f"-> {self.word!r}"
        )


class Bearer(Guest):
    """One client; `known` has the ids of all jobs that any bearer has put."""

    protocol = "beanstalk"

    def __init__(
        self, world: World, number: int, asks: list[Ask], known: list[int], keyring: Keyring
    ) -> None:
        super().__init__(world, number)
        self.pace = PACE
        self.asks = asks
        self.known = known
        self.keyring = keyring
        self.waiting: deque[Ask] = deque()
        self.held: dict[int, None] = {}
        self.bodies = 0
        # The tubes that its session uses and watches, as confirmed on this connection.
        self.used = DEFAULT_TUBE
        self.watched: dict[bytes, None] = {}
        self._certificate = b""
        self._puts = 0.0  # probability of a put when it could put
        self._secret = b""  # secret of its session, if the session is kept
        self._token = b""  # its newest token
        self._accepted = b""  # the last one that a node accepted
        self._parser = ReplyParser()
        self._first: list[tuple[Any, ...]] = []  # requests at the beginning of a connection

    @property
    def quiet(self) -> bool:
        """Whether it waits for nothing."""
        return not self.waiting

    @property
    def waits_with(self) -> bytes:
        """The token of its session, if it waits for a job that never comes; empty otherwise."""
        is_waiting = bool(self.waiting) and self.waiting[-1].kind == "reserve-with-timeout"
        return self._accepted if is_waiting and EMPTY in self.watched else b""

    def began(self) -> None:
        """See `Guest`."""
        assert self.wire is not None
        dice = self.dice
        self._parser = ReplyParser()
        self.held.clear()
        self.used, self.watched = DEFAULT_TUBE, {DEFAULT_TUBE: None}
        self._certificate = dice.choice(CERTIFICATES)
        self.wire.client_names = (self._certificate,) if self._certificate else ()
        self._puts = 0.7 if dice.random() < 0.4 else 0.1
        self._first = [("auth", self._pick())] if dice.random() < 0.8 else []
        if self._secret:
            self._first.append(("resume", self._secret))
        elif dice.random() < 0.6:
            self._secret = dice.randbytes(16).hex().encode()
            self._first.append(("keep", self._secret, KEEP_MAX_S))
        self._first.append(("use", dice.choice(TUBES)))
        watched = dict.fromkeys(dice.choices(TUBES, k=3) if dice.random() < 0.6 else (EMPTY,))
        self._first += [("watch", tube) for tube in watched]
        self._first.append(("ignore", DEFAULT_TUBE))

    def left(self) -> None:
        """See `Guest`."""
        self.waiting.clear()

    def _pick(self) -> bytes:
        """Return a token, mostly one that was valid at some time."""
        dice = self.dice
        if self._token and dice.random() < (0.7 if self._secret else 0.4):
            return self._token
        if dice.random() < 0.1 or not self.keyring.drawn:
            return b"%d-is-none" % self.number
        self._token = self.keyring.any(dice)
        return self._token

    # --- requests ---------------------------------------------------------------------------------

    def act(self) -> None:
        """See `Guest`."""
        if self.waiting or not self.active:
            return
        dice = self.dice
        if self._first:
            count = 1 if dice.random() < 0.5 else len(self._first)
            some, self._first = self._first[:count], self._first[count:]
            self._ask(*some)
            return
        luck = dice.random()
        if luck < 0.04:
            self.drop()
            return
        if luck < 0.09:
            self._ask(("auth", self._pick()), self._any())
        elif luck < 0.14:
            self._ask(self._any(), self._any())
        else:
            self._ask(self._any())
        if dice.random() < 0.02:
            self.drop()  # with requests open

    def _any(self) -> tuple[Any, ...]:
        dice, luck = self.dice, self.dice.random()
        if self.held and luck < 0.5:
            job = dice.choice(list(self.held))
            kind = dice.choice(("delete", "delete", "release", "bury", "touch"))
            return (kind, job, *_beside(kind))
        if dice.random() < self._puts and self.used != DEFAULT_TUBE:
            return ("put", 1, dice.choice((0, 0, 0, 1)), dice.choice(TTRS_S))
        if self.known and dice.random() < 0.25:
            kind, job = dice.choice(ABOUT_JOBS), dice.choice(self.known[-RECENT:])
            return (kind, job, *_beside(kind))
        if luck < 0.85 and len(self.held) < HELD_MAX and DEFAULT_TUBE not in self.watched:
            # In the empty tube its right may end during a wait, which ends before the life does.
            is_empty = EMPTY in self.watched
            return ("reserve-with-timeout", 3 if is_empty else dice.choice((0, 1, 3, 6)))
        if luck < 0.93 and self.used != DEFAULT_TUBE:
            return dice.choice((("kick", 2), ("pause-tube", self.used, dice.choice((0, 1)))))
        if luck < 0.96:
            return (dice.choice(ABOUT_USED),)
        if luck < 0.98:
            return (dice.choice(("use", "watch")), dice.choice(TUBES))
        return ("stats-tube", dice.choice(TUBES))

    def _ask(self, *requests: tuple[Any, ...]) -> None:
        visit = self.visit
        assert visit is not None
        data = b""
        for kind, *args in requests:
            ask = Ask(visit, kind, tuple(args), self.world.clock.now_s)
            ask.certificate = self._certificate
            ask.known_s = known_s(self.world, visit.node)
            if kind == "put":
                self.bodies += 1
                ask.body = MARK + b"%d-%d" % (self.number, self.bodies)
                data += encode_put(ask.body, *args)
            else:
                data += encode(kind.encode(), *args)
            if kind == "reserve-with-timeout":
                self.world.clock.after(args[0], partial(self._note_knowledge, ask))
            self.asks.append(ask)
            self.waiting.append(ask)
        self.expect(self.waiting[-1], self.waiting)
        self.send(data)

    def _note_knowledge(self, ask: Ask) -> None:
        ask.knew_s = known_s(self.world, ask.visit.node)

    # --- replies ----------------------------------------------------------------------------------

    def took(self, data: bytes) -> None:
        """See `Guest`."""
        parser = self._parser
        parser.feed(data)
        try:
            while self.wire is not None and (reply := parser.next()) is not None:
                self._replied(reply)
        except ProtocolError as error:
            raise Violation(f"bearer {self.number}: {error}") from error

    def _was_told(self) -> bool:
        """Whether this connection got an answer that precedes the commit of its request."""
        return any(
            ask.visit is self.visit and ask.word in (b"USING", b"WATCHING") for ask in self.asks
        )

    def _replied(self, reply: Reply) -> None:
        word, numbers, body = reply
        if not self.waiting:
            if word in (b"OUT_OF_MEMORY", b"DENIED"):
                return  # an answered request was refused later: the connection ends
            raise Violation(f"bearer {self.number} got {reply!r} for nothing")
        ask = self.waiting.popleft()
        if word not in ANSWERS[ask.kind] and word != b"OUT_OF_MEMORY":
            if word == b"DENIED" and self._was_told():
                self.waiting.clear()  # the same, with other requests behind it (life 2216)
                return
            raise Violation(f"a wrong reply: {reply!r} to {ask!r}")
        ask.word, ask.done_s = word, self.world.clock.now_s
        self.world.counts[f"bearer {ask.kind} {word.decode()}"] += 1
        if word == b"ACCEPTED":
            self._accepted = ask.args[0]
        elif word == b"INSERTED":
            ask.job = numbers[0]
            self.known.append(ask.job)
        elif word == b"RESERVED":
            ask.job = numbers[0]
            self.held[ask.job] = None
        elif word == b"RESUMED":
            self.held = {int(job): None for job in (body or b"").split()}
            self.world.counts["jobs that bearers had after they came back"] += len(self.held)
        elif ask.kind in ("keep", "resume"):
            if word != b"KEPT":
                self._secret = b""
        elif word == b"USING":
            self.used = ask.args[0]
        elif word == b"WATCHING" and ask.kind == "watch":
            self.watched[ask.args[0]] = None
        elif word == b"WATCHING":
            self.watched.pop(DEFAULT_TUBE, None)
        elif ask.kind in ("delete", "release", "bury") and word != b"DENIED":
            self.held.pop(ask.args[0], None)
        if not self.waiting:
            self.later()


def _beside(kind: str) -> tuple[int, ...]:
    """Return the arguments that follow the job in a request."""
    return {"release": (1, 0), "bury": (1,)}.get(kind, ())


def known_s(world: World, node: str) -> float:
    """Return when the newest entry that a node has applied by now was first applied."""
    host = world.hosts.get(node)
    index = host.node.context.machine.index if host is not None else 0
    applied_s = world.witness.applied_s
    return next((applied_s[at] for at in range(index, 0, -1) if at in applied_s), 0.0)

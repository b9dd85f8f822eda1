"""Beanstalk clients whose jobs come back: released, after their TTR, with a lost connection.

They share queues with each other, on which `overseers` set policies and change jobs, and with no
other client. Requests and answers are recorded; the judging is in `verdicts_policies`,
`verdicts_rules` and `verdicts_rates`.
"""

import random
from typing import Final

from beanpole.constants import DEFAULT_TUBE
from beanpole.errors import ProtocolError
from beanpole.protocol.beanstalk.client import Reply, ReplyParser, encode, encode_put
from tests.sim.cluster import Violation
from tests.sim.guests import SingleGuest
from tests.sim.history import WORDS, Connected
from tests.sim.world import World

DEAD: Final = b"mail-dead"
TUBES: Final = (b"mail", b"mail-news", b"bulk", DEAD)
# The beginning of their bodies.
MARK: Final = b"mail "
# With this TTR a client leaves it to the policy of its queue.
NO_TTR: Final = 0
HELD_MAX: Final = 3
# Actions per second: few jobs wait long, and many come back in a life.
PACE: Final = 10.0
TTRS_S: Final = (1, 1, 2, 60, NO_TTR, NO_TTR)
DELAYS_S: Final = (0, 0, 0, 1, 1, 3)
# The share of puts with one of a few equal bodies, some within the window of a policy.
EQUAL_BODIES: Final = 2
EQUAL_SHARE: Final = 0.45
# Some bodies are larger than a limit of bytes.
PADDINGS: Final = (b"", b"", b"", b" " * 20)


def body_of(dice: random.Random, own: bytes) -> bytes:
    """Return a body: `own`, or one of those that several clients put."""
    if dice.random() < EQUAL_SHARE:
        own = b"equal-%d" % dice.randrange(EQUAL_BODIES)
    return MARK + own + dice.choice(PADDINGS)


class Request:
    """One request, and its answer."""

    __slots__ = (
        *("at_s", "body", "delay_s", "done_s", "job", "kind", "priority", "queue"),
        *("ttr_s", "visit", "watched", "word"),
    )

    def __init__(self, visit: Connected, kind: str, job: int, at_s: float) -> None:
        self.visit = visit
        self.kind = kind
        self.job = job
        self.queue = b""  # of a put, as the next three
        self.priority = self.delay_s = self.ttr_s = 0
        self.body = b""
        self.watched: tuple[bytes, ...] = ()
        self.at_s = at_s
        self.done_s = float("inf")
        self.word = b""  # stays empty if the connection ended first

    @property
    def session(self) -> tuple[int, int, int]:
        """The session of its connection."""
        return self.visit.place, self.visit.incarnation, self.visit.number

    def __repr__(self) -> str:
        return (
            f"client {self.visit.client} at {self.visit.node} [{self.at_s:.4f}, {self.done_s:.4f}] "
            f"{self.kind} {self.job} {self.body!r} -> {self.word!r}"
        )


class Retrier(SingleGuest[Request]):
    """One client; `known` has the ids of all jobs that any retrier has put."""

    protocol = "beanstalk"

    def __init__(
        self, world: World, number: int, requests: list[Request], known: list[int]
    ) -> None:
        super().__init__(world, number)
        self.pace = PACE
        self.requests = requests
        self.known = known
        self.held: dict[int, None] = {}
        self.bodies = 0
        self._queue = TUBES[0]
        self._watched: tuple[bytes, ...] = ()
        self._parser = ReplyParser()
        self._unanswered = 0  # number of open requests from the beginning of the connection

    def began(self) -> None:
        """See `Guest`."""
        dice = self.dice
        self._parser = ReplyParser()
        self.held.clear()
        self._queue = dice.choice(TUBES[:3])
        watched = [tube for tube in TUBES if dice.random() < 0.6] or [TUBES[0]]
        self._watched = tuple(watched)
        self._unanswered = 2 + len(watched)
        words = b"".join(encode(b"watch", tube) for tube in watched)
        self.send(encode(b"use", self._queue) + words + encode(b"ignore", DEFAULT_TUBE))

    # --- requests ---------------------------------------------------------------------------------

    def act(self) -> None:
        """See `Guest`."""
        if self.waiting is not None or not self.active:
            return
        if self._unanswered:
            self.later()
            return
        dice = self.dice
        luck = dice.random()
        if luck < 0.03:
            self.drop()
            return
        if self.held and luck < 0.6:
            self._about(dice.choice(list(self.held)))
        elif dice.random() < 0.45:
            self._put()
        elif len(self.held) < HELD_MAX:
            seconds = dice.choice((0, 0, 1, 2))
            self._ask("reserve-with-timeout", 0, encode(b"reserve-with-timeout", seconds))
        else:
            self.later(0.5)  # until a TTR may end
            return
        if dice.random() < 0.02:
            self.drop()  # with a request open

    def _about(self, job: int) -> None:
        dice, luck = self.dice, self.dice.random()
        if luck < 0.65:
            delay_s = dice.choice((0, 0, 0, 1))
            self._ask("release", job, encode(b"release", job, dice.choice((0, 1, 1)), delay_s))
        elif luck < 0.8:
            self._ask("delete", job, encode(b"delete", job))
        elif luck < 0.9:
            self._ask("bury", job, encode(b"bury", job, 1))
        else:
            self._ask("touch", job, encode(b"touch", job))

    def _put(self) -> None:
        dice = self.dice
        self.bodies += 1
        body = body_of(dice, b"%d-%d" % (self.number, self.bodies))
        numbers = dice.choice((0, 1, 1)), dice.choice(DELAYS_S), dice.choice(TTRS_S)
        request = self._ask("put", 0, encode_put(body, *numbers), body)
        request.priority, request.delay_s, request.ttr_s = numbers

    def _ask(self, kind: str, job: int, line: bytes, body: bytes = b"") -> Request:
        visit = self.visit
        assert visit is not None
        request = Request(visit, kind, job, self.world.clock.now_s)
        request.queue, request.body, request.watched = self._queue, body, self._watched
        self.requests.append(request)
        self.wait_for(request)
        self.send(line)
        return request

    # --- replies ----------------------------------------------------------------------------------

    def took(self, data: bytes) -> None:
        """See `Guest`."""
        parser = self._parser
        parser.feed(data)
        try:
            while self.wire is not None and (reply := parser.next()) is not None:
                self._replied(reply)
        except ProtocolError as error:
            raise Violation(f"retrier {self.number}: {error}") from error

    def _replied(self, reply: Reply) -> None:
        word, numbers, body = reply
        if self._unanswered:
            self._unanswered -= 1
            if word not in (b"USING", b"WATCHING"):
                self.drop()  # it would watch or use other queues than it records
            return
        request = self.waiting
        if request is None:
            if word == b"OUT_OF_MEMORY":
                return  # the session could not begin: its connection ends
            raise Violation(f"retrier {self.number} got {reply!r} for nothing")
        if word not in WORDS[request.kind]:
            raise Violation(f"a wrong reply: {reply!r} to {request!r}")
        self.waiting = None
        request.word, request.done_s = word, self.world.clock.now_s
        self.world.counts[f"retrier {request.kind} {word.decode()}"] += 1
        if word == b"INSERTED":
            request.job = numbers[0]
            if request.job not in self.known:  # an equal put may have made it known
                self.known.append(request.job)
        elif word == b"RESERVED":
            request.job, request.body = numbers[0], body or b""
            self.held[request.job] = None
        elif request.kind != "touch" or word == b"NOT_FOUND":
            self.held.pop(request.job, None)
        self.later()

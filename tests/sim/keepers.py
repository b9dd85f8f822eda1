"""Beanstalk clients that keep their sessions: they lose connections and nodes, but no job.

They share one queue. `Claims` has the jobs that each was told to hold: while a job is in it, no
other client may get the job, whatever happens to connections. Everything is judged as it is seen.
"""

from typing import Final

from beanpole.constants import DEFAULT_TUBE
from beanpole.errors import ProtocolError
from beanpole.protocol.beanstalk.client import Reply, ReplyParser, encode, encode_put
from beanpole.protocol.beanstalk.requests import KEEP_MAX_S
from tests.sim.cluster import Violation
from tests.sim.guests import SingleGuest
from tests.sim.witness import RATE_MAX
from tests.sim.world import World

TUBE: Final = b"kept"
# The beginning of keepers' bodies: their jobs are judged here, and not in `verdicts`.
MARK: Final = b"kept "
# Longer than any life, so that only a lost session can end a reservation.
TTR_S: Final = 100_000_000
HELD_MAX: Final = 4
# Answers of a node that certainly did nothing.
REFUSED: Final = frozenset({b"INTERNAL_ERROR", b"OUT_OF_MEMORY", b"DRAINING"})


class Claims:
    """The keeper that was told to hold each job."""

    def __init__(self) -> None:
        self.holders: dict[int, int] = {}
        self.keepers: dict[int, Keeper] = {}

    def claim(self, job: int, keeper: int) -> None:
        """Note that a node gave a job to a keeper.

        Raises:
            Violation: another keeper has the job.
        """
        holder = self.holders.get(job, keeper)
        if holder != keeper and not self.keepers[holder].has_lost(job):
            raise Violation(f"job {job} of keeper {holder} was given to keeper {keeper}")
        self.holders[job] = keeper


class Keeper(SingleGuest[tuple[bytes, int]]):
    """One client; its one open request is a word, and the job it is about or 0."""

    protocol = "beanstalk"

    def __init__(self, world: World, number: int, claims: Claims) -> None:
        super().__init__(world, number)
        self.claims = claims
        claims.keepers[number] = self
        self.held: dict[int, None] = {}
        self.ending: dict[int, None] = {}  # jobs whose delete or release may be done
        self.is_kept = False
        self._token = b""
        self._left_s = 0.0  # when its session last lost a connection
        self._is_certain = False  # the node confirmed that it keeps the session
        self._parser = ReplyParser()
        self._bound = self._answered_first = False

    # --- connections ------------------------------------------------------------------------------

    def began(self) -> None:
        """See `Guest`."""
        self._parser = ReplyParser()
        self._bound = self.is_kept = self._answered_first = False

    def left(self) -> None:
        """See `Guest`."""
        super().left()
        if self.is_kept:
            self._left_s = self.world.clock.now_s

    def _abandon(self) -> None:
        """Forget a connection that its node takes to be alive."""
        self.world.counts["keepers that left their connection open"] += 1
        self._forget()

    def _lose_all(self) -> None:
        for job in (*self.held, *self.ending):
            if self.claims.holders.get(job) == self.number:
                del self.claims.holders[job]
        self.held.clear()
        self.ending.clear()
        self._token, self._is_certain = b"", False

    def has_lost(self, job: int) -> bool:
        """Whether a job may be lost because the session may have ended; forgets such a job."""
        if self.is_kept or not self._may_be_late:
            return False
        self.held.pop(job, None)
        self.ending.pop(job, None)
        return True

    @property
    def _may_be_late(self) -> bool:
        """Whether the time to resume may be over, also if cluster time was estimated."""
        away_s = self.world.clock.now_s - self._left_s
        estimated = self.world.walls_move or self.world.counts["cold starts"] > 0
        return estimated or away_s > KEEP_MAX_S * (1 - RATE_MAX)

    # --- requests ---------------------------------------------------------------------------------

    def act(self) -> None:
        """See `Guest`."""
        if self.waiting is not None:
            return
        dice = self.dice
        if not self.is_kept:
            self._begin_session()
        elif not self._bound:
            self.wait_for((b"ignore", 0))
            self.send(encode(b"watch", TUBE) + encode(b"ignore", DEFAULT_TUBE))
        elif not self.active:
            if self.held:
                self._end(b"delete", next(iter(self.held)))
        elif dice.random() < 0.04:
            self.drop()
            return
        elif dice.random() < 0.02:
            self._abandon()
            return
        elif self.held and dice.random() < 0.3:
            job = dice.choice(list(self.held))
            luck = dice.random()
            if luck < 0.5:
                self._end(b"delete", job)
            elif luck < 0.7:
                self._end(b"release", job)
            else:
                self._say(b"touch", job)
        elif len(self.held) < HELD_MAX and dice.random() < 0.6:
            self._say(b"reserve-with-timeout", dice.choice((0, 1, 3)))
        else:
            self.wait_for((b"put", 0))
            self.send(encode(b"use", TUBE) + encode_put(MARK + b"%d" % self.number, 1, 0, TTR_S))
        if dice.random() < 0.03 and self.active:
            self.drop()  # with a request open

    def _begin_session(self) -> None:
        if self._token:
            self._say(b"resume", self._token)
            return
        self._token = self.dice.randbytes(16).hex().encode()
        self.wait_for((b"keep", 0))
        self.send(encode(b"keep", self._token, KEEP_MAX_S))

    def _say(self, word: bytes, argument: int | bytes) -> None:
        about = argument if isinstance(argument, int) else 0
        self.wait_for((word, about))
        self.send(encode(word, argument))

    def _end(self, word: bytes, job: int) -> None:
        """End a reservation: from now on another client may get the job."""
        del self.held[job]
        self.ending[job] = None
        # A delete may fail, and the job remain ours; a release may give it to another client.
        if word == b"release":
            del self.claims.holders[job]
        self.wait_for((word, job))
        self.send(encode(word, job, 1, 0) if word == b"release" else encode(word, job))

    # --- replies ----------------------------------------------------------------------------------

    def took(self, data: bytes) -> None:
        """See `Guest`."""
        parser = self._parser
        parser.feed(data)
        try:
            while self.wire is not None and (reply := parser.next()) is not None:
                self._replied(reply)
        except ProtocolError as error:
            raise Violation(f"keeper {self.number}: {error}") from error

    def _replied(self, reply: Reply) -> None:
        if self.waiting is None:
            if reply[0] == b"OUT_OF_MEMORY":
                return  # the session could not begin: its connection ends
            raise Violation(f"keeper {self.number} got {reply!r} for nothing")
        word, job = self.waiting
        if self._is_first_of_two(word, reply):
            return
        self.waiting = None
        self.world.counts[f"keeper {word.decode()} {reply[0].decode()}"] += 1
        if word in (b"keep", b"resume"):
            self._began_session(word, reply)
        elif word == b"ignore":
            self._bound = reply[0] == b"WATCHING"
        elif reply[0] == b"RESERVED":
            self._hold(reply[1][0])
        elif word in (b"delete", b"release"):
            self._ended(job, word, reply)
        elif word == b"touch" and reply[0] == b"NOT_FOUND":
            raise Violation(f"keeper {self.number} lost job {job} without a word")
        self.later()

    def _is_first_of_two(self, word: bytes, reply: Reply) -> bool:
        """Whether another reply follows: to the put after a `use`, to the `ignore` after a `watch`.

        If the first reply is a refusal, the keeper leaves the connection before the second counts.
        """
        if word not in (b"put", b"ignore") or self._answered_first:
            self._answered_first = False
            return False
        self._answered_first = True
        if reply[0] in REFUSED:
            self.drop()
        return True

    def _hold(self, job: int) -> None:
        self.claims.claim(job, self.number)
        self.held[job] = None

    def _ended(self, job: int, word: bytes, reply: Reply) -> None:
        del self.ending[job]
        if reply[0] in REFUSED:
            self._hold(job)
        elif reply[0] == b"NOT_FOUND":
            raise Violation(f"keeper {self.number} could not {word.decode()} its job {job}")
        elif word == b"delete":
            del self.claims.holders[job]

    def _began_session(self, word: bytes, reply: Reply) -> None:
        if reply[0] == b"KEPT":
            self.is_kept = self._is_certain = True
        elif reply[0] == b"RESUMED":
            self._resumed([int(job) for job in (reply[2] or b"").split()])
        elif word == b"resume" and reply[0] == b"NOT_FOUND":
            if self._is_certain and not self._may_be_late:
                raise Violation(f"the session of keeper {self.number} is gone")
            self._lose_all()
        elif reply[0] == b"UNKNOWN_COMMAND" and word == b"resume":
            self.drop()  # this node does not know of the raise yet
        elif reply[0] == b"UNKNOWN_COMMAND":
            self._token = b""  # an older machine
        elif word == b"keep":
            self._token = b""

    def _resumed(self, jobs: list[int]) -> None:
        self.is_kept = self._is_certain = True
        missing = [job for job in self.held if job not in jobs]
        if missing:
            raise Violation(f"keeper {self.number} came back and lost {missing}")
        for job in self.ending:
            if job not in jobs and self.claims.holders.get(job) == self.number:
                del self.claims.holders[job]  # the delete was done
        self.ending.clear()
        self.world.counts["jobs that keepers had after they came back"] += len(jobs)
        self.world.counts["jobs of replies that were lost"] += len(set(jobs) - set(self.held))
        for job in jobs:
            self._hold(job)

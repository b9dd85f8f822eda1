"""Simulated Workq clients: real bytes, one command at a time, with some colliding ids.

Each client uses all of Workq: it adds, schedules and runs jobs, leases, completes and fails them,
also those that others hold, asks for results and deletes. The judging is in `verdicts_workq`.
"""

import time
from typing import Final

from tests.sim.cluster import Violation
from tests.sim.guests import SingleGuest
from tests.sim.history import Connected
from tests.sim.world import World

NAMES: Final = (b"ping", b"pong")
TTRS_MS: Final = (300, 1000, 5000)
TTLS_MS: Final = (1500, 6000, 60_000, 60_000)
WAITS_MS: Final = (0, 100, 1000, 2500)
# The probability that an id was used before.
COLLIDES: Final = 0.15
RECENT: Final = 12


class Request:
    """One command, and its reply: the first line, and the lines behind it."""

    def __init__(
        self, visit: Connected, kind: str, key: bytes, body: bytes, times: tuple[float, ...]
    ) -> None:
        self.visit = visit
        self.kind = kind
        self.key = key  # the 16 bytes of the id; empty for none
        self.body = body  # payload or result
        self.at_s, self.wait_s, self.ttl_s, self.delay_s = times
        self.names: tuple[bytes, ...] = ()
        self.wins = True  # false for `fail`: the job is said to have failed
        self.done_s: float | None = None
        self.line = b""
        self.lines: tuple[bytes, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the command was done."""
        return self.line[:3] == b"+OK"

    def __repr__(self) -> str:
        until = "lost" if self.done_s is None else f"{self.done_s:.4f}"
        return (
            f"client {self.visit.client} at {self.visit.node} [{self.at_s:.4f}, {until}] "
            f"{self.kind} {self.key.hex()} {self.body!r} wait {self.wait_s} ttl {self.ttl_s} "
            f"-> {self.line!r} {self.lines}"
        )


class Ledger:
    """The requests and ids of all Workq clients of a life."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.keys: list[bytes] = []


def text_of(key: bytes) -> bytes:
    """Return the canonical text of an id."""
    digits = key.hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(parts).encode()


class Patron(SingleGuest[Request]):
    """One client."""

    protocol = "workq"
    names: tuple[bytes, ...] = NAMES
    ttls_ms: tuple[int, ...] = TTLS_MS

    def __init__(self, world: World, number: int, ledger: Ledger) -> None:
        super().__init__(world, number)
        self.ledger = ledger
        self.held: list[bytes] = []
        self.bodies = 0
        self._data = b""

    def began(self) -> None:
        """See `Guest`."""
        self._data = b""

    # --- requests ---------------------------------------------------------------------------------

    def act(self) -> None:
        """See `Guest`."""
        if not self.active or self.waiting is not None:
            return
        dice = self.dice
        luck = dice.random()
        if luck < 0.01:
            self.drop()
            return
        if luck < 0.35 or not self.ledger.keys:
            self._add()
        elif luck < 0.55:
            self._lease()
        elif self.held and luck < 0.8:
            self._complete(self.held.pop(dice.randrange(len(self.held))))
        else:
            self._about(dice.choice(self.ledger.keys[-RECENT:]))
        if dice.random() < 0.01:
            self.drop()  # with a request open

    def _ask(
        self,
        kind: str,
        key: bytes,
        *arguments: object,
        body: bytes | None = None,
        times: tuple[float, float, float] = (0.0, 0.0, 0.0),
    ) -> Request:
        """Send a command; `times` are its wait, its TTL and its delay, in seconds."""
        assert self.visit is not None
        words = [kind.encode(), *([text_of(key)] if key else [])]
        words += [one if isinstance(one, bytes) else b"%d" % one for one in arguments]  # type: ignore[str-format]
        if body is not None:
            words.insert(-1 if words[-1][:1] == b"-" else len(words), b"%d" % len(body))
        data = b" ".join(words) + b"\r\n" + (b"" if body is None else body + b"\r\n")
        asked = (self.world.clock.now_s, *times)
        request = Request(self.visit, kind, key, body or b"", asked)
        self.ledger.requests.append(request)
        self.wait_for(request)
        self.send(data)
        return request

    def _body(self) -> bytes:
        self.bodies += 1
        return b"%d-%d" % (self.number, self.bodies)

    def _key(self) -> bytes:
        dice = self.dice
        if self.ledger.keys and dice.random() < COLLIDES:
            return dice.choice(self.ledger.keys[-RECENT:])
        raw = bytearray(dice.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40  # version 4
        raw[8] = raw[8] & 0x3F | 0x80  # variant of RFC 4122
        self.ledger.keys.append(bytes(raw))
        return bytes(raw)

    def _add(self) -> None:
        dice, luck = self.dice, self.dice.random()
        key, name = self._key(), dice.choice(self.names)
        ttr_ms, ttl_ms = dice.choice(TTRS_MS), dice.choice(self.ttls_ms)
        flag = dice.choice((b"-priority=1", b"-priority=-3", b"-priority=0"))
        if luck < 0.2:
            wait_ms = dice.choice(WAITS_MS)
            times = (wait_ms / 1000, 0.0, 0.0)
            self._ask("run", key, name, ttr_ms, wait_ms, flag, body=self._body(), times=times)
        elif luck < 0.35 and not self.world.walls_move and self.wire is not None:
            delay_s = dice.choice((0, 1, 2))
            at = time.gmtime(self.wire.host.wall_us() // 1_000_000 + delay_s)
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", at).encode()
            times = (0.0, ttl_ms / 1000, float(delay_s))
            body = self._body()
            self._ask("schedule", key, name, ttr_ms, ttl_ms, when, flag, body=body, times=times)
        else:
            times = (0.0, ttl_ms / 1000, 0.0)
            if dice.random() < 0.2:
                flag = dice.choice((b"-max-attempts=1", b"-max-attempts=2"))
            self._ask("add", key, name, ttr_ms, ttl_ms, flag, body=self._body(), times=times)

    def _lease(self) -> None:
        wait_ms = self.dice.choice(WAITS_MS)
        names = self.names if self.dice.random() < 0.5 else (self.dice.choice(self.names),)
        request = self._ask("lease", b"", *names, wait_ms, times=(wait_ms / 1000, 0.0, 0.0))
        request.names = names

    def _complete(self, key: bytes) -> None:
        kind = "fail" if self.dice.random() < 0.2 else "complete"
        request = self._ask(kind, key, body=self._body())
        request.wins = kind == "complete"

    def _about(self, key: bytes) -> None:
        luck = self.dice.random()
        if luck < 0.5:
            wait_ms = self.dice.choice(WAITS_MS)
            self._ask("result", key, wait_ms, times=(wait_ms / 1000, 0.0, 0.0))
        elif luck < 0.7:
            self._complete(key)
        elif luck < 0.85:
            self._ask("delete", key)
        else:
            self._ask("inspect job", key)

    # --- replies ----------------------------------------------------------------------------------

    def took(self, data: bytes) -> None:
        """See `Guest`."""
        self._data += data
        request = self.waiting
        found = _reply(request.kind, self._data) if request is not None else None
        if request is None:
            raise Violation(f"client {self.number} got {self._data!r} for nothing")
        if found is None:
            return
        request.line, request.lines, self._data = found
        request.done_s = self.world.clock.now_s
        self.waiting = None
        if self._data:
            raise Violation(f"client {self.number} got {self._data!r} behind {request!r}")
        word = request.line.split()[0].decode() + " " + request.line[14:].decode()
        self.world.counts[f"workq {request.kind} {word.strip()}"] += 1
        if request.kind == "lease" and request.ok:
            request.key = bytes.fromhex(request.lines[0].split()[0].decode().replace("-", ""))
            request.body = request.lines[1]
            self.held.append(request.key)
        self.later()


def _reply(kind: str, data: bytes) -> tuple[bytes, tuple[bytes, ...], bytes] | None:
    """Return a reply's first line, what belongs to it, and the rest; None if it is incomplete."""
    line, end, rest = data.partition(b"\r\n")
    if not end:
        return None
    if line[:1] not in b"+-" or not line:
        raise Violation(f"no reply of Workq: {data!r}")
    if line[:3] != b"+OK" or kind not in ("run", "result", "lease", "inspect job"):
        return line, (), rest
    head, end, rest = rest.partition(b"\r\n")
    if not end:
        return None
    if kind == "inspect job":
        # The head has the number of lines; our payloads have no line ends.
        lines = rest.split(b"\r\n")
        count = int(head.split()[-1])
        if len(lines) <= count:
            return None
        return line, (head, *lines[:count]), b"\r\n".join(lines[count:])
    size = int(head.split()[-1])
    if len(rest) < size + 2:
        return None
    return line, (head, rest[:size]), rest[size + 2 :]

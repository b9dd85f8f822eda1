"""Clients of a soak: use the queue in every way that moves jobs, and record what they observe.

`python -m chaos.clients` runs many clients in a process of its own until SIGTERM, so that the
proxies and the nemesis do not slow them down. Clients never repeat a command. `checks` judges
their records.
"""

import argparse
import itertools
import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chaos import record
from chaos.record import Op
from tests.integration.support.raw import Address, Raw

TUBES: Final = (b"red", b"green", b"blue")
# Longer than any pause of the plan plus the timeouts after it; a longer silence is a finding.
PATIENCE_S: Final = 40.0
CONNECT_TIMEOUT_S: Final = 1.0
# A pause that spares nodes that are down.
RETRY_S: Final = 0.05
# A dozen clients together then send a few hundred commands a second, which leaves the machine time
# for elections: the soak looks for wrong order, not for high load.
THINK_S_MAX: Final = 0.03
COMMANDS_PER_CONNECTION: Final = 60
# A client may name one of the last jobs, this many, that it has seen, whichever client has them.
SEEN_JOBS: Final = 20
WAITS_S: Final = (0, 0, 1, 3, 8)
SIZES: Final = (60, 200, 1000, 8000)
# Short enough to end while a worker sleeps, or long enough never to end in a soak.
TTRS_S: Final = (1, 2, 5, 600)
EXPECTED: Final = {
    record.PUT: (b"INSERTED", b"DRAINING", b"OUT_OF_MEMORY"),
    record.RESERVE: (
        *(b"RESERVED", b"TIMED_OUT", b"DEADLINE_SOON", b"INTERNAL_ERROR"),
        b"NOT_FOUND",  # reserve-job
    ),
    record.DELETE: (b"DELETED", b"NOT_FOUND", b"INTERNAL_ERROR"),
    record.RELEASE: (b"RELEASED", b"NOT_FOUND", b"INTERNAL_ERROR"),
    record.BURY: (b"BURIED", b"NOT_FOUND", b"INTERNAL_ERROR"),
    record.TOUCH: (b"TOUCHED", b"NOT_FOUND", b"INTERNAL_ERROR"),
    record.KICK: (b"KICKED", b"NOT_FOUND", b"INTERNAL_ERROR"),
    record.PAUSE: (b"PAUSED", b"NOT_FOUND", b"INTERNAL_ERROR"),
    record.TUBES: (b"WATCHING", b"USING", b"INTERNAL_ERROR"),
    record.LOOK: (b"FOUND", b"OK", b"USING", b"NOT_FOUND", b"INTERNAL_ERROR"),
}
# %d is a job that the client has seen, %b a tube.
LOOKS: Final = (
    *(b"peek %d", b"peek-ready", b"peek-delayed", b"peek-buried"),
    *(b"stats-job %d", b"stats-tube %b", b"stats"),
    *(b"list-tubes", b"list-tube-used", b"list-tubes-watched"),
)


class Gone(Exception):
    """The connection is unusable; the cause is recorded."""


class Client:
    """One client with at most one connection."""

    def __init__(self, number: int, addresses: Sequence[Address], seed: int, path: Path) -> None:
        self.number = number
        self.ending = threading.Event()
        self.finished = False  # it ended because it was told to, and not by an error
        self._addresses = addresses
        self._chance = random.Random(seed * 1000 + number)
        self._writer = record.Writer(path, number)
        self._counter = itertools.count()
        self._node = 0
        self._connection: Raw | None = None
        self._tube = TUBES[0]
        self._seen: deque[int] = deque([1], SEEN_JOBS)

    def run(self) -> None:
        """Work until `ending` is set."""
        while not self.ending.is_set():
            self._node = self._chance.randrange(len(self._addresses))
            try:
                self.connect(self._node)
                for _ in range(self._chance.randrange(1, COMMANDS_PER_CONNECTION)):
                    if self.ending.is_set():
                        break
                    self._act()
            except Gone:
                self.ending.wait(RETRY_S)
            finally:
                self.leave()
        self._writer.close()
        self.finished = True

    def connect(self, node: int) -> None:
        """Connect to a node and watch all tubes; raises Gone."""
        self._node = node
        began_s = time.monotonic()
        try:
            self._connection = Raw(self._addresses[node], CONNECT_TIMEOUT_S)
            self._connection.stream.settimeout(PATIENCE_S)
            self._tube = self._chance.choice(TUBES)
            self._connection.ask(b"use " + self._tube, b"USING " + self._tube)
            for count, tube in enumerate(TUBES, 2):
                self._connection.ask(b"watch " + tube, b"WATCHING %d" % count)
        except (OSError, AssertionError):
            # A node without a majority may answer INTERNAL_ERROR; no command that counts was sent.
            times = (began_s, time.monotonic())
            outcome = record.UNKNOWN
            self._writer.write(Op(self.number, node, record.CONNECT, *times, 0, outcome, ""))
            self.leave()
            raise Gone from None

    def leave(self) -> None:
        """Close the connection, if there is one."""
        if self._connection:
            self._connection.close()
            self._connection = None
            now = time.monotonic()
            self._writer.write(Op(self.number, self._node, record.LEFT, now, now, 0, "", ""))

    def put(self) -> None:
        ttr_s, size = self._chance.choice(TTRS_S), self._chance.choice(SIZES)
        head = record.make_head(self.number, next(self._counter), ttr_s, size)
        delay_s = self._chance.choice((0, 0, 0, 0, 0, 1))
        words = b"put %d %d %d %d\r\n" % (self._chance.randrange(4), delay_s, ttr_s, size)
        self._command(record.PUT, words + record.make_body(head), head=head)

    def reserve(self, words: bytes) -> int:
        """Reserve a job and return its id; 0 for none."""
        op = self._command(record.RESERVE, words)
        return op.job

    def finish(self, kind: str, job: int) -> bool:
        """Delete, release, bury or touch a job; return whether the command succeeded."""
        words = {
            record.DELETE: b"delete %d" % job,
            record.TOUCH: b"touch %d" % job,
            record.BURY: b"bury %d %d" % (job, self._chance.randrange(4)),
            record.RELEASE: b"release %d 0 %d" % (job, self._chance.choice((0, 0, 1))),
        }[kind]
        return self._command(kind, words, job).outcome not in ("NOT_FOUND", "INTERNAL_ERROR")

    def kick(self, bound: int) -> None:
        self._command(record.KICK, b"kick %d" % bound)

    def drain(self) -> None:
        """Delete all jobs that are available without waiting; kick the rest."""
        assert self._connection
        for tube in TUBES:
            self._command(record.TUBES, b"use " + tube)
            self.kick(1_000_000)
        while job := self.reserve(b"reserve-with-timeout 0"):
            self.finish(record.DELETE, job)

    def close(self) -> None:
        """End a client that does not run in a thread."""
        self.leave()
        self._writer.close()

    def _act(self) -> None:
        """Do one thing: put a job, or take one through some part of its life."""
        self._think(THINK_S_MAX)
        dice = self._chance.random()
        if dice < 0.44:
            self.put()
        elif dice < 0.47:
            self.kick(self._chance.choice((1, 10, 100)))
        elif dice < 0.54:
            self._look_around()
        else:
            words = b"reserve-with-timeout %d" % self._chance.choice(WAITS_S)
            if job := self.reserve(words):
                self._handle(job)

    def _look_around(self) -> None:
        """Send one of the commands outside of a job's usual life."""
        dice, tube = self._chance.random(), self._chance.choice(TUBES)
        seen = self._chance.choice(self._seen)
        if dice < 0.6:
            words = self._chance.choice(LOOKS)
            told = words % seen if b"%d" in words else words.replace(b"%b", tube)
            self._command(record.LOOK, told)
        elif dice < 0.75:
            if job := self.reserve(b"reserve-job %d" % seen):
                self._handle(job)
        elif dice < 0.85:
            self._command(record.KICK, b"kick-job %d" % seen)
        elif dice < 0.95:
            for words in (b"use " + tube, b"ignore " + tube, b"watch " + tube):
                self._command(record.TUBES, words)
        else:
            self._command(record.PAUSE, b"pause-tube %b %d" % (tube, self._chance.choice((0, 1))))

    def _handle(self, job: int) -> None:
        dice = self._chance.random()
        if dice < 0.06:
            # Hold a second job; DEADLINE_SOON is possible.
            if other := self.reserve(b"reserve-with-timeout 0"):
                self.finish(record.DELETE, other)
        elif dice < 0.14:
            # Work for some time, so that a short TTR ends or is extended by a touch.
            for _ in range(self._chance.randrange(1, 4)):
                self._think(0.9)
                if not self.finish(record.TOUCH, job):
                    return
        elif dice < 0.17:
            self._think(2.5)
        kind = self._chance.choices(
            (record.DELETE, record.RELEASE, record.BURY, ""), (86, 7, 4, 3)
        )[0]
        if not kind:
            raise Gone  # leaves with the job
        self.finish(kind, job)

    def _think(self, seconds_max: float) -> None:
        self.ending.wait(self._chance.uniform(0, seconds_max))

    def _command(self, kind: str, words: bytes, job: int = 0, head: str = "") -> Op:
        """Send a command and record its outcome; raise Gone if the outcome is unknown."""
        assert self._connection
        sent_s = time.monotonic()
        outcome, body = record.UNKNOWN, head
        try:
            line, data = self._connection.command(words)
            word, _, rest = line.partition(b" ")
            outcome = word.decode("ascii", "replace")
            if kind == record.RESERVE and data is not None:
                job = int(rest.split(b" ")[0])
                read = record.read_body(data)
                body = repr(data[:80]) if read is None else read
                outcome = record.GARBLED if read is None else outcome
            elif outcome == "INSERTED":
                job = int(rest)
            elif outcome == "FOUND" and record.read_body(data or b"") is None:
                outcome = record.GARBLED
            elif word == b"USING":
                self._tube = rest
            if word not in EXPECTED[kind]:
                outcome, body = record.GARBLED, f"{body} {line!r}"
        except TimeoutError:
            outcome = record.SILENT
        except OSError:
            pass
        except (AssertionError, ValueError) as error:
            outcome, body = record.GARBLED, f"{body} {error}"
        sent, tube = words.partition(b"\r\n")[0].decode(), self._tube.decode()
        times = (sent_s, time.monotonic())
        op = Op(self.number, self._node, kind, *times, job, outcome, body, sent, tube)
        self._writer.write(op)
        if job:
            self._seen.append(job)
        if outcome in (record.UNKNOWN, record.SILENT, record.GARBLED):
            raise Gone
        return op


def command_line(history: Path, seed: int, count: int, addresses: Sequence[Address]) -> list[str]:
    """Return the arguments of Python that run clients."""
    options = ["--history", str(history), "--seed", str(seed), "--count", str(count)]
    return ["-m", "chaos.clients", *options, *addresses]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run clients until SIGTERM; 1 if one ended by an error, which Python then has printed."""
    parser = argparse.ArgumentParser(prog="python -m chaos.clients", description=__doc__)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("addresses", nargs="+")
    options = parser.parse_args(arguments)
    clients = [
        Client(number, options.addresses, options.seed, options.history)
        for number in range(options.count)
    ]
    threads = [threading.Thread(target=client.run) for client in clients]
    # Blocked in all threads and waited for: right after SIGCONT the system may deliver a signal to
    # any thread, and that would not wake a main thread that waits for an event.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    for thread in threads:
        thread.start()
    signal.sigwait({signal.SIGTERM})
    for client in clients:
        client.ending.set()
    for thread in threads:
        thread.join()
    return int(not all(client.finished for client in clients))


if __name__ == "__main__":
    sys.exit(main())

"""A cluster in memory that keeps sessions, and a client that has its session kept."""

from typing import Any

from beanpole.client.sansio.commands import Commands
from beanpole.client.sansio.steps import Close, Endpoint, Send, Steps
from beanpole.protocol.beanstalk import replies, stats
from tests.unit.client.pretended import World

A, B = Endpoint("a", 1), Endpoint("b", 1)
WORDS = replies.ok(stats.format_list([b"put-unique", b"keep", b"resume"]))

ENDED = {
    b"touch": b"TOUCHED\r\n",
    b"delete": b"DELETED\r\n",
    b"release": b"RELEASED\r\n",
    b"bury": b"BURIED\r\n",
}


class Cluster:
    """Nodes with shared memory: kept sessions by their tokens, and jobs by their keys."""

    def __init__(self) -> None:
        self.sessions: dict[bytes, list[int]] = {}
        self.loose: list[int] = []  # the jobs of the connection while its session is not kept
        self.keys: dict[bytes, int] = {}
        self.token = b""  # of the current connection
        self.next = 1
        self.body = b"y"  # of the jobs that are read again
        self.peeks: dict[int, bytes] = {}  # other replies to the reading of jobs
        self.silent: set[bytes] = set()  # commands that are executed, but whose next reply is lost

    def __call__(self, data: bytes) -> bytes | None:
        answers = []
        lines = data.split(b"\r\n")[:-1]
        for line in lines:
            answer = self.answer(*line.split(b" "))
            if line.split(b" ")[0] in self.silent:
                self.silent.clear()
                return b""
            if answer:
                answers.append(answer)
        return b"".join(answers)

    def answer(self, word: bytes, *arguments: bytes) -> bytes:
        held = self.sessions.get(self.token, self.loose)
        if word == b"extensions":
            return WORDS
        if word == b"keep":
            self.token = arguments[0]
            self.sessions[self.token], self.loose = self.loose, []
            return b"KEPT\r\n"
        if word == b"resume":
            if arguments[0] not in self.sessions:
                return b"NOT_FOUND\r\n"
            self.token = arguments[0]
            jobs = b" ".join(b"%d" % job for job in self.sessions[self.token])
            return b"RESUMED %d\r\n%b\r\n" % (len(jobs), jobs)
        if word == b"reserve-with-timeout":
            held.append(self.next)
            self.next += 1
            return b"RESERVED %d 1\r\nx\r\n" % held[-1]
        if word in ENDED:
            job = int(arguments[0])
            if job not in held:
                return b"NOT_FOUND\r\n"
            if word != b"touch":
                held.remove(job)
            return ENDED[word]
        if word == b"peek" and int(arguments[0]) in self.peeks:
            return self.peeks[int(arguments[0])]
        if word == b"peek":
            return b"FOUND %b 1\r\n%b\r\n" % (arguments[0], self.body)
        if word == b"put-unique":
            if arguments[0] in self.keys:
                return b"EXISTS %d\r\n" % self.keys[arguments[0]]
            self.keys[arguments[0]] = self.next
            self.next += 1
            return b"INSERTED %d\r\n" % self.keys[arguments[0]]
        return b""


def keeping(world: World, told: list[int]) -> Commands[str]:
    commands = world.client("a:1,b:1", keep_s=60)
    commands.session.lost = told.extend
    return commands


def interrupt(world: World, steps: Steps[Any], requests: int) -> None:
    """Let a node execute this many requests of a command, and end the command then."""
    step = next(steps)
    while True:
        answer = world.do(step)
        requests -= isinstance(step, Send)
        if not requests:
            break
        step = steps.send(answer)
    world.do(Close())
    steps.close()

"""The traffic of the clients: all of the protocol's commands for jobs, chosen by a seed.

Each client sends one or more commands, waits for the replies, and chooses again according to the
jobs that it holds. Deliberate bursts are here, too. Starting and killing nodes belongs to `run`.
"""

from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, Final

from tests.pipeline.ledger.book import Book, Burst, Command, now_us
from tests.pipeline.ledger.speaker import Request, Speaker, connect

CLIENTS: Final = 8
TUBES: Final = ("default", "mail", "image.resize", "a-b+c/d;e.f$g_h(i)", "slow")
PRIORITIES: Final = (0, 1, 1024, 65536, 4294967295)
# Above this surplus of puts over deletes, clients reserve more than they put.
READY_MANY: Final = 300
PIPELINE_MAX: Final = 12
HELD_MAX: Final = 16
# The share of held jobs that a client forgets, which then wait for the end of their TTR.
FORGOTTEN: Final = 0.1
# The number of clients that may wait for a job without a limit; the others put jobs.
BLOCKED_MAX: Final = 3
# Long enough that no reservation of a burst times out.
BURST_TTR_S: Final = 600
BURST_HOST: Final = "127.0.0.100"
LAST_HOST: Final = "127.0.0.101"

Act = Callable[[], Coroutine[Any, Any, None]]


class Shared:
    """State shared by the clients: jobs that any of them may act on, and the end of the run."""

    def __init__(self, book: Book, addresses: Sequence[str], commands: int) -> None:
        self.book = book
        self.addresses = addresses
        self.commands = commands
        self.known: list[int] = []  # jobs that were buried or delayed once
        self.balance = 0  # puts without deletes
        self.blocked = 0

    @property
    def is_over(self) -> bool:
        return self.book.sent >= self.commands


class Client:
    """A client that uses one connection after another until enough commands are sent."""

    def __init__(self, shared: Shared, number: int, seed: int) -> None:
        self.shared = shared
        self.random = Random(f"{seed} {number}")
        # To the nodes each pair of clients seems to be on one machine.
        self.host = f"127.0.0.{2 + number // 2}"
        self.held: list[int] = []
        self.speaker: Speaker | None = None
        # The weights result in about three events per job, with all other acts now and then.
        self._acts: tuple[tuple[float, Act], ...] = (
            (30, self.put),
            (30, self.reserve),
            (30, self.finish),
            (4, self.touch),
            (3, self.kick),
            (3, self.act_on_known),
            (2, self.look),
            (1, self.change_tube),
            (1, self.wait),
            (1, self.block),
            (0.4, self.leave),
        )

    async def run(self) -> None:
        weights = [weight for weight, _ in self._acts]
        while not self.shared.is_over:
            if self.speaker is None or not self.speaker.is_open:
                await self.open()
            await self.random.choices(self._acts, weights)[0][1]()
        if self.speaker and self.speaker.is_open:
            self.speaker.close()  # while it holds jobs

    async def open(self) -> None:
        self.held.clear()
        node = self.random.randrange(len(self.shared.addresses))
        self.speaker = await connect(self.shared.book, self.shared.addresses, node, self.host)
        watched = self.random.sample(TUBES, self.random.randint(1, len(TUBES)))
        requests = [f"watch {tube}" for tube in watched]
        if "default" not in watched:
            requests.append("ignore default")
        await self.ask(*requests, f"use {self.random.choice(TUBES)}")

    async def ask(self, *requests: Request) -> list[Command]:
        """Send commands, and update the held jobs by the replies."""
        assert self.speaker
        commands = await self.speaker.ask(*requests)
        for command in commands:
            self.learn(command)
        return commands

    def learn(self, command: Command) -> None:
        effect, jobs = command.effect, command.jobs
        if effect == "put":
            self.shared.balance += 1
        elif effect == "reserved":
            self.held += [job for job in jobs if job is not None]
        elif effect == "deleted":
            self.shared.balance -= 1
        if command.verb in ("delete", "release", "bury"):
            job = command.numbers[0]
            if job in self.held:
                self.held.remove(job)
            if effect in ("released", "buried"):
                self.shared.known.append(job)
        elif effect == "put" and command.numbers[1]:
            self.shared.known += [job for job in jobs if job is not None]

    async def put(self) -> None:
        if self.shared.balance > READY_MANY and self.random.random() < 0.7:
            await self.reserve()
            return
        await self.ask(*(self.one_put() for _ in range(self.random.randint(1, PIPELINE_MAX))))

    def one_put(self) -> Request:
        priority = self.random.choice(PRIORITIES)
        delay_s = self.random.choices((0, 1, 2, 3600), (90, 7, 2, 1))[0]
        ttr_s = self.random.choices((60, 0, 1, 2, 4294967295), (70, 3, 23, 3, 1))[0]
        size = self.random.choices((0, 10, 100, 2000, 65535), (5, 50, 40, 4, 1))[0]
        # Bodies are random, so that a reserved body can be matched to its put.
        body = (b"%016x" % self.random.getrandbits(64) * (size // 16 + 1))[:size]
        return f"put {priority} {delay_s} {ttr_s} {size}", body

    async def reserve(self) -> None:
        if len(self.held) >= HELD_MAX:
            await self.finish()
            return
        count = self.random.randint(1, PIPELINE_MAX)
        await self.ask(*["reserve-with-timeout 0"] * count)

    async def finish(self) -> None:
        """End reservations in different ways; some stay until their TTR ends."""
        if not self.held:
            await self.reserve()
            return
        requests = []
        if self.random.random() < FORGOTTEN:
            self.held.pop(self.random.randrange(len(self.held)))
        for job in self.random.sample(self.held, self.random.randint(0, len(self.held))):
            priority = self.random.choice(PRIORITIES)
            ways = (
                f"delete {job}",
                f"release {job} {priority} 0",
                f"release {job} {priority} 1",
                f"bury {job} {priority}",
            )
            requests.append(self.random.choices(ways, (80, 6, 3, 8))[0])
        await self.ask(*requests)

    async def touch(self) -> None:
        if self.held:
            await self.ask(f"touch {self.random.choice(self.held)}")

    async def kick(self) -> None:
        await self.ask(f"kick {self.random.choice((0, 1, 5, 100))}")

    async def act_on_known(self) -> None:
        """Act on a job that some client buried or delayed, and that may have ended since."""
        if not self.shared.known:
            return
        job = self.random.choice(self.shared.known[-200:])
        verb = self.random.choice(("kick-job", "reserve-job", "delete", "touch", "bury"))
        await self.ask(f"bury {job} 7" if verb == "bury" else f"{verb} {job}")

    async def look(self) -> None:
        """Send read-only commands."""
        job = self.random.randint(1, 1000)
        lines = ("peek-ready", "peek-delayed", "peek-buried", "list-tubes-watched")
        more = (f"peek {job}", f"stats-job {job}", "list-tube-used", f"release {job} 0 0")
        await self.ask(self.random.choice(lines), self.random.choice(more))

    async def change_tube(self) -> None:
        await self.ask(f"use {self.random.choice(TUBES)}")

    async def wait(self) -> None:
        await self.ask("reserve-with-timeout 1")

    async def block(self) -> None:
        """Wait for a job without a limit, while other clients put jobs."""
        if self.shared.blocked >= BLOCKED_MAX:
            return
        self.shared.blocked += 1
        try:
            await self.ask("reserve")
        finally:
            self.shared.blocked -= 1

    async def leave(self) -> None:
        """End the connection while it holds jobs, sometimes with commands in flight."""
        assert self.speaker
        if self.random.random() < 0.3:
            await self.speaker.quit()
            return
        if self.random.random() < 0.5:
            self.speaker.send([self.one_put(), "reserve-with-timeout 0", "kick 3"])
        self.speaker.close()


async def burst(shared: Shared, number: int, jobs: int, rng: Random) -> None:
    """Put jobs and drain them, so that none is left at the end of the minute.

    A burst that loses its connection is repeated in another tube.
    """
    tries = 0
    while True:
        tube = f"burst-{number}-{tries}"
        states = ("ready", "reserved", "buried", "delayed")[: 2 + number % 3]
        found = Burst(tube, jobs, states, now_us())
        node = rng.randrange(len(shared.addresses))
        speaker = await connect(shared.book, shared.addresses, node, BURST_HOST)
        if await burst_once(speaker, found):
            found.ended_us = now_us()
            shared.book.bursts.append(found)
            await speaker.quit()
            return
        tries += 1


async def burst_once(speaker: Speaker, burst: Burst) -> bool:
    """Take all jobs through the states of a burst; return False if the connection was lost."""
    await speaker.ask(f"use {burst.tube}", f"watch {burst.tube}", "ignore default")
    delay_s = 3600 if "delayed" in burst.states else 0
    put: Request = (f"put 5 {delay_s} {BURST_TTR_S} 5", b"burst")
    found = await speaker.ask(*[put] * burst.jobs)
    if delay_s:
        await speaker.ask(f"kick {burst.jobs}")
    await speaker.ask(*["reserve-with-timeout 5"] * burst.jobs)
    jobs = [job for command in found for job in command.jobs]
    if "buried" in burst.states:
        await speaker.ask(*(f"bury {job} 5" for job in jobs))
        await speaker.ask(f"kick {burst.jobs}")
        await speaker.ask(*["reserve-with-timeout 5"] * burst.jobs)
    last = await speaker.ask(*(f"delete {job}" for job in jobs))
    return len(last) == burst.jobs and all(command.effect for command in last)


async def forget(shared: Shared, rng: Random) -> None:
    """Reserve a job and forget it: another client gets it after its TTR has ended.

    If either client loses its connection, another pair tries again.
    """
    answered = False
    while not answered:
        node = rng.randrange(len(shared.addresses))
        first = await connect(shared.book, shared.addresses, node, LAST_HOST)
        second = await connect(shared.book, shared.addresses, node + 1, LAST_HOST)
        both = ("use forgotten", "watch forgotten", "ignore default")
        await first.ask(*both, ("put 0 0 1 9", b"forgotten"), "reserve-with-timeout 0")
        await second.ask(*both)
        found = await second.ask("reserve-with-timeout 30")
        answered = first.is_open and any(command.effect for command in found)
        first.close()
        second.close()

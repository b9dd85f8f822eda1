"""One run of the ledger: three real nodes, the clients, and kills and restarts of nodes.

The clients' commands belong to `traffic`.
"""

import asyncio
import subprocess
from pathlib import Path
from random import Random
from typing import Final

from tests.integration.support.nodes import BEANPOLE, Cluster, status
from tests.integration.support.waiting import wait_until
from tests.pipeline.ledger.book import Book, now_us
from tests.pipeline.ledger.speaker import Speaker, connect
from tests.pipeline.ledger.traffic import CLIENTS, LAST_HOST, TUBES, Client, Shared, burst, forget

# A leader and a follower are killed once in each round of this number of commands.
ROUND_COMMANDS: Final = 60_000
BURSTS: Final = 4
BURST_JOBS: Final = 150
# The limit for the jobs' states to settle after the last command.
SETTLE_S: Final = 60.0
EXPORT_TIMEOUT_S: Final = 300.0


async def run(cluster: Cluster, commands: int, seed: int) -> Book:
    """Send this number of commands while nodes are killed, and return the ledger.

    At the end no job is reserved or about to end a short delay.
    """
    await asyncio.to_thread(wait_until, lambda: is_raised(cluster), SETTLE_S, "the raise")
    book = Book()
    shared = Shared(book, [node.beanstalk for node in cluster.nodes], commands)
    clients = [Client(shared, number, seed) for number in range(CLIENTS)]
    running = [asyncio.create_task(client.run()) for client in clients]
    bursts = asyncio.create_task(burst_often(shared, commands, Random(f"{seed} bursts")))
    forgotten = asyncio.create_task(forget(shared, Random(f"{seed} forgotten")))
    deaths = asyncio.create_task(kill_often(cluster, book, commands))
    await asyncio.gather(book.reached(commands), bursts, forgotten, deaths)
    while unfinished := [task for task in running if not task.done()]:
        await asyncio.wait(unfinished, timeout=1.0)
        # No client puts jobs any more, so close those that wait without a limit.
        for client, task in zip(clients, running, strict=True):
            blocked = client.speaker
            if not task.done() and blocked and blocked.is_open:
                blocked.close()
    await asyncio.gather(*running)
    await settle(book, shared.addresses[0])
    return book


def is_raised(cluster: Cluster) -> bool:
    """Whether the cluster is at the newest machine version, whose events have all columns."""
    found = status(cluster.nodes[0])["nodes"]
    # The status lists a node that does not answer in time without versions.
    return all(
        one["reachable"] and one["machine_version"] == one["machine_version_known"] for one in found
    )


async def burst_often(shared: Shared, commands: int, rng: Random) -> None:
    for number in range(BURSTS):
        await shared.book.reached(commands * (2 * number + 1) // (2 * BURSTS + 1))
        await burst(shared, number, max(BURST_JOBS, commands // 300), rng)


async def kill_often(cluster: Cluster, book: Book, commands: int) -> None:
    """Kill the leader and a follower in turn; each restarts under load."""
    rounds = max(1, commands // ROUND_COMMANDS)
    step = commands // (4 * rounds + 1)
    for number in range(2 * rounds):
        await book.reached((2 * number + 1) * step)
        leader = await asyncio.to_thread(cluster.leader)
        # A follower that was not just killed as the leader.
        other = min({0, 1, 2} - {leader, book.kills[-1][1] if book.kills else leader})
        node = leader if number % 2 == 0 else other
        book.kills.append((now_us(), node))
        await asyncio.to_thread(cluster.kill, node)
        await book.reached((2 * number + 2) * step)
        book.lives[node] += 1
        cluster.start(node)
        await asyncio.to_thread(cluster.wait_until_serving, node)


async def settle(book: Book, address: str) -> None:
    """Wait until no timed state is left: no reservations and no delays of seconds."""
    speaker = await connect(book, [address], 0, LAST_HOST)
    loop = asyncio.get_running_loop()
    end = loop.time() + SETTLE_S
    while True:
        assert loop.time() < end, "reservations or delays did not end"
        if await is_settled(speaker):
            break
    await speaker.ask("stats")
    await speaker.quit()


async def is_settled(speaker: Speaker) -> bool:
    stats = (await speaker.ask("stats"))[0].payload.decode()
    if "current-jobs-reserved: 0\n" not in stats:
        return False
    for tube in TUBES:
        await speaker.ask(f"use {tube}")
        (delayed,) = await speaker.ask("peek-delayed")
        if delayed.reply[0] == "FOUND":
            stats = (await speaker.ask(f"stats-job {delayed.reply[1]}"))[0].payload.decode()
            if "\ndelay: 3600\n" not in stats:
                return False
    return True


def export(cluster: Cluster, directory: Path) -> None:
    """Export the events of all nodes to files, as docs/pipeline.md describes."""
    addresses = ",".join(node.grpc for node in cluster.nodes)
    command = [*BEANPOLE, "events", "export", "--addresses", addresses, "--to", str(directory)]
    subprocess.run(command, check=True, timeout=EXPORT_TIMEOUT_S)

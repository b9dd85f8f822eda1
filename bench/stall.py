"""Measure how long a bystander waits during the heaviest permitted load of other clients.

Each attack has a fresh cluster of three nodes. A bystander at each node puts a job and deletes it,
over and over; its longest wait for one answer is the figure. Afterwards the leader must be the same
as before.
"""

import json
import resource
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

from beanpole.constants import (
    DEDUP_KEY_MAX_BYTES,
    JOB_SIZE_MAX_BYTES,
    TUBE_NAME_MAX_BYTES,
    WATCHED_TUBES_MAX,
)
from beanpole.pb import queue_pb2, queue_pb2_grpc
from bench.bystanders import REPLY_S, Bystanders, Connection
from bench.processes import BenchError
from bench.servers import BEANPOLE, beanpole

KICKERS: Final = 300
KICKED: Final = 1000  # by each kicker
SESSIONS: Final = 10_000
WATCHERS: Final = 1000
GIANTS: Final = 64
# Puts per batch when a queue is filled.
FILL: Final = 500
SETTLE_S: Final = 2.0
# How often a node is asked whether all jobs have returned.
POLL_S: Final = 0.01
# The longest permitted wait for one answer, whatever other clients do.
WAIT_MAX_MS: Final = 500


class Stall(NamedTuple):
    """The effect of one attack on the bystanders."""

    name: str
    attack_s: float  # until all of it was answered
    quiet_ms: float  # the longest wait before the attack
    wait_ms: float  # the longest wait during the attack
    closed: int  # connections of bystanders that were closed
    leader_changed: bool

    @property
    def is_bad(self) -> bool:
        """Whether the leader changed, or a bystander waited too long or lost its connection."""
        return self.leader_changed or self.closed > 0 or self.wait_ms > WAIT_MAX_MS


def measure(directory: Path) -> list[Stall]:
    """Run all attacks, each on a cluster of its own below a directory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    try:
        return [_measure(name, *attack, directory) for name, attack in ATTACKS.items()]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _measure(
    name: str,
    prepare: Callable[[list[str], Path], Any],
    attack: Callable[[Any], None],
    settings: tuple[str, ...],
    directory: Path,
) -> Stall:
    with tempfile.TemporaryDirectory(prefix="stall-", dir=directory) as made, ExitStack() as stack:
        folder = Path(made)
        running = stack.enter_context(beanpole(3, settings=settings)(folder))
        prepared = prepare(running.addresses, folder)
        before = _leader(folder)
        bystanders = Bystanders(running.addresses)
        stack.callback(bystanders.stop)
        time.sleep(SETTLE_S)
        bystanders.take()  # discard the waits of their start
        time.sleep(SETTLE_S)
        quiet_ms, _ = bystanders.take()
        begun_s = time.monotonic()
        attack(prepared)
        attack_s = time.monotonic() - begun_s
        time.sleep(SETTLE_S)
        wait_ms, closed = bystanders.take()
        return Stall(name, attack_s, quiet_ms, wait_ms, closed, _leader(folder) != before)


def _leader(folder: Path) -> tuple[str, int]:
    command = [BEANPOLE, "status", "--dir", str(folder / "data"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    found = json.loads(done.stdout)
    return found["leader"], found["term"]


def _each(many: list[Any], action: Callable[[Any], Any]) -> list[Any]:
    """Apply an action to many items, some at a time."""
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(action, many))


def _addresses(addresses: list[str], count: int) -> list[str]:
    return [addresses[place % len(addresses)] for place in range(count)]


# --- kicks ----------------------------------------------------------------------------------------


def _prepare_kicks(addresses: list[str], folder: Path) -> list[Connection]:
    def fill(address: str) -> None:
        connection = Connection(address, b"kicked")
        for _ in range(KICKERS * KICKED // len(addresses) // FILL):
            connection.send(b"put 1 4000 60 5\r\nhello\r\n" * FILL)
            for _ in range(FILL):
                if not connection.line().startswith(b"INSERTED"):
                    raise BenchError("a put was refused")
        connection.close()

    _each(addresses, fill)
    wanted = _addresses(addresses, KICKERS)
    return _each(wanted, lambda address: Connection(address, b"kicked"))


def _kick(connections: list[Connection]) -> None:
    for connection in connections:
        connection.send(b"kick %d\r\n" % KICKED)
    kicked = sum(int(connection.line().split()[1]) for connection in connections)
    if kicked != KICKERS * KICKED:
        raise BenchError(f"{kicked} jobs were kicked, of {KICKERS * KICKED}")


# --- sessions -------------------------------------------------------------------------------------


def _prepare_sessions(addresses: list[str], folder: Path) -> list[Connection]:
    def hold(address: str) -> Connection:
        connection = Connection(address, b"held")
        connection.ask(b"put 0 0 600 1\r\nx\r\n")
        connection.ask(b"watch held\r\n")
        connection.ask(b"reserve\r\n")
        connection.line()
        return connection

    return _each(_addresses(addresses, SESSIONS), hold)


def _close(connections: list[Connection]) -> None:
    watch = Connection("{}:{}".format(*connections[0].socket.getpeername()), b"held")
    for connection in connections:
        connection.close()
    ended_s = time.monotonic() + REPLY_S
    while watch.ready() < SESSIONS:
        if time.monotonic() > ended_s:
            raise BenchError(f"{watch.ready()} jobs have returned, of {SESSIONS}")
        time.sleep(POLL_S)
    watch.close()


# --- watch lists ----------------------------------------------------------------------------------


def _prepare_watches(addresses: list[str], folder: Path) -> list[Connection]:
    count = WATCHED_TUBES_MAX - 24
    watches = b"".join(b"watch tube-%d\r\n" % number for number in range(count))

    def watch(address: str) -> Connection:
        connection = Connection(address, b"tube-7")
        connection.send(watches)
        for _ in range(count):
            connection.line()
        return connection

    return _each(_addresses(addresses, WATCHERS), watch)


def _reserve(connections: list[Connection]) -> None:
    for connection in connections:
        connection.send(b"reserve-with-timeout 60\r\n")
    for connection in connections[: len(connections) // 2]:
        putter = Connection("{}:{}".format(*connection.socket.getpeername()), b"tube-7")
        putter.ask(b"put 0 0 60 1\r\nx\r\n")
        putter.close()
    # A client that disconnects with a job returns it, and another client gets it.
    for connection in connections:
        connection.socket.shutdown(socket.SHUT_WR)
    got = sum(connection.line().startswith(b"RESERVED") for connection in connections)
    if got < len(connections) // 2:
        raise BenchError(f"{got} jobs were reserved")


# --- the largest ----------------------------------------------------------------------------------


def _prepare_giants(addresses: list[str], folder: Path) -> list[str]:
    nodes = json.loads((folder / "data" / "cluster.json").read_text())["nodes"]
    return [node["grpc"] for node in nodes]


def _put_giants(addresses: list[str]) -> None:
    tube = "t" * TUBE_NAME_MAX_BYTES

    def put(place: int) -> None:
        options = [("grpc.max_send_message_length", -1)]
        with grpc.insecure_channel(addresses[place % len(addresses)], options=options) as channel:
            stub = queue_pb2_grpc.QueueStub(channel)
            key = b"%0*d" % (DEDUP_KEY_MAX_BYTES, place)
            job = queue_pb2.PutJob(tube=tube, body=b"x" * JOB_SIZE_MAX_BYTES, key=key)
            stub.Put(queue_pb2.PutRequest(jobs=[job]), timeout=REPLY_S)

    with ThreadPoolExecutor(GIANTS) as pool:
        list(pool.map(put, range(GIANTS)))


ATTACKS: Final[dict[str, tuple[Callable[..., Any], Callable[[Any], None], tuple[str, ...]]]] = {
    f"{KICKERS} clients `kick {KICKED}` of {KICKERS * KICKED:,} delayed jobs": (
        _prepare_kicks,
        _kick,
        (),
    ),
    f"{SESSIONS:,} sessions with a job each end": (_prepare_sessions, _close, ()),
    f"{WATCHERS:,} clients that watch 1,000 tubes reserve": (_prepare_watches, _reserve, ()),
    f"{GIANTS} clients put bodies of 2 MiB with the longest names and keys": (
        _prepare_giants,
        _put_giants,
        (f"max_job_size={JOB_SIZE_MAX_BYTES}",),
    ),
}


def table(stalls: list[Stall]) -> str:
    """Return the result as a Markdown table."""
    rows = [
        "| attack | all of it took s | longest wait before ms | during ms | closed | leader |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in stalls:
        leader = "changed" if one.leader_changed else "the same"
        rows.append(
            f"| {one.name} | {one.attack_s:.1f} | {one.quiet_ms:.0f} | {one.wait_ms:.0f} "
            f"| {one.closed} | {leader} |"
        )
    return "\n".join(rows) + "\n"

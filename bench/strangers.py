"""Measure the cost of refused strangers: the rate of clients with them, relative to without.

One cluster of three compiled nodes with a shared secret serves plain ports and TLS with
certificates. The clients run full cycles through the plain ports, with and without the strangers in
turns, so that a change of the machine's speed affects both: as fast as they can, and at half of
that rate. The strangers are processes of the same machine and take processor time from the nodes:
the table shows how much, and the second rate is measured for that reason. So is the last row: as
many processes that use as much of the machine and never speak to a node.
"""

import itertools
import multiprocessing
import multiprocessing.synchronize
import random
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from beanpoled.cli.certs import make_ca, make_certificate
from bench.generator import Figure, Generator
from bench.processes import BenchError, child, usage, wait_for_answer
from bench.results import spread
from bench.servers import (
    BASE_PORT,
    MAJORITY,
    SETTLE_S,
    START_TIMEOUT_S,
    Running,
    System,
    compiled_environment,
)
from bench.workloads import workload

NODES: Final = 3
HALF_OPEN: Final = 1000
# Handshakes, pieces of garbage and introductions per second.
PER_SECOND: Final = 100
PACE_S: Final = 1 / PER_SECOND
CONNECTIONS: Final = 64
ROUNDS: Final = 6
# Strangers that have not begun by then are stuck.
BEGIN_MAX_S: Final = 60.0
# The share of a closed loop's rate that an operator with spare capacity may run at.
SHARE: Final = 0.5
SECRET: Final = "the secret of a benchmark"
# In a cluster of `beanpole up`: the offset of each protocol's first client port from the base port.
PROTOCOLS: Final = {"workq": 40, "gearman": 50, "qless": 60}
TLS_PORT: Final = 5


class Ports(NamedTuple):
    """The targets of the strangers."""

    tls: list[int]
    plain: list[int]  # of all clients, nodes, gRPC and HTTP
    peer: list[int]
    ca: str
    source: str = "127.0.0.1"  # the address that they come from


class Ratio(NamedTuple):
    """The cost of one kind of strangers."""

    name: str
    quiet_op_s: float
    rates: list[float]  # with them, relative to without
    costs: list[float]  # the same for the nodes' processor time per command
    half_rates: list[float]  # the same for the rate that is reached at half of the full rate
    p99_ms: tuple[float, float]  # at that rate, without and with them
    cores: float  # used by the strangers


Event = multiprocessing.synchronize.Event


def connect(ports: Ports, port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 5, (ports.source, 0))


# --- strangers, each a process that ends with the benchmark ---------------------------------------


def hold_handshakes(ports: Ports, begun: Event) -> None:
    """Keep 1,000 connections whose handshake never ends, and replace the oldest ones.

    A node keeps `handshakes_per_address_max` of them (100), and closes the others at once.
    """
    hello = bytes.fromhex("16030100c8010000c40303")
    held: list[socket.socket] = []
    targets = itertools.cycle(ports.tls)
    while True:
        if len(held) == HALF_OPEN:
            oldest = held.pop(0)
            oldest.close()
        with suppress(OSError):
            stranger = connect(ports, next(targets))
            stranger.sendall(hello)
            held.append(stranger)
        if len(held) == HALF_OPEN:
            begun.set()
            time.sleep(PACE_S)


def send_garbage(ports: Ports, begun: Event) -> None:
    """Send garbage to each port of each node."""
    chance = random.Random(20)
    while True:
        for port in (*ports.plain, *ports.tls):
            with suppress(OSError), connect(ports, port) as stranger:
                stranger.sendall(chance.randbytes(512) + b"\r\n")
            time.sleep(PACE_S)
        begun.set()


def show_nothing(ports: Ports, begun: Event) -> None:
    """Complete TLS handshakes without a certificate."""
    context = ssl.create_default_context(cafile=ports.ca)
    while True:
        for port in ports.tls:
            with (
                suppress(OSError),
                connect(ports, port) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as stranger,
            ):
                stranger.recv(1)
            time.sleep(PACE_S)
        begun.set()


def replay_frames(ports: Ports, begun: Event) -> None:
    """Replay a node's own introduction to it."""
    while True:
        for port in ports.peer:
            with suppress(OSError), connect(ports, port) as stranger:
                stranger.sendall(stranger.recv(65536))
                while stranger.recv(65536):
                    pass
            time.sleep(PACE_S)
        begun.set()


def work_elsewhere(_: Ports, begun: Event, piece_s: float) -> None:
    """Use as much processor time as a stranger, as often, and leave the nodes alone."""
    begun.set()
    while True:
        end_s = time.process_time() + piece_s
        while time.process_time() < end_s:
            pass
        time.sleep(PACE_S)


Stranger = Callable[[Ports, Event], None]
ALL: Final = (hold_handshakes, send_garbage, show_nothing, replay_frames)
KINDS: Final[dict[str, tuple[Stranger, ...]]] = {
    f"{HALF_OPEN:,} half-open handshakes": (hold_handshakes,),
    f"garbage, {PER_SECOND} times a second, each port in turn": (send_garbage,),
    f"handshakes without a certificate, {PER_SECOND} a second": (show_nothing,),
    f"replayed introductions of nodes, {PER_SECOND} a second": (replay_frames,),
    "all of them": ALL,
}
CONTROL: Final = "no strangers: processes that use as much of the machine as all of them"


# --- the cluster ----------------------------------------------------------------------------------


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[Running, Ports]]:
    """Run three nodes that accept clients on plain ports and by TLS."""
    make_ca(folder, "30")
    secret = folder / "secret"
    secret.touch(0o600)
    secret.write_text(SECRET + "\n")

    def port(number: int, offset: int) -> str:
        return f"127.0.0.1:{BASE_PORT + number + offset}"

    members = ",".join(f"n{n}={port(n, 10)}/{port(n, 20)}" for n in range(NODES))
    with ExitStack() as stack:
        processes = []
        for number in range(NODES):
            make_certificate(folder, f"n{number}", ["localhost", "127.0.0.1"], "30")
            settings = {
                "cluster": "bench",
                "node-id": f"n{number}",
                "members": members,
                "data-dir": str(folder / f"n{number}"),
                "listen": f"{port(number, 0)},tls:{port(number, TLS_PORT)}",
                "listeners": ",".join(
                    f"{name}={port(number, at)}" for name, at in PROTOCOLS.items()
                ),
                "peer-listen": port(number, 10),
                "grpc-listen": port(number, 20),
                "http-listen": port(number, 30),
                "peer-secret-file": str(secret),
                "tls-certificate-file": str(folder / f"n{number}.pem"),
                "tls-key-file": str(folder / f"n{number}.key"),
                "tls-client-ca-file": str(folder / "ca.pem"),
            }
            command = [sys.executable, "-m", "beanpoled"]
            for name, value in settings.items():
                command += [f"--{name}", value]
            log = folder / f"n{number}.log"
            processes.append(stack.enter_context(child(command, log, compiled_environment())))
        for number, process in enumerate(processes):
            wait_for_answer(process, port(number, 0), folder / f"n{number}.log", START_TIMEOUT_S)
        time.sleep(SETTLE_S)
        base = [BASE_PORT + number for number in range(NODES)]
        plain = [at + offset for at in base for offset in (0, 10, 20, 30, *PROTOCOLS.values())]
        ports = Ports(
            [at + TLS_PORT for at in base], plain, [at + 10 for at in base], str(folder / "ca.pem")
        )
        addresses = [port(number, 0) for number in range(NODES)]
        yield Running(addresses, [process.pid for process in processes]), ports


def measure(generator: Generator, connections: int, folder: Path) -> list[Ratio]:
    """Measure with and without each kind of strangers, in turns.

    Raises:
        BenchError: a node ended, or raised an exception because of a stranger.
    """
    found = []
    with cluster(folder) as (running, ports):
        system = System("beanpole, 3 nodes", MAJORITY, lambda _: nullcontext(running))

        def once(rate: float = 0.0) -> Figure:
            load = workload("full")
            if rate:
                load = load._replace(options={**load.options, "rate": f"{rate:.0f}"})
            return generator.measure(0, system, running, load, connections)

        half = once().op_s * SHARE

        def compare(name: str, kinds: tuple[Stranger, ...]) -> Ratio:
            quiet, beside, cores = [], [], []
            for _ in range(ROUNDS):
                quiet.append((once(), once(half)))
                with strangers(kinds, ports) as processes:
                    before, begun_s = usage(processes).cpu_s, time.monotonic()
                    beside.append((once(), once(half)))
                    used_s = usage(processes).cpu_s - before
                    cores.append(used_s / (time.monotonic() - begun_s))
            return _ratio(name, quiet, beside, statistics.median(cores))

        found += [compare(name, kinds) for name, kinds in KINDS.items()]
        piece_s = found[-1].cores / len(ALL) * PACE_S
        found.append(compare(CONTROL, (partial(work_elsewhere, piece_s=piece_s),) * len(ALL)))
        for number in range(NODES):
            if "Traceback" in (folder / f"n{number}.log").read_text():
                raise BenchError(f"a node failed: see {folder}")
    return found


def _ratio(
    name: str,
    quiet: list[tuple[Figure, Figure]],
    beside: list[tuple[Figure, Figure]],
    cores: float,
) -> Ratio:
    """Compare the figures of all turns, each a closed loop and half of its rate."""
    pairs = list(zip(beside, quiet, strict=True))
    p99_ms = [
        statistics.median(half.latency_us["all"]["p99"] for _, half in figures) / 1e3
        for figures in (quiet, beside)
    ]
    return Ratio(
        name,
        statistics.median(full.op_s for full, _ in quiet),
        [one.op_s / other.op_s for (one, _), (other, _) in pairs],
        [one.server_us_per_op / other.server_us_per_op for (one, _), (other, _) in pairs],
        [one.op_s / other.op_s for (_, one), (_, other) in pairs],
        (p99_ms[0], p99_ms[1]),
        cores,
    )


@contextmanager
def strangers(kinds: tuple[Stranger, ...], ports: Ports) -> Iterator[list[int]]:
    """Run strangers; yield once all have begun, so that their start is not measured."""
    context = multiprocessing.get_context("spawn")
    begun = [context.Event() for _ in kinds]
    processes = [
        context.Process(
            # Each has an address of its own: a limit that one kind reaches must not affect another.
            target=kind,
            args=(ports._replace(source=f"127.0.0.{2 + number}"), event),
            daemon=True,
        )
        for number, (kind, event) in enumerate(zip(kinds, begun, strict=True))
    ]
    for process in processes:
        process.start()
    try:
        for event in begun:
            if not event.wait(BEGIN_MAX_S):
                raise BenchError(f"strangers have not begun within {BEGIN_MAX_S:.0f} s")
        yield [process.pid for process in processes if process.pid]
        if not all(process.is_alive() for process in processes):
            # It printed the reason. Without it, strangers would look as if they cost nothing.
            raise BenchError("a stranger ended while its cost was measured")
    finally:
        for process in processes:
            process.kill()
            process.join()


def table(found: list[Ratio]) -> str:
    """Return the result as a Markdown table."""
    head = (
        "| strangers | op/s without | rate with, over without (quartiles) "
        "| processor time of the nodes for a command (quartiles) "
        "| rate, where half of it is asked for (quartiles) | p99 ms there, without and with "
        "| cores that they use |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
    )
    return head + "".join(
        f"| {one.name} | {one.quiet_op_s:,.0f} | {spread(one.rates)} "
        f"| {spread(one.costs)} | {spread(one.half_rates)} "
        f"| {one.p99_ms[0]:.1f}, {one.p99_ms[1]:.1f} | {one.cores:.2f} |\n"
        for one in found
    )

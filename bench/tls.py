"""Measure the cost of TLS: the rate with TLS for clients and between nodes, relative to without.

Three clusters of three compiled nodes run at the same time: plain; plain, with an unused TLS port;
and TLS for clients, the links between nodes and gRPC. They take turns with the same load, spread
over their nodes, so that a change of the machine's speed affects all. The cost includes the
generator's own share of TLS, because it runs on the same cores.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

from beanpoled.cli.certs import make_ca, make_certificate
from bench.generator import Generator
from bench.processes import child, wait_for_answer
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
CONNECTIONS: Final = 64
ROUNDS: Final = 7
# The distance between the ports of two clusters.
PORTS: Final = 100
# The port offsets of protocols that are not used here, from a node's first port.
LISTENERS: Final = {"workq": 50, "gearman": 60, "qless": 70}
PLAIN: Final = "plain"
OFFERED: Final = "plain, TLS offered"
ENCRYPTED: Final = "TLS"
KINDS: Final = (PLAIN, OFFERED, ENCRYPTED)


class Turn(NamedTuple):
    """One measurement."""

    op_s: float
    p50_ms: float
    p99_ms: float
    server_us: float  # processor time of all nodes per operation
    client_share: float  # of one core, used by the generator


def measure(
    load: Generator, connections: int, rounds: int, directory: Path
) -> dict[str, list[Turn]]:
    """Measure all kinds in turns; the order rotates by one from round to round."""
    found: dict[str, list[Turn]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="tls-", dir=directory) as name, ExitStack() as stack:
        folder = Path(name)
        make_ca(folder, "30")
        for number in range(NODES):
            make_certificate(folder, f"n{number}", [f"n{number}", "127.0.0.1"], "30")
        running = {
            kind: stack.enter_context(cluster(folder, kind, BASE_PORT + at * PORTS))
            for at, kind in enumerate(KINDS)
        }
        time.sleep(SETTLE_S)
        for number in range(rounds + 1):
            for at in range(len(KINDS)):
                kind = KINDS[(number + at) % len(KINDS)]
                turn = _turn(load, kind, running[kind], connections)
                if number:  # the first round is not counted
                    found[kind].append(turn)
                    print(f"round {number}: {kind}: {turn.op_s:,.0f} op/s", flush=True)
    return found


def _turn(load: Generator, kind: str, running: Running, connections: int) -> Turn:
    system = System(kind, MAJORITY, lambda _: nullcontext(running))
    figure = load.measure(0, system, running, workload("full"), connections)
    latency = figure.latency_us["all"]
    share = figure.client_cpu_share
    return Turn(
        figure.op_s, latency["p50"] / 1e3, latency["p99"] / 1e3, figure.server_us_per_op, share
    )


@contextmanager
def cluster(folder: Path, kind: str, base: int) -> Iterator[Running]:
    """Run three nodes of a kind."""

    def port(number: int, offset: int) -> str:
        return f"127.0.0.1:{base + number + offset}"

    members = ",".join(f"n{n}={port(n, 10)}/{port(n, 20)}" for n in range(NODES))
    addresses = [port(number, 0) for number in range(NODES)]
    if kind == ENCRYPTED:
        addresses = [f"tls:{address}" for address in addresses]
    place = folder / kind.replace(" ", "-")
    place.mkdir()
    with ExitStack() as stack:
        processes = []
        for number, listen in enumerate(addresses):
            certificate, key = (str(folder / f"n{number}.{end}") for end in ("pem", "key"))
            settings = {
                "cluster": "bench",
                "node-id": f"n{number}",
                "members": members,
                "data-dir": str(place / f"n{number}"),
                "listen": listen,
                "listeners": ",".join(
                    f"{name}={port(number, offset)}" for name, offset in LISTENERS.items()
                ),
                "peer-listen": port(number, 10),
                "grpc-listen": port(number, 20),
                "http-listen": port(number, 30),
            }
            if kind != PLAIN:
                settings |= {"tls-certificate-file": certificate, "tls-key-file": key}
            if kind == OFFERED:
                settings["listen"] += f",tls:{port(number, 40)}"
            if kind == ENCRYPTED:
                settings |= {"peer-tls-certificate-file": certificate, "peer-tls-key-file": key}
                settings["peer-tls-ca-file"] = str(folder / "ca.pem")
            command = [sys.executable, "-m", "beanpoled"]
            command += [word for name, value in settings.items() for word in (f"--{name}", value)]
            log = place / f"n{number}.log"
            processes.append(stack.enter_context(child(command, log, compiled_environment())))
        for number, process in enumerate(processes):
            wait_for_answer(process, port(number, 0), place / f"n{number}.log", START_TIMEOUT_S)
        yield Running(addresses, [process.pid for process in processes])


def table(found: dict[str, list[Turn]]) -> list[list[str]]:
    """Return the rows of a table, its head first; medians of the rounds."""
    head = ["three nodes", "op/s", "of plain (quartiles)", "p50 ms", "p99 ms"]
    rows = [[*head, "nodes us/op", "generator, of a core"]]
    plain = found[PLAIN]
    for kind, turns in found.items():
        ratios = [one.op_s / other.op_s for one, other in zip(turns, plain, strict=True)]
        op_s, p50_ms, p99_ms, server_us, share = (
            statistics.median(values) for values in zip(*turns, strict=True)
        )
        times = [f"{p50_ms:.2f}", f"{p99_ms:.2f}", f"{server_us:.1f}", f"{share:.0%}"]
        rows.append([kind, f"{op_s:,.0f}", str(spread(ratios)), *times])
    return rows

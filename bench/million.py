"""Measure a queue of a million jobs: memory, time of a restart, and latency during a snapshot.

One cluster goes through all of it: it is filled, every node writes a snapshot, a load at half of
the reached rate runs while every node writes another snapshot, and then each node is killed and
restarted.
"""

import json
import shlex
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

from beanpole.client.rpc import Nodes, words_of
from beanpole.pb import admin_pb2, admin_pb2_grpc
from bench.disk import DiskProbe, Lateness
from bench.generator import Generator
from bench.processes import BenchError, child, usage, wait_for
from bench.servers import Running, beanpole, compiled_environment

RESTART_MAX_S: Final = 120.0
SNAPSHOT_MAX_S: Final = 120.0
# Delay after the start of the measurement, so that the snapshot is not part of its start.
SNAPSHOT_AFTER_S: Final = 1.0


class Million(NamedTuple):
    """The results; values of several nodes are in the order of the nodes."""

    jobs: int
    resident_bytes_per_job: list[float]
    closed_op_s: float
    rate_op_s: float
    p99_9_ms: float
    max_ms: float
    disk: Lateness  # of the disk alone, at the same time
    snapshot_s: float  # of all nodes at the same time, under that load
    restart_s: list[float]


def measure(load: Generator, jobs: int, connections: int, directory: Path) -> Million:
    """Fill a fresh cluster, with its data below `directory`, and run all measurements."""
    with tempfile.TemporaryDirectory(prefix="million-", dir=directory) as name:
        folder = Path(name)
        with ExitStack() as stack, beanpole(3)(folder) as running:
            empty = usage(running.pids).resident_bytes
            options = {"body": str(load.body), "connections": str(connections)}
            options |= {"seconds": str(load.seconds), "warm-up": str(load.warm_up)}
            closed = load.run(running, {**options, "fill": str(jobs)}, "a million jobs").result
            nodes = stack.enter_context(Nodes([node["grpc"] for node in _nodes(folder)]))
            _snapshots(nodes)
            full = usage(running.pids).resident_bytes
            rate = closed["op_s"] / 2
            took: list[float] = []
            with DiskProbe(folder) as disk:
                half = _under_snapshot(
                    load, running, {**options, "rate": f"{rate:.0f}"}, nodes, disk, took
                )
            with ExitStack() as restarted:
                restarts = [_restart(folder, node, restarted) for node in _nodes(folder)]
        latency = half["latency_us"]["all"]
        return Million(
            jobs,
            [(after - before) / jobs for before, after in zip(empty, full, strict=True)],
            closed["op_s"],
            half["op_s"],
            latency["p99_9"] / 1e3,
            latency["max"] / 1e3,
            disk.lateness(),
            took[0],
            restarts,
        )


def _under_snapshot(
    load: Generator,
    running: Running,
    options: dict[str, str],
    nodes: Nodes,
    disk: DiskProbe,
    took: list[float],
) -> dict[str, Any]:
    """Run an open loop in which every node writes a snapshot; BenchError if one took too long."""

    failed: list[BenchError] = []

    def snapshot() -> None:
        begun = time.monotonic()
        try:
            _snapshots(nodes)
        except BenchError as error:
            failed.append(error)
        else:
            took.append(time.monotonic() - begun)

    timer = threading.Timer(SNAPSHOT_AFTER_S, snapshot)

    def mark(line: str) -> None:
        if line == "start":
            disk.begin()
            timer.start()

    result = load.run(running, options, "half of the rate with a snapshot", mark).result
    if failed:
        raise failed[0]
    if not took:
        raise BenchError("the snapshots took longer than the measurement: use more --seconds")
    timer.join()
    return result


def _snapshots(nodes: Nodes) -> None:
    """Let all nodes write a snapshot at the same time.

    Called by gRPC and not by `beanpole snapshot`: the start of three interpreters takes half a
    second of both cores, which would disturb a measurement.
    """
    request = admin_pb2.TakeSnapshotRequest()
    stubs = [admin_pb2_grpc.AdminStub(nodes.channel(target)) for target in nodes.addresses]
    asked = [stub.TakeSnapshot.future(request, timeout=SNAPSHOT_MAX_S) for stub in stubs]
    for call in asked:
        try:
            call.result()
        except grpc.RpcError as error:
            raise BenchError(f"TakeSnapshot: {words_of(error)}") from None


def _nodes(folder: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads((folder / "data/cluster.json").read_text())["nodes"]
    return found


def _restart(folder: Path, node: dict[str, str], restarted: ExitStack) -> float:
    """Kill a node and start it again as `up` did; return the seconds until it serves.

    It runs until `restarted` is closed: the restart of the next node needs it for a majority.
    """
    subprocess.run(["kill", "-9", str(node["pid"])], check=True)
    wait_for(lambda: not _serves(node), RESTART_MAX_S, f"{node['id']} is dead")
    command = shlex.split((Path(node["dir"]) / "cmdline").read_text())
    begun = time.monotonic()
    restarted.enter_context(child(command, folder / f"{node['id']}.log", compiled_environment()))
    wait_for(lambda: _serves(node), RESTART_MAX_S, f"{node['id']} serves again")
    return time.monotonic() - begun


def _serves(node: dict[str, str]) -> bool:
    try:
        with urllib.request.urlopen(f"http://{node['http']}/readyz", timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def table(found: Million) -> list[list[str]]:
    """Return the rows of a table, its head first."""
    restarts = ", ".join(f"{seconds:.1f}" for seconds in found.restart_s)
    return [
        ["of a cluster of three nodes", "measured"],
        ["jobs", f"{found.jobs:,}"],
        [
            "resident memory a job, median of the nodes",
            f"{statistics.median(found.resident_bytes_per_job):,.0f} B",
        ],
        ["op/s in a closed loop", f"{found.closed_op_s:,.0f}"],
        ["op/s in an open loop of half of that, with snapshots", f"{found.rate_op_s:,.0f}"],
        ["p99.9 there", f"{found.p99_9_ms:.1f} ms"],
        ["longest there", f"{found.max_ms:.1f} ms"],
        [
            "p99.9 of 4 KiB synced to the same disk every 2 ms in that time",
            f"{found.disk.p99_9_ms:.1f} ms",
        ],
        ["longest of those", f"{found.disk.max_ms:.1f} ms"],
        ["the snapshots of all nodes, at the same time", f"{found.snapshot_s:.1f} s"],
        ["from `kill -9` and start until a node serves", f"{restarts} s"],
    ]

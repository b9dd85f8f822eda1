"""Measure backup, verify and restore of growing numbers of jobs: time, memory, size, client impact.

One cluster of three compiled nodes is filled step by step. A bystander, in a process of its own,
puts and deletes at the node that serves the backup. The commands are those that operators run, so
the figures include their start (0.3 s).
"""

import json
import os
import shlex
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final, NamedTuple

from bench.bystanders import bystander, p99_ms
from bench.generator import Generator
from bench.processes import BenchError, child, wait_for
from bench.servers import BEANPOLE, SETTLE_S, beanpole, compiled_environment

STEPS: Final = (250_000, 500_000, 1_000_000)
MEMBERS: Final = ("a", "b", "c")
CONNECTIONS: Final = 64
START_MAX_S: Final = 120.0
# The bystander's observation time before the backup.
QUIET_S: Final = 10.0
MIB: Final = 1 << 20


class Ran(NamedTuple):
    """The cost of a command that ran to completion."""

    seconds: float
    resident_bytes: int  # the peak


class Step(NamedTuple):
    """Measurements with one number of jobs."""

    jobs: int
    backup: Ran
    encrypted: Ran
    file_bytes: int
    node_bytes: int  # resident memory of the serving node, before the backup
    node_more_bytes: int  # the increase at the peak
    put_quiet_s: list[float]  # all puts of a client without a backup
    put_s: list[float]  # and during a backup
    verify: Ran
    restore: Ran  # for three members
    start_s: float  # of a single node, until it serves


def measure(load: Generator, steps: tuple[int, ...], directory: Path) -> list[Step]:
    """Fill a fresh cluster step by step, and run all measurements at each step."""
    found: list[Step] = []
    with tempfile.TemporaryDirectory(prefix="backups-", dir=directory) as name:
        folder = Path(name)
        with beanpole(3)(folder) as running:
            nodes = json.loads((folder / "data/cluster.json").read_text())["nodes"]
            before = 0
            for jobs in steps:
                options = {"body": str(load.body), "connections": str(CONNECTIONS)}
                options |= {"seconds": "0.5", "warm-up": "0", "fill": str(jobs - before)}
                load.run(running, options, f"{jobs} jobs")
                before = jobs
                time.sleep(SETTLE_S)
                found.append(_step(jobs, folder, nodes[1]))
                print(found[-1], flush=True)
    return found


def _step(jobs: int, folder: Path, node: dict[str, str]) -> Step:
    path, sealed = folder / "backup", folder / "backup.age"
    key = folder / "key"
    public = _key(key)
    address = ("--addr", node["grpc"], "--replace")
    pid = int(node["pid"])
    with bystander(node["beanstalk"]) as looked:
        looked()
        time.sleep(QUIET_S)
        quiet_s = looked()
        before = _peak_from_now(pid)
        backup = run("backup", *address, "--to", path)
        peak = _peak(pid)
        beside_s = looked()
    encrypted = run("backup", *address, "--to", sealed, "--encrypt-to", public)
    verify = run("backup", "verify", path)
    restored = [folder / "restored" / member for member in MEMBERS]
    restore = run("restore", path, "--members", ",".join(MEMBERS), "--to", *restored)
    alone = folder / "restored" / "alone"
    run("restore", path, "--members", "alone", "--to", alone)
    start_s = _start(alone, folder)
    size = path.stat().st_size
    subprocess.run(["rm", "-rf", str(folder / "restored"), str(path), str(sealed)], check=True)
    more = peak - before
    ran = (verify, restore, start_s)
    return Step(jobs, backup, encrypted, size, before, more, quiet_s, beside_s, *ran)


def _key(path: Path) -> str:
    """Generate an identity; return its recipient."""
    import pyrage  # of the extra `backup`

    identity = pyrage.x25519.Identity.generate()
    path.write_text(str(identity))
    return str(identity.to_public())


def run(*words: str | Path) -> Ran:
    """Run a compiled `beanpole` command; BenchError if it fails."""
    command = [BEANPOLE, *map(str, words)]
    begun_s = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=compiled_environment()
    )
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchError(f"{shlex.join(command)}: {said}")
    return Ran(time.monotonic() - begun_s, used.ru_maxrss * 1024)


def _peak_from_now(pid: int) -> int:
    """Reset the peak memory of a process; return its resident memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _status(pid, "VmRSS")


def _peak(pid: int) -> int:
    return _status(pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise BenchError(f"/proc/{pid}/status has no {name}")


def _start(directory: Path, folder: Path) -> float:
    """Start a single node on a restored directory; return the seconds until it serves."""
    port = 23900
    settings = {
        "cluster": json.loads((folder / "data/cluster.json").read_text())["cluster"],
        "node-id": "alone",
        "members": f"alone=127.0.0.1:{port}/127.0.0.1:{port + 1}",
        "data-dir": str(directory),
        "listen": f"127.0.0.1:{port + 2}",
        "peer-listen": f"127.0.0.1:{port}",
        "grpc-listen": f"127.0.0.1:{port + 1}",
        "http-listen": f"127.0.0.1:{port + 3}",
    }
    program = str(Path(BEANPOLE).with_name("beanpoled"))
    command = [program, *(f"--{name}={value}" for name, value in settings.items())]

    def serves() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port + 3}/readyz", timeout=2) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    begun_s = time.monotonic()
    with child(command, folder / "alone.log", compiled_environment()):
        wait_for(serves, START_MAX_S, f"the restored node serves (see {folder}/alone.log)")
        return time.monotonic() - begun_s


def table(found: list[Step]) -> list[list[str]]:
    """Return the rows of a table, its head first."""
    rows = [["of three nodes", *(f"{one.jobs:,} jobs" for one in found), "each 100,000 more"]]
    more_jobs = found[-1].jobs - found[0].jobs

    def row(words: str, values: list[float], unit: str, digits: int) -> None:
        cells = [f"{value:,.{digits}f} {unit}" for value in values]
        slope = "-"
        if more_jobs:
            slope = f"{(values[-1] - values[0]) / more_jobs * 100_000:,.{digits + 1}f} {unit}"
        rows.append([words, *cells, slope])

    for words, rans in (
        ("backup", [one.backup for one in found]),
        ("backup, encrypted", [one.encrypted for one in found]),
        ("verify", [one.verify for one in found]),
        ("restore of three members", [one.restore for one in found]),
    ):
        row(words, [ran.seconds for ran in rans], "s", 1)
        row(
            f"{words}: peak memory of the command", [r.resident_bytes / MIB for r in rans], "MiB", 0
        )
    row("start of a restored node, until it serves", [one.start_s for one in found], "s", 1)
    row("the file", [one.file_bytes / MIB for one in found], "MiB", 1)
    row("memory of the node before", [one.node_bytes / MIB for one in found], "MiB", 0)
    row("more at the peak", [one.node_more_bytes / MIB for one in found], "MiB", 0)
    # The longest, too: a client that waits for each answer puts less while the node stalls, so that
    # a stall is one of many puts.
    for words, waits in (
        ("before", [one.put_quiet_s for one in found]),
        ("beside the backup", [one.put_s for one in found]),
    ):
        row(f"p99 of a put {words}", [p99_ms(waits_s) for waits_s in waits], "ms", 1)
        row(f"longest put {words}", [max(waits_s) * 1e3 for waits_s in waits], "ms", 1)
    return rows

"""The load generator of `bench/`: its memory, by gcc's sanitizers, and what its figures count.

The server is a double that confirms everything, so the queue itself is not tested here.
"""

import itertools
import json
import queue
import socketserver
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

from bench.generator import FOLDER

SANITIZERS: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
TIMEOUT_S: Final = 60.0
WINDOW_S: Final = 0.5
STALL_S: Final = 0.6
FILL: Final = 1000
BODY_BYTES: Final = 10
RATE: Final = 200
# The put at which the server stalls: every third command, of those that are due in the window.
STALLED: Final = 26
# What connections of pairs are answered first.
CONNECTED: Final = {
    b"use": b"USING load\r\n",
    b"watch": b"WATCHING 2\r\n",
    b"ignore": b"WATCHING 1\r\n",
}


class Agreeable(socketserver.StreamRequestHandler):
    """Answers the commands of a full cycle, in their order."""

    def handle(self) -> None:
        job = 0
        while line := self.rfile.readline():
            word = line.split()[0]
            self.think(word)
            if word == b"put":
                job += 1
                self.rfile.read(BODY_BYTES + 2)
                self.wfile.write(b"INSERTED %d\r\n" % job)
            elif word == b"reserve":
                self.wfile.write(b"RESERVED 1 %d\r\n%s\r\n" % (BODY_BYTES, b"x" * BODY_BYTES))
            elif word == b"delete":
                self.wfile.write(b"DELETED\r\n")
            else:
                self.wfile.write(CONNECTED[word])

    def think(self, word: bytes) -> None:
        """Called before each answer."""


class Stalling(Agreeable):
    """Answers nothing for a while, at one of the last commands of the window."""

    puts: ClassVar[Iterator[int]]

    def think(self, word: bytes) -> None:
        if word == b"put" and next(self.puts) == STALLED:
            threading.Event().wait(STALL_S)


class Handing(Stalling):
    """A reserve waits for a put."""

    jobs: "ClassVar[queue.Queue[bytes]]"

    def think(self, word: bytes) -> None:
        super().think(word)
        if word == b"put":
            self.jobs.put(word)
        elif word == b"reserve":
            self.jobs.get()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("load") / "load"
    sources = [str(path) for path in sorted((FOLDER / "load").glob("*.c"))]
    command = ["gcc", "-std=gnu11", *SANITIZERS, "-o", str(program), *sources]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return program


def run(
    program: Path, handler: type[Agreeable], options: Mapping[str, float | str]
) -> dict[str, Any]:
    """Run the generator against a double, and return its figures."""
    Stalling.puts, Handing.jobs = itertools.count(), queue.Queue()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        words += ["--warm-up", "0", "--body", str(BODY_BYTES)]
        command = [str(program), "--addresses", "{}:{}".format(*server.server_address), *words]
        done = subprocess.run(
            command,
            # Memory that is in use until the end is no leak, and the search for leaks needs ptrace.
            env={"ASAN_OPTIONS": "detect_leaks=0"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        server.shutdown()
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("depth", [1, 3])
def test_jobs_that_fill_the_queue_come_in_larger_batches(program: Path, depth: int) -> None:
    options = {"connections": 2, "depth": depth, "seconds": 0.1, "fill": FILL}
    found = run(program, Agreeable, options)
    assert found["filled"] == FILL and found["operations"] > 0
    assert sum(found["done"].values()) == found["operations"]


def test_a_stall_at_the_end_of_an_open_loop_counts(program: Path) -> None:
    """What was due in the window was dropped if it was answered after it.

    The stall is that of the only connection, and begins before the end of the window.
    """
    found = run(program, Stalling, {"connections": 1, "seconds": WINDOW_S, "rate": RATE})
    latency = found["latency_us"]["all"]
    assert latency["count"] >= RATE * WINDOW_S - 1
    assert latency["max"] >= STALL_S * 1e6 and found["gap_us"] >= STALL_S * 1e6
    # Those that were due while the server stalled have waited, too.
    before = 3 * STALLED
    assert latency["mean"] * latency["count"] >= STALL_S * 1e6 * (RATE * WINDOW_S - before) / 2
    assert found["operations"] <= before, "the rate is that of the answers within the window"


def test_a_stall_at_the_end_of_a_closed_loop_counts(program: Path) -> None:
    options = {"connections": 1, "seconds": WINDOW_S}
    assert run(program, Stalling, options)["latency_us"]["all"]["max"] >= STALL_S * 1e6


def test_a_stall_at_the_end_of_pairs_counts(program: Path) -> None:
    """A worker waits for its partner's put, so pairs do not finish their cycles at the end."""
    options: dict[str, float | str] = {"connections": 2, "seconds": WINDOW_S}
    options["workload"] = "handoff"
    found = run(program, Handing, options)
    latency = found["latency_us"]
    assert latency["put"]["max"] >= STALL_S * 1e6 and found["gap_us"] >= STALL_S * 1e6
    assert "reserve" not in latency and latency["handoff"]["count"] > 0

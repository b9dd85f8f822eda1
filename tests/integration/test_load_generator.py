"""The load generator of `bench/`: its memory, by gcc's sanitizers, and what its figures count.

The server is a double that confirms everything, so the queue itself is not tested here.
"""

import itertools
import json
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
# The command at which the server stalls, of those that are due in the window.
STALLED: Final = 80


class Agreeable(socketserver.StreamRequestHandler):
    """Answers the commands of a full cycle, in their order."""

    def handle(self) -> None:
        job = 0
        while line := self.rfile.readline():
            word = line.split()[0]
            self.think()
            if word == b"put":
                job += 1
                self.rfile.read(BODY_BYTES + 2)
                self.wfile.write(b"INSERTED %d\r\n" % job)
            elif word == b"reserve":
                self.wfile.write(b"RESERVED 1 %d\r\n%s\r\n" % (BODY_BYTES, b"x" * BODY_BYTES))
            else:
                assert word == b"delete", line
                self.wfile.write(b"DELETED\r\n")

    def think(self) -> None:
        """Called before each answer."""


class Stalling(Agreeable):
    """Answers nothing for a while, at one of the last commands of the window."""

    commands: ClassVar[Iterator[int]] = itertools.count()

    def think(self) -> None:
        if next(self.commands) == STALLED:
            threading.Event().wait(STALL_S)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("load") / "load"
    sources = [str(path) for path in sorted((FOLDER / "load").glob("*.c"))]
    command = ["gcc", "-std=gnu11", *SANITIZERS, "-o", str(program), *sources]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return program


def run(program: Path, handler: type[Agreeable], options: Mapping[str, float]) -> dict[str, Any]:
    """Run the generator against a double, and return its figures."""
    Stalling.commands = itertools.count()
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

    The stall is that of the only connection, and begins before the end of the window; so many
    commands are due in it.
    """
    found = run(program, Stalling, {"connections": 1, "seconds": WINDOW_S, "rate": RATE})
    latency = found["latency_us"]["all"]
    assert latency["count"] >= RATE * WINDOW_S - 1
    assert latency["max"] >= STALL_S * 1e6 and found["gap_us"] >= STALL_S * 1e6
    # Those that were due while the server stalled have waited, too.
    waited = RATE * WINDOW_S - STALLED
    assert latency["mean"] * latency["count"] >= STALL_S * 1e6 * waited / 2
    assert found["operations"] <= STALLED, "the rate is that of the answers within the window"


def test_a_stall_at_the_end_of_a_closed_loop_counts(program: Path) -> None:
    found = run(program, Stalling, {"connections": 1, "seconds": WINDOW_S})
    assert found["latency_us"]["all"]["max"] >= STALL_S * 1e6

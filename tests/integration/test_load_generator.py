"""The load generator of `bench/` stays within its memory, by gcc's sanitizers.

The server is a double that confirms everything, so the queue itself is not tested here.
"""

import json
import socketserver
import subprocess
import threading
from pathlib import Path
from typing import Final

import pytest

from bench.generator import FOLDER

SANITIZERS: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
TIMEOUT_S: Final = 60.0
FILL: Final = 1000
BODY_BYTES: Final = 10


class Agreeable(socketserver.StreamRequestHandler):
    """Answers the commands of a full cycle, in their order."""

    def handle(self) -> None:
        job = 0
        while line := self.rfile.readline():
            word = line.split()[0]
            if word == b"put":
                job += 1
                self.rfile.read(BODY_BYTES + 2)
                self.wfile.write(b"INSERTED %d\r\n" % job)
            elif word == b"reserve":
                self.wfile.write(b"RESERVED 1 %d\r\n%s\r\n" % (BODY_BYTES, b"x" * BODY_BYTES))
            else:
                assert word == b"delete", line
                self.wfile.write(b"DELETED\r\n")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("load") / "load"
    sources = [str(path) for path in sorted((FOLDER / "load").glob("*.c"))]
    command = ["gcc", "-std=gnu11", *SANITIZERS, "-o", str(program), *sources]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return program


@pytest.mark.parametrize("depth", [1, 3])
def test_jobs_that_fill_the_queue_come_in_larger_batches(program: Path, depth: int) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Agreeable) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options: dict[str, float] = {"connections": 2, "depth": depth, "seconds": 0.1}
        options |= {"warm-up": 0, "fill": FILL, "body": BODY_BYTES}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
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
    found = json.loads(done.stdout)
    assert found["filled"] == FILL and found["operations"] > 0

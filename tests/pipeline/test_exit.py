"""The ends of commands as processes: each exit status, one line, and no output of Spark."""

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest

from tests.integration.support.nodes import BEANPOLE
from tests.integration.support.waiting import wait_until
from tests.pipeline.conftest import Start
from tests.pipeline.double import Double, Log

TIMEOUT_S: Final = 300


def audit(node: Double, *more: str) -> "subprocess.Popen[str]":
    where = ["--addresses", node.address, "--patience", "1"]
    return subprocess.Popen(
        [*BEANPOLE, "pipeline", "audit", *where, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    _, said = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, said


def java_of(process: "subprocess.Popen[str]") -> int:
    """Return the id of the Java process that is a command's child, once Spark runs in it."""
    found: list[int] = []

    def runs() -> bool:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            try:
                command = Path(f"/proc/{child}/cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue  # the one that was asked for Java's version has ended meanwhile
            if b"org.apache.spark.deploy.SparkSubmit" in command and b"java" in command[:200]:
                found.append(int(child))
        return bool(found)

    wait_until(runs, TIMEOUT_S, "Java")
    return found[0]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--master", "local[x]"], "--master: Could not parse Master URL: 'local[x]'"),
        (
            ["--conf", "spark.driver.memory=abc"],
            "Java does not start: Invalid maximum heap size: -Xmxabc",
        ),
        (["--remote", "http://here"], "--remote 'http://here' is not allowed: it must be sc:"),
        (["--log", "/nowhere/log"], "--log: [Errno 2] No such file or directory: '/nowhere/log'"),
    ],
)
def test_a_request_that_is_wrong(start: Start, more: list[str], words: str) -> None:
    status, said = ended(audit(start(Log(), 10), *more))
    assert (status, len(said.splitlines())) == (2, 1), said
    assert said.startswith(f"beanpole: {words}")


def test_a_server_that_does_not_answer(start: Start) -> None:
    status, said = ended(audit(start(Log(), 10), "--remote", "sc://127.0.0.1:1"))
    assert (status, len(said.splitlines())) == (3, 1)
    assert said.startswith("beanpole: no Spark Connect server answers at sc://127.0.0.1:1: ")


def test_java_that_is_killed_is_one_line_that_names_the_log(start: Start) -> None:
    process = audit(start(Log(), 10))
    subprocess.run(["kill", "-KILL", str(java_of(process))], check=True)
    status, said = ended(process)
    assert (status, len(said.splitlines())) == (3, 1), said
    assert "Java" in said
    named = re.search(r"all of it is in (\S+)\)", said)
    assert named, said
    log = Path(named[1])
    assert "Traceback" in log.read_text()
    log.unlink()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_without_a_word(start: Start, number: signal.Signals) -> None:
    process = audit(start(Log(), 10))
    java = java_of(process)
    process.send_signal(number)
    assert ended(process) == (128 + number, "")
    wait_until(lambda: not Path(f"/proc/{java}").exists(), TIMEOUT_S, "the end of Java")


# Java ends while Spark reads what its tasks have counted.
ENDED: Final = """
import sys
from pathlib import Path
from pyspark_beanpole import session
from pyspark_beanpole.sparklog import SparkLog

log, java = SparkLog(Path(sys.argv[1])), session.Java()
spark = session.start("ended", "local[1]", quick=True, log=log, java=java)
server = spark.sparkContext._accumulatorServer
try:
    raise EOFError("in the middle")
except EOFError:
    server.handle_error(None, ("127.0.0.1", 1))
java.end()
log.close(True)
"""


# Java ends while Py4J's thread waits for its answer about an object that Python has dropped.
UNANSWERED: Final = """
import os, signal, sys
from pathlib import Path
from pyspark_beanpole import session
from pyspark_beanpole.sparklog import SparkLog
from tests.integration.support.waiting import wait_until

log, java = SparkLog(Path(sys.argv[1])), session.Java()
spark = session.start("unanswered", "local[1]", quick=True, log=log, java=java)
gateway = spark.sparkContext._gateway
connections = gateway._gateway_client.deque
first, second = gateway.jvm.java.lang.Object(), gateway.jvm.java.lang.Object()
del first
wait_until(lambda: len(connections) == 2, 30, "the thread's connection")
os.kill(java._process.pid, signal.SIGSTOP)
del second
wait_until(lambda: len(connections) == 1, 30, "the thread that uses it")
java.end()
wait_until(lambda: "Py4JNetworkError" in log.path.read_text(), 30, "the thread's error")
log.close(True)
"""


@pytest.mark.parametrize(
    ("program", "words"),
    [(ENDED, "EOFError: in the middle"), (UNANSWERED, "Exception while sending command.")],
)
def test_the_stack_of_a_spark_that_is_ended_is_in_the_log_only(
    tmp_path: Path, program: str, words: str
) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", program, str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert words in log.read_text()


def test_a_python_that_is_not_there(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    status, said = ended(audit(start(Log(), 10)))
    assert status == 2
    assert said.startswith("beanpole: PYSPARK_PYTHON = '/nowhere/python' is no program: ")
    assert sys.executable not in said


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stream_ends_in_the_middle_of_a_long_batch(
    start: Start, number: signal.Signals, tmp_path: Path
) -> None:
    node = start(log := Log(), 100_000)
    is_wanted = threading.Event()

    def slowly(first: int, end: int) -> bytes:
        is_wanted.wait(0.2)
        return log.batch(first, end)

    node.send = slowly
    process = subprocess.Popen(
        [*BEANPOLE, "pipeline", "stream", "--addresses", node.address, "--to", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: node.reads or process.poll() is not None, TIMEOUT_S, "the batch")
    process.send_signal(number)
    status, said = ended(process)
    is_wanted.set()
    words = "batch 0 [                        ] 0 of 100,000 events, 100,000 behind, 0 a second\n"
    assert (status, said) == (0, words)
    manifest = json.loads((tmp_path / "events" / "_manifest.json").read_text())
    assert manifest["files"] == []

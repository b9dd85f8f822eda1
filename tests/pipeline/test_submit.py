"""The commands on a Spark cluster: spark-submit to a standalone master, and Spark Connect.

The packages reach the tasks of spark-submit only as --py-files: its Python does not read the .pth
files through which this environment finds them. The driver has them in PYTHONPATH, because Spark's
own helper processes ignore --py-files.
"""

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.integration.support.ports import free_block
from tests.integration.support.processes import Process, answers
from tests.integration.support.waiting import wait_until
from tests.pipeline import remotely
from tests.pipeline.conftest import PYTHONPATH, ROOT, SMALL_JVM, Start
from tests.pipeline.double import Log
from tests.pipeline.test_cli import buried_log, offsets

HOME: Final = Path(pyspark.__file__).parent
MAIN: Final = ROOT / "pipeline" / "pyspark_beanpole" / "jobs" / "main.py"
# Enough for JVMs on two shared cores.
TIMEOUT_S: Final = 240.0
OURS: Final = {"PYTHONPATH": PYTHONPATH}
# All of Spark's programs started here only use this machine.
LOCAL: Final = {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
CONFIGURATION: Final = (
    f"spark.driver.extraJavaOptions={SMALL_JVM}",
    f"spark.executor.extraJavaOptions={SMALL_JVM}",
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=2",
)


def bare_python(directory: Path) -> str:
    """Return a Python that finds the packages from pip, but none of this repository."""
    python = directory / "python"
    packages = sysconfig.get_path("purelib")
    path = f'PYTHONPATH="$PYTHONPATH:{packages}"'
    python.write_text(f'#!/bin/sh\n{path} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return str(python)


def packed(directory: Path) -> str:
    """Return an archive with the two packages, as in a wheel."""
    path = directory / "beanpole.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for root in ("cluster/beanpole", "pipeline/pyspark_beanpole"):
            for file in (ROOT / root).rglob("*.py"):
                archive.write(file, file.relative_to((ROOT / root).parent))
    return str(path)


def submit(*arguments: str) -> list[str]:
    settings = [part for setting in CONFIGURATION for part in ("--conf", setting)]
    return [str(HOME / "bin" / "spark-submit"), *settings, *arguments]


class Servers:
    """Spark's own server processes, each with a log."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[Process] = []

    def start(self, name: str, command: list[str], environment: Mapping[str, str]) -> Process:
        log = self._directory / f"{name}.log"
        self._processes.append(Process(command, log, {**LOCAL, **environment}, self._directory))
        return self._processes[-1]

    def stop(self) -> None:
        for process in self._processes:
            process.kill()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    found = Servers(tmp_path)
    yield found
    found.stop()


def standalone(
    servers: Servers, port: int, python: str, hosts: Sequence[str] = ("127.0.0.1",)
) -> str:
    """Start a master and a worker at each of these addresses; return the master's URL."""
    deploy = "org.apache.spark.deploy"
    start = [str(HOME / "bin" / "spark-class")]
    options = {"SPARK_DAEMON_JAVA_OPTS": SMALL_JVM, "PYSPARK_PYTHON": python}
    master = f"spark://127.0.0.1:{port}"
    where = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(port + 1)]
    first = servers.start("master", [*start, f"{deploy}.master.Master", *where], options)
    wait_until(lambda: alive(first) and answers(f"127.0.0.1:{port}"), TIMEOUT_S, "the master")
    for number, host in enumerate(hosts):
        size = ["--cores", "2", "--memory", "1g", "--host", host]
        size += ["--webui-port", str(port + 2 + number)]
        name = f"worker{number}"
        worker = servers.start(name, [*start, f"{deploy}.worker.Worker", *size, master], options)
        wait_until(partial(registered, worker), TIMEOUT_S, name)
    return master


def registered(worker: Process) -> bool:
    return alive(worker) and "Successfully registered with master" in worker.log.read_text()


def alive(process: Process) -> bool:
    assert process.status() is None, process.story()
    return True


def test_spark_submit_to_a_standalone_master(
    spark: SparkSession, start: Start, servers: Servers, tmp_path: Path
) -> None:
    node = start(Log(), 1000)
    python = bare_python(tmp_path)
    master = standalone(servers, free_block(), python)
    table = tmp_path / "tables"
    archive = packed(tmp_path)
    environment = {"PYSPARK_PYTHON": python, "PYTHONPATH": archive}
    command = submit("--master", master, "--py-files", archive, str(MAIN))
    command += ["stream", "--addresses", node.address, "--to", str(table)]
    command += ["--once", "--no-statistics"]
    done = run(command, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert offsets(spark, table) == list(range(1000))


def test_spark_connect(spark: SparkSession, start: Start, servers: Servers, tmp_path: Path) -> None:
    events, jobs = start(Log(), 1000), start(buried_log())
    port = free_block()
    server = servers.start(
        "connect",
        submit(
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *("--master", "local[2]"),
            *("--conf", f"spark.connect.grpc.binding.port={port}"),
            *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
            "spark-internal",
        ),
        {"PYSPARK_PYTHON": sys.executable},
    )
    wait_until(lambda: alive(server) and answers(f"127.0.0.1:{port}"), TIMEOUT_S, "the server")
    remote = ["--remote", f"sc://127.0.0.1:{port}"]
    main = [sys.executable, str(MAIN)]
    table = tmp_path / "tables"
    streamed = run(
        [*main, "stream", "--addresses", events.address, "--to", str(table), "--once", *remote],
        OURS,
    )
    assert streamed.returncode == 0, streamed.stderr
    assert offsets(spark, table) == list(range(1000))
    where = ["--addresses", jobs.address, "--where", "tube = 'sms'"]
    redriven = run([*main, "redrive", *where, *remote], OURS)
    assert redriven.stdout.splitlines()[-1] == "1 kicked", redriven.stderr
    assert jobs.kicked == [5]
    wrong = run([*main, "redrive", *where[:-1], "colour = 1", *remote], OURS)
    assert wrong.returncode == 2
    assert "--where 'colour = 1'" in wrong.stderr

    connected = run([sys.executable, "-m", remotely.__name__, remote[1], events.address], OURS)
    assert connected.returncode == 0, connected.stderr
    assert connected.stdout.splitlines()[-1] == "1000 events, 34 + 1000 rows"
    assert Counter(job.tube for job in events.jobs.values()) == {"table": 34, "stream": 1000}
    # The last batch was repeated after a restart.
    assert events.duplicates == 200


def run(command: list[str], environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    # The PYTHONPATH that the tests' Spark session sets is not for other programs.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**inherited, **LOCAL, **environment},
    )

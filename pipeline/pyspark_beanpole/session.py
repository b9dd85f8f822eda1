"""Create Spark sessions: local ones with proven settings, others with the cluster's settings.

Spark is imported only after a check that it is installed, so that a missing Spark or Java is
reported clearly. If Java is started for one of our commands, its output goes to a log, and `Java`
can end it.
"""

import importlib.util
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from beanpole.client.terminals import moves_cursor
from beanpole.errors import ClientError, ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_beanpole.sparklog import SparkLog

# Beanpole is on no package index: the package of that name there is not ours.
INSTALL: Final = "install Beanpole with its extra spark, pip install 'BEANPOLE.whl[spark]'"
JAVA_MIN: Final = 17
JAVA_TIMEOUT_S: Final = 20
# Spark's own default, for a URL without a port.
CONNECT_PORT: Final = 15002
CONNECT_TIMEOUT_S: Final = 10.0
LOCAL_MASTER: Final = "local[*]"
_LOCAL_THREADS: Final = re.compile(r"local\[\s*([0-9]+|\*)\s*(?:,\s*([0-9]+)\s*)?\]")
# More than any machine has cores.
THREADS_MAX: Final = 10_000
# Partitions of a shuffle on one machine; Spark's default of 200 is for many machines.
PARTITIONS_PER_CORE: Final = 2

# Without the optimizing compiler and with a single-threaded garbage collector, Java starts in a
# third of the time. Our programs run for seconds, or do their work in Python.
QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# spark-submit runs a small Java first to compute the command line of the final one.
LAUNCHER_JVM: Final = f"{QUICK_JVM} -Xshare:auto"
# The time for Java to remove its temporary files on termination.
END_S: Final = 2.0
# The time until a crashed Java has exited.
LAST_BREATH_S: Final = 0.5

# Settings that suit a session on any cluster.
_COMMON: Final = {
    # Days begin at midnight UTC on every machine.
    "spark.sql.session.timeZone": "UTC",
    # Spark's default, INT96, has no time zone and is read by fewer and fewer tools.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


class Java:
    """The Java process of a session, if it was started here."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, *arguments: Any, **more: Any) -> "subprocess.Popen[bytes]":
        """Start Java, with the arguments of `subprocess.Popen`.

        Spark protects it from Ctrl-C with a function that runs in the child, which requires a full
        fork; in one of twenty forks gRPC ends the child, because it misses its sockets. In a
        session of its own, Java does not receive Ctrl-C, and no code of ours runs after the fork.
        """
        more |= {"preexec_fn": None, "start_new_session": True}
        self._process = subprocess.Popen(*arguments, **more)
        return self._process

    @property
    def status(self) -> int | None:
        """The exit status of Java; None while it runs, or if it was not started here."""
        return None if self._process is None else self._process.poll()

    def has_ended(self) -> bool:
        """Whether Java was started here and has ended; waits a moment: its sockets close first."""
        if self._process is None:
            return False
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LAST_BREATH_S)
        return self._process.returncode is not None

    def end(self) -> None:
        """End Java, whatever it is doing."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()


def start(
    name: str,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    quick: bool = False,
    log: "SparkLog | None" = None,
    java: Java | None = None,
) -> "SparkSession":
    """Return a session.

    Under spark-submit, the master and its settings are those given there.

    Args:
        name: the application's name on Spark's pages.
        master: a master's URL; by default, all cores of this machine.
        remote: the URL of a Spark Connect server, sc://HOST:PORT, in place of a master.
        settings: Spark settings, which override those made here.
        quick: a local Java shall start fast, at the expense of long queries, because it has
            little to do.
        log: the log for the output of a Java that is started here; None for our own output.
        java: receives the process.

    Raises:
        ConfigurationError: Spark or Java is missing or too old, or arguments exclude each other.
        ClientError: nothing listens at `remote`.
    """
    check_spark()
    from pyspark.sql import SparkSession

    wanted = {**_COMMON, **(settings or {})}
    builder = SparkSession.builder.appName(name)
    if remote is not None:
        if master is not None:
            raise ConfigurationError("give a master or a remote, not both")
        check_remote(remote)
        session = builder.remote(remote).getOrCreate()
        # A server's static settings cannot be changed from here.
        for key, value in wanted.items():
            session.conf.set(key, value)
        return session
    if submitted():
        if master is not None:
            raise ConfigurationError("under spark-submit give it the master: spark-submit --master")
    else:
        master = master or LOCAL_MASTER
        check_master(master)
        check_java()
        builder = builder.master(master)
        # Otherwise tasks run on any python3 of PATH, which may lack this environment.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        check_python(os.environ["PYSPARK_PYTHON"])
        if master.startswith("local"):
            wanted = {**_local(quick), **wanted}
        if log is not None:
            _launch({**wanted, "spark.master": master, "spark.app.name": name}, log, java or Java())
    for key, value in wanted.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if log is None:
        session.sparkContext.setLogLevel("ERROR")
    return session


def check_master(master: str) -> None:
    """Refuse a local master with a number that Spark parses and then cannot use.

    Spark names every other wrong master by itself.

    Raises:
        ConfigurationError: the number of threads or of tries is too small or too large.
    """
    found = _LOCAL_THREADS.fullmatch(master)
    if found is None:
        return
    numbers = [number for number in found.groups() if number and number != "*"]
    if not all(1 <= int(number[:10]) <= THREADS_MAX for number in numbers):
        raise ConfigurationError(
            f"--master {master[:80]!r} is not allowed: in local[THREADS] and "
            f"local[THREADS,TRIES] the numbers must be from 1 to {THREADS_MAX}"
        )


def submitted() -> bool:
    """Whether spark-submit started this program."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _launch(settings: Mapping[str, str], log: "SparkLog", java: Java) -> None:
    """Start Java and Spark in it, unless they run already.

    `SparkSession.builder` then uses them. By itself it would let Java write to our standard error.
    """
    from pyspark import SparkConf, SparkContext, java_gateway

    if SparkContext._active_spark_context is not None:
        return
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", LAUNCHER_JVM)
    gateways: Any = java_gateway
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    pipe = log.pipe()
    try:
        # launch_gateway returns only once Spark listens, and a signal may come before that.
        gateways.Popen = java.launch
        gateway = gateways.launch_gateway(conf, {"stdout": pipe, "stderr": pipe})
    finally:
        gateways.Popen = subprocess.Popen
        os.close(pipe)
    context = SparkContext(conf=conf, gateway=gateway)
    # It would print the stack of an error on our standard error, even that of a Java that we end.
    server: Any = context._accumulatorServer
    server.handle_error = lambda *_: log.write(traceback.format_exc())
    logging.getLogger().addFilter(log.take)


def _local(quick: bool) -> dict[str, str]:
    """Return settings for one machine, which keep Spark off the network."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(moves_cursor(sys.stderr)).lower(),
        "spark.sql.shuffle.partitions": str(PARTITIONS_PER_CORE * (os.cpu_count() or 1)),
        # Otherwise Spark creates one in the working directory.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "spark-warehouse").absolute()),
    }
    if quick:
        settings |= {
            "spark.driver.extraJavaOptions": QUICK_JVM,
            # Adaptive execution plans again after each stage, which is not worth it for few rows.
            "spark.sql.adaptive.enabled": "false",
        }
    return settings


def check_spark() -> None:
    """Check that the packages of the pipeline are installed, with a clear message if not.

    Raises:
        ConfigurationError: a package that the pipeline needs is not installed, or is too old.
    """
    for package in ("pyspark", "pyarrow", "pandas"):
        if importlib.util.find_spec(package) is None:
            raise ConfigurationError(
                f"the pipeline needs {package}, which is not installed: {INSTALL}"
            )
    from pyspark import __version__

    if tuple(map(int, __version__.split(".")[:2])) < (4, 2):
        raise ConfigurationError(
            f"the pipeline needs Spark 4.2 or newer, this is {__version__}: {INSTALL}"
        )


def check_python(python: str) -> None:
    """Check that Spark's tasks have a Python, because Spark's own message is unclear.

    Raises:
        ConfigurationError: there is no such program.
    """
    if shutil.which(python) is None:
        raise ConfigurationError(
            f"PYSPARK_PYTHON = {python!r} is no program: it must be the Python of the tasks"
        )


def check_remote(remote: str) -> None:
    """Check that a Spark Connect server listens: Spark would retry silently for ten minutes.

    Raises:
        ConfigurationError: the URL is not that of a server.
        ClientError: nothing listens there.
    """
    parts = urlsplit(remote)
    try:
        port = parts.port or CONNECT_PORT
    except ValueError:
        port = 0
    if parts.scheme != "sc" or not parts.hostname or not port:
        raise ConfigurationError(f"--remote {remote!r} is not allowed: it must be sc://HOST:PORT")
    try:
        socket.create_connection((parts.hostname, port), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise ClientError(f"no Spark Connect server answers at {remote}: {error}") from None


def check_java() -> None:
    """Check that a suitable Java is installed, with a clear message if not.

    Raises:
        ConfigurationError: there is no Java, or it is too old.
    """
    advice = (
        f"Spark needs Java {JAVA_MIN} or newer (Debian: apt-get install openjdk-17-jre-headless); "
        "JAVA_HOME or PATH says where it is"
    )
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise ConfigurationError(f"Java is missing: {advice}")
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{java} does not run ({error}): {advice}") from None
    found = re.search(r'version "(\d+)', done.stderr)
    if found is None or int(found[1]) < JAVA_MIN:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["says nothing"]
        raise ConfigurationError(f"{java}: {lines[0]}: {advice}")

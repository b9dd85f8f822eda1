"""Makes Spark sessions: local ones with what experience asks for, others as the cluster has it.

Nothing of Spark is imported before it is known to be there, so that the message about a missing
Spark or Java can be a clear one. Where Java is started for a command of ours, what it says goes to
a log, and `Java` can end it.
"""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from beanpole.errors import ClientError, ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_beanpole.sparklog import SparkLog

# Beanpole is on no package index: the name there is not ours.
INSTALL: Final = "install Beanpole with its extra spark, pip install 'BEANPOLE.whl[spark]'"
JAVA_MIN: Final = 17
JAVA_TIMEOUT_S: Final = 20
# Spark's own, where a URL has none.
CONNECT_PORT: Final = 15002
CONNECT_TIMEOUT_S: Final = 10.0
LOCAL_MASTER: Final = "local[*]"
# Of a shuffle on one machine; Spark's own 200 are for many machines.
PARTITIONS_PER_CORE: Final = 2

# Without the optimizing compiler and with one thread for garbage Java starts in a third of the
# time. Ours is a program of seconds, or one whose work is done in Python.
QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# spark-submit asks a small Java of its own for the command line of the one that stays.
LAUNCHER_JVM: Final = f"{QUICK_JVM} -Xshare:auto"
# How long Java may take to remove its temporary files when it is told to end.
END_S: Final = 2.0
# How long a Java that died may take to be gone.
LAST_BREATH_S: Final = 0.5

# What a session may set itself wherever it runs.
_COMMON: Final = {
    # Days begin at midnight UTC on every machine.
    "spark.sql.session.timeZone": "UTC",
    # Spark's own choice, INT96, has no time zone and is read by fewer and fewer tools.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


class Java:
    """The Java process of a session, if it was started here."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, *arguments: Any, **more: Any) -> "subprocess.Popen[bytes]":
        """Start it, with the arguments of `subprocess.Popen`.

        Spark's way to keep Ctrl-C from it, a function that runs in the child, takes a whole fork;
        in one of twenty of those gRPC ends the child, because it misses its sockets. In a session
        of its own Ctrl-C does not reach it, and what is started is only a new program.
        """
        more |= {"preexec_fn": None, "start_new_session": True}
        self._process = subprocess.Popen(*arguments, **more)
        return self._process

    @property
    def status(self) -> int | None:
        """Return its exit status; None while it runs, or is not ours."""
        return None if self._process is None else self._process.poll()

    def has_ended(self) -> bool:
        """Whether it was started here and has ended, or ends just now: its sockets close first."""
        if self._process is None:
            return False
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LAST_BREATH_S)
        return self._process.returncode is not None

    def end(self) -> None:
        """End it, whatever it is doing."""
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

    Under spark-submit the master and all that belongs to it are what was given there.

    Args:
        name: what Spark's pages call it.
        master: a master's URL; without one all cores of this machine.
        remote: the URL of a Spark Connect server, sc://HOST:PORT, in place of a master.
        settings: Spark settings, which go before those made here.
        quick: a local Java shall start soon, at the price of long queries: there is little to do
            for it.
        log: where Java's output goes if it is started here; None: to ours.
        java: told about the process.

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
        # A server's own settings cannot be changed from here.
        for key, value in wanted.items():
            session.conf.set(key, value)
        return session
    if submitted():
        if master is not None:
            raise ConfigurationError("under spark-submit give it the master: spark-submit --master")
    else:
        check_java()
        master = master or LOCAL_MASTER
        builder = builder.master(master)
        # Else the tasks run on whatever python3 is, which knows nothing of this environment.
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


def submitted() -> bool:
    """Whether spark-submit started this program."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _launch(settings: Mapping[str, str], log: "SparkLog", java: Java) -> None:
    """Start Java and Spark in it, unless they run already.

    `SparkSession.builder` then finds them. It would let Java write to our standard error.
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
        # It keeps the process to itself until Spark listens, and a signal may come before that.
        gateways.Popen = java.launch
        gateway = gateways.launch_gateway(conf, {"stdout": pipe, "stderr": pipe})
    finally:
        gateways.Popen = subprocess.Popen
        os.close(pipe)
    SparkContext(conf=conf, gateway=gateway)


def _local(quick: bool) -> dict[str, str]:
    """Return settings for one machine, on which nobody else is to hear of Spark."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        "spark.sql.shuffle.partitions": str(PARTITIONS_PER_CORE * (os.cpu_count() or 1)),
        # Else Spark makes one in the working directory.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "spark-warehouse").absolute()),
    }
    if quick:
        settings |= {
            "spark.driver.extraJavaOptions": QUICK_JVM,
            # It plans again after each stage, for which few rows give no reason.
            "spark.sql.adaptive.enabled": "false",
        }
    return settings


def check_spark() -> None:
    """Say clearly what is missing.

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
    """Say clearly that Spark's tasks have no Python, for which Spark has other words.

    Raises:
        ConfigurationError: there is no such program.
    """
    if shutil.which(python) is None:
        raise ConfigurationError(
            f"PYSPARK_PYTHON = {python!r} is no program: it must be the Python of the tasks"
        )


def check_remote(remote: str) -> None:
    """Look whether a Spark Connect server listens: Spark would try for ten minutes, without a word.

    Raises:
        ConfigurationError: the URL is none of a server.
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
    """Say clearly what is missing.

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

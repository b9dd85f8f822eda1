"""Makes Spark sessions: local ones with what experience asks for, others as the cluster has it.

Nothing of Spark is imported before it is known to be there, so that the message about a missing
Spark or Java can be a clear one.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from beanpole.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
JAVA_TIMEOUT_S: Final = 20
LOCAL_MASTER: Final = "local[*]"
# Of a shuffle on one machine; Spark's own 200 are for many machines.
PARTITIONS_PER_CORE: Final = 2

# What a session may set itself wherever it runs.
_COMMON: Final = {
    # Days begin at midnight UTC on every machine.
    "spark.sql.session.timeZone": "UTC",
}


def start(
    name: str,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Return a session.

    Under spark-submit the master and all that belongs to it are what was given there.

    Args:
        name: what Spark's pages call it.
        master: a master's URL; without one all cores of this machine.
        remote: the URL of a Spark Connect server, sc://HOST:PORT, in place of a master.
        settings: Spark settings, which go before those made here.

    Raises:
        ConfigurationError: Spark or Java is missing or too old, or arguments exclude each other.
    """
    check_spark()
    from pyspark.sql import SparkSession

    wanted = {**_COMMON, **(settings or {})}
    builder = SparkSession.builder.appName(name)
    if remote is not None:
        if master is not None:
            raise ConfigurationError("give a master or a remote, not both")
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
        if master.startswith("local"):
            wanted = {**_local(), **wanted}
    for key, value in wanted.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def submitted() -> bool:
    """Whether spark-submit started this program."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _local() -> dict[str, str]:
    """Return settings for one machine, on which nobody else is to hear of Spark."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        "spark.sql.shuffle.partitions": str(PARTITIONS_PER_CORE * (os.cpu_count() or 1)),
    }


def check_spark() -> None:
    """Say clearly what is missing.

    Raises:
        ConfigurationError: a package that the pipeline needs is not installed, or is too old.
    """
    for package in ("pyspark", "pyarrow", "pandas"):
        if importlib.util.find_spec(package) is None:
            raise ConfigurationError(
                f"the pipeline needs {package}, which is not installed: "
                "pip install 'beanpole[spark]'"
            )
    from pyspark import __version__

    if tuple(map(int, __version__.split(".")[:2])) < (4, 2):
        raise ConfigurationError(
            f"the pipeline needs Spark 4.2 or newer, this is {__version__}: "
            "pip install 'beanpole[spark]'"
        )


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

"""Errors of the Spark side without Spark or Java, and its cost in sessions that do not use it."""

import importlib.util
import os
import signal
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from beanpole.errors import ConfigurationError
from beanpoled.cli import main
from pyspark_beanpole import session


def java(directory: Path, text: str, status: int = 0) -> Path:
    """Install a program `java` that prints a text; return its home."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {status}\n")
    program.chmod(0o755)
    return directory


def test_java_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"Java is missing: .* Java 17 .* apt-get install"):
        session.check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"bin/java does not run .*JAVA_HOME or PATH"):
        session.check_java()


def test_java_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = java(tmp_path / "11", 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(ConfigurationError, match=r'version "11.0.2".*: Spark needs Java 17'):
        session.check_java()
    broken = java(tmp_path / "broken", "", 1)
    monkeypatch.setenv("JAVA_HOME", str(broken))
    with pytest.raises(ConfigurationError, match="says nothing: Spark needs Java 17"):
        session.check_java()
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "21", 'openjdk version "21" 2023-09-19')))
    session.check_java()


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_a_package_is_missing(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == missing else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    where = ["--addresses", "127.0.0.1:1", "--to", "/nowhere"]
    assert main(["pipeline", "stream", *where]) == 2
    said = capsys.readouterr().err
    assert f"needs {missing}, which is not installed: install Beanpole with its extra spark" in said
    # The name on the package index belongs to another project.
    assert "install 'beanpole[" not in said


def test_a_master_is_not_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="a master or a remote, not both"):
        session.start("name", "local[1]", "sc://127.0.0.1:1")
    # Set the variable that spark-submit sets.
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(ConfigurationError, match=r"give it the master: spark-submit --master"):
        session.start("name", "local[1]")


@pytest.mark.parametrize(
    "master",
    ["local[0]", "local[00]", "local[2,0]", "local[*,0]", "local[10001]", f"local[{10**99}]"],
)
def test_numbers_of_a_local_master_that_spark_cannot_use(master: str) -> None:
    """Spark ended with an exception of its own, and the status of a cluster that failed."""
    with pytest.raises(ConfigurationError) as raised:
        session.start("name", master)
    said = str(raised.value)
    assert said.startswith(f"--master {master[:80]!r} is not allowed: in local[THREADS]")
    assert said.endswith("the numbers must be from 1 to 10000")


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]", "local[2,3]", "spark://h:1"])
def test_other_masters_are_left_to_spark(master: str) -> None:
    session.check_master(master)


def test_java_is_started_without_a_fork_of_this_process() -> None:
    """A `preexec_fn` would need a fork, after which gRPC sometimes ends the child."""
    launched = session.Java()
    process = launched.launch(["sleep", "60"], preexec_fn=pytest.fail)
    assert launched.status is None
    assert os.getsid(process.pid) == process.pid
    launched.end()
    assert launched.status == -signal.SIGTERM


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_a_session_that_does_not_use_it_imports_nothing() -> None:
    heavy = "{'pyspark', 'grpc', 'pyarrow', 'google', 'beanpole'}"
    code = f"import sys, pyspark_beanpole; print({heavy} & set(sys.modules) or 'nothing')"
    assert run(code) == "nothing"
    # Spark asks every data source for its name in every session.
    heavy = "{'grpc', 'pyarrow', 'google'}"
    asked = "pyspark_beanpole.DefaultSource.name()"
    code = f"import sys, pyspark_beanpole; print({asked}, {heavy} & set(sys.modules) or 'nothing')"
    assert run(code) == "beanpole nothing"


def test_a_spark_that_is_too_old_does_not_see_the_data_source() -> None:
    # Spark 4.1 does not have this module.
    code = (
        "import sys; sys.modules['pyspark.sql.streaming.datasource'] = None;"
        "import pyspark_beanpole; print(hasattr(pyspark_beanpole, 'DefaultSource'))"
    )
    assert run(code) == "False"

"""One line for each error of Spark, Java and Python, and its culprit. No Spark runs here."""

import os
import sys
from pathlib import Path

import pytest

from beanpole.errors import BeanpoleError, ClientError, ConfigurationError
from pyspark_beanpole import sparklog
from pyspark_beanpole.cli import failures
from pyspark_beanpole.progress import Progress, StreamLine, words
from pyspark_beanpole.sparklog import SparkLog

TASK = """An error occurred while calling o55.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed \
1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 4) (127.0.0.1 executor driver): {}
\tat org.apache.spark.executor.Executor$TaskRunner.run(Executor.scala:91)
"""
PYTHON = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    read()
{}

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""
CAUSED = """An error occurred while calling o1.start.
: org.apache.spark.SparkException: Writing job aborted
\tat org.apache.spark.a(B.scala:1)
Caused by: java.io.IOException: first
\tat java.base/c(D.java:1)
Caused by: java.io.IOException: No space left on device
\t... 3 more
"""


@pytest.mark.parametrize(
    ("text", "words", "kind"),
    [
        (
            PYTHON.format(
                "beanpole.client.events.EventsLost: the events from offset 5 on are gone"
            ),
            "the events from offset 5 on are gone",
            ClientError,
        ),
        (
            PYTHON.format("beanpole.errors.ConfigurationError: the offset is of cluster 'a'"),
            "the offset is of cluster 'a'",
            ConfigurationError,
        ),
        (PYTHON.format("MemoryError"), "MemoryError", ClientError),
        (
            TASK.format("org.apache.spark.SparkException: Python worker exited unexpectedly"),
            "SparkException: Python worker exited unexpectedly",
            ClientError,
        ),
        (CAUSED, "IOException: No space left on device", ClientError),
        (
            TASK.format("java.lang.OutOfMemoryError: Java heap space"),
            "java.lang.OutOfMemoryError: Java heap space",
            ClientError,
        ),
        (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            ": org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'\n\tat a",
            "--master: Could not parse Master URL: 'local[x]'",
            ConfigurationError,
        ),
        (
            "[INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'x' in spark.a.b is invalid.\n\nat a",
            "--conf spark.a.b: [INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'x' in spark.a.b is "
            "invalid.",
            ConfigurationError,
        ),
        ("one line", "one line", ClientError),
        ("", "", ClientError),
        ("x" * 10_000, "x" * failures.WORDS_MAX + " ...", ClientError),
    ],
)
def test_an_error_of_spark_is_one_line(text: str, words: str, kind: type[BeanpoleError]) -> None:
    found = failures.from_spark(text, ["spark.a.b"])
    assert (type(found), str(found)) == (kind, words)


TRACEBACK = """[STREAM_FAILED] Query [id = 1] terminated: Traceback (most recent call last):
  File "worker.py", line 227, in main
    command = read()
              ^^^^^^
{}
 SQLSTATE: 38000
\tat org.apache.spark.Something
"""


def test_our_own_words_come_first() -> None:
    words = "beanpole.client.events.EventsLost: the events from offset 7 on are gone"
    assert failures.gist(TRACEBACK.format(words)) == "the events from offset 7 on are gone"


def test_words_of_python_and_of_spark() -> None:
    missing = "ModuleNotFoundError: No module named 'grpc'"
    assert failures.gist(TRACEBACK.format(missing)) == missing
    assert (
        failures.gist("[PATH_NOT_FOUND] no such path\n\tat org.apache")
        == "[PATH_NOT_FOUND] no such path"
    )


@pytest.mark.parametrize(
    ("lines", "words", "kind"),
    [
        (
            ["Invalid maximum heap size: -Xmxabc", "Error: Could not create the Java Virtual"],
            "Java does not start: Invalid maximum heap size: -Xmxabc",
            ConfigurationError,
        ),
        (
            ["org.apache.spark.SparkException: Master must either be yarn or start with spark"],
            "--master: Master must either be yarn or start with spark",
            ConfigurationError,
        ),
        (["x", "an Error: y"], "Java does not start: an Error: y", ClientError),
        (["x"], "Java does not start: x", ClientError),
        ([], "Java does not start: it says nothing", ClientError),
    ],
)
def test_a_java_that_does_not_start(
    lines: list[str], words: str, kind: type[BeanpoleError]
) -> None:
    found = failures.java_never_ran(lines)
    assert (type(found), str(found)) == (kind, words)


def test_a_java_that_ends() -> None:
    assert str(failures.java_ended(-9, [])).endswith("by signal 9")
    lines = ["a", "# There is insufficient memory for the Java Runtime Environment to continue."]
    assert "with status 1: # There is insufficient memory" in str(failures.java_ended(1, lines))


def test_the_log_takes_what_java_says_and_shows_our_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = SparkLog(tmp_path / "log")
    with os.fdopen(log.pipe(), "wb") as java:
        java.write(b"WARN noise\nbeanpole: 5 jobs inserted\n\r[Stage 0:>  (0 + 2) / 2]\r   \rend")
    assert log.last() == ["WARN noise", "end"]
    assert capsys.readouterr().err == "beanpole: 5 jobs inserted\n"
    log.close(is_wanted=False)
    assert (tmp_path / "log").read_text() == "WARN noise\nend\n"


def test_bars_are_shown_in_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SparkLog(tmp_path / "log")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with os.fdopen(log.pipe(), "wb") as java:
        java.write(b"\r[Stage 0:>  (0 + 2) / 2]\r")
    assert log.last() == []
    log.close(is_wanted=False)
    assert "[Stage 0:>  (0 + 2) / 2]" in capsys.readouterr().err


def test_a_terminal_that_moves_no_cursor_gets_no_bars(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SparkLog(tmp_path / "log")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    line = StreamLine(sys.stderr)
    line.show(Progress(0, 0, 0))
    line.say("a word")
    line.end()
    with os.fdopen(log.pipe(), "wb") as java:
        java.write(b"\r[Stage 0:>  (0 + 2) / 2]\r   \r")
    log.close(is_wanted=False)
    assert capsys.readouterr().err == f"{words(Progress(0, 0, 0))}\na word\n"


def test_the_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparklog, "FILE_BYTES_MAX", 1000)
    log = SparkLog(tmp_path / "log")
    for number in range(100):
        log.write(f"{number:03} {'x' * 95}")
    log.close(is_wanted=False)
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["log", "log.1"]
    assert all(path.stat().st_size <= 1100 for path in files)
    assert files[0].read_text().splitlines()[-1].startswith("099 ")


def test_a_log_that_nobody_asked_for_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for is_wanted, count in ((False, 0), (True, 1)):
        log = SparkLog()
        log.write("a line")
        log.close(is_wanted)
        assert len(list(tmp_path.iterdir())) == count

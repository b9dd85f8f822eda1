"""The thread that writes the lines of a node's log: order, bound, losses, and the end."""

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beanpoled.host import log_writer
from beanpoled.host.log import LogLines
from beanpoled.host.log_writer import LogWriter, Output
from beanpoled.host.seam import ERROR, WARNING
from tests.integration.support.waiting import wait_until
from tests.unit.node.stage import config
from tests.unit.unread import full_pipe

TIMEOUT_S = 60.0
SOON_S = 0.1
LOST = "{} lost\n".format


class Log:
    """A log that takes texts, fails, or hangs.

    Attributes:
        texts: all that it took.
        error: raised by each write.
        takes: whether a write goes on.
        hangs: set while a write waits for `takes`.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.error: OSError | None = None
        self.takes = threading.Event()
        self.takes.set()
        self.hangs = threading.Event()

    def write(self, text: str) -> None:
        if not self.takes.is_set():
            self.hangs.set()
            assert self.takes.wait(TIMEOUT_S)
        if self.error is not None:
            raise self.error
        self.texts.append(text)


@contextmanager
def hanging(log: Log, writer: LogWriter) -> Iterator[None]:
    """Let the log hang in the write of the text `first`."""
    log.hangs.clear()
    log.takes.clear()
    writer.put("first\n")
    assert log.hangs.wait(TIMEOUT_S)
    yield
    log.takes.set()


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def writer(log: Log) -> LogWriter:
    return LogWriter(log.write, LOST)


def test_lines_are_written_in_their_order(log: Log, writer: LogWriter) -> None:
    texts = [f"{number}\n" for number in range(1000)]
    with hanging(log, writer):
        for text in texts:
            writer.put(text)
    assert writer.flush(TIMEOUT_S)
    assert log.texts == ["first\n", *texts]


def test_a_full_queue_loses_lines_and_their_number_stands_in_their_place(
    log: Log, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "WAITING_CHARACTERS_MAX", 10)
    with hanging(log, writer):
        for text in ("one\n", "two\n", "lost\n", "lost\n"):
            writer.put(text)
    assert writer.flush(TIMEOUT_S)
    assert log.texts == ["first\n", "one\n", "two\n", LOST(2)], "without a further line"
    log.texts.clear()
    with hanging(log, writer):
        for text in ("one\n", "two\n", "lost\n", "3\n"):
            writer.put(text)
    assert writer.flush(TIMEOUT_S)
    assert log.texts == ["first\n", "one\n", "two\n", LOST(1), "3\n"]


def test_a_line_longer_than_the_bound_is_written(
    log: Log, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "WAITING_CHARACTERS_MAX", 9)
    writer.put("longer than that\n")
    assert writer.flush(TIMEOUT_S)
    assert log.texts == ["longer than that\n"]


def test_the_queue_is_bounded_in_memory(log: Log, writer: LogWriter) -> None:
    text = "x" * 99 + "\n"
    kept = log_writer.WAITING_CHARACTERS_MAX // len(text)
    with hanging(log, writer):
        for _ in range(kept + 7):
            writer.put(text)
    assert writer.flush(TIMEOUT_S)
    assert log.texts == ["first\n", *[text] * kept, LOST(7)]


def test_lines_that_a_log_refuses_are_counted(log: Log, writer: LogWriter) -> None:
    log.error = OSError(28, "No space left on device")
    for text in ("lost\n", "lost\n"):
        writer.put(text)
    assert writer.flush(TIMEOUT_S)
    log.error = None
    writer.put("room\n")
    assert writer.flush(TIMEOUT_S)
    assert log.texts == [LOST(2), "room\n"]


def test_the_end_does_not_wait_for_a_log_that_hangs(log: Log, writer: LogWriter) -> None:
    with hanging(log, writer):
        writer.put("last\n", is_last=True)
        assert not writer.flush(SOON_S)
    assert writer.flush(TIMEOUT_S)
    assert log.texts == ["first\n", "last\n"]


def test_the_last_line_has_a_place_in_a_full_queue(
    log: Log, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "WAITING_CHARACTERS_MAX", 9)
    with hanging(log, writer):
        for text in ("one\n", "two\n", "lost\n"):
            writer.put(text)
        writer.put("last\n", is_last=True)
    assert writer.flush(TIMEOUT_S)
    assert log.texts == ["first\n", "one\n", "two\n", LOST(1), "last\n"]


def test_threads_that_cannot_start_lose_no_line(
    log: Log, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        writer.put("one\n")
    writer.put("two\n")
    assert writer.flush(TIMEOUT_S)
    assert log.texts == ["one\n", "two\n"]


# --- the lines of a node ------------------------------------------------------------------------


def read_until(read: int, wanted: str) -> str:
    """Read a pipe up to the end of the line of a text."""
    found = b""
    while wanted.encode() not in found or not found.endswith(b"\n"):
        found += os.read(read, 65536)
    return found.decode()


@pytest.mark.parametrize("is_blocking", [True, False])
def test_a_line_has_the_time_of_its_event(is_blocking: bool) -> None:
    """Another program that shares the pipe may have set it to non-blocking."""
    read, write = full_pipe()
    os.set_blocking(write, is_blocking)
    with open(write, "w") as output:
        lines = LogLines(config(), output)
        lines.begin()
        before = time.time()
        lines.write("it happened")
        after = time.time()
        wait_until(lambda: int(time.time() * 1000) > int(after * 1000), TIMEOUT_S, "a millisecond")
        found = read_until(read, "it happened\n").lstrip("x")
        lines.flush()
    os.close(read)
    whole, millis = re.match(r"(\S+)\.(\d{3})Z ", found).groups()  # type: ignore[union-attr]
    stamps = [
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at * 1000) % 1000:03}"
        for at in (before, after)
    ]
    assert stamps[0] <= f"{whole}.{millis}" <= stamps[1]


def test_the_line_about_lost_lines_is_json_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "WAITING_CHARACTERS_MAX", 1)
    read, write = full_pipe()
    with open(write, "w") as output:
        lines = LogLines(config(log_format="json", log_level="error"), output)
        lines.begin()
        for _ in range(4):
            lines.write("too much", ERROR)
        lines.write("left out", WARNING)
        found = read_until(read, "are lost: this log did not take them").lstrip("x")
        lines.flush()
    os.close(read)
    *kept, last = [json.loads(line) for line in found.splitlines()]
    assert last["level"] == "warning" and last["node"] == "n0"
    assert int(last["message"].split()[0]) == 4 - len(kept)


def test_a_line_behind_one_that_was_written_in_part_begins_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if not data.startswith(b"h"):
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:2])

    with (tmp_path / "log").open("w") as file:
        output = Output(file)
        with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
            patch.setattr(os, "write", full)
            output.write("half\n")
        output.write("é\udc80\n")
    assert (tmp_path / "log").read_bytes() == "ha\né\\udc80\n".encode()

"""The files of the audit log: lines, limits, a full disk."""

import contextlib
import errno
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beanpoled.audit import log
from beanpoled.audit.entry import TEXT_MAX_CHARS, Entry
from beanpoled.audit.log import FILES_MAX, NAME, AuditLog

ENTRY = Entry(1_700_000_000_123_456, "10.0.0.1", "", "", "Queue/Kick", {"job_ids": [1]}, "OK", 1500)


class Opened:
    """An audit log in a directory, and its complaints."""

    def __init__(self, directory: Path) -> None:
        self.lines: list[str] = []
        self.directory = directory
        self.log = AuditLog(str(directory), "a", self.lines.append)

    def calls(self, after: int = 0, bytes_max: int = log.PAGE_BYTES_MAX) -> list[dict[str, Any]]:
        return [json.loads(raw) for raw in self.log.page(after, bytes_max).lines]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    made = Opened(tmp_path)
    yield made
    made.log.close()


def test_a_line_is_an_object_in_a_file_of_the_user_alone(opened: Opened) -> None:
    opened.log.add(ENTRY)
    opened.log.add(ENTRY._replace(alike=7, method="Events/ReadEvents"))
    first, second = opened.calls()
    assert first["id"] < second["id"]
    assert list(first.items())[1:] == [
        ("time", "2023-11-14T22:13:20.123Z"),
        ("node", "a"),
        ("caller", "10.0.0.1"),
        ("certificate", ""),
        ("user", ""),
        ("method", "Queue/Kick"),
        ("arguments", {"job_ids": [1]}),
        ("outcome", "OK"),
        ("duration_ms", 1.5),
    ]
    assert second["alike_before"] == 7
    assert os.stat(opened.directory / NAME).st_mode & 0o777 == 0o600


def test_long_texts_are_cut(opened: Opened) -> None:
    opened.log.add(ENTRY._replace(arguments={"queue": "q" * 5000}))
    (call,) = opened.calls()
    assert call["arguments"]["queue"] == "q" * TEXT_MAX_CHARS + "..."


def test_lines_are_bounded(opened: Opened) -> None:
    snow = "\N{SNOWMAN}" * 300
    opened.log.add(ENTRY._replace(arguments={"rights": [snow, "short"]}, certificate=snow))
    opened.log.add(ENTRY._replace(arguments={f"a{place}": [snow] * 20 for place in range(3)}))
    first, second = opened.calls()
    assert first["arguments"]["rights"] == [snow[:TEXT_MAX_CHARS] + "...", "short"]
    assert first["certificate"] == snow[:TEXT_MAX_CHARS] + "..."
    assert list(second["arguments"]) == ["left out"]


def test_a_line_of_an_earlier_release_hides_no_other(opened: Opened) -> None:
    opened.log.add(ENTRY)
    (first,) = opened.calls()
    long = b'{"id": %d, "arguments": "%b"}\n' % (first["id"] + 1, b"x" * 100_000)
    with open(opened.directory / NAME, "ab") as file:
        file.write(long)
    assert len(opened.calls()) == 2
    assert [call["id"] for call in opened.calls(first["id"])] == [first["id"] + 1]


def test_a_node_that_calls_nothing_has_no_file(opened: Opened) -> None:
    assert opened.calls() == [] and not list(opened.directory.iterdir())


def test_pages_begin_behind_an_id(opened: Opened) -> None:
    for number in range(10):
        opened.log.add(ENTRY._replace(arguments={"number": number}))
    found: list[int] = []
    after, complete = 0, False
    while not complete:
        page = opened.log.page(after, bytes_max=500)
        assert 1 <= len(page.lines) < 10
        calls = [json.loads(raw) for raw in page.lines]
        found += [call["arguments"]["number"] for call in calls]
        after, complete = calls[-1]["id"], page.complete
    assert found == list(range(10))


def test_files_are_bounded_and_the_oldest_goes(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "FILE_BYTES_MAX", 1000)
    for number in range(100):
        opened.log.add(ENTRY._replace(arguments={"number": number}))
        assert opened.log.flush()
    names = {NAME, *(f"{NAME}.{place}" for place in range(1, FILES_MAX))}
    assert {path.name for path in opened.directory.iterdir()} <= names
    assert all(path.stat().st_size < 1500 for path in opened.directory.iterdir())
    numbers = [call["arguments"]["number"] for call in opened.calls()]
    assert numbers == list(range(numbers[0], 100)) and len(numbers) > 20
    later = opened.calls()[-5]["id"]
    assert [call["arguments"]["number"] for call in opened.calls(later)] == [96, 97, 98, 99]


def test_ids_grow_also_where_the_clock_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Opened(tmp_path)
    before.log.add(ENTRY)
    before.log.close()
    monkeypatch.setattr("beanpoled.audit.log.time.time_ns", lambda: 1_000_000)
    after = Opened(tmp_path)
    after.log.add(ENTRY)
    first, second = after.calls()
    assert second["id"] == first["id"] + 1
    after.log.close()


def test_a_full_disk_loses_lines_and_nothing_else(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.log.add(ENTRY)
    assert opened.log.flush()
    real = os.write

    def full(file: int, data: bytes) -> int:
        real(file, data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("beanpoled.audit.log.os.write", full)
        for _ in range(3):
            opened.log.add(ENTRY)
            assert opened.log.flush()
    assert opened.log.lost == 3
    (line,) = opened.lines
    assert "No space left on device" in line and "service goes on" in line
    opened.log.add(ENTRY._replace(method="Queue/SetAlias"))
    assert [call["method"] for call in opened.calls()] == ["Queue/Kick", "Queue/SetAlias"]


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    made = Opened(tmp_path / "none")
    made.log.add(ENTRY)
    assert made.log.flush() and made.log.lost == 1 and made.lines
    made.log.close()


def test_a_closed_log_holds_no_file(tmp_path: Path) -> None:
    made = Opened(tmp_path)
    made.log.add(ENTRY)
    assert made.log.flush() and str(tmp_path / NAME) in held_files()
    made.log.close()
    assert str(tmp_path / NAME) not in held_files()


def held_files() -> set[str]:
    """The files that this process has open; a descriptor of another thread may close meanwhile."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return found


def test_entries_that_wait_are_bounded(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "WAITING_MAX", 0)
    opened.log.add(ENTRY)
    assert opened.log.lost == 1 and opened.calls() == []


def test_what_a_writer_left_half_done_is_skipped(tmp_path: Path) -> None:
    before = Opened(tmp_path)
    before.log.add(ENTRY)
    before.log.close()
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"id": 99, "time": "20')
    after = Opened(tmp_path)
    after.log.add(ENTRY)
    assert len(after.calls()) == 2
    after.log.close()


@pytest.mark.parametrize("is_closed", [False, True])
def test_threads_that_cannot_start_lose_no_entry(
    is_closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made = Opened(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        made.log.add(ENTRY)
        assert not made.log.flush() and made.calls() == []
    if is_closed:
        made.log.close()
        assert (tmp_path / NAME).read_bytes().count(b"\n") == 1
    else:
        made.log.add(ENTRY)
        assert len(made.calls()) == 2
        made.log.close()

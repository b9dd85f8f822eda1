"""An export with --follow whose store or disk fails for a while, and the bounds of its requests."""

import argparse
import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from beanpole.errors import ConfigurationError, StorageError
from beanpole.exporting import directory, outages, steps
from beanpole.exporting.directory import begun, held, listed, read_manifest
from beanpole.exports import MANIFEST, BadExport
from beanpole.places import S3_ATTEMPTS, resolved
from beanpoled.cli import events
from beanpoled.eventlog.source import Source
from pyspark_beanpole.exports import opened
from tests.unit.eventlog.served import Server, life_of, serving
from tests.unit.eventlog.test_service import history
from tests.unit.exporting.made import object_store, offsets

JOBS = dict.fromkeys(("ready", "reserved", "delayed", "buried"), 0)
# As Arrow says it.
BUSY = (
    "When uploading object with key 'out/x' in bucket 'events': AWS Error SLOW_DOWN during "
    "PutObject operation: Please reduce your request rate."
)
DENIED = BUSY.replace("SLOW_DOWN", "ACCESS_DENIED")


@contextmanager
def following(name: str, entries: int = 2) -> Iterator[tuple[events._Run, Callable[[], None]]]:
    """Begin an export with --follow that finishes a file in each step.

    Yields:
        The export; and a function that makes 30 events.
    """
    life = life_of(history(entries))
    life.driver.number = len(life.driver.entries)
    with serving(Server(life)) as addresses, Source(addresses) as source:
        run = events._Run(source, name, None, 0.0, threading.Event())
        try:
            run.patiently(run.catch_up)
            yield run, lambda: life.driver.put(30)
        finally:
            run.close()


def failing(
    monkeypatch: pytest.MonkeyPatch, name: str, error: OSError, times: int, is_done: bool = False
) -> list[int]:
    """Let a function of `steps` fail some times, perhaps after it has done what it does.

    Returns:
        A list with the number of failures that are left.
    """
    real: Callable[..., None] = getattr(steps, name)
    left = [times]

    def call(*arguments: Any) -> None:
        if left[0] > 0:
            left[0] -= 1
            if is_done:
                real(*arguments)
            raise error
        real(*arguments)

    monkeypatch.setattr(steps, name, call)
    return left


@pytest.mark.parametrize("is_done", [False, True], ids=["lost", "done"])
def test_a_store_that_refuses_for_a_while_is_waited_for(
    is_done: bool,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both kinds of failed writes: those that the store has not done, and those that it has."""
    with following(bucket) as (run, more):
        run.patiently(run.follow)
        for _ in range(3):
            more()
            left = failing(monkeypatch, "put", OSError(BUSY), 5, is_done)
            pauses = []
            while left[0] or run.is_stalled:
                # Events that come meanwhile are in other files than those that have failed.
                more()
                run.patiently(run.follow)
                pauses.append(run.pause_s)
            assert pauses[:4] == [1.0, 2.0, 4.0, 8.0] and pauses[-1] == 1.0
            assert offsets(opened(bucket)) == list(range(run.export.end))
        assert run.export.end == 60 + 3 * 30 * (1 + len(pauses))
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == [
        f"waiting: {BUSY}",
        f"goes on: s3a://events/out has events to {60 + 30 * (1 + len(pauses))}",
    ]
    assert len(said) == 6


@pytest.mark.slow  # it waits for Arrow's attempts
def test_a_store_that_is_away_for_a_while_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    first = ExitStack()
    endpoint = first.enter_context(object_store())
    name = f"s3://away/out?endpoint_override={endpoint}&scheme=http&region=us-east-1"
    resolved(f"{name}&allow_bucket_creation=1").files.create_dir("away")
    with following(name) as (run, more):
        run.patiently(run.follow)
        first.close()
        more()
        run.patiently(run.follow)
        assert run.is_stalled
        with object_store(int(endpoint.rpartition(":")[2])):
            run.patiently(run.follow)
            assert not run.is_stalled and run.export.end == 90
            assert offsets(opened(name)) == list(range(90))
    waits, goes_on = capsys.readouterr().err.splitlines()
    assert waits.startswith("waiting: s3://away/out/_manifest.json cannot be read: ")
    assert "_manifest.json' in bucket 'away': AWS Error NETWORK_CONNECTION" in waits
    assert goes_on == "goes on: s3://away/out has events to 90"


def test_a_disk_without_room_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    with following(out) as (run, more):
        more()
        full = OSError(errno.ENOSPC, "No space left on device", f"{out}/x")
        failing(monkeypatch, "rename", full, 2)
        for _ in range(3):
            run.patiently(run.follow)
        assert run.export.end == 90 and not run.is_stalled
    assert offsets(opened(out)) == list(range(90))
    assert capsys.readouterr().err.splitlines() == [
        f"waiting: {out}/x: the disk is full",
        f"goes on: {out} has events to 90",
    ]


@pytest.mark.parametrize("error", [OSError(DENIED), OSError(errno.EROFS, "Read-only")])
def test_what_does_not_end_by_itself_ends_the_export(
    error: OSError, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with following(bucket) as (run, more):
        run.patiently(run.follow)
        more()
        failing(monkeypatch, "put", error, 1)
        with pytest.raises(OSError, match=r"AWS Error ACCESS_DENIED|Read-only"):
            run.patiently(run.follow)


def test_an_export_that_was_taken_over_in_an_outage_ends(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with following(bucket) as (run, more):
        run.patiently(run.follow)
        more()
        failing(monkeypatch, "put", OSError(BUSY), 1)
        run.patiently(run.follow)
        monkeypatch.setattr(directory, "OWNER_SILENT_MAX_S", 0)
        other = held(resolved(bucket))
        assert other is not None
        with pytest.raises(BadExport, match="was taken by another export, on "):
            run.patiently(run.follow)
        other.close()


def test_outages_are_told_from_refusals() -> None:
    def read_error(cause: OSError | None) -> StorageError:
        error = StorageError("s3://events/out/_manifest.json cannot be read")
        error.__cause__ = cause
        return error

    head = "When getting information for key 'a' in bucket 'b': AWS Error UNKNOWN (HTTP status {})"
    for text in (BUSY, head.format(503), head.format(500), "AWS Error NETWORK_CONNECTION"):
        assert outages.may_heal(OSError(text)) and outages.may_heal(read_error(OSError(text)))
    denied = (DENIED, head.format(403), head.format(400), head.format(301))
    for text in (*denied, BUSY.replace("SLOW_DOWN", "NO_SUCH_BUCKET")):
        assert not outages.may_heal(OSError(text))
        assert not outages.may_heal(read_error(OSError(text)))
    assert not outages.may_heal(read_error(None))
    assert not outages.may_heal(PermissionError(errno.EACCES, "Permission denied"))


# --- an owner that was killed ---------------------------------------------------------------------


class Ended(threading.Event):
    """An event whose wait lasts no time, but does something."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self.waits: list[float | None] = []
        self._meanwhile = meanwhile

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        self._meanwhile()
        return self.is_set()


def begin(addresses: list[str], bucket: str, follow: bool, ended: Ended) -> events._Run | None:
    arguments = argparse.Namespace(to=bucket, follow=follow, every=0.0)
    with Source(addresses) as source:
        return events._begun(source, arguments, None, ended)


def test_an_export_that_follows_waits_for_the_end_of_an_owner_that_was_killed(
    bucket: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = begun(resolved(bucket), "stage", JOBS)
    ended = Ended(lambda: monkeypatch.setattr(directory, "OWNER_SILENT_MAX_S", 0))
    with serving(Server(life_of(history(2)))) as addresses:
        with pytest.raises(ConfigurationError, match="another export runs in s3a://events/out"):
            begin(addresses, bucket, follow=False, ended=ended)
        assert not ended.waits
        run = begin(addresses, bucket, follow=True, ended=ended)
        assert run is not None
        run.close()
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("waiting: another export runs in s3a://events/out: on ")
    left_s = int(line.rpartition("wait for ")[2].removesuffix(" s"))
    assert ended.waits == [left_s + events.OWNER_SLACK_S]
    dead.close()
    assert list(listed(resolved(bucket))) == [MANIFEST]


def test_an_owner_that_lives_is_no_outage(bucket: str) -> None:
    with begun(resolved(bucket), "stage", JOBS) as owner:
        ended = Ended(lambda: owner.change(owner.manifest))
        with serving(Server(life_of(history(2)))) as addresses:
            with pytest.raises(ConfigurationError, match="another export runs in"):
                begin(addresses, bucket, follow=True, ended=ended)
            assert len(ended.waits) == 1
            ended = Ended(lambda: ended.set())
            assert begin(addresses, bucket, follow=True, ended=ended) is None
        found = read_manifest(resolved(bucket))
        assert found is not None and found.owner == owner.manifest.owner


# --- bounds ---------------------------------------------------------------------------------------


@contextmanager
def busy_store() -> Iterator[tuple[str, list[str]]]:
    """Run a store that is overloaded; yield its HOST:PORT, and the methods that were called."""
    calls: list[str] = []

    class Busy(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            calls.append(self.command)
            # In chunks, each with its size before it and a line end behind it.
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + len("\r\n"))
            self.rfile.readline()
            body = b"<Error><Code>SlowDown</Code><Message>busy</Message></Error>"
            self.send_response(503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Busy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", calls
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.slow  # it waits for Arrow's attempts
def test_a_small_object_is_one_request_that_is_made_some_times() -> None:
    with busy_store() as (endpoint, calls):
        name = f"s3://a:b@events/out?endpoint_override={endpoint}&scheme=http&region=x"
        with pytest.raises(OSError, match="out/x' in bucket 'events': AWS Error SLOW_DOWN"):
            steps.put(resolved(name), "x", b"x")
        assert calls == ["PUT"] * S3_ATTEMPTS

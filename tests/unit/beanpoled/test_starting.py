"""Start errors of the system: each names the setting, and the cause or the remedy."""

import asyncio
import errno
import gc
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import uvloop

from beanpole.errors import ConfigurationError, Damaged, StorageError
from beanpole.storage.files import InlineFiles
from beanpoled import checking, descriptors, main, starting
from beanpoled.config import node as configuration
from beanpoled.config.node import NodeConfig
from beanpoled.disk.disks import Disks
from tests.integration.support.waiting import wait_until

# This many looks and clients let 16 connections in while the probe still listened.
LOOKS, CLIENTS = 3000, 3


def config(directory: Path, listen: str = "127.0.0.1:0", **settings: str) -> NodeConfig:
    flags = {
        "cluster": "dev",
        "node_id": "a",
        "data_dir": str(directory),
        "listen": listen,
        "members": "a=127.0.0.1:1/127.0.0.1:2",
        "http_listen": "127.0.0.1:5",
        "peer_listen": "127.0.0.1:3",
        "grpc_listen": "127.0.0.1:4",
    }
    return configuration.load(None, {}, {**flags, **settings})


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_file_in_the_way_of_the_data_directory_is_configuration(
    tmp_path: Path, below: str
) -> None:
    (tmp_path / "file").write_text("")
    wrong = config(Path(f"{tmp_path}/file{below}"))
    told = r"data_dir = '.*file.*must be a directory"
    with pytest.raises(ConfigurationError, match=told), starting.data_directory(wrong):
        InlineFiles().hold(wrong.data_dir)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, f"Permission denied, at /q/lock; make it .* for user {os.geteuid()}$"),
        (errno.EROFS, "Read-only file system, at /q/lock; mount its disk .* ReadWritePaths= "),
        (
            errno.EIO,
            "Input/output error, at /q/lock; the disk is defective: replace it and .*operating.md$",
        ),
    ],
)
def test_other_refusals_of_the_data_directory_have_file_and_remedy(number: int, words: str) -> None:
    told = f"data_dir = '/q' cannot be used: {words}"
    with pytest.raises(StorageError, match=told), starting.data_directory(config(Path("/q"))):
        raise OSError(number, os.strerror(number), "/q/lock")


def test_an_identity_that_cannot_be_looked_for_ends_the_start_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look counted as a missing file, and a new identity was written over the good one."""
    given = config(tmp_path)
    path, files = tmp_path / "identity", InlineFiles()
    Disks(files, given, b"own disk........")
    before, looking = path.read_bytes(), os.lstat

    def refuse(looked: str) -> os.stat_result:
        if str(looked) == str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), looked)
        return looking(looked)

    monkeypatch.setattr(os, "lstat", refuse)
    told = f"data_dir = '{tmp_path}' cannot be used: Input/output error, at {path}"
    with pytest.raises(StorageError, match=told):
        uvloop.run(main.run(given))
    assert path.read_bytes() == before and os.listdir(tmp_path).count("identity.tmp") == 0


@pytest.mark.parametrize("name", ["identity", "clock"])
def test_a_damaged_file_is_told_with_one_remedy(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """That of the clock is its own; for the others the line ended with the checksum."""
    path = tmp_path / "data" / name
    path.parent.mkdir()
    path.write_bytes(b"no such file")
    given = config(path.parent)
    (tmp_path / "node.toml").write_text("")
    monkeypatch.setattr(configuration, "from_arguments", lambda *_: given)
    monkeypatch.setattr(sys, "argv", ["beanpoled", "--config", str(tmp_path / "node.toml")])
    # Settings of the whole process would stay for the other tests.
    monkeypatch.setattr(main, "prepare_process", lambda given, _lines: given)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    last = capsys.readouterr().err.splitlines()[-1]
    remedy = starting.DAMAGE_REMEDY if name == "identity" else "remove it: "
    assert f"{path}: offset 0: " in last and last.count(remedy) == 1
    assert (starting.DAMAGE_REMEDY in last) == (name == "identity")


@pytest.mark.parametrize("is_directory", [False, True])
def test_a_clock_that_cannot_be_read_is_told_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_directory: bool
) -> None:
    """The line was `[Errno 5] Input/output error`."""
    clock = tmp_path / "clock"
    opening = os.open

    def refuse(path: str, *arguments: int) -> int:
        if str(path) == str(clock):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return opening(path, *arguments)

    if is_directory:
        clock.mkdir()
    else:
        clock.touch()
        monkeypatch.setattr(os, "open", refuse)
    cause = "Is a directory" if is_directory else "Input/output error"
    told = f"{clock} cannot be read: {cause}; remove it: "
    with pytest.raises(StorageError, match=told):
        uvloop.run(main.run(config(tmp_path)))


def test_a_remedy_is_named_once() -> None:
    lost = "the log is gone: start on an empty data directory with --rejoin"
    assert starting.words(Damaged(lost)) == lost
    assert starting.words(StorageError("in use")) == "in use"
    assert starting.words(Damaged("wrong")) == f"wrong; {starting.DAMAGE_REMEDY}"


def test_a_full_disk_is_told_without_a_file() -> None:
    told = r"data_dir = '/q' .*No space left on device; make room"
    with pytest.raises(StorageError, match=told), starting.data_directory(config(Path("/q"))):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_all_addresses_that_are_taken_are_named_before_the_start(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        http, client = (f"127.0.0.1:{each.getsockname()[1]}" for each in (one, two))
        wrong = config(tmp_path, f"{client},127.0.0.1:0,unix:/nowhere/at/all", http_listen=http)
        with pytest.raises(OSError, match="cannot listen: ") as caught:
            starting.refuse_taken_addresses(wrong)
    told = "is in use by another program"
    assert f"http_listen: {http} {told}; listen: {client} {told}" in str(caught.value)
    assert "unix:" not in str(caught.value)


def test_no_client_gets_in_while_a_start_looks_at_its_addresses() -> None:
    """A client that gets in takes the node for a serving one, and is reset."""
    # Other processes get their ports at 127.0.0.1, and may get this one.
    with socket.create_server(("127.0.0.3", 0)) as server:
        host, port = server.getsockname()
    came = []
    ended = threading.Event()

    def knock() -> None:
        while not ended.is_set():
            with socket.socket() as client:
                client.bind(("127.0.0.2", 0))  # with the server's port it would connect to itself
                came.append(client.connect_ex((host, port)) == 0)

    knocking = [threading.Thread(target=knock) for _ in range(CLIENTS)]
    for client in knocking:
        client.start()
    try:
        wait_until(lambda: came, 60)
        found = [checking.refusal(f"{host}:{port}") for _ in range(LOOKS)]
    finally:
        ended.set()
        for client in knocking:
            client.join()
    assert found == [None] * LOOKS
    assert not any(came)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--durabilty", "memory"], "unknown flag --durabilty; did you mean --durability?"),
        (["--durabilty=memory"], "unknown flag --durabilty; did you mean --durability?"),
        (["--zzz"], "unknown flag --zzz; see beanpoled --help"),
        (["node.toml"], "'node.toml' is no flag; a configuration file is given as --config FILE"),
        (["--config"], "argument --config: expected one argument"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(
    words: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["beanpoled", *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == main.EXIT_CONFIGURATION
    said = capsys.readouterr().err
    assert said.startswith(f"beanpoled: {told}") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("soft", "hard", "system", "given"),
    [
        (1024, 4096, "1048576\n", 4096),
        (1024, 524_288, "524288\n", None),
        (1024, 524_288, "65536\n", 1024),
        (1024, resource.RLIM_INFINITY, "65536\n", 1024),
        (20_000, 524_288, "65536\n", None),
        (1024, 524_288, None, None),
    ],
)
def test_a_check_knows_the_descriptors_that_a_start_would_get(
    soft: int,
    hard: int,
    system: str | None,
    given: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A system that allows fewer than the hard limit refuses every change."""
    if system is not None:
        (tmp_path / "nr_open").write_text(system)
    monkeypatch.setattr(descriptors, "_SYSTEM_MAX", str(tmp_path / "nr_open"))
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, hard))
    found = [
        item for item in checking.findings(config(tmp_path / "data")) if "nr_open" in item.words
    ]
    told = f"{given} file descriptors (ulimit -Hn, fs.nr_open) are too few for connections_max: "
    expected = [] if given is None else [(checking.WARNING, f"{told}{16_000 + descriptors.SPARE}")]
    assert found == expected


def test_a_check_counts_the_descriptors_of_handshakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = {f"peer_tls_{part}_file": "/nowhere" for part in ("certificate", "key", "ca")}
    made = config(tmp_path / "data", handshakes_max="50000", **tls)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (65_536, 65_536))
    (found,) = [item for item in checking.findings(made) if "nr_open" in item.words]
    words = f"too few for connections_max and handshakes_max: {66_000 + descriptors.SPARE}"
    assert found.weight == checking.WARNING and found.words.endswith(words)


def test_a_check_names_files_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start by root leaves such files. Root may open all files, so `os.access` is replaced."""
    (tmp_path / "log").mkdir()
    for name in ("a", "b", "log/c", "log/d", "mine"):
        (tmp_path / name).write_text("")
    closed = {str(tmp_path / name) for name in ("a", "b", "log", "log/c", "log/d")}
    monkeypatch.setattr("os.access", lambda path, mode: str(path) not in closed)
    wrong = [item for item in checking.findings(config(tmp_path)) if "data_dir" in item.words]
    assert wrong[0].weight == checking.WRONG
    told = f"of data_dir {tmp_path}, a, b, log and 2 more: not readable and writable for user "
    assert wrong[0].words.startswith(told) and "another user" in wrong[0].words
    closed.clear()
    assert not any("user" in item.words for item in checking.findings(config(tmp_path)))


def test_an_error_of_a_callback_stops_a_node_and_a_broken_connection_does_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also an error that a broken connection could have: a disk of NFS times out, too."""
    ends: list[int] = []

    async def seen(error: Exception, report: Callable[[Callable[[], None]], object]) -> list[int]:
        def fail() -> None:
            raise error

        ends.clear()
        report(fail)
        await asyncio.sleep(0)
        gc.collect()
        await asyncio.sleep(0)
        return list(ends)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(main._stop_on_bug)

        def abandon(_fail: Callable[[], None]) -> None:
            loop.create_future().set_exception(ConnectionResetError())

        def as_streams_do(_fail: Callable[[], None]) -> None:
            loop.call_exception_handler({"exception": ConnectionResetError(), "transport": None})

        for error in (TimeoutError(), ConnectionResetError(), ValueError()):
            assert await seen(error, loop.call_soon) == [1]
        assert await seen(ConnectionResetError(), abandon) == []
        assert await seen(ConnectionResetError(), as_streams_do) == []

    monkeypatch.setattr(os, "_exit", ends.append)
    uvloop.run(run())
    assert "Exception in callback" in caplog.text and "TimeoutError" in caplog.text


def test_a_bug_that_cannot_be_logged_ends_the_node_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loop:
        def default_exception_handler(self, _context: dict[str, object]) -> None:
            raise OverflowError("timestamp out of range")

    ends: list[int] = []
    monkeypatch.setattr(os, "_exit", ends.append)
    with pytest.raises(OverflowError):  # only because the process does not end here
        main._stop_on_bug(cast(asyncio.AbstractEventLoop, Loop()), {"exception": ValueError()})
    assert ends == [1]

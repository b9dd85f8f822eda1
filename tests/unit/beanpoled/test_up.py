"""`beanpole up`: the folder that it writes, refused starts, and supervision of processes."""

import asyncio
import io
import json
import os
import shlex
import signal
import socket
import sys
import tomllib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from beanpole.client import where
from beanpole.errors import ConfigurationError
from beanpoled.cli import layout, main
from beanpoled.cli.layout import LocalNode
from beanpoled.cli.screen import Screen
from beanpoled.cli.up import Supervisor, _how
from beanpoled.config import node as config
from beanpoled.config.protocols import PROTOCOLS, Protocol

ROOT = Path(__file__).resolve().parents[3]
FAKE = Path(__file__).with_name("fake_process.py")


def free_base_port() -> int:
    """Return a base port with free ports for a small cluster; other processes search elsewhere."""
    for base in range(24000 + os.getpid() % 80 * 100, 60000, 100):
        try:
            layout.check_ports(layout.plan(Path("/unused"), 3, base))
        except ConfigurationError:
            continue
        return base
    raise AssertionError("no ports are free")


def test_the_ports_are_those_that_other_programs_rely_on() -> None:
    nodes = layout.plan(Path("/q"), 3, 11300)
    assert [node.id for node in nodes] == ["n0", "n1", "n2"]
    assert nodes[2].addresses == {
        "beanstalk": "127.0.0.1:11302",
        "peer": "127.0.0.1:11312",
        "grpc": "127.0.0.1:11322",
        "http": "127.0.0.1:11332",
        "workq": "127.0.0.1:11342",
        "gearman": "127.0.0.1:11352",
        "qless": "127.0.0.1:11362",
    }
    assert nodes[1].directory == Path("/q/n1")


def test_what_is_written_can_be_read_and_started(tmp_path: Path) -> None:
    nodes = layout.plan(tmp_path / 'a "b" ü', 3, 11300)
    layout.write(nodes, {"durability": "memory", "max_job_size": "1000"})
    loaded = config.load(str(nodes[1].config_path), {}, {})
    assert (loaded.node_id, loaded.durability, loaded.max_job_size) == ("n1", "memory", 1000)
    assert loaded.listen == ("127.0.0.1:11301",)
    assert list(loaded.members) == ["n0", "n1", "n2"]
    line = (nodes[1].directory / "cmdline").read_text()
    assert shlex.split(line) == nodes[1].command
    assert nodes[1].command[:3] == [sys.executable, "-m", "beanpoled"]
    hashes = {config.load(str(node.config_path), {}, {}).config_hash for node in nodes}
    assert len(hashes) == 1


def test_a_secret_among_the_settings_is_for_its_owner_only(tmp_path: Path) -> None:
    (node,) = layout.plan(tmp_path, 1, 11300)
    node.directory.mkdir()
    node.config_path.write_text("from an older release")
    node.config_path.chmod(0o644)
    stale = node.config_path.with_name(f".{node.config_path.name}.{os.getpid()}")
    stale.write_text("from a killed process, and longer than what is written now" * 99)
    layout.write([node], {"peer_secret": "the secret of a cluster"})
    assert node.config_path.stat().st_mode & 0o777 == 0o600
    assert config.load(str(node.config_path), {}, {}).peer_secret == "the secret of a cluster"
    assert not stale.exists()


def test_a_file_that_cannot_be_written_leaves_the_old_one_alone(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    layout.replace(path, "old")
    with pytest.raises(UnicodeEncodeError):
        layout.replace(path, "new \udcff")
    assert [path.name for path in tmp_path.iterdir()] == ["node.toml"]
    assert path.read_text() == "old"


def test_a_further_protocol_is_one_row(tmp_path: Path) -> None:
    protocols = (*PROTOCOLS, Protocol("toy", (), 70))
    nodes = layout.plan(tmp_path, 3, 11300, protocols)
    assert nodes[2].addresses["toy"] == "127.0.0.1:11372"
    layout.write(nodes, {})
    loaded = config.load(str(nodes[2].config_path), {}, {}, False, protocols)
    assert loaded.client_addresses == {
        "beanstalk": ("127.0.0.1:11302",),
        "workq": ("127.0.0.1:11342",),
        "gearman": ("127.0.0.1:11352",),
        "qless": ("127.0.0.1:11362",),
        "toy": ("127.0.0.1:11372",),
    }
    layout.write_cluster(tmp_path, nodes, {node.id: 1 for node in nodes})
    assert where.local_nodes(tmp_path)[2]["toy"] == "127.0.0.1:11372"


def test_toml_escapes() -> None:
    text = 'quote " back \\ tab \t line \n del \x7f ü'
    assert tomllib.loads(layout.toml({"a": text, "b": [text], "c": 3})) == {
        "a": text,
        "b": [text],
        "c": 3,
    }


def test_cluster_json(tmp_path: Path) -> None:
    nodes = layout.plan(tmp_path, 1, 11300)
    assert where.local_nodes(tmp_path) == []
    layout.write_cluster(tmp_path, nodes, {"n0": 4711})
    assert json.loads((tmp_path / "cluster.json").read_text()) == {
        "cluster": "dev",
        "nodes": [
            {
                "id": "n0",
                "pid": 4711,
                "dir": str(tmp_path / "n0"),
                "beanstalk": "127.0.0.1:11300",
                "peer": "127.0.0.1:11310",
                "grpc": "127.0.0.1:11320",
                "http": "127.0.0.1:11330",
                "workq": "127.0.0.1:11340",
                "gearman": "127.0.0.1:11350",
                "qless": "127.0.0.1:11360",
            }
        ],
    }
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]
    assert where.local_nodes(tmp_path)[0]["grpc"] == "127.0.0.1:11320"
    layout.remove_cluster(tmp_path)
    layout.remove_cluster(tmp_path)
    (tmp_path / "cluster.json").write_text("[]")
    with pytest.raises(ConfigurationError, match=r"cannot read .*cluster\.json"):
        where.local_nodes(tmp_path)


def refused(capsys: pytest.CaptureFixture[str], *line: str) -> str:
    """Run a command that must be refused; return its error output."""
    assert main(line) == 2
    return capsys.readouterr().err


def test_another_number_of_nodes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = layout.plan(tmp_path, 3, 11300)
    layout.write(nodes, {})
    layout.check_nodes(tmp_path, 1)  # a refused start leaves files, but no jobs
    for node in nodes:
        (node.directory / "data").mkdir()
    base = str(free_base_port())
    said = refused(capsys, "up", "--nodes", "1", "--dir", str(tmp_path), "--base-port", base)
    assert "holds a cluster of 3 nodes (n0, n1, n2), not of 1: give --nodes 3" in said


def test_a_port_in_use_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = free_base_port()
    with socket.socket() as other:
        # As in the check: sockets of an earlier run in TIME_WAIT do not count as in use.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", base + 21))
        other.listen()
        said = refused(capsys, "up", "--dir", str(tmp_path), "--base-port", str(base))
    assert f"in use by another program: 127.0.0.1:{base + 21} (grpc of n1)" in said
    assert "--base-port" in said


def test_a_folder_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with layout.lock(tmp_path):
        said = refused(capsys, "up", "--dir", str(tmp_path))
    assert "another `beanpole up` runs in" in said
    with layout.lock(tmp_path):
        pass


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("--nodes", "0"), "--nodes = 0 is not allowed: it must be from 1 to 9"),
        (("--nodes", "10"), "--nodes = 10"),
        (("--base-port", "65500"), "--base-port = 65500 is not allowed"),
        (("--set", "durability"), "it must be NAME=VALUE"),
        (("--set", "a b=1"), "'a b=1' is not allowed: it must be NAME=VALUE"),
        (("--set", "members.n9.peer=x"), "it must be NAME=VALUE"),
        (("--set", "node_id=n9"), "--set node_id is not allowed"),
        (("--set", "durability=fast"), "durability = 'fast'"),
        (("--set", "no_such=1"), "unknown key 'no_such'"),
        (("--set", f"queue_bytes_max={'9' * 5000}"), "queue_bytes_max = '999"),
    ],
)
def test_a_wrong_option_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: tuple[str, str], words: str
) -> None:
    base = () if "--base-port" in line else ("--base-port", str(free_base_port()))
    assert words in refused(capsys, "up", "--dir", str(tmp_path), *base, *line)
    assert not (tmp_path / "n0" / "log").exists()


class FakeNode(LocalNode):
    """A node whose process is only a fake."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, str(FAKE), str(self.config_path)]


class Output(io.StringIO):
    """A text stream that notifies when it grows."""

    def __init__(self) -> None:
        super().__init__()
        self.grew = asyncio.Event()

    def flush(self) -> None:
        super().flush()
        self.grew.set()


class Up:
    """A supervisor of fake nodes, and its output lines."""

    def __init__(self, directory: Path, nodes: int = 2) -> None:
        planned = layout.plan(directory, nodes, free_base_port())
        self.nodes: list[LocalNode] = [FakeNode(*node) for node in planned]
        layout.write(self.nodes, {})
        self.directory = directory
        self.output = Output()
        self.supervisor = Supervisor(directory, self.nodes, Screen(self.output))

    async def said(self, words: str) -> None:
        while words not in self.output.getvalue():
            self.output.grew.clear()
            await self.output.grew.wait()

    def pids(self) -> list[int]:
        return [node["pid"] for node in where.local_nodes(self.directory)]


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Up:
    roots = (ROOT / "cluster", ROOT / "node", ROOT)
    monkeypatch.setenv("PYTHONPATH", ":".join(str(root) for root in roots))
    return Up(tmp_path)


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 180))


@pytest.mark.slow
def test_a_life_of_a_cluster(up: Up) -> None:
    async def test() -> None:
        running = asyncio.create_task(up.supervisor.run())
        await up.said("ready: 2 nodes on 127.0.0.1:")
        before = up.pids()
        os.kill(before[1], signal.SIGKILL)
        await up.said("n1 ended by SIGKILL")
        await up.said(f"start it again with: sh {up.directory / 'n1' / 'cmdline'}")
        # Start it by hand, as a user who follows that advice.
        by_hand = await asyncio.create_subprocess_exec(*up.nodes[1].command)
        await up.said(f"n1 is back (pid {by_hand.pid})")
        assert up.pids() == [before[0], by_hand.pid]
        by_hand.terminate()
        assert await by_hand.wait() == 0
        await up.said("n1 ended again")
        by_hand = await asyncio.create_subprocess_exec(*up.nodes[1].command)
        await up.said(f"n1 is back (pid {by_hand.pid})")
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0
        assert await by_hand.wait() == 0

    run(test)
    lines = up.output.getvalue().splitlines()
    assert [line for line in lines if line.startswith("ready")] == [lines[0]]
    assert lines[-1] == "stopped"
    assert (up.directory / "n0" / "log").read_text() == "serving\nended\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ended_by", "words"),
    [(signal.SIGSEGV, "by SIGSEGV"), (signal.SIGRTMIN + 6, "by signal 40")],
)
def test_the_signal_that_ended_a_node_is_told(tmp_path: Path, ended_by: int, words: str) -> None:
    (node,) = layout.plan(tmp_path, 1, 11300)
    assert _how(-ended_by, node) == words


def test_of_a_log_larger_than_the_memory_the_last_line_is_read(tmp_path: Path) -> None:
    (node,) = layout.plan(tmp_path, 1, 11300)
    node.directory.mkdir()
    with (node.directory / "log").open("wb") as log:
        log.truncate(1 << 40)
        log.seek(0, os.SEEK_END)
        log.write(b"\nserving\nno room\n")
    assert _how(3, node) == "with status 3: no room"


def test_nodes_that_refuse_to_start_are_told_with_their_words(
    up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("refuse", "1")

    async def test() -> None:
        assert await up.supervisor.run() == 1

    run(test)
    for name in ("n0", "n1"):
        assert f"{name} ended with status 1: fake: the log is damaged" in up.output.getvalue()
    assert "no node is left" in up.output.getvalue()


@pytest.mark.constants
@pytest.mark.slow
def test_nodes_that_stop_may_wait_for_their_clients(
    up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` killed nodes after 20 s, whose clients had more time to finish their jobs."""
    asked: list[float] = []

    class Asked(Supervisor):
        def __init__(self, *given: Any) -> None:
            asked.append(given[-1])
            super().__init__(up.directory, up.nodes, Screen(up.output), given[-1])

    async def stop() -> None:
        running = asyncio.create_task(asked_for.run())
        await up.said("ready: 2 nodes on 127.0.0.1:")
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0

    monkeypatch.setattr("beanpoled.cli.up.STOP_TIMEOUT_S", 0.0)
    asked_for = Asked(100.0)
    run(stop)
    assert "killing" not in up.output.getvalue()
    assert (up.directory / "n0" / "log").read_text() == "serving\nended\n"

    async def none(_: Supervisor) -> int:
        return 0

    monkeypatch.setattr(Supervisor, "run", none)
    monkeypatch.setattr("beanpoled.cli.up.Supervisor", Asked)
    words = ("--base-port", str(free_base_port()), "--set", "drain_timeout_ms=60000")
    assert main(["up", "--dir", str(tmp_path / "other"), *words]) == 0
    assert asked == [100.0, 60.0]


class Terminal(io.StringIO):
    """A text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_live_lines_are_redrawn_and_other_lines_stay_above() -> None:
    terminal = Terminal()
    screen = Screen(terminal)
    screen.show(["n0 up", "n1 up"])
    screen.show(["n0 up", "n1 up"])
    assert terminal.getvalue() == "n0 up\nn1 up\n"
    screen.say("n1 ended")
    up_two = "\x1b[1A\x1b[2K" * 2 + "\r"
    assert terminal.getvalue() == "n0 up\nn1 up\n" + up_two + "n1 ended\nn0 up\nn1 up\n"
    screen.end()
    screen.say("stopped")
    assert terminal.getvalue().endswith("n0 up\nn1 up\nstopped\n")


def test_a_terminal_that_moves_no_cursor_gets_no_live_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    screen = Screen(terminal := Terminal())
    screen.show(["n0 up"])
    screen.say("ready")
    screen.show(["n0 down"])
    screen.say("stopped")
    assert terminal.getvalue() == "ready\nstopped\n"


def test_a_file_gets_no_live_lines() -> None:
    file = io.StringIO()
    screen = Screen(file)
    screen.show(["n0 up"])
    screen.say("ready")
    assert file.getvalue() == "ready\n"

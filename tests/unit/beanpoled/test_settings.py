"""The settings of a node: their sources, reloading, and who may see which."""

import asyncio
import json
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from beanpoled import descriptors
from beanpoled.cli import main
from beanpoled.config.node import SETTINGS, NodeConfig, load
from beanpoled.host.log import LogLines
from beanpoled.reloading import LIMITS, RELOADED, Outcome, Reading, Reloader
from beanpoled.rpc.admin import RpcServer
from beanpoled.rpc.node_admin import NodeAdminServicer
from beanpoled.rpc.peer import PeerClient
from tests.unit.beanpoled.fakes import FakeSettings, FakeView, trust_of
from tests.unit.node.stage import Stage

SECRET = "a secret of a cluster"
PAGE = (Path(__file__).resolve().parents[3] / "docs/operating.md").read_text()
MUST = """\
cluster = "dev"
node_id = "a"
data_dir = "/nowhere"
peer_listen = "127.0.0.1:1"
grpc_listen = "127.0.0.1:2"
http_listen = "127.0.0.1:3"
[members.a]
peer = "127.0.0.1:1"
grpc = "127.0.0.1:2"
"""
# Another value than the default for each limit that changes live.
OTHERS: dict[str, Any] = {
    "handshakes_max": 7,
    "handshakes_per_address_max": 3,
    "failed_handshakes_per_second_max": 5,
    "drain_timeout_ms": 5,
    "connections_max": 11,
    "connections_per_address_max": 2,
    "commands_per_second_max": 5000,
    "client_output_bytes_max": 1_000_000,
    "outbox_bytes_max": 5_000_000,
    "event_retain_bytes": 9,
    "event_retain_age_s": 3,
    "upgrade_finalize": "manual",
    "gearman_shutdown": "on",
    "qless_flush": "on",
}


class Scene:
    """A node whose file is changed while it runs."""

    def __init__(self, place: Path, more: str = "", **environment: str) -> None:
        self.path = place / "node.toml"
        self.environment = environment
        self.write(more)
        first = self.load()
        self.trust = trust_of("a", first.peer_secret)
        self.lines = LogLines(first)
        self.stage = Stage()
        self.reloader = Reloader(Reading(first, self.load), first, self.lines, self.trust)
        self.reloader.take = self.stage.node.take_limits

    def load(self) -> NodeConfig:
        return load(str(self.path), self.environment, {"listen": "127.0.0.1:9"})

    def write(self, more: str) -> None:
        self.path.write_text(more + MUST)

    def shown(self, name: str) -> tuple[str, str, bool]:
        (one,) = [one for one in self.reloader.settings() if one.name == name]
        return one.value, one.source, one.is_waiting


def test_each_setting_has_its_value_and_its_source(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "jobs_max = 7\n", BEANPOLE_TUBES_MAX="8", BEANPOLE_PEER_SECRET=SECRET)
    assert [one.name for one in scene.reloader.settings()] == [one.name for one in SETTINGS]
    assert scene.shown("jobs_max") == ("7", "file", False)
    assert scene.shown("tubes_max") == ("8", "environment", False)
    assert scene.shown("listen") == ('["127.0.0.1:9"]', "flag", False)
    assert scene.shown("log_level") == ('"info"', "default", False)
    members = '{"a": {"peer": "127.0.0.1:1", "grpc": "127.0.0.1:2"}}'
    assert scene.shown("members") == (members, "file", False)
    assert scene.shown("peer_secret") == ("true", "environment", False)
    assert SECRET not in repr(scene.reloader.settings())


def test_a_secret_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    scene = Scene(tmp_path, f'peer_secret_file = "{path}"\n')
    assert scene.shown("peer_secret") == ("true", "peer_secret_file", False)
    path.write_text("another secret of a cluster")
    (words,) = scene.reloader.reload().changed
    assert words.startswith("peer_secret is another one") and "secret of a" not in words


@pytest.mark.parametrize(
    "refusal", [ValueError("not allowed to raise maximum limit"), OSError(1, "not permitted")]
)
def test_a_system_that_refuses_descriptors_lowers_the_limit_of_a_running_node(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    refusal: Exception,
) -> None:
    """The system refuses every change once fs.nr_open is below the hard limit."""

    def refuse(_which: int, _limits: tuple[int, int]) -> None:
        raise refusal

    scene = Scene(tmp_path)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (descriptors.SPARE + 50, 1 << 20))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    scene.write("connections_max = 40\n")
    assert scene.reloader.reload().changed == ("connections_max is 40, was 16000",)
    scene.write("connections_max = 60\n")
    assert scene.reloader.reload().changed == ("connections_max is 50, was 40",)
    given = f"the system gives this process {descriptors.SPARE + 50} descriptors"
    told = f"connections_max = 60 is lowered to 50: {given}"
    assert told in capfd.readouterr().err


def test_handshakes_and_clients_share_the_descriptors_of_a_running_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without them, the node ended when it could not write its log."""
    tls = "".join(f'peer_tls_{part}_file = "x"\n' for part in ("certificate", "key", "ca"))
    limits = tls + "connections_max = 900\n"
    scene = Scene(tmp_path, limits)
    rooms = (scene.trust.handshakes.of_clients, scene.trust.handshakes.of_nodes)
    given = descriptors.SPARE + 1100
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (given, given))
    scene.write(limits + "handshakes_max = 500\n")
    assert scene.reloader.reload().changed == (
        "handshakes_max is 500, was 200",
        "connections_max is 600, was 900",
    )
    assert "connections_max = 900 is lowered to 600: the system" in capfd.readouterr().err
    assert scene.stage.node.clients.connections_max == 600
    scene.write(limits + "handshakes_max = 5000\n")
    assert scene.reloader.reload().changed == (
        "handshakes_max is 550, was 500",
        "connections_max is 550, was 600",
    )
    assert [room.handshakes_max for room in rooms] == [550, 550]
    scene.write(limits + "handshakes_max = 100\n")
    assert scene.reloader.reload().changed == (
        "handshakes_max is 100, was 550",
        "connections_max is 900, was 550",
    )
    assert scene.stage.node.clients.connections_max == 900


def test_all_limits_change_while_a_node_runs(tmp_path: Path) -> None:
    assert OTHERS.keys() == set(LIMITS)
    scene = Scene(tmp_path)
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in OTHERS.items())
    scene.write(text)
    outcome = scene.reloader.reload()
    assert not outcome.waiting and not outcome.wrong
    assert {words.partition(" ")[0] for words in outcome.changed} == set(LIMITS)
    assert "connections_max is 11, was 16000" in outcome.changed
    node, handshakes = scene.stage.node, scene.trust.handshakes
    clients = node.clients
    for room in (handshakes.of_clients, handshakes.of_nodes):
        assert (room.handshakes_max, room.per_address_max) == (7, 3)
    failures = [room.failures for room in (handshakes.of_clients, handshakes.of_nodes)]
    assert [one.per_second_max for one in failures] == [5, 0]
    assert (clients.connections_max, clients.outbox_bytes_max) == (11, 5_000_000)
    assert clients.client_output_bytes_max == 1_000_000
    assert (clients.hosts.connections_max, clients.rates._host_rate) == (2, 5000)
    assert (clients.config.gearman_shutdown, clients.config.qless_flush) == ("on", "on")
    assert node.context.config.drain_timeout_ms == 5
    assert node.context.config.upgrade_finalize == "manual"
    assert node.events._config.event_retain_bytes == 9
    assert node.events._config.event_retain_age_s == 3
    assert scene.shown("connections_max") == ("11", "file", False)
    assert scene.reloader.reload() == Outcome()
    scene.write("")
    assert len(scene.reloader.reload().changed) == len(LIMITS)
    assert scene.shown("connections_max") == ("16000", "default", False)


def test_what_needs_a_restart_is_named_and_nothing_wrong_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(tmp_path)
    scene.write("jobs_max = 7\nconnections_max = 5\n")
    outcome = scene.reloader.reload()
    assert outcome == Outcome(("connections_max is 5, was 16000",), ("jobs_max",))
    assert scene.shown("jobs_max") == ("50000000", "default", True)
    scene.write("connections_max = 0\nlog_level = 'debug'\n")
    assert "connections_max = 0" in scene.reloader.reload().wrong
    assert scene.stage.node.clients.connections_max == 5
    scene.write(f'peer_secret = "{SECRET}"\nconnections_max = 5\n')
    assert scene.reloader.reload().waiting == ("peer_secret",)
    log = capsys.readouterr().err
    assert "with a restart: jobs_max\n" in log and "not reloaded: connections_max = 0" in log
    assert SECRET not in log


def test_a_limit_fits_the_settings_that_stay(tmp_path: Path) -> None:
    """The file alone is valid: it also lowers a setting that needs a restart."""
    scene = Scene(tmp_path, "max_job_size = 1048576\n")
    scene.write("max_job_size = 65536\nclient_output_bytes_max = 131072\nconnections_max = 11\n")
    before = scene.reloader.config
    wrong = scene.reloader.reload().wrong
    assert "client_output_bytes_max = 131072" in wrong and "only change with a restart" in wrong
    assert scene.reloader.config == before
    scene.write("max_job_size = 65536\nconnections_max = 11\n")
    outcome = scene.reloader.reload()
    assert outcome.waiting == ("max_job_size",) and scene.reloader.config.connections_max == 11


def test_no_file_ends_a_node_that_reads_it_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    for line in ("x = " + "[" * 5000, "x = " + "1" * 5000):
        scene.write(f"{line}\n")
        assert str(scene.path) in scene.reloader.reload().wrong
    first = scene.reloader.config

    def read() -> NodeConfig:
        raise KeyError("a defect of the program")

    reloader = Reloader(Reading(first, read), first, scene.lines, scene.trust)
    assert reloader.reload() == Outcome(wrong="KeyError: 'a defect of the program'")
    assert reloader.config is first


def test_a_program_that_reads_no_configuration() -> None:
    stage = Stage()
    config = stage.node.context.config
    reloader = Reloader(Reading(config, None), config, LogLines(config), trust_of())
    assert "reads no configuration" in reloader.reload().wrong
    assert {one.source for one in reloader.settings()} == {""}


def test_the_page_names_the_settings_that_change_live() -> None:
    (listed,) = re.findall(r"^These change while a node runs: (.*?)\. ", PAGE, re.M)
    assert set(re.findall(r"`([a-z_]+)`", listed)) == RELOADED


# --- over gRPC ------------------------------------------------------------------------------------


def with_two(do: Callable[[str], Any]) -> tuple[Any, dict[str, FakeSettings]]:
    """Call a function in a thread with the address of n0; n1 is up, n2 is down."""
    settings = {name: FakeSettings(name) for name in ("n0", "n1")}
    settings["n1"].outcome = Outcome(wrong="jobs_max = 0 is not allowed")

    async def run() -> Any:
        addresses = {"n2": "127.0.0.1:1"}
        peers = PeerClient(addresses, trust_of())
        servers = []
        for name, its in settings.items():
            view = FakeView(name)
            audit: Any = None
            service = NodeAdminServicer(view, peers, audit, its).add_to
            servers.append(RpcServer(view, peers, trust_of(), [service]))
            addresses[name] = f"127.0.0.1:{await servers[-1].start('127.0.0.1:0')}"
        done = await asyncio.to_thread(do, addresses["n0"])
        await peers.close()
        for server in servers:
            await server.stop(0)
        return done

    return asyncio.run(run()), settings


def test_the_command_settings(capsys: pytest.CaptureFixture[str]) -> None:
    def do(at: str) -> list[int]:
        ways: tuple[list[str], ...] = (["n1", "--json"], [], ["n7"], ["n2"])
        return [main(["node", "settings", *way, "--addr", at]) for way in ways]

    assert with_two(do)[0] == [0, 0, 2, 3]
    first, *text = capsys.readouterr().out.splitlines()
    found = json.loads(first)
    assert found["node"] == "n1"
    its = found["settings"]
    assert its["node_id"] == {
        "value": "n1",
        "source": "flag",
        "live": False,
        "secret": False,
        "waiting": False,
    }
    assert its["members"]["value"] == {"n0": {"peer": "h:1"}}
    assert (its["peer_secret"]["value"], its["jobs_max"]["waiting"]) == (True, True)
    assert text[0] == "node n0"
    assert [line.split()[-1] for line in text[1:4]] == ["value", "n0", "(set)"]
    assert "awaits a restart" in text[4]


def test_a_reload_that_changes_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with patch.object(FakeSettings, "reload", lambda _: Outcome()):
        assert with_two(lambda at: main(["node", "reload", "n0", "--addr", at]))[0] == 0
    assert capsys.readouterr().out == "n0: no setting has changed\n"
    waiting = Outcome(waiting=("jobs_max",))
    with patch.object(FakeSettings, "reload", lambda _: waiting):
        assert with_two(lambda at: main(["node", "reload", "n0", "--addr", at]))[0] == 0
    assert capsys.readouterr().out == "n0: needs a restart: jobs_max\n"


def test_the_command_reload(capsys: pytest.CaptureFixture[str]) -> None:
    def do(at: str) -> list[int]:
        ways = (["n0"], ["--all"], ["n7"], ["--all", "--json"])
        return [main(["node", "reload", *way, "--addr", at]) for way in ways]

    codes, settings = with_two(do)
    assert codes == [0, 1, 2, 1]
    assert settings["n0"].reloads == settings["n1"].reloads + 1 == 3
    shown = capsys.readouterr()
    assert shown.out.splitlines()[:2] == [
        "n0: log_level is debug at n0",
        "n0: needs a restart: jobs_max",
    ]
    assert "n1 keeps its settings: jobs_max = 0 is not allowed" in shown.err and "n2" in shown.err
    found = json.loads(shown.out.splitlines()[-1])
    assert [one["node"] for one in found["reloaded"]] == ["n0"]
    assert found["failed"].keys() == {"n1", "n2"}
    with pytest.raises(SystemExit):
        main(["node", "reload"])

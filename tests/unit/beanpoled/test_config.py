"""The node's configuration: precedence, refused settings, and their error messages."""

import argparse
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from beanpole.client import where
from beanpole.errors import ConfigurationError
from beanpoled.cli import layout
from beanpoled.config import node as config
from beanpoled.config.node import NodeConfig
from beanpoled.config.protocols import PROTOCOLS, Protocol
from beanpoled.frontends.table import FRONTENDS

FILE = """
cluster = "dev"
node_id = "n1"
data_dir = "/var/lib/beanpole"
listen = ["127.0.0.1:11301", "unix:/run/beanpole.sock"]
peer_listen = "127.0.0.1:11311"
grpc_listen = "127.0.0.1:11321"
http_listen = "127.0.0.1:11331"
[members.n0]
peer = "127.0.0.1:11310"
grpc = "127.0.0.1:11320"
[members.n1]
peer = "127.0.0.1:11311"
grpc = "127.0.0.1:11321"
[members.n2]
peer = "127.0.0.1:11312"
grpc = "127.0.0.1:11322"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(FILE)
    return path


def load(
    path: Path | None, environment: dict[str, str] | None = None, /, **flags: str
) -> NodeConfig:
    return config.load(str(path) if path else None, environment or {}, flags)


def refused(path: Path, words: tuple[str, ...], extra: str = "", **flags: str) -> None:
    """Expect an error whose message contains all the words."""
    path.write_text(extra + FILE)
    with pytest.raises(ConfigurationError) as caught:
        load(path, {}, **flags)
    for word in words:
        assert word in str(caught.value)


def test_a_file_and_the_defaults(path: Path) -> None:
    loaded = load(path)
    assert loaded.node_id == "n1"
    assert loaded.listen == ("127.0.0.1:11301", "unix:/run/beanpole.sock")
    assert list(loaded.members) == ["n0", "n1", "n2"]
    assert loaded.peers == ("n0", "n2")
    assert loaded.max_job_size == 65535
    assert loaded.durability == "sync"
    assert loaded.rejoin is False
    times = (loaded.command_timeout_ms, loaded.fence_timeout_ms, loaded.node_timeout_ms)
    assert times == (5000, 6500, 8000)


def test_flags_win_over_the_environment_and_that_over_the_file(path: Path) -> None:
    path.write_text("max_job_size = 1000\nraft_min_ms = 400\nraft_max_ms = 900\n" + FILE)
    environment = {"BEANPOLE_MAX_JOB_SIZE": "2000", "BEANPOLE_RAFT_MIN_MS": "450"}
    loaded = load(path, environment, max_job_size="3000")
    assert loaded.max_job_size == 3000
    assert loaded.raft_min_ms == 450
    assert loaded.raft_max_ms == 900


def test_everything_can_come_from_the_environment() -> None:
    environment = {
        "BEANPOLE_CLUSTER": "dev",
        "BEANPOLE_NODE_ID": "a",
        "BEANPOLE_MEMBERS": "a=10.0.0.1:1/10.0.0.1:2, b=[fe80::1]:1/b.example:2",
        "BEANPOLE_DIAL": "b=127.0.0.1:9/",
        "BEANPOLE_DATA_DIR": "/data",
        "BEANPOLE_PEER_LISTEN": "0.0.0.0:1",
        "BEANPOLE_GRPC_LISTEN": "0.0.0.0:2",
        "BEANPOLE_HTTP_LISTEN": "0.0.0.0:3",
        "BEANPOLE_PEER_SECRET": "0123456789abcdef",
        "BEANPOLE_QUEUE_BYTES_MAX": "2 GiB",
        "BEANPOLE_SERVICE_HOST": "10.1.2.3",
        "BEANPOLE_PORT_11300_TCP_ADDR": "10.1.2.3",
        "BEANPOLE_CONFIG": "/not/a/setting",
        "PATH": "/bin",
    }
    loaded = load(None, environment)
    assert loaded.members["b"].grpc == "b.example:2"
    assert loaded.peer_address("b") == "127.0.0.1:9"
    assert loaded.grpc_address("b") == "b.example:2"
    assert loaded.queue_bytes_max == 2 * 1024**3


TOY = Protocol("toy", ("127.0.0.1:7000",), 70)


def with_toy(
    path: Path, environment: dict[str, str] | None = None, **flags: str
) -> Mapping[str, tuple[str, ...]]:
    """Return the client addresses of a program that speaks another protocol, too."""
    protocols = (*PROTOCOLS, TOY)
    return config.load(str(path), environment or {}, flags, False, protocols).client_addresses


def test_listeners_of_every_protocol(path: Path) -> None:
    first = ("127.0.0.1:11301", "unix:/run/beanpole.sock")
    usual = {protocol.name: protocol.listen for protocol in PROTOCOLS} | {"beanstalk": first}
    assert load(path).client_addresses == usual
    assert with_toy(path) == {**usual, "toy": TOY.listen}
    text = "toy=127.0.0.1:7001,toy=unix:/run/toy"
    two = {**usual, "toy": ("127.0.0.1:7001", "unix:/run/toy")}
    assert with_toy(path, listeners=text) == two
    assert with_toy(path, {"BEANPOLE_LISTENERS": text}) == two
    path.write_text(FILE + '[listeners]\ntoy = ["127.0.0.1:7001", "unix:/run/toy"]\n')
    assert with_toy(path) == two


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('tox = ["127.0.0.1:1"]', ("listeners", "'tox'", "did you mean 'toy'?")),
        ('smtp = ["127.0.0.1:1"]', ("'smtp'", "known are workq, gearman, qless, toy")),
        ('beanstalk = ["127.0.0.1:1"]', ("'beanstalk'", "the setting listen")),
        ('toy = "127.0.0.1:1"', ("listeners", "toy must be one or more of HOST:PORT")),
        ("toy = []", ("toy must be one or more", "no protocol can be switched off: a unix:PATH")),
        (
            'toy = ["127.0.0.1:11301"]',
            ("listeners.toy = '127.0.0.1:11301'", "listen = '127.0.0.1:11301' listens there"),
        ),
    ],
)
def test_listeners_that_are_refused(path: Path, table: str, words: tuple[str, ...]) -> None:
    path.write_text(f"{FILE}[listeners]\n{table}\n")
    with pytest.raises(ConfigurationError) as caught:
        with_toy(path)
    assert not [word for word in words if word not in str(caught.value)]


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ("127.0.0.1:31000", '["127.0.0.1:31000"]'),
        ("127.0.0.1:31000, unix:/run/b", '["127.0.0.1:31000", "unix:/run/b"]'),
        ("31000", '["127.0.0.1:11300"]'),
    ],
)
def test_client_addresses_that_are_no_list_are_shown_as_one(
    path: Path, given: str, needed: str
) -> None:
    """The message had exactly the given value among the allowed ones."""
    path.write_text(re.sub(r"(?m)^listen = .*$", f'listen = "{given}"', FILE))
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"listen = {given!r} (from ")
    assert message.endswith(f", as a list: {needed}")
    path.write_text(f'{FILE}[listeners]\ngearman = "{given}"\n')
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert str(caught.value).endswith(f", as a list: {needed}")


def test_a_default_address_may_be_taken(path: Path) -> None:
    """A default address gives way: it is not compared, and being in use does not stop the node."""
    protocols = (*PROTOCOLS, Protocol("toy", ("127.0.0.1:11301",), 70))
    loaded = config.load(str(path), {}, {}, False, protocols)
    assert loaded.unconfigured == {"workq", "gearman", "qless", "toy"}
    given = config.load(str(path), {}, {"listeners": "gearman=127.0.0.1:1"}, False, protocols)
    assert given.unconfigured == {"workq", "qless", "toy"}


def test_a_program_refuses_protocols_that_it_does_not_speak(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'toy', which is no protocol of this"):
        load(path, listeners="toy=127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="NAME=ADDRESS"):
        load(path, listeners="127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="no protocol can be switched off"):
        load(path, listeners="workq=")


def test_every_protocol_has_a_frontend() -> None:
    assert [protocol.name for protocol in PROTOCOLS] == list(FRONTENDS)
    ports = [*layout.PORTS.values(), *(protocol.port_offset for protocol in PROTOCOLS)]
    assert len(set(ports)) == len(ports)
    assert max(ports) + layout.NODES_MAX <= 65535 - layout.BASE_PORT_MAX


def test_a_command_line(path: Path) -> None:
    parser = argparse.ArgumentParser()
    config.add_flags(parser)
    line = ["--config", str(path), "--rejoin", "--durability", "memory", "--listen", "[::1]:0"]
    loaded = config.from_arguments(parser.parse_args(line), {})
    assert loaded.rejoin
    assert loaded.durability == "memory"
    assert loaded.listen == ("[::1]:0",)
    parser.format_help()
    with pytest.raises(ConfigurationError, match="cluster is not set"):
        config.from_arguments(parser.parse_args([]), {})
    named = config.from_arguments(parser.parse_args([]), {"BEANPOLE_CONFIG": str(path)})
    assert named.cluster == "dev"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_job_size", "0", ("max_job_size", "'0'", "--max-job-size", "from 1 to 2097152")),
        ("max_job_size", "2097153", ("max_job_size", "2097152")),
        ("max_job_size", "-1", ("max_job_size",)),
        ("max_job_size", "1e3", ("max_job_size",)),
        ("heartbeat_ms", "9" * 400, ("heartbeat_ms", "whole number")),
        ("durability", "fast", ("durability", "'fast'", '"sync" or "memory"')),
        ("cluster", "a b", ("cluster", "'a b'")),
        ("cluster", "x" * 64, ("cluster", "1 to 63")),
        ("listen", "nowhere", ("listen", "HOST:PORT with a port from 0 to 65535, or unix:PATH")),
        ("listen", "unix:" + "x" * 108, ("listen", "at most 107 bytes")),
        ("listen", "127.0.0.1:1,127.0.0.1:1", ("listen", "each once")),
        ("http_listen", "127.0.0.1:70000", ("http_listen", "65535")),
        ("http_listen", "::1:80", ("http_listen", "HOST:PORT")),
        ("members", "n1=127.0.0.1:1", ("members", "ID=PEER/GRPC")),
        ("members", "n1=127.0.0.1:1/", ("members", "ID=PEER/GRPC", "n1 has no grpc")),
        ("members", "n1=a:1/a:2,n2", ("members", "'n2' is no such entry")),
        ("members", "n1=a:1/a:2,n1=a:3/a:4", ("members", "'n1' is there twice")),
        ("members", "n1=a:1/a:0", ("members", "grpc = 'a:0' of n1 is not HOST:PORT")),
        ("http_listen", "127.0.0.1:11311", ("http_listen", "peer_listen", "listens there")),
        ("http_listen", "0.0.0.0:11321", ("http_listen", "grpc_listen", "listens there")),
        ("listen", "127.0.0.1:11331", ("listen = ", "http_listen", "listens there")),
        ("dial", "n9=127.0.0.1:1/", ("dial", "'n9'", "n0, n1, n2")),
        ("node_id", "n7", ("node_id", "'n7'", "n0, n1, n2")),
        ("peer_listen", "0.0.0.0:11311", ("peer_listen", "peer_secret", "loopback")),
        ("grpc_listen", "10.0.0.1:11321", ("grpc_listen", "peer_secret", "loopback")),
        ("heartbeat_ms", "200", ("raft_min_ms = 500", "3 x heartbeat_ms", "600")),
        ("raft_max_ms", "500", ("raft_max_ms = 500", "raft_min_ms < raft_max_ms")),
        ("raft_max_ms", "2000", ("command_timeout_ms = 5000", "3 x raft_max_ms", "6000")),
        ("command_timeout_ms", "5501", ("fence_timeout_ms = 6500", "6501")),
        ("node_timeout_ms", "6500", ("node_timeout_ms = 6500", "fence_timeout_ms <")),
        ("client_output_bytes_max", "8192", ("client_output_bytes_max", "max_job_size + 1024")),
        ("log_retain_bytes", "1 MiB", ("log_retain_bytes", "log_memory_bytes")),
        ("wal_segment_bytes", "64 kB", ("wal_segment_bytes", '"64 MiB"')),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(
    path: Path, name: str, value: str, words: tuple[str, ...]
) -> None:
    refused(path, words, **{name: value})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("max_job_sise = 1", ("unknown key 'max_job_sise'", "did you mean 'max_job_size'")),
        ("rejoin = true", ("unknown key 'rejoin'",)),
        ("max_job_size = true", ("max_job_size = True", "node.toml")),
        ("max_job_size = 1.5", ("max_job_size = 1.5",)),
        ('peer_secret = "short"', ("peer_secret = (a secret)", "16 to 1024")),
        ("durability = 3", ("durability = 3",)),
        pytest.param("raft_min_ms = 49", ("raft_min_ms = 49", "50 to"), id="no election"),
        ("dial = 3", ("dial = 3",)),
        ("max_job_size = ", ("is no TOML",)),
        pytest.param("x = " + "1" * 5000, ("node.toml is no TOML", "digits"), id="long number"),
        pytest.param("x = " + "[" * 5000, ("node.toml", "nested too deeply"), id="deep list"),
    ],
)
def test_a_bad_line_of_the_file(path: Path, line: str, words: tuple[str, ...]) -> None:
    refused(path, words, extra=line + "\n")


def test_members_that_raft_cannot_tell_apart_are_refused(path: Path) -> None:
    path.write_text(FILE.replace("members.n0", "members.plumless").replace("n2]", "buckeroo]"))
    with pytest.raises(ConfigurationError, match="plumless and buckeroo have the same CRC-32"):
        load(path)


def test_a_bad_table_of_the_file(path: Path) -> None:
    path.write_text(FILE + "[dial.n0]\npear = 'a:1'\n")
    words = r"dial = .*pear.* must be entries \[dial.ID\].*; n0 has the unknown key 'pear'"
    with pytest.raises(ConfigurationError, match=words):
        load(path)
    path.write_text(FILE + "[members.n3]\n")
    with pytest.raises(ConfigurationError, match=r"members = .*; n3 is no such table"):
        load(path)


def test_a_secret_is_never_repeated(path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(path, {"BEANPOLE_PEER_SECRET": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_secret_that_is_no_utf8_is_refused(path: Path) -> None:
    secret = "\udcff" * 20  # bytes of an environment that are not UTF-8
    with pytest.raises(ConfigurationError, match=r"peer_secret = \(a secret\) .*UTF-8") as caught:
        load(path, {"BEANPOLE_PEER_SECRET": secret})
    assert secret not in str(caught.value)


def test_an_unknown_variable_is_refused(path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"BEANPOLE_MAX_JOBSIZE.*max_job_size"):
        load(path, {"BEANPOLE_MAX_JOBSIZE": "1"})


def test_the_variables_of_commands_are_none_of_a_node(path: Path) -> None:
    """One with the passphrase for `beanpole restore` kept the restored node from starting."""
    of_commands = {"BEANPOLE_BACKUP_PASSPHRASE", "BEANPOLE_JOB", "BEANPOLE_QUEUE", "BEANPOLE_TRIED"}
    for name in where.VARIABLES | of_commands:
        assert load(path, {name: "not a setting"}).cluster == "dev"


def test_a_pipe_is_a_configuration_for_a_start_and_no_reload(path: Path, tmp_path: Path) -> None:
    """A second read of it waited for a writer, and the node stood still after a SIGHUP."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        pool.submit(pipe.write_bytes, path.read_bytes())
        assert config.load(str(pipe), {}, {}).node_id == config.load(str(path), {}, {}).node_id
    told = f"cannot read {pipe} again: it must be a regular file, and no pipe"
    with pytest.raises(ConfigurationError, match=told):
        config.load(str(pipe), {}, {}, is_again=True)
    assert config.load(str(path), {}, {}, is_again=True) == config.load(str(path), {}, {})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*absent\.toml: No such file"):
        load(tmp_path / "absent.toml")


def test_two_members_cannot_have_one_address(path: Path) -> None:
    members = "n1=127.0.0.1:1/127.0.0.1:2,n2=127.0.0.1:3/127.0.0.1:1"
    refused(path, ("members.n2.grpc", "127.0.0.1:1", "members.n1.peer"), members=members)


def test_one_port_at_two_hosts_is_two_places(path: Path) -> None:
    loaded = load(path, {}, http_listen="127.0.0.2:11301", listen="127.0.0.1:0,[::]:11311")
    assert loaded.http_listen == "127.0.0.2:11301"
    assert ("listen", "[::]:11311") in loaded.own_addresses()
    assert "listeners.workq" not in dict(loaded.own_addresses()), "nobody gave it"


def test_without_a_file_the_ways_to_name_one_are_told() -> None:
    with pytest.raises(ConfigurationError, match=r"cluster is not set.*--config.*BEANPOLE_CONFIG"):
        load(None)


def test_the_hash_covers_what_must_agree_and_nothing_else(path: Path) -> None:
    usual = load(path).config_hash
    assert len(usual) == 16
    assert load(path, node_id="n2", max_job_size="9", dial="n0=a:1/b:2").config_hash == usual
    assert load(path, cluster="other").config_hash != usual
    assert load(path, durability="memory").config_hash != usual
    assert load(path, members="n0=a:1/a:2,n1=b:1/b:2").config_hash != usual
    moved = "n2=a:1/a:2,n1=b:1/b:2,n0=c:1/c:2"
    assert load(path, members=moved).config_hash == usual


@pytest.mark.parametrize("value", ["5", "true", "1.5", '["dev"]', "{}", "1979-05-27"])
def test_a_name_that_is_no_text_is_named_with_what_is_allowed(path: Path, value: str) -> None:
    path.write_text(FILE.replace('cluster = "dev"', f"cluster = {value}"))
    with pytest.raises(ConfigurationError, match=r"cluster .* 1 to 63 letters") as caught:
        load(path)
    assert str(path) in str(caught.value)

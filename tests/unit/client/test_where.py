"""How commands find the cluster: all have the same options, in the same precedence."""

import argparse
import json
from pathlib import Path

import pytest

from beanpole.client import where
from beanpole.client.spoken import hint
from beanpole.client.where import BEANSTALK, GRPC, QLESS, Port
from beanpole.errors import ConfigurationError
from beanpoled.cli import main

ENVIRONMENT = {"BEANPOLE_ADDR": "env:1,unix:/s", "BEANPOLE_GRPC_ADDR": "env:2"}


def found(port: Port, *line: str, environment: dict[str, str] | None = None) -> list[str]:
    parser = argparse.ArgumentParser()
    where.add_options(parser, port)
    return where.addresses(parser.parse_args(line), port, environment or {})


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def cluster_in(directory: Path) -> None:
    directory.mkdir()
    nodes = [{"beanstalk": f"b:{n}", "grpc": f"g:{n}", "qless": f"q:{n}"} for n in (1, 2)]
    (directory / where.CLUSTER_FILE).write_text(json.dumps({"nodes": nodes}))


def test_what_is_given_counts_before_the_environment_and_that_before_what_is_here(
    here: Path,
) -> None:
    assert found(BEANSTALK) == ["127.0.0.1:11300"]
    assert found(GRPC) == ["127.0.0.1:11320"]
    cluster_in(here / where.DIRECTORY_DEFAULT)
    assert found(BEANSTALK) == ["b:1", "b:2"]
    assert found(GRPC, environment=ENVIRONMENT) == ["env:2"]
    assert found(BEANSTALK, environment=ENVIRONMENT) == ["env:1", "unix:/s"]
    cluster_in(here / "other")
    assert found(GRPC, "--dir", "other", environment=ENVIRONMENT) == ["g:1", "g:2"]
    assert found(BEANSTALK, "--dir", "other", environment=ENVIRONMENT) == ["b:1", "b:2"]
    assert found(QLESS, "--dir", "other", environment=ENVIRONMENT) == ["q:1", "q:2"]
    line = ("--dir", "other", "--addresses", "x:1, x:2")
    assert found(GRPC, *line, environment=ENVIRONMENT) == ["x:1", "x:2"]


def test_a_folder_that_is_given_must_hold_a_cluster_that_runs(here: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"--dir other: no cluster runs there.*`beanpole up"
    ):
        found(GRPC, "--dir", "other", environment=ENVIRONMENT)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"nodes": 7}', '{"nodes": [1]}', '{"nodes": {"a": 1}}']
)
def test_a_file_that_lists_no_nodes_is_named(here: Path, text: str) -> None:
    (here / "odd").mkdir()
    (here / "odd" / where.CLUSTER_FILE).write_text(text)
    with pytest.raises(ConfigurationError, match=r"cannot read odd/cluster\.json: "):
        found(GRPC, "--dir", "odd")


def test_a_cluster_of_an_older_release_has_no_port_for_a_new_protocol(here: Path) -> None:
    nodes = [{"beanstalk": "b:1", "grpc": "g:1"}]
    (here / "old").mkdir()
    (here / "old" / where.CLUSTER_FILE).write_text(json.dumps({"nodes": nodes}))
    with pytest.raises(ConfigurationError, match=r"--dir old: an older release .* for qless"):
        found(QLESS, "--dir", "old")


@pytest.mark.parametrize(
    ("port", "line", "environment", "words"),
    [
        (GRPC, ["--addr", "x"], {}, "--addr = 'x' is not allowed"),
        (GRPC, ["--addr", "unix:/s"], {}, "--addr = 'unix:/s' is not allowed"),
        (GRPC, [], {"BEANPOLE_GRPC_ADDR": "y"}, "BEANPOLE_GRPC_ADDR = 'y' is not allowed"),
        (BEANSTALK, ["--addr", "a:0"], {}, "or unix:PATH or tls:HOST:PORT"),
        (BEANSTALK, ["--addr", "tls:unix:/s"], {}, "must be HOST:PORT"),
        (BEANSTALK, ["--addr", "tls:a:1,b:1"], {}, "all addresses must begin with tls:, or none"),
        (BEANSTALK, ["--addr", "tls:a:1,unix:/s"], {}, "all addresses must begin with tls:"),
        (QLESS, ["--addr", "unix:/s"], {}, "is not HOST:PORT or tls:HOST:PORT"),
        (GRPC, ["--addr", "tls:a:1"], {}, "--addr = 'tls:a:1' is not allowed"),
        # It took 13 s of dialing, and then the system called it an invalid argument.
        (BEANSTALK, [], {"BEANPOLE_ADDR": "unix:"}, "'unix:' has no path of a socket"),
        (BEANSTALK, ["--addr", "a:1,unix:"], {}, "'unix:' has no path of a socket"),
    ],
)
def test_what_is_no_address_is_named_with_its_source(
    port: Port, line: list[str], environment: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        found(port, *line, environment=environment)
    assert words in str(caught.value)


@pytest.mark.parametrize("number", ["0", "65536", "99999", "123456", "1" * 5000])
@pytest.mark.parametrize(
    ("port", "begin", "others"),
    [
        (BEANSTALK, "", " or unix:PATH or tls:HOST:PORT"),
        (BEANSTALK, "tls:", " or unix:PATH or tls:HOST:PORT"),
        (GRPC, "", ""),
    ],
)
def test_the_range_of_ports_is_named(port: Port, begin: str, others: str, number: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        found(port, "--addr", f"{begin}a:{number}")
    words = f"'a:{number}' is not HOST:PORT (with a port from 1 to 65535){others}"
    assert str(caught.value).endswith(f"it must be HOST:PORT,...; {words}")


@pytest.mark.parametrize(
    "command",
    [
        *("put x", "reserve", "delete 1", "release 1", "bury 1", "kick", "peek 1", "stats"),
        *("stats-tube t", "stats-job 1", "tubes", "status", "snapshot", "cluster finalize"),
        *("alias list", "alias remove a", "alias set a b", "events range"),
        *("events export --to /nowhere", "pipeline report --to /nowhere", "pipeline audit"),
        *("pipeline job 1", "pipeline qless", "pipeline stream --to /nowhere", "pipeline redrive"),
    ],
)
@pytest.mark.parametrize("option", ["--addr", "--addresses", "--dir"])
def test_every_command_names_the_cluster_in_the_same_way(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No command reaches a node: the name is neither an address nor a cluster."""
    assert main([*command.split(), option, "nowhere"]) == 2
    assert f"{'--addr' if option != '--dir' else option} " in capsys.readouterr().err


def hinted(environment: dict[str, str], *line: str) -> str:
    """Return the hint of a command that found no node at an address."""
    port = BEANSTALK._replace(number=1)
    parser = argparse.ArgumentParser()
    where.add_options(parser, port)
    arguments = parser.parse_args(line)
    assert where.addresses(arguments, port, environment) == ["127.0.0.1:1"]
    return hint(arguments)


def test_an_address_that_nobody_gave_is_told_as_such(here: Path) -> None:
    words = (
        "hint: no cluster was named, and none runs in ./.beanpole, so this is the usual address of "
        "a first node; --addr HOST:PORT, --dir DIR or BEANPOLE_ADDR names another"
    )
    assert hinted({"BEANPOLE_DIAL": "", "BEANPOLE_GRPC_ADDR": "g:1"}) == words
    for wrong in ("BEANPOLE_ADR", "BEANPOLE_ADDRESSES"):
        assert hinted({wrong: "h:1"}) == f"{words}; {wrong} is no variable of Beanpole"
    assert hinted({"BEANPOLE_ADR": "h:1"}, "--addr", "127.0.0.1:1") == ""
    assert hinted({"BEANPOLE_ADDR": "127.0.0.1:1"}) == ""


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("status", "--dir"),
        ("up", "--dir"),
        ("certs dev", "--to"),
        ("recover n0 --yes", "--to"),
        ("restore backup", "--to"),
        ("pipeline report", "--to"),
        ("pipeline audit", "--to"),
    ],
)
def test_an_empty_folder_is_not_the_current_one(
    command: str, option: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*command.split(), option, ""])
    assert f"argument {option}: '' is no directory; the current one is ." in capsys.readouterr().err
    assert list(here.iterdir()) == []

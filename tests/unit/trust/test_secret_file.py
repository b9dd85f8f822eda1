"""`peer_secret_file`: reading, refusals and reloading."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beanpole.core.users import OPEN
from beanpole.errors import ConfigurationError
from beanpoled import checking, main
from beanpoled.config.node import NodeConfig, load
from beanpoled.examining import WARNING, Finding, examine
from beanpoled.host.log import LogLines
from beanpoled.reloading import Reading, Reloader
from beanpoled.trust.secret_file import oddities, warning
from tests.unit.beanpoled.fakes import FakeView, trust_of

SECRET = "a secret of a cluster"


def loaded(tmp_path: Path, **flags: str) -> NodeConfig:
    """Load a configuration of one node with these settings."""
    given = {
        "cluster": "dev",
        "node_id": "a",
        "members": "a=127.0.0.1:1/127.0.0.1:2",
        "data_dir": str(tmp_path / "data"),
        "peer_listen": "127.0.0.1:1",
        "grpc_listen": "127.0.0.1:2",
        "http_listen": "127.0.0.1:3",
    }
    return load(None, {}, {**given, **flags})


def written(tmp_path: Path, data: bytes, mode: int = 0o600) -> str:
    path = tmp_path / "secret"
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440])
def test_the_secret_is_the_file_without_its_line_end(tmp_path: Path, end: bytes, mode: int) -> None:
    path = written(tmp_path, SECRET.encode() + end, mode)
    config = loaded(tmp_path, peer_secret_file=path, peer_listen="0.0.0.0:1")
    assert config.peer_secret == SECRET


@pytest.mark.parametrize(
    ("data", "mode", "words"),
    [
        (SECRET.encode(), 0o644, "permissions are 0644.*chmod 600"),
        (SECRET.encode(), 0o602, "permissions are 0602"),
        (SECRET.encode(), 0o620, "permissions are 0620"),
        (b"", 0o600, "it is empty"),
        (b"short", 0o600, r"peer_secret = \(a secret\) .*16 to 1024 characters"),
        (b"\xff" * 20, 0o600, "no text in UTF-8"),
        (b"x" * 5000, 0o600, "more than 4098 bytes"),
    ],
)
def test_a_file_that_is_not_fit_is_refused_without_its_contents(
    tmp_path: Path, data: bytes, mode: int, words: str
) -> None:
    path = written(tmp_path, data, mode)
    with pytest.raises(ConfigurationError, match=words) as found:
        loaded(tmp_path, peer_secret_file=path)
    assert "peer_secret_file" in str(found.value) or path in str(found.value)
    assert SECRET not in str(found.value) and "short" not in str(found.value)


def test_both_a_secret_and_a_file_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, SECRET.encode())
    with pytest.raises(ConfigurationError, match="both given") as found:
        loaded(tmp_path, peer_secret_file=path, peer_secret=SECRET)
    assert SECRET not in str(found.value)


def test_a_folder_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        loaded(tmp_path, peer_secret_file=str(tmp_path / "none"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigurationError, match=r"cannot be read|must be a file"):
        loaded(tmp_path, peer_secret_file=str(tmp_path / "folder"))


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """The open waited for a writer, and the node stood still after a SIGHUP."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    told = f"peer_secret_file = '{pipe}' cannot be read: it must be a regular file, and no pipe"
    with pytest.raises(ConfigurationError, match=told):
        loaded(tmp_path, peer_secret_file=str(pipe))


def test_another_secret_in_the_file_is_taken_by_a_reload(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, SECRET.encode())
    first = loaded(tmp_path, peer_secret_file=path)
    trust = trust_of("a", first.peer_secret)
    reading = Reading(first, lambda: loaded(tmp_path, peer_secret_file=path))
    reloader = Reloader(reading, first, LogLines(first), trust)
    reloader.reload()
    assert trust.secret.value == SECRET.encode()
    written(tmp_path, b"another secret of a cluster\n")
    reloader.reload()
    assert trust.secret.value == b"another secret of a cluster"
    written(tmp_path, b"another secret of a cluster\n", 0o644)
    reloader.reload()
    assert trust.secret.value == b"another secret of a cluster"
    lines = "".join(capsys.readouterr())
    assert "peer_secret is another one" in lines and "not reloaded: peer_secret_file" in lines
    assert "secret of a cluster" not in lines


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("\ufeff{}", "begins with a byte order mark"),
        ("\ufeff{}  ", "begins with a byte order mark and ends with a blank"),
        (" {}", "begins with a blank"),
        ("{}\t", "ends with a blank"),
        ("{}\u00a0", "ends with a blank"),
        ("{}\n\n", "has a line end at its end"),
        ("{}\r\r\n", "has a line end at its end"),
        ("{}\nmore\n", "has more than one line"),
        ("{}\0", "has a control character"),
        ("\0" * 20, "has a control character"),
        (" " * 20 + "\n", "has only blanks"),
    ],
)
def test_what_is_odd_about_a_secret_is_told_and_the_secret_is_used(
    tmp_path: Path, data: str, words: str
) -> None:
    """Nodes whose files differ in it refuse each other, and nothing told why."""
    path = written(tmp_path, data.format(SECRET).encode())
    config = loaded(tmp_path, peer_secret_file=path)
    assert config.peer_secret == data.format(SECRET).removesuffix("\n").removesuffix("\r")
    told = f"peer_secret_file = '{path}' {words}, which is part of the secret"
    assert warning(config.peer_secret, path) == told
    assert checking.Finding(checking.WARNING, told) in checking.findings(config)
    made = examine(FakeView(), config, OPEN, time.time())
    (found,) = [one for one in made if one.name == "peer_secret"]
    assert found == Finding(WARNING, "peer_secret", told, found.remedy) and found.remedy
    lines: list[str] = []
    host: Any = SimpleNamespace(log=lambda line, *_: lines.append(line), trust=trust_of())
    main._tell(config, host)
    assert told in lines and SECRET not in "".join(lines)


@pytest.mark.parametrize("secret", [SECRET, "sécret  of\ta cluster", "", "x\ufeffy"])
def test_a_secret_without_oddities(secret: str) -> None:
    assert oddities(secret) == "" == warning(secret, "file")


def test_an_odd_secret_in_the_configuration_itself_has_no_file() -> None:
    told = "peer_secret has a line end at its end, which is part of the secret"
    assert warning(SECRET + "\r", "") == told


def test_a_reload_tells_what_is_odd_about_the_new_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, SECRET.encode())
    first = loaded(tmp_path, peer_secret_file=path)
    reading = Reading(first, lambda: loaded(tmp_path, peer_secret_file=path))
    reloader = Reloader(reading, first, LogLines(first), trust_of("a", first.peer_secret))
    written(tmp_path, b"\xef\xbb\xbfanother secret of a cluster\r\n")
    for _ in range(2):
        reloader.reload()
    lines = "".join(capsys.readouterr())
    assert lines.count("begins with a byte order mark, which is part of the secret") == 1
    assert "peer_secret is another one" in lines and "secret of a cluster" not in lines

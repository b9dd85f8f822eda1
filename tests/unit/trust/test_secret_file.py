"""`peer_secret_file`: reading, refusals and reloading."""

import os
from pathlib import Path

import pytest

from beanpole.errors import ConfigurationError
from beanpoled.config.node import NodeConfig, load
from beanpoled.host.log import LogLines
from beanpoled.reloading import Reading, Reloader
from tests.unit.beanpoled.fakes import trust_of

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

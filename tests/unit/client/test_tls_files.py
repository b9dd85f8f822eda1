"""The TLS files of commands: an unusable file is named, and nothing is sent without TLS."""

import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from beanpole.client import tls_files
from beanpole.client.dialing import dial_address
from beanpole.client.rpc import open_channel
from beanpole.client.spoken import has_expired, speaks_tls, turns_away
from beanpole.client.where import TLS_CA, TLS_CERTIFICATE, TLS_KEY
from beanpole.errors import ConfigurationError
from beanpoled.cli import main
from beanpoled.cli.certs import make_ca, make_certificate

# Most lines of commands wait for a node for a second at most; the rest is start and imports.
TIMEOUT_S = 60
COMMAND = "import sys; from beanpoled.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tls")
    make_ca(found, "1")
    for name in ("a", "b"):
        make_certificate(found, name, [name, "localhost", "127.0.0.1"], "1")
    (found / "empty").write_text("\n")
    (found / "text").write_text("no PEM")
    (found / "bytes").write_bytes(bytes(range(128, 256)))
    line = ["openssl", "ec", "-aes128", "-passout", "pass:abcd", "-in", str(found / "a.key")]
    subprocess.run([*line, "-out", str(found / "locked")], check=True, capture_output=True)
    return found


def environment(place: Path, *names: str) -> dict[str, str]:
    variables = (TLS_CA, TLS_CERTIFICATE, TLS_KEY)
    given = zip(variables, names, strict=False)
    return {variable: str(place / name) for variable, name in given if name}


def test_good_files_are_read(place: Path, tmp_path: Path) -> None:
    assert tls_files.read({TLS_CA: ""}) is None
    found = tls_files.read(environment(place, "ca.pem", "a.pem", "a.key"))
    assert found is not None and found.key == (place / "a.key").read_bytes()
    commented = tmp_path / "ca.pem"
    commented.write_text("# Főtanúsítvány\n" + (place / "ca.pem").read_text())
    assert tls_files.read({TLS_CA: str(commented)}) is not None


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["empty"], [TLS_CA, "empty' is empty: it must have the certificate of the nodes' CA"]),
        (["a.key"], [TLS_CA, "a.key' cannot be used", "it must have the certificate of"]),
        (["text"], [TLS_CA, "text' cannot be used"]),
        (["bytes"], [TLS_CA, "bytes' cannot be used"]),
        (["none"], [TLS_CA, "none' cannot be read: No such file"]),
        (["", "a.pem", "a.key"], [TLS_CERTIFICATE, f"requires {TLS_CA}"]),
        (["ca.pem", "a.pem"], [f"{TLS_CERTIFICATE} and {TLS_KEY}: give both"]),
        (["ca.pem", "a.pem", "empty"], [TLS_KEY, "empty' is empty: it must have the key"]),
        (["ca.pem", "a.pem", "b.key"], [TLS_CERTIFICATE, TLS_KEY, "b.key'", "mismatch"]),
        (["ca.pem", "a.pem", "locked"], [TLS_KEY, "locked' is encrypted"]),
    ],
)
def test_what_cannot_be_used_is_named(place: Path, names: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_channel("127.0.0.1:1", environment(place, *names))
    assert all(word in str(refused.value) for word in words), str(refused.value)


@contextmanager
def piped(*files: Path) -> Iterator[list[str]]:
    """Yield the paths of pipes with the contents of files, as a shell has them for `<(command)`."""
    with ExitStack() as opened:
        paths = []
        for file in files:
            reader, writer = os.pipe()
            opened.callback(os.close, reader)
            with open(writer, "wb") as pipe:
                pipe.write(file.read_bytes())
            paths.append(f"/dev/fd/{reader}")
        yield paths


def test_pipes_are_read_once_for_all_nodes(place: Path) -> None:
    variables = (TLS_CA, TLS_CERTIFICATE, TLS_KEY)
    a, b = ([place / name for name in ("ca.pem", f"{one}.pem", f"{one}.key")] for one in "ab")
    with piped(*a) as paths, piped(*b) as others:
        given = dict(zip(variables, paths, strict=True))
        for _ in range(2):
            assert tls_files.read(given) == tuple(file.read_bytes() for file in a)
        for path, other in zip(paths, others, strict=True):
            os.dup2(int(Path(other).name), int(Path(path).name))
        assert tls_files.read(given) == tuple(file.read_bytes() for file in b), "other pipes"


def test_hints_read_no_pipes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have been read already, and a second read could wait for ever."""
    make_certificate(place, "old", ["old"], "-1")
    with piped(place / "old.pem", place / "old.key") as (certificate, key):
        monkeypatch.setenv(TLS_CERTIFICATE, certificate)
        monkeypatch.setenv(TLS_KEY, key)
        assert not has_expired()
        assert not turns_away("127.0.0.1:1")
        assert Path(certificate).read_bytes() == (place / "old.pem").read_bytes()
        assert Path(key).read_bytes() == (place / "old.key").read_bytes()


def test_addresses_with_tls_need_regular_files(place: Path, tmp_path: Path) -> None:
    """`ssl` reads them by their path once more: a pipe would be empty then, or wait for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    given = environment(place, "ca.pem", "a.pem") | {TLS_KEY: str(pipe)}
    writer = threading.Thread(target=pipe.write_bytes, args=((place / "a.key").read_bytes(),))
    writer.start()
    with pytest.raises(ConfigurationError, match="both must be regular files, and no pipes"):
        tls_files.encryption(["tls:127.0.0.1:1"], given)
    writer.join()
    assert tls_files.encryption(["127.0.0.1:1"], given) == (["127.0.0.1:1"], None)


def test_a_certificate_that_is_renewed_is_used_for_the_next_connection(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "a.pem", place / "a.key")
    context.load_verify_locations(place / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    given = {TLS_CA: str(place / "ca.pem")}
    given |= {TLS_CERTIFICATE: str(tmp_path / "pem"), TLS_KEY: str(tmp_path / "key")}

    def take(certificate: str, key: str) -> None:
        for kind, name in (("pem", certificate), ("key", key)):
            (tmp_path / "new").write_bytes((place / f"{name}.{kind}").read_bytes())
            (tmp_path / "new").replace(tmp_path / kind)

    def shown() -> str:
        with socket.create_server(("localhost", 0)) as listener, ThreadPoolExecutor() as pool:
            asked = pool.submit(dial_address, f"localhost:{listener.getsockname()[1]}", 60, tls)
            with context.wrap_socket(listener.accept()[0], server_side=True) as server:
                asked.result().close()
                certificate: Any = server.getpeercert()
        return str(dict(part for (part,) in certificate["subject"])["commonName"])

    take("a", "a")
    _, tls = tls_files.encryption(["tls:localhost:1"], given)
    assert [shown(), shown()] == ["a", "a"]
    take("b", "a")
    assert shown() == "a"  # half of the pair is there
    assert "do not make a certificate with its key" in caplog.text
    take("b", "b")
    assert shown() == "b"


def test_an_empty_file_of_a_ca_sends_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(TLS_CA, str(place / "empty"))
    monkeypatch.setenv("BEANPOLE_TOKEN", "secret")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert main(["user", "whoami", "--addr", address]) == 2
        listener.settimeout(0.1)
        with pytest.raises(TimeoutError):
            listener.accept()
    assert str(place / "empty") in capsys.readouterr().err


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Yield the address of a server that gives each connection to `answer`, one at a time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    raw, _ = listener.accept()
                except OSError:
                    return
                with raw, suppress(OSError):
                    answer(raw)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def answer_plainly(raw: socket.socket) -> None:
    raw.sendall(b"UNKNOWN_COMMAND\r\n")


@pytest.fixture
def server(place: Path) -> Iterator[str]:
    """Return the address of a server that speaks TLS, and ends each connection thereafter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "a.pem", place / "a.key")
    context.set_alpn_protocols(["h2"])
    with serving(lambda raw: context.wrap_socket(raw, server_side=True).close()) as address:
        yield address


def test_a_command_without_tls_is_told_of_the_variables(
    server: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    all_three = environment(place, "ca.pem", "a.pem", "a.key")
    for given in ({}, environment(place, "ca.pem"), all_three):
        for name in all_three:
            monkeypatch.delenv(name, raising=False)
        for name, path in given.items():
            monkeypatch.setenv(name, path)
        assert main(["user", "whoami", "--addr", server]) == 3
        missing = ", ".join(name for name in all_three if name not in given)
        words = f"speaks TLS, where a node wants a certificate: the files of {missing} are not set"
        if not missing:  # this server closes every connection, as a node with another CA does
            words = f"closes connections that show {TLS_CERTIFICATE} = '{place / 'a.pem'}': it may"
        assert f"hint: {server} {words}" in capsys.readouterr().err


def test_a_command_with_an_expired_certificate_is_told_so(
    server: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_certificate(place, "old", ["old"], "-1")
    for name, value in environment(place, "ca.pem", "old.pem", "old.key").items():
        monkeypatch.setenv(name, value)
    assert main(["status", "--addr", server]) == 3
    assert f"hint: {TLS_CERTIFICATE} = '{place / 'old.pem'}' has expired" in capsys.readouterr().err


def test_a_command_for_jobs_at_a_port_with_tls_is_told_so(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["put", "--addr", server, "x"]) == 3
    assert f"hint: {server} speaks TLS: give it as tls:{server}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (["ca.pem", "a.pem", "a.key"], ""),
        (["ca.pem"], f"speaks TLS, and {TLS_CERTIFICATE}, {TLS_KEY}, which it may ask for, are"),
        ([], f"speaks TLS, and {TLS_CA}, {TLS_CERTIFICATE}, {TLS_KEY}, which it may ask for, are"),
    ],
)
def test_a_command_for_jobs_by_tls(
    made: list[str],
    words: str,
    server: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The server ends each connection after the handshake, so that the put is of unknown fate."""
    for name, path in environment(place, *made).items():
        monkeypatch.setenv(name, path)
    assert main(["put", "--addr", f"tls:{server}", "x"]) == 3
    told = capsys.readouterr().err
    assert (f"hint: {server} {words}" in told) if words else ("hint: " not in told)
    assert ("CERTIFICATE_VERIFY_FAILED" in told) is (not made)


def test_tls_at_a_port_without_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(answer_plainly) as address:
        assert main(["put", "--addr", f"tls:{address}", "x"]) == 3
    assert f"hint: {address} speaks beanstalk without TLS" in capsys.readouterr().err


def test_only_a_server_of_tls_speaks_tls(server: str) -> None:
    assert speaks_tls(server)
    with serving(answer_plainly) as address:
        assert not speaks_tls(address)
    assert not speaks_tls(address)


def test_a_failed_handshake_prints_one_line(server: str, place: Path, tmp_path: Path) -> None:
    """gRPC reads its settings when it is imported, so that the test needs a program of its own."""
    make_ca(tmp_path, "1")
    environ = environment(place, "", "a.pem", "a.key")
    environ |= {TLS_CA: str(tmp_path / "ca.pem"), "PYTHONPATH": ":".join(sys.path)}
    line = [sys.executable, "-c", COMMAND, "user", "whoami", "--addr", server]
    done = subprocess.run(
        line, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 3
    told, hint = done.stderr.splitlines()
    assert "CERTIFICATE_VERIFY_FAILED" in told and hint.startswith("hint: ")

"""Channels of a program that outlives its token or its certificate: their files change."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from beanpole.client import rpc
from beanpole.client.where import TLS_VARIABLES, TOKEN_FILE
from beanpole.errors import ConfigurationError

SERVICE, METHOD = "test.Tokens", "Shown"
TIMEOUT_S = 60.0


@contextmanager
def server(answers: threading.Event) -> Iterator[str]:
    """Run a server that answers each call with the token that it has shown; yield its address.

    It answers once `answers` is set.
    """

    def shown(_: bytes, context: Any) -> bytes:
        assert answers.wait(TIMEOUT_S)
        return str(dict(context.invocation_metadata())[rpc.TOKEN_KEY]).encode()

    handlers: Any = {METHOD: grpc.unary_unary_rpc_method_handler(shown)}
    found = grpc.server(ThreadPoolExecutor(1))
    found.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    address = f"127.0.0.1:{found.add_insecure_port('127.0.0.1:0')}"
    found.start()
    try:
        yield address
    finally:
        found.stop(None).wait()


def write(path: Path, text: str) -> None:
    """Replace a file at once, as programs that renew it do."""
    (path.parent / "new").write_text(text)
    (path.parent / "new").replace(path)


def test_a_token_that_is_replaced_is_shown_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "token"))
    write(tmp_path / "token", "first")
    answers = threading.Event()
    answers.set()
    with server(answers) as address, rpc.Nodes([address]) as nodes:

        def shown() -> Any:
            call: Any = nodes.channel(address).unary_unary(f"/{SERVICE}/{METHOD}")
            return call(b"", timeout=TIMEOUT_S)

        assert [shown(), shown()] == [b"Bearer first"] * 2
        write(tmp_path / "token", "second")
        assert shown() == b"Bearer second"
        assert not caplog.records
        write(tmp_path / "token", "")
        assert [shown(), shown()] == [b"Bearer second"] * 2
        assert [record.message for record in caplog.records] == [
            f"{TOKEN_FILE} = {str(tmp_path / 'token')!r} is empty; the previous files "
            f"stay in use for {address}"
        ]
        write(tmp_path / "token", "third")
        assert shown() == b"Bearer third"


def test_a_token_from_a_pipe_is_shown_to_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe, as a shell has it for `<(command)`, is empty once it has been read."""
    reader, writer = os.pipe()
    with open(reader), open(writer, "w") as pipe:
        pipe.write("the-token\n")
        pipe.close()
        monkeypatch.setenv(TOKEN_FILE, f"/dev/fd/{reader}")
        answers = threading.Event()
        answers.set()
        with server(answers) as a, server(answers) as b, rpc.Nodes([a, b]) as nodes:
            for address in (a, b):
                call: Any = nodes.channel(address).unary_unary(f"/{SERVICE}/{METHOD}")
                assert call(b"", timeout=TIMEOUT_S) == b"Bearer the-token"


def test_a_call_in_progress_goes_on_where_the_channel_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "token"))
    write(tmp_path / "token", "first")
    answers = threading.Event()
    with server(answers) as address, rpc.Nodes([address]) as nodes:
        call: Any = nodes.channel(address).unary_unary(f"/{SERVICE}/{METHOD}")
        before = call.future(b"", timeout=TIMEOUT_S)
        del call  # the channel has no other user
        write(tmp_path / "token", "second")
        nodes.channel(address)
        answers.set()
        assert before.result() == b"Bearer first"


@pytest.mark.parametrize("variable", TLS_VARIABLES)
def test_each_file_of_tls_renews_a_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Channels are not opened: `test_tls_files` has what their files must contain."""
    opened: list[str] = []

    def open_channel(address: str) -> Any:
        opened.append(address)
        return object()

    monkeypatch.setattr(rpc, "open_channel", open_channel)
    for name in TLS_VARIABLES:
        monkeypatch.setenv(name, str(tmp_path / name))
        write(tmp_path / name, "before")
    nodes = rpc.Nodes(["a:1", "b:1"])
    before = nodes.channel("a:1")
    assert nodes.channel("a:1") is before
    write(tmp_path / variable, "after")
    assert nodes.channel("a:1") is not before
    nodes.channel("b:1")
    assert opened == ["a:1", "a:1", "b:1"]


def test_the_first_channel_needs_files_that_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        rpc.Nodes(["a:1"]).channel("a:1")

"""The process of a soak's clients: its exit status says whether all of them worked to the end."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos.clients import command_line
from tests.integration.support.processes import Process

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def client(directory: Path, address: str) -> Iterator[Process]:
    command = command_line(directory, 1, 1, [address])
    process = Process([sys.executable, *command], directory / "clients.log", cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()


def test_a_client_that_ends_by_an_error_is_told(tmp_path: Path) -> None:
    """Otherwise a run whose clients have all ended would look like a good one."""
    with client(tmp_path, "no address") as process:
        process.wait_for_text("Exception in thread")
        assert process.terminate() == 1


def test_clients_that_work_until_their_end_are_good(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with client(tmp_path, f"127.0.0.1:{port}") as process:
            server.accept()[0].close()
            assert process.terminate() == 0, process.story()

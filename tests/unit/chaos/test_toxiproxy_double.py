"""Our double of toxiproxy: its own behaviour, and cases without a recording of a real server.

`test_toxiproxy_conformance` covers the recorded behaviour. Durations are measured only where a
toxic is about time, and have lower bounds only.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from toxiproxy import Toxiproxy

from tests.integration.support.processes import Process
from tests.unit.chaos.toxiproxy_clients import ask, connect, echo_server, echoed


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    log = tmp_path_factory.mktemp("double") / "double.log"
    command = [sys.executable, "-m", "chaos.toxiproxy_double", "-port", "0"]
    process = Process(command, log, cwd=Path(__file__).resolve().parents[3])
    try:
        line = process.wait_for_text("double of toxiproxy at")
        found = Toxiproxy()
        found.update_api_consumer("127.0.0.1", int(line.rpartition(":")[2]))
        yield found
    finally:
        process.kill()


@pytest.fixture
def echo() -> Iterator[str]:
    with echo_server() as address:
        yield address


@pytest.fixture
def proxy(server: Any, echo: str) -> Iterator[Any]:
    found = server.create(upstream=echo, name="echo")
    yield found
    server.destroy_all()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/proxies", []),
        ("/populate", ["x"]),
        ("/proxies/echo/toxics", {"type": "latency", "toxicity": "much"}),
        ("/proxies/echo/toxics", {"type": "latency", "attributes": {"latency": True}}),
    ],
)
def test_bodies_of_the_wrong_types_are_refused(proxy: Any, path: str, body: Any) -> None:
    answer = ask("POST", path, json=body)
    assert answer.status_code == 400 and "bad request body" in answer.json()["error"]
    assert not proxy.toxics()


def test_it_says_that_it_is_a_double(server: Any) -> None:
    assert b"double" in server.version()


def test_populate_keeps_what_is_equal_and_replaces_the_rest(proxy: Any, echo: str) -> None:
    proxy.add_toxic(type="latency")
    same = {"name": "echo", "upstream": echo, "listen": proxy.listen}
    other = {"name": "other", "upstream": echo, "listen": "127.0.0.1:0", "enabled": False}
    answer = ask("POST", "/populate", json=[same, other])
    kept, made = answer.json()["proxies"]
    assert answer.status_code == 201 and kept["listen"] == proxy.listen and kept["toxics"]
    assert made["listen"] == "127.0.0.1:0" and not made["enabled"]
    (replaced,) = ask("POST", "/populate", json=[{**same, "upstream": "127.0.0.1:9"}]).json()[
        "proxies"
    ]
    assert replaced["upstream"] == "127.0.0.1:9" and not replaced["toxics"]


def test_bytes_go_both_ways_and_ends_are_passed_on(proxy: Any) -> None:
    data = bytes(range(256)) * 1000
    with connect(proxy) as connection:
        assert echoed(connection, data) == data


def test_latency_is_of_each_chunk_and_not_added_up(proxy: Any) -> None:
    proxy.add_toxic(type="latency", attributes={"latency": 300})
    with connect(proxy) as connection:
        begin = time.monotonic()
        assert echoed(connection, b"x" * 100_000) == b"x" * 100_000
        assert time.monotonic() - begin >= 0.29


def test_a_removed_latency_lets_at_once_through_what_waits(proxy: Any) -> None:
    proxy.add_toxic(type="latency", attributes={"latency": 3_600_000})
    with connect(proxy) as connection:
        connection.sendall(b"x")
        proxy.destroy_toxic("latency_downstream")
        assert connection.recv(1) == b"x"


def test_a_slicer_changes_nothing_but_the_pieces(proxy: Any) -> None:
    attributes = {"average_size": 50, "size_variation": 20, "delay": 10}
    proxy.add_toxic(type="slicer", attributes=attributes)
    data = bytes(range(256)) * 20
    with connect(proxy) as connection:
        assert echoed(connection, data) == data


def test_a_toxicity_of_zero_does_nothing(proxy: Any) -> None:
    proxy.add_toxic(type="limit_data", toxicity=0.0, attributes={"bytes": 0})
    with connect(proxy) as connection:
        assert echoed(connection, b"x" * 100) == b"x" * 100

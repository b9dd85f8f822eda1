"""Our double of toxiproxy, as the client from PyPI uses it: its API, and what each toxic does.

No time is measured but where a toxic is about time, and there only from below.
"""

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import requests
from toxiproxy import Toxiproxy
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from tests.integration.support.processes import Process

TIMEOUT_S: Final = 10.0


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
    """A server that sends back what it gets."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=back, args=(connection,), daemon=True).start()

    def back(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(65536):
                connection.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    yield f"127.0.0.1:{listening.getsockname()[1]}"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


@pytest.fixture
def proxy(server: Any, echo: str) -> Iterator[Any]:
    found = server.create(upstream=echo, name="echo")
    yield found
    server.destroy_all()


def connect(proxy: Any) -> socket.socket:
    host, _, port = proxy.listen.rpartition(":")
    return socket.create_connection((host, int(port)), TIMEOUT_S)


def echoed(connection: socket.socket, data: bytes) -> bytes:
    """Send and read back as much; shorter if the connection ends."""
    connection.sendall(data)
    found = b""
    while len(found) < len(data) and (more := connection.recv(65536)):
        found += more
    return found


def test_the_api_is_that_of_the_real_one(server: Any, echo: str) -> None:
    made = server.create(upstream=echo, name="a")
    assert made.enabled and not made.listen.endswith(":0")
    assert list(server.proxies()) == ["a"]
    with pytest.raises(ProxyExists):
        server.create(upstream=echo, name="a")
    with pytest.raises(NotFound):
        made.destroy_toxic("none")
    with pytest.raises(InvalidToxic):
        made.add_toxic(type="poison")
    made.add_toxic(type="latency", attributes={"latency": 5})
    (toxic,) = made.toxics().values()
    assert (toxic.name, toxic.stream, toxic.toxicity) == ("latency_downstream", "downstream", 1)
    assert toxic.attributes == {"latency": 5, "jitter": 0}
    assert server.reset() and not made.toxics()
    server.destroy_all()
    assert not server.proxies() and server.running() and b"double" in server.version()


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/proxies", {"name": "x"}, 400, "missing required field: upstream"),
        ("/proxies", [], 400, "bad request body"),
        ("/proxies/none", {}, 404, "proxy not found"),
        ("/proxies/echo/toxics", {"type": "latency", "stream": "x"}, 400, "stream was invalid"),
        ("/proxies", {"name": "x", "upstream": "a:1", "listen": "127.0.0.1:1x"}, 500, "1x"),
        ("/populate", [{"name": "x"}], 400, "missing required field: upstream at proxy 1"),
        ("/populate", {"name": "x"}, 400, "bad request body"),
    ],
)
def test_bad_requests_are_named(proxy: Any, path: str, body: Any, status: int, words: str) -> None:
    answer = ask("POST", path, json=body)
    assert answer.status_code == status == answer.json()["status"]
    assert words in answer.json()["error"]


def ask(method: str, path: str, **given: Any) -> requests.Response:
    url = f"http://{APIConsumer.host}:{APIConsumer.port}{path}"
    return requests.request(method, url, timeout=TIMEOUT_S, **given)


def test_what_is_no_call_of_the_api_gets_text_and_no_json(proxy: Any) -> None:
    for method, path, status, words in (
        ("POST", "/nothing", 404, "404 page not found\n"),
        ("POST", "/version", 405, ""),
        ("PUT", "/proxies", 405, ""),
    ):
        answer = ask(method, path)
        assert (answer.status_code, answer.text) == (status, words)
    # A page in a browser could reach the server, too.
    answer = ask("GET", "/proxies", headers={"User-Agent": "Mozilla/5.0"})
    assert (answer.status_code, answer.text) == (403, "User agent not allowed\n")


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


def test_toxics_are_told_as_the_real_one_tells_them(proxy: Any) -> None:
    own = "/proxies/echo/toxics"
    ask("POST", own, json={"type": "latency", "attributes": {"latency": 5}})
    ask("POST", own, json={"name": "b", "type": "bandwidth", "stream": "UPSTREAM", "toxicity": 0.5})
    assert ask("GET", own).text == (
        '[{"attributes":{"rate":0},"name":"b","type":"bandwidth","stream":"UPSTREAM",'
        '"toxicity":0.5},{"attributes":{"latency":5,"jitter":0},"name":"latency_downstream",'
        '"type":"latency","stream":"downstream","toxicity":1}]'
    )


def test_bytes_go_both_ways_and_ends_are_passed_on(proxy: Any) -> None:
    data = bytes(range(256)) * 1000
    with connect(proxy) as connection:
        assert echoed(connection, data) == data


def test_a_disabled_proxy_ends_and_refuses(proxy: Any) -> None:
    with connect(proxy) as connection:
        assert echoed(connection, b"x") == b"x"
        proxy.disable()
        assert connection.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.enable()
    with connect(proxy) as connection:
        assert echoed(connection, b"y") == b"y"


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


def test_bandwidth_slows_down_and_zero_stalls(proxy: Any) -> None:
    proxy.add_toxic(type="bandwidth", stream="upstream", attributes={"rate": 100})
    with connect(proxy) as connection:
        begin = time.monotonic()
        assert echoed(connection, b"x" * 50_000) == b"x" * 50_000
        assert time.monotonic() - begin >= 0.4
    server = Toxiproxy()
    server.reset()
    proxy.add_toxic(type="bandwidth", attributes={"rate": 0})
    with connect(proxy) as connection:
        connection.sendall(b"x")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        server.reset()
        connection.settimeout(TIMEOUT_S)
        assert connection.recv(1) == b"x"


def test_a_timeout_drops_data_and_then_closes(proxy: Any) -> None:
    proxy.add_toxic(type="timeout", attributes={"timeout": 100})
    with connect(proxy) as connection:
        assert echoed(connection, b"x") == b""


def test_a_timeout_of_zero_closes_when_it_is_removed(proxy: Any) -> None:
    proxy.add_toxic(type="timeout", attributes={"timeout": 0})
    with connect(proxy) as connection:
        connection.sendall(b"x")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        proxy.destroy_toxic("timeout_downstream")
        connection.settimeout(TIMEOUT_S)
        assert connection.recv(1) == b""


def test_reset_peer_is_a_tcp_reset(proxy: Any) -> None:
    proxy.add_toxic(type="reset_peer", stream="upstream", attributes={"timeout": 0})
    with connect(proxy) as connection, pytest.raises(ConnectionResetError):
        echoed(connection, b"x")


def test_a_connection_that_is_older_than_reset_peer_ends_without_a_reset(proxy: Any) -> None:
    with connect(proxy) as connection:
        assert echoed(connection, b"x") == b"x"
        proxy.add_toxic(type="reset_peer", attributes={"timeout": 0})
        assert echoed(connection, b"y") == b""


def test_limit_data_counts_from_when_it_comes(proxy: Any) -> None:
    with connect(proxy) as connection:
        assert echoed(connection, b"x") == b"x"
        proxy.add_toxic(type="limit_data", attributes={"bytes": 50})
        assert echoed(connection, b"y" * 100) == b"y" * 50


def test_slow_close_holds_the_end_back(proxy: Any) -> None:
    proxy.add_toxic(type="slow_close", attributes={"delay": 300})
    with connect(proxy) as connection:
        assert echoed(connection, b"x") == b"x"
        begin = time.monotonic()
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
        assert time.monotonic() - begin >= 0.29


def test_limit_data_passes_so_many_bytes(proxy: Any) -> None:
    proxy.add_toxic(type="limit_data", attributes={"bytes": 1000})
    with connect(proxy) as connection:
        assert echoed(connection, b"x" * 5000) == b"x" * 1000


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

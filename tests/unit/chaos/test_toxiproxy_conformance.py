"""The toxiproxy server in use replies, and treats connections, as a real 2.12 does.

The expectations come from a recorded session with a real server; that of a timeout without data
comes from notes on its source. They are checked against the server at `TOXIPROXY_URL` (all of whose
proxies are removed), the one on the path, or else our double. `test_toxiproxy_double` covers
behaviour of the double alone. Durations have lower bounds only.
"""

import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from chaos.toxiproxy_server import Server
from tests.unit.chaos.toxiproxy_clients import TIMEOUT_S, ask, connect, echo_server, echoed

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
# A connection that stays silent for this time counts as stalled.
STALLED_S: Final = 0.3
# The clocks of the two processes may be rounded differently.
ROUNDING_S: Final = 0.01

LATENCY: Final = (
    '{"attributes":{"latency":100,"jitter":0},"name":"latency_downstream",'
    '"type":"latency","stream":"downstream","toxicity":1}'
)
BANDWIDTH: Final = (
    '{"attributes":{"rate":100},"name":"bw","type":"bandwidth","stream":"UPSTREAM","toxicity":0.5}'
)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    server = Server(tmp_path_factory.mktemp("toxiproxy"))
    try:
        yield server.api
    finally:
        server.close()


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    with echo_server() as address:
        yield address


@pytest.fixture
def proxy(api: Any, echo: str) -> Iterator[Any]:
    """Create a proxy `a` without toxics."""
    yield api.create(upstream=echo, name="a")
    api.destroy_all()


@pytest.fixture
def places(proxy: Any, echo: str) -> dict[str, str]:
    """Add a disabled proxy `d`, and toxics to `a`; return the addresses of `a` and its upstream."""
    disabled = {"name": "d", "upstream": echo, "listen": "localhost:0", "enabled": False}
    assert ask("POST", "/proxies", json=disabled).status_code == 201
    for text in (LATENCY, BANDWIDTH):
        assert ask("POST", "/proxies/a/toxics", data=text).text == text
    return {"UP": echo, "A": proxy.listen}


def told(name: str, listen: str, toxics: str = "", enabled: str = "true") -> str:
    """Return a proxy as the server shows it."""
    return (
        f'{{"name":"{name}","listen":"{listen}","upstream":"UP","enabled":{enabled},'
        f'"Logger":{{}},"toxics":[{toxics}]}}'
    )


def error(status: int, words: str) -> str:
    return f'{{"error":"{words}","status":{status}}}\n'


BOTH: Final = f"{BANDWIDTH},{LATENCY}"
A: Final = told("a", "A", BOTH)
D: Final = told("d", "localhost:0", enabled="false")
NEW: Final = {"name": "n", "upstream": "UP", "listen": "127.0.0.1:0"}
NO_PROXY: Final = (404, TEXT, error(404, "proxy not found"))
NO_TOXIC: Final = (404, TEXT, error(404, "toxic not found"))
NO_PAGE: Final = (404, TEXT, "404 page not found\n")
BAD_BODY: Final = (400, TEXT, error(400, "bad request body: ..."))
DONE: Final = (204, None, "")
OF_A: Final = "/proxies/a/toxics"
LATE: Final = f"{OF_A}/latency_downstream"

# Request; then status, content type and text of the reply. UP, A and NEW stand for addresses, "..."
# for texts of Go's JSON package, which change with its releases.
ANSWERS: Final[dict[str, tuple[str, str, object, tuple[int, str | None, str]]]] = {
    "all": ("GET", "/proxies", None, (200, JSON, f'{{"a":{A},"d":{D}}}')),
    "created": ("POST", "/proxies", NEW, (201, JSON, told("n", "NEW"))),
    "host name resolved": (
        *("POST", "/proxies", {**NEW, "listen": "localhost:0"}),
        (201, JSON, told("n", "NEW")),
    ),
    "disabled: not resolved": (
        *("POST", "/proxies", {**NEW, "listen": "localhost:0", "enabled": False}),
        (201, JSON, told("n", "localhost:0", enabled="false")),
    ),
    "name taken": (
        *("POST", "/proxies", {"name": "a", "upstream": "UP"}),
        (409, TEXT, error(409, "proxy already exists")),
    ),
    "no name": (
        *("POST", "/proxies", {"upstream": "UP"}),
        (400, TEXT, error(400, "missing required field: name")),
    ),
    "no upstream": (
        *("POST", "/proxies", {"name": "n"}),
        (400, TEXT, error(400, "missing required field: upstream")),
    ),
    "no JSON": ("POST", "/proxies", "{bad", BAD_BODY),
    "port is no number": (
        *("POST", "/proxies", {**NEW, "listen": "127.0.0.1:1x"}),
        (500, TEXT, error(500, "listen tcp: lookup tcp/1x: unknown port")),
    ),
    "port taken": (
        *("POST", "/proxies", {**NEW, "listen": "A"}),
        (500, TEXT, error(500, "listen tcp A: bind: address already in use")),
    ),
    "one": ("GET", "/proxies/a", None, (200, JSON, A)),
    "none": ("GET", "/proxies/zz", None, NO_PROXY),
    "disable": (
        *("POST", "/proxies/a", {"enabled": False}),
        (200, JSON, told("a", "A", BOTH, enabled="false")),
    ),
    "enable by PATCH": ("PATCH", "/proxies/d", {"enabled": True}, (200, JSON, told("d", "NEW"))),
    "names stay": ("POST", "/proxies/a", {"name": "renamed"}, (200, JSON, A)),
    "delete": ("DELETE", "/proxies/d", None, DONE),
    "delete none": ("DELETE", "/proxies/zz", None, NO_PROXY),
    "toxics": ("GET", OF_A, None, (200, JSON, f"[{BOTH}]")),
    "no toxics": ("GET", "/proxies/d/toxics", None, (200, JSON, "[]")),
    "toxic by defaults": (
        *("POST", "/proxies/d/toxics", {"type": "latency", "attributes": {"latency": 100}}),
        (200, JSON, LATENCY),
    ),
    "toxicity is no fraction": (
        *("POST", "/proxies/d/toxics", LATENCY.replace(":1}", ":1.0}")),
        (200, JSON, LATENCY),
    ),
    "toxic taken": (
        *("POST", OF_A, {"type": "latency"}),
        (409, TEXT, error(409, "toxic already exists")),
    ),
    "toxic unknown": ("POST", OF_A, {"type": "x"}, (400, TEXT, error(400, "invalid toxic type"))),
    "stream unknown": (
        *("POST", OF_A, {"type": "latency", "stream": "sideways"}),
        (400, TEXT, error(400, "stream was invalid, can be either upstream or downstream")),
    ),
    "attribute is no number": (
        *("POST", OF_A, {"type": "latency", "name": "x", "attributes": {"latency": "abc"}}),
        BAD_BODY,
    ),
    "toxic": ("GET", LATE, None, (200, JSON, LATENCY)),
    "toxic by PATCH": (
        *("PATCH", LATE, {"attributes": {"jitter": 5}}),
        (200, JSON, LATENCY.replace('"jitter":0', '"jitter":5')),
    ),
    "toxic by POST": (
        *("POST", LATE, {"toxicity": 0.25}),
        (200, JSON, LATENCY.replace(":1}", ":0.25}")),
    ),
    "update no toxic": ("POST", f"{OF_A}/none", {"toxicity": 0.25}, NO_TOXIC),
    "delete toxic": ("DELETE", f"{OF_A}/bw", None, DONE),
    "delete no toxic": ("DELETE", f"{OF_A}/none", None, NO_TOXIC),
    "populate": (
        *("POST", "/populate", [{**NEW, "name": "a"}, {**NEW, "enabled": False}]),
        (
            *(201, JSON),
            f'{{"proxies":[{told("a", "NEW")},{told("n", "127.0.0.1:0", enabled="false")}]}}',
        ),
    ),
    "populate without upstream": (
        *("POST", "/populate", [{"name": "q"}]),
        (
            *(400, JSON),
            '{"error":"missing required field: upstream at proxy 1","status":400,"proxies":null}',
        ),
    ),
    "populate without list": (
        *("POST", "/populate", {"name": "q"}),
        (400, JSON, '{"error":"bad request body: ...","status":400,"proxies":null}'),
    ),
    "reset": ("POST", "/reset", None, DONE),
    "no page": ("GET", "/nope", None, NO_PAGE),
    "no metrics": ("GET", "/metrics", None, NO_PAGE),
    "no such method": ("PUT", "/proxies", None, (405, None, "")),
}


def filled(value: object, places: dict[str, str]) -> str | None:
    """Return the body of a request with its addresses filled in."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return re.sub(r'"(UP|A)"', lambda found: f'"{places[found[1]]}"', text)


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_those_of_the_real_one(name: str, places: dict[str, str]) -> None:
    method, path, body, (status, kind, text) = ANSWERS[name]
    answer = ask(method, path, data=filled(body, places))
    found = answer.text.replace(places["UP"], "UP").replace(places["A"], "A")
    found = re.sub(r"127\.0\.0\.1:[1-9]\d*", "NEW", found)
    assert (answer.status_code, answer.headers.get("Content-Type")) == (status, kind)
    assert re.fullmatch(re.escape(text).replace(re.escape("..."), ".+"), found), found


def test_the_version_is_formatted_in_its_own_way(api: Any) -> None:
    answer = ask("GET", "/version")
    assert answer.headers["Content-Type"] == "application/json;charset=utf-8"
    assert re.fullmatch(r'\{"version": "[^"]+"\}\n', answer.text)


def test_pages_in_browsers_are_kept_away(api: Any) -> None:
    answer = ask("GET", "/proxies", headers={"User-Agent": "Mozilla/5.0"})
    found = answer.status_code, answer.headers["Content-Type"], answer.text
    assert found == (403, TEXT, "User agent not allowed\n")


def test_a_reset_enables_all_and_removes_toxics(places: dict[str, str]) -> None:
    ask("POST", "/proxies/a", json={"enabled": False})
    ask("POST", "/reset")
    found = ask("GET", "/proxies").json()
    assert [(each["enabled"], each["toxics"]) for each in found.values()] == [(True, [])] * 2
    assert found["a"]["listen"] == places["A"]
    assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d*", found["d"]["listen"])


class Case(NamedTuple):
    """A toxic, the data sent to the echo server, and the outcome.

    Attributes:
        got_bytes: bytes that come back before the end, the stall, or the whole.
        ends: "alive" for no end, "stalled", "end", or "reset", which is an "end" for connections
            that are older than the toxic.
        least_s: the minimum duration.
        after: the data that arrives when the toxic of a stalled connection is removed.
    """

    kind: str
    stream: str
    attributes: dict[str, int]
    sent_bytes: int
    got_bytes: int
    ends: str
    least_s: float = 0.0
    after: bytes = b""


SLICES: Final = {"average_size": 10, "size_variation": 3, "delay": 10_000}
CASES: Final = {
    "late replies": Case("latency", "downstream", {"latency": 200}, 10, 10, "alive", 0.2),
    "late requests": Case("latency", "upstream", {"latency": 200}, 10, 10, "alive", 0.2),
    "KB are of 1000 bytes": Case(
        "bandwidth", "downstream", {"rate": 500}, 100_000, 100_000, "alive", 0.2
    ),
    "no rate stalls": Case(
        "bandwidth", "downstream", {"rate": 0}, 10, 0, "stalled", after=b"x" * 10
    ),
    "timeout": Case("timeout", "downstream", {"timeout": 100}, 10, 0, "end", 0.1),
    "timeout of requests": Case("timeout", "upstream", {"timeout": 100}, 10, 0, "end", 0.1),
    "timeout without data": Case("timeout", "downstream", {"timeout": 100}, 0, 0, "end", 0.1),
    "timeout 0": Case("timeout", "downstream", {"timeout": 0}, 10, 0, "stalled"),
    "reset": Case("reset_peer", "downstream", {"timeout": 0}, 10, 0, "reset"),
    "late reset": Case("reset_peer", "downstream", {"timeout": 100}, 10, 0, "reset", 0.1),
    "reset of requests": Case("reset_peer", "upstream", {"timeout": 0}, 10, 0, "reset"),
    # Pieces have at most 13 bytes, so there are 8, with 7 pauses between them.
    "slices": Case("slicer", "downstream", SLICES, 100, 100, "alive", 0.07),
    "limit": Case("limit_data", "downstream", {"bytes": 50}, 100, 50, "end"),
    "limit of requests": Case("limit_data", "upstream", {"bytes": 50}, 100, 0, "end"),
}


def watched(connection: socket.socket, case: Case) -> tuple[int, str]:
    """Send the data; return the number of bytes that came back and the outcome."""
    got_bytes = 0
    try:
        connection.sendall(b"x" * case.sent_bytes)
        while got_bytes < case.sent_bytes or not case.sent_bytes:
            data = connection.recv(65536)
            if not data:
                return got_bytes, "end"
            got_bytes += len(data)
    except TimeoutError:
        return got_bytes, "stalled"
    except ConnectionResetError:
        return got_bytes, "reset"
    return got_bytes, "alive"


@pytest.mark.parametrize("older", [False, True], ids=["new connection", "older connection"])
@pytest.mark.parametrize("name", CASES)
def test_toxics_do_what_those_of_the_real_one_do(name: str, older: bool, proxy: Any) -> None:
    case = CASES[name]

    def poison() -> None:
        proxy.add_toxic(
            name="t", type=case.kind, stream=case.stream, attributes=dict(case.attributes)
        )

    if not older:
        poison()
    with connect(proxy) as connection:
        begin_s = time.monotonic()
        if older:
            assert echoed(connection, b"h") == b"h"
            begin_s = time.monotonic()
            poison()
        connection.settimeout(STALLED_S if case.ends == "stalled" else TIMEOUT_S)
        got_bytes, end = watched(connection, case)
        assert time.monotonic() - begin_s >= case.least_s - ROUNDING_S
        assert end == ("end" if older and case.ends == "reset" else case.ends)
        assert got_bytes == case.got_bytes
        connection.settimeout(TIMEOUT_S)
        proxy.destroy_toxic("t")
        if end == "stalled":
            assert connection.recv(65536) == case.after
        if end == "alive":
            assert echoed(connection, b"y") == b"y"


def test_slow_close_holds_the_end_back(proxy: Any) -> None:
    proxy.add_toxic(type="slow_close", attributes={"delay": 300})
    with connect(proxy) as connection:
        assert echoed(connection, b"q") == b"q"
        begin_s = time.monotonic()
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
        assert time.monotonic() - begin_s >= 0.3 - ROUNDING_S


def test_a_disabled_proxy_ends_connections_and_refuses_new_ones(proxy: Any) -> None:
    with connect(proxy) as connection:
        assert echoed(connection, b"q") == b"q"
        with proxy.down():
            assert connection.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                connect(proxy)
    with connect(proxy) as connection:
        assert echoed(connection, b"q") == b"q"


def test_an_upstream_that_refuses_is_an_end_and_no_refusal(api: Any, proxy: Any) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # never listens, and no other socket can
        dead = api.create(upstream=f"127.0.0.1:{bound.getsockname()[1]}", name="dead")
        with connect(dead) as connection:
            assert connection.recv(1) == b""


def test_the_client_of_the_registry_works(api: Any, proxy: Any, echo: str) -> None:
    assert api.running() and b'"version"' in api.version()
    assert proxy.add_toxic(type="latency", attributes={"latency": 50}) is None
    (toxic,) = proxy.toxics().values()
    assert (toxic.name, toxic.stream, toxic.toxicity) == ("latency_downstream", "downstream", 1)
    assert toxic.attributes == {"latency": 50, "jitter": 0}
    assert proxy.destroy_toxic("latency_downstream") is True and api.reset() is True
    with pytest.raises(InvalidToxic, match="invalid toxic type"):
        proxy.add_toxic(type="zip")
    with pytest.raises(NotFound, match="toxic not found"):
        proxy.destroy_toxic("zz")
    with pytest.raises(ProxyExists):
        api.create(upstream=echo, name="a")
    # The client looks for the name in the text of the error.
    with pytest.raises(KeyError, match="name"):
        api.create(upstream=echo, name="b", listen=proxy.listen)
    wanted = [{"name": "p", "upstream": echo, "listen": "127.0.0.1:0"}]
    for _ in range(2):
        assert [made.name for made in api.populate(wanted)] == ["p"]
    api.destroy_all()
    assert api.proxies() == {}

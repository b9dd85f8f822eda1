"""qless at real nodes through unmodified redis-py, with both versions of RESP.

The replies of qless to each call are tested in test_qless_scripts; `make test-qless` runs its own
clients and suites.
"""

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from beanpole.protocol.resp.values import RESP2, RESP3
from tests.integration.support.nodes import Cluster, whole_status
from tests.integration.support.processes import answers
from tests.integration.support.raw import connect
from tests.integration.support.waiting import wait_until

TIMEOUT_S = 60.0
JOBS = 500
# The declarations that identify a dialect; their bodies are never run.
SCRIPT = """
QlessAPI.put = function(now, me, queue, jid, klass, data, delay, ...)
QlessAPI.pop = function(now, queue, worker, count)
QlessAPI.peek = function(now, queue, count)
QlessAPI.get = function(now, jid)
QlessAPI.complete = function(now, jid, worker, queue, data, ...)
QlessAPI.cancel = function(now, ...)
QlessAPI.recur = function(now, queue, jid, klass, data, spec, ...)
QlessAPI.unrecur = function(now, jid)
"""


class Clients:
    """Clients of two followers (0, 1) and of the leader (2) that speak one version of RESP."""

    def __init__(self, cluster: Cluster, version: int) -> None:
        leader, followers = cluster.roles()
        numbers = [*followers, leader]
        self.nodes = [cluster.nodes[number] for number in numbers]
        self.addresses = [node.speaks("qless") for node in self.nodes]
        wait_until(lambda: all(map(answers, self.addresses)), TIMEOUT_S, "the ports of qless")
        self.version = version
        self._made: list[Any] = []

    def connect(self, place: int = 0) -> Any:
        """Connect a client of redis-py."""
        host, _, port = self.addresses[place].rpartition(":")
        made = redis.Redis(
            host=host, port=int(port), protocol=self.version, socket_timeout=TIMEOUT_S
        )
        self._made.append(made)
        return made

    def qless(self, place: int = 0) -> Callable[..., Any]:
        """Return a function that calls qless; redis-py loads the script after NOSCRIPT."""
        script = self.connect(place).register_script(SCRIPT)
        return lambda *arguments: script(args=arguments)

    def subscribed(self, place: int, *channels: str, **patterns: Any) -> Any:
        """Connect a client that subscribes to channels and patterns."""
        made = self.connect(place).pubsub()
        self._made.append(made)
        if channels:
            made.subscribe(*channels)
        if patterns:
            made.psubscribe(*patterns)
        for _ in [*channels, *patterns]:
            assert made.get_message(timeout=TIMEOUT_S)["type"] in ("subscribe", "psubscribe")
        return made

    def close(self) -> None:
        for made in self._made:
            made.close()


@pytest.fixture(params=[RESP2, RESP3], ids=["resp2", "resp3"])
def clients(shared: Cluster, request: pytest.FixtureRequest) -> Iterator[Clients]:
    made = Clients(shared, request.param)
    try:
        yield made
    finally:
        made.close()


def test_a_job_goes_from_node_to_node(clients: Clients) -> None:
    jid = f"travels-{clients.version}"
    one, other, leader = (clients.qless(place) for place in range(3))
    clients.connect(0).script_flush()
    queue = f"roads-{clients.version}"
    assert one("put", 1, "me", queue, jid, "klass", '{"a":1}', 0) == jid.encode()
    (job,) = json.loads(other("pop", 2, queue, "worker", 5))
    assert (job["jid"], job["state"], job["worker"]) == (jid, "running", "worker")
    assert leader("complete", 3, jid, "worker", queue, "{}") == b"complete"
    assert json.loads(one("get", 4, jid))["state"] == "complete"
    assert one("get", 4, "nobody") is None
    with pytest.raises(redis.ResponseError, match="does not exist"):
        other("complete", 5, "nobody", "worker", queue, "{}")


def test_a_pipeline_is_done_in_its_order(clients: Clients) -> None:
    client = clients.connect(0)
    queue = f"pipeline-{clients.version}"
    sha = client.script_load(SCRIPT)
    pipeline = client.pipeline(transaction=False)
    jids = [b"%s-%d" % (queue.encode(), number) for number in range(JOBS)]
    for number, jid in enumerate(jids):
        pipeline.evalsha(sha, 0, "put", number, "me", queue, jid, "klass", "{}", 0)
        pipeline.echo(jid)
    assert pipeline.execute() == [reply for jid in jids for reply in (jid, jid)]
    (first,) = json.loads(clients.qless(1)("pop", JOBS, queue, "worker", 1))
    assert first["jid"].encode() == jids[0]
    clients.qless(2)("cancel", JOBS, *jids)


def test_what_is_published_comes_to_every_node_in_order(clients: Clients) -> None:
    queue = f"news-{clients.version}"
    logs = [clients.subscribed(place, "ql:log") for place in range(3)]
    everything = clients.subscribed(1, **{"ql:*": None})
    calls = [clients.qless(place) for place in range(3)]
    jids = [f"{queue}-{number}" for number in range(60)]
    for number, jid in enumerate(jids):
        calls[number % 3]("put", 1, "me", queue, jid, "klass", "{}", 0)
    for log in [*logs, everything]:
        events = [json.loads(message(log)["data"]) for _ in jids]
        assert [(event["event"], event["jid"]) for event in events] == [
            ("put", jid) for jid in jids
        ]
    calls[0]("cancel", 2, *jids)
    logs[0].unsubscribe()
    wait_until(lambda: not logs[0].subscribed or message(logs[0]) is None, TIMEOUT_S, "its end")


def message(subscribed: Any) -> Any:
    """Return the next message."""
    return subscribed.get_message(ignore_subscribe_messages=True, timeout=TIMEOUT_S)


def test_what_a_client_asks_about_the_server(clients: Clients) -> None:
    client = clients.connect(2)
    assert client.ping() is True
    assert client.echo("x") == b"x"
    assert client.client_setname("me") is True
    assert client.client_getname() in ("me", b"me")
    assert client.client_id() > 0
    assert client.info()["redis_version"].startswith("7.")
    assert client.config_get("*") == {}
    assert abs(client.time()[0] - clients.connect(0).time()[0]) < TIMEOUT_S
    assert client.zscore("ql:q:nothing-recur", "nobody") is None
    with pytest.raises(redis.ResponseError, match="unknown command"):
        client.get("key")
    with pytest.raises(redis.ResponseError, match="qless_flush is off"):
        client.flushdb()
    with pytest.raises(redis.ResponseError, match="unsupported script"):
        client.script_load("return 1")


def test_the_next_time_of_a_recurring_job(clients: Clients) -> None:
    jid, queue = f"often-{clients.version}", f"often-{clients.version}"
    clients.qless(0)("recur", 10, queue, jid, "klass", "{}", "interval", 60, 5)
    assert clients.connect(1).zscore(f"ql:q:{queue}-recur", jid) == 15.0
    clients.qless(2)("unrecur", 11, jid)
    assert clients.connect(1).zscore(f"ql:q:{queue}-recur", jid) is None


def test_what_is_no_request_ends_the_connection(clients: Clients) -> None:
    stream = connect(clients.addresses[0], TIMEOUT_S)
    with stream:
        stream.sendall(b"*1\r\n$4\r\nPING\r\n*1\r\nfoo\r\n")
        said = everything_of(stream)
    assert said == b"+PONG\r\n-ERR Protocol error: expected '$', got 'f'\r\n"


def everything_of(stream: socket.socket) -> bytes:
    """Return all bytes until the server closes the connection."""
    said = b""
    while piece := stream.recv(65536):
        said += piece
    return said


def test_the_status_has_the_protocol(clients: Clients) -> None:
    clients.connect(0).ping()
    found = whole_status(clients.nodes[0])
    assert all("qless" in node["protocols"] for node in found["nodes"])

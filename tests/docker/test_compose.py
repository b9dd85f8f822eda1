"""compose.yaml: unmodified clients through HAProxy and directly, failover, draining, Prometheus."""

import json
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import greenstalk
import pytest
import redis

from chaos.containers import ANY, LEADER, NAMES, Containers
from tests.integration.support.waiting import wait_until

PROXY = "127.0.0.1"
QLESS = 6380
PROMETHEUS = 9090
FAILOVER_TIMEOUT_S = 30.0
RESERVE_S = 5
# Prometheus scrapes every 5 s.
SCRAPED_TIMEOUT_S = 60.0
EVERYWHERE = range(len(NAMES))


@pytest.fixture(autouse=True)
def whole(nodes: Containers) -> Iterator[None]:
    nodes.wait_until_serving(*EVERYWHERE)
    yield
    nodes.wait_until_serving(*EVERYWHERE)


def connect(host: str, port: int) -> greenstalk.Client[str]:
    """Connect and use a tube; retry while the proxy has no server and closes the connection."""

    def connected() -> greenstalk.Client[str]:
        client = greenstalk.Client((host, port))
        try:
            client.using()
        except BaseException:
            client.close()
            raise
        return client

    return wait_until(connected, FAILOVER_TIMEOUT_S, f"a client at {host}:{port}")


def test_a_client_works_through_the_proxy_and_directly(nodes: Containers) -> None:
    places = [(PROXY, ANY), (PROXY, LEADER)]
    places += [(nodes.address(number), ANY) for number in EVERYWHERE]
    for host, port in places:
        with connect(host, port) as producer, connect(PROXY, ANY) as worker:
            body = f"put at {host}:{port}"
            number = producer.put(body)
            job = worker.reserve(timeout=RESERVE_S)
            assert (job.id, job.body) == (number, body)
            worker.delete(job)


def test_a_client_of_qless_works_through_the_proxy(nodes: Containers) -> None:
    with redis.Redis(host=PROXY, port=QLESS) as client:
        assert client.ping()


def test_the_leaders_port_follows_the_leader(nodes: Containers) -> None:
    """Connections to the old leader end, and new ones go to the next leader."""
    with connect(PROXY, LEADER) as client:
        client.put("before")
        leader = nodes.leader()
        nodes.kill(leader)
        with pytest.raises((ConnectionError, greenstalk.Error)):
            while client.stats():
                pass
    with connect(PROXY, LEADER) as client:
        successor = nodes.leader(other_than=leader)
        assert client.stats()["hostname"] == NAMES[successor]
        client.delete(client.reserve(timeout=RESERVE_S))
    nodes.start(leader)


def test_any_nodes_port_leaves_out_a_node_that_stands_still(nodes: Containers) -> None:
    """Its kernel still accepts connections, so the proxy must check the node itself."""
    victim = nodes.leader()
    nodes.pause(victim)
    try:
        nodes.leader(other_than=victim)
        hosts = set()
        for _ in range(3 * len(NAMES)):
            with connect(PROXY, ANY) as client:
                hosts.add(client.stats()["hostname"])
        assert NAMES[victim] not in hosts and hosts
    finally:
        nodes.unpause(victim)


def test_a_node_that_drains_keeps_its_clients_and_gets_no_new_ones(nodes: Containers) -> None:
    with connect(PROXY, ANY) as client:
        home = NAMES.index(client.stats()["hostname"])
        number = client.put("kept")
        nodes.node(home).kill(signal="SIGUSR1")
        try:
            wait_until(lambda: not nodes.answers(home, "/readyz"), FAILOVER_TIMEOUT_S, "it drains")
            wait_until(lambda: all_elsewhere(home), FAILOVER_TIMEOUT_S, "new ones go elsewhere")
            job = client.reserve(timeout=RESERVE_S)
            assert job.id == number
            client.delete(job)
        finally:
            nodes.node(home).kill(signal="SIGUSR2")


def all_elsewhere(home: int) -> bool:
    hosts = set()
    for _ in range(2 * len(NAMES)):
        with connect(PROXY, ANY) as client:
            hosts.add(client.stats()["hostname"])
    return NAMES[home] not in hosts


def test_a_container_comes_back_with_another_address(nodes: Containers) -> None:
    """The other nodes and the proxy find the container by its name."""
    victim = nodes.leader()
    before = nodes.address(victim)
    nodes.disconnect(victim)
    nodes.leader(other_than=victim)
    assert nodes.connect(victim) != before
    nodes.wait_until_serving(victim)

    def is_found() -> bool:
        with connect(PROXY, ANY) as client:
            return bool(client.stats()["hostname"] == NAMES[victim])

    wait_until(is_found, FAILOVER_TIMEOUT_S, "the proxy sends clients to the new address")
    with connect(nodes.address(victim), ANY) as client:
        client.delete(client.put("at the new address"))


def test_a_worker_that_waits_is_served_while_nodes_are_replaced(nodes: Containers) -> None:
    """Nodes are replaced in turn, as in an upgrade; the worker's node stays."""
    home = nodes.leader()
    got: list[Any] = []
    with connect(nodes.address(home), ANY) as worker:
        thread = threading.Thread(target=lambda: got.append(worker.reserve(timeout=60)))
        thread.start()
        for number in (number for number in EVERYWHERE if number != home):
            assert nodes.stop(number) == 0
            nodes.start(number)
            nodes.wait_until_serving(number)
        with connect(PROXY, ANY) as producer:
            number = producer.put("for the worker that waits")
        thread.join()
        assert got[0].id == number
        worker.delete(got[0])


def test_an_emptied_volume_votes_only_when_it_is_told_to(nodes: Containers) -> None:
    victim = nodes.leader()
    with connect(PROXY, ANY) as client:
        number = client.put("kept by the others")
    assert nodes.stop(victim) == 0
    nodes.empty_volume(victim)
    nodes.start(victim)
    wait_until(lambda: "has an empty disk" in nodes.log(victim), FAILOVER_TIMEOUT_S, "a refusal")
    nodes.stop(victim)
    rejoining = nodes.run_once(victim, ["--rejoin"])
    try:
        wait_until(
            lambda: b"votes from now on" in rejoining.logs(),
            FAILOVER_TIMEOUT_S,
            f"{NAMES[victim]} rejoins",
        )
        rejoining.stop(timeout=30)
        assert rejoining.wait()["StatusCode"] == 0
    finally:
        rejoining.remove(force=True)
    nodes.start(victim)
    nodes.wait_until_serving(victim)
    with connect(nodes.address(victim), ANY) as client:
        job = client.reserve(timeout=RESERVE_S)
        assert job.id == number
        client.delete(job)


def query(path: str) -> Any:
    with urllib.request.urlopen(f"http://{PROXY}:{PROMETHEUS}/api/v1/{path}", timeout=5) as reply:
        return json.load(reply)["data"]


def test_prometheus_scrapes_the_nodes_and_the_proxy(nodes: Containers) -> None:
    def all_up() -> bool:
        targets = query("targets?state=active")["activeTargets"]
        return len(targets) == len(NAMES) + 1 and all(t["health"] == "up" for t in targets)

    wait_until(all_up, SCRAPED_TIMEOUT_S, "all targets are up")
    words = urllib.parse.quote("sum(beanpole_has_leader)")

    def has_values() -> bool:
        found = query(f"query?query={words}")["result"]
        return bool(found and found[0]["value"][1] == str(len(NAMES)))

    wait_until(has_values, SCRAPED_TIMEOUT_S, "all nodes have told of their leader")


def test_prometheus_has_the_alerts(nodes: Containers) -> None:
    groups = wait_until(lambda: query("rules")["groups"], SCRAPED_TIMEOUT_S, "rules")
    rules = [rule for group in groups for rule in group["rules"]]
    assert "BeanpoleNoMajority" in {rule["name"] for rule in rules}
    wait_until(
        lambda: all(
            rule["health"] == "ok" for g in query("rules")["groups"] for rule in g["rules"]
        ),
        SCRAPED_TIMEOUT_S,
        "all rules are evaluated without an error",
    )

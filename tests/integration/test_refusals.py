"""Refusals of a node: the wrong disk or members, one client too many, work without a quorum.

Each refusal is one clear line, and acknowledged jobs survive.
"""

import shutil
from functools import partial
from pathlib import Path

import pytest

from beanpoled.disk.identity import VOTER
from beanpoled.main import EXIT_CONFIGURATION
from tests.integration.support.disks import standing
from tests.integration.support.nodes import Cluster, status
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

VICTIM = 2
TIMEOUT_S = 60.0


def last_line_of_refusal(cluster: Cluster, number: int, exit_status: int = 1) -> str:
    """Start a node that must refuse to run; return the single log line with the reason."""
    log = cluster.nodes[number].directory / "output.log"
    said = log.read_text()
    process = cluster.start(number)
    assert process.wait() == exit_status
    lines = [line for line in log.read_text().removeprefix(said).splitlines() if line.strip()]
    return lines[-1]


def edit(cluster: Cluster, number: int, old: str, new: str) -> None:
    """Change the configuration of a node."""
    path = cluster.nodes[number].directory / "node.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_lost_disk_is_refused_until_the_node_rejoins(cluster: Cluster) -> None:
    data = cluster.nodes[VICTIM].directory / "data"
    with Raw(cluster.nodes[0].beanstalk) as client:
        jobs = [client.put(b"kept") for _ in range(5)]
        cluster.kill(VICTIM)
        shutil.rmtree(data)
        refusal = last_line_of_refusal(cluster, VICTIM)
        assert "n2 has an empty disk" in refusal
        assert "--rejoin" in refusal
        # Files left by the refused start do not prevent a rejoin.
        cluster.start(VICTIM, ["--rejoin"])
        cluster.wait_until_serving(VICTIM)
        # The node becomes a voter only with the full state; from then on it starts normally.
        wait_until(lambda: standing(data) == VOTER, TIMEOUT_S, "rejoined")
        cluster.terminate(VICTIM)
        cluster.start(VICTIM)
        cluster.wait_until_serving(VICTIM)
    with Raw(cluster.nodes[VICTIM].beanstalk) as client:
        for job in jobs:
            client.ask(b"delete %d" % job, b"DELETED")


def is_up(cluster: Cluster, number: int) -> bool:
    """Whether a node answers a status request."""
    try:
        return bool(status(cluster.nodes[number]))
    except ConnectionError:
        return False


def test_two_empty_disks_begin_no_second_cluster(cluster: Cluster) -> None:
    """Finding 3: without the third node they founded a new cluster, and the jobs were lost."""
    with Raw(cluster.nodes[0].beanstalk) as client:
        job = client.put(b"kept")
    data = [node.directory / "data" for node in cluster.nodes]
    copies = [cluster.directory / f"kept{number}" for number in range(3)]
    for number in range(3):
        cluster.kill(number)
    for number in (1, 2):
        shutil.move(data[number], copies[number])
        cluster.start(number)
    wait_until(partial(is_up, cluster, 1), TIMEOUT_S)
    waiting = status(cluster.nodes[1])["nodes"][1]
    assert "n0" in waiting["waiting_for"] and waiting["birth"] is None
    assert not waiting["serving"]
    processes = [cluster.process(number) for number in (1, 2)]
    cluster.start(0)
    for number, process in zip((1, 2), processes, strict=True):
        assert process.wait() == 1
        assert f"n{number} has an empty disk" in process.log.read_text().splitlines()[-1]
        shutil.rmtree(data[number])
        shutil.move(copies[number], data[number])
    assert cluster.process(0).status() is None
    for number in (1, 2):
        cluster.start(number)
    cluster.wait_until_serving(VICTIM)
    with Raw(cluster.nodes[VICTIM].beanstalk) as client:
        client.ask(b"delete %d" % job, b"DELETED")


def test_a_node_restarts_beside_one_with_another_configuration(cluster: Cluster) -> None:
    """Finding C: a misconfigured peer ended other nodes at each of their starts."""
    cluster.terminate(1)
    cluster.terminate(VICTIM)
    path = cluster.nodes[VICTIM].directory / "node.toml"
    whole = path.read_text()
    path.write_text('durability = "memory"\n' + whole)
    wrong = cluster.start(VICTIM)
    healthy = cluster.start(1)
    assert wrong.wait() == 1
    cluster.wait_until_serving(1)
    assert healthy.status() is None
    path.write_text(whole)
    cluster.start(VICTIM)
    cluster.wait_until_all_serve()


def test_other_company_or_another_disk_is_refused(cluster: Cluster) -> None:
    cluster.kill(VICTIM)
    edit(cluster, VICTIM, "[members.n1]", "[members.nX]")
    refusal = last_line_of_refusal(cluster, VICTIM, EXIT_CONFIGURATION)
    assert "this disk is part of n0, n1, n2: put the list back" in refusal
    edit(cluster, VICTIM, "[members.nX]", "[members.n1]")
    path = cluster.nodes[VICTIM].directory / "node.toml"
    whole = path.read_text()
    path.write_text('durability = "memory"\n' + whole)
    refusal = last_line_of_refusal(cluster, VICTIM)
    assert "the member list or durability" in refusal and "same" in refusal
    path.write_text(whole)

    data = str(cluster.nodes[VICTIM].directory / "data")
    copy = cluster.directory / "copy"
    cluster.kill(1)
    shutil.copytree(cluster.nodes[1].directory / "data", copy)
    cluster.start(1)
    edit(cluster, VICTIM, data, str(copy))
    assert "belongs to node n1" in last_line_of_refusal(cluster, VICTIM, EXIT_CONFIGURATION)
    edit(cluster, VICTIM, str(copy), data)

    cluster.start(VICTIM)
    cluster.wait_until_serving(VICTIM)


def test_a_damaged_log_is_refused_with_the_command_that_shows_it(cluster: Cluster) -> None:
    with Raw(cluster.nodes[0].beanstalk) as client:
        jobs = [client.put(b"x" * 1000) for _ in range(50)]
        cluster.kill(VICTIM)
        log = cluster.nodes[VICTIM].directory / "data" / "log"
        (segment, *_) = sorted(log.glob("*.wal"))
        content = bytearray(segment.read_bytes())
        content[8000] ^= 1
        segment.write_bytes(content)
        refusal = last_line_of_refusal(cluster, VICTIM)
        assert str(segment) in refusal and "beanpoled --dump-wal" in refusal
        for job in jobs:
            client.ask(b"delete %d" % job, b"DELETED")


def test_a_node_with_another_secret_stays_outside(cluster: Cluster) -> None:
    cluster.kill(VICTIM)
    path = cluster.nodes[VICTIM].directory / "node.toml"
    path.write_text('peer_secret = "not what the others have"\n' + path.read_text())
    process = cluster.start(VICTIM)
    log = cluster.nodes[VICTIM].directory / "output.log"
    wait_until(lambda: "has another peer_secret" in log.read_text(), TIMEOUT_S)
    assert process.status() is None
    nodes = {node["id"]: node for node in status(cluster.nodes[0])["nodes"]}
    assert nodes["n0"]["reachable"]
    with Raw(cluster.nodes[0].beanstalk) as client:
        client.put(b"the two others go on")


def test_one_client_too_many_hears_so_and_the_others_go_on(tmp_path: Path) -> None:
    node = Cluster(tmp_path / "small", count=1, settings={"connections_max": 3})
    try:
        node.start_all()
        address = node.nodes[0].beanstalk
        clients = [Raw(address) for _ in range(3)]
        clients[0].ask(b"use a", b"USING a")
        # All three are accepted before the fourth is.
        wait_until(lambda: b"current-connections: 3" in stats(clients[1]), TIMEOUT_S)
        with Raw(address) as fourth:
            fourth.ask(b"put 0 0 1 1\r\nx", b"OUT_OF_MEMORY")
            with pytest.raises(ConnectionError):
                fourth.line()
        clients[2].put(b"served")
        clients[0].close()
        wait_until(lambda: b"current-connections: 2" in stats(clients[1]), TIMEOUT_S)
        with Raw(address) as fifth:
            fifth.put(b"room again")
        for client in clients[1:]:
            client.close()
    finally:
        node.close()


def stats(client: Raw) -> bytes:
    """Return the payload of `stats`."""
    client.send(b"stats\r\n")
    return client.body(int(client.line().split()[1]))


def test_without_a_quorum_the_words_say_what_is_certain(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")  # with the default times
    try:
        cluster.start_all()
        leader, (survivor, _) = cluster.roles()
        address = cluster.nodes[survivor].beanstalk
        with Raw(address, timeout_s=30) as putter, Raw(address, timeout_s=30) as deleter:
            job = putter.put(b"before")
            deleter.ask(b"use elsewhere", b"USING elsewhere")
            for number in range(3):
                if number not in (leader, survivor):
                    cluster.kill(number)
            cluster.kill(leader)
            # The commands are sent after the link to the leader is down, so they get no number.
            wait_until(lambda: status(cluster.nodes[survivor])["leader"] is None, TIMEOUT_S)
            putter.send(b"put 0 0 1 1\r\nx\r\n")
            deleter.ask(b"delete %d" % job, b"INTERNAL_ERROR")
            assert putter.line() == b"DRAINING"
            for client in (putter, deleter):
                client.send(b"put 0 0 1 1\r\ny\r\n")  # later than the fence can wait
            for client in (putter, deleter):
                # Cut off for too long: the node closes its clients, on a slow machine before it has
                # read the last put.
                assert client.rest() in (b"DRAINING\r\n", b"")
        for number in range(3):
            if number != survivor:
                cluster.start(number)
        cluster.wait_until_all_serve()
        wait_until(lambda: takes_clients(address), TIMEOUT_S)
        with Raw(address) as again:
            again.ask(b"peek 2", b"NOT_FOUND")
            again.ask(b"delete %d" % job, b"DELETED")
    finally:
        cluster.close()


def takes_clients(address: str) -> bool:
    """Whether a new connection is answered."""
    with Raw(address) as client:
        client.ask(b"use default", b"USING default")
        return True

"""Kill nodes while Workq jobs are pending: nothing acknowledged is lost, no result comes twice.

In the test with both protocols, Gearman jobs run in foreground in the same cluster.
"""

import uuid

from beanpole.client.workq import Client, Result, State
from tests.integration.support.foreground import Foreground
from tests.integration.support.nodes import Cluster
from tests.integration.support.pending import Pending
from tests.integration.support.processes import answers
from tests.integration.support.waiting import wait_until

PENDING = 1000
PENDING_CLIENTS = 8
FOREGROUND = 50
PORT_TIMEOUT_S = 60.0
WAIT_MS = 30_000
# The first is long enough to ask for the job's state and kill a node before its lease ends; the
# longer one is for leases that must not end while a node is killed.
TTR_MS, LONG_TTR_MS = 8_000, 600_000


def ports(quick: Cluster, protocol: str) -> list[str]:
    """Return all nodes' addresses of a protocol, once the nodes accept clients there."""
    addresses = [node.speaks(protocol) for node in quick.nodes]
    wait_until(lambda: all(map(answers, addresses)), PORT_TIMEOUT_S, f"the ports of {protocol}")
    return addresses


def test_leader_killed_under_workq_and_gearman(quick: Cluster) -> None:
    leader = quick.leader()
    workq, gearman = (
        [address for number, address in enumerate(ports(quick, name)) if number != leader]
        for name in ("workq", "gearman")
    )
    pending = Pending(workq, PENDING, PENDING_CLIENTS)
    pending.add()
    foreground = Foreground(gearman, FOREGROUND, rounds=2)
    foreground.start()
    pending.start()
    assert pending.some_done.wait(WAIT_MS / 1000)
    foreground.gates[0].set()
    quick.kill(leader)
    foreground.gates[1].set()
    foreground.finish()
    pending.finish()
    foreground.check()
    pending.check()
    # Until their TTL ends, every client can read the results at each node.
    for address in workq:
        with Client([address]) as client:
            for job in pending.jobs[::100]:
                found = client.result(job, 0)
                assert found is not None and found.success


def test_the_client_goes_to_another_node(quick: Cluster) -> None:
    """With several addresses, the project's client survives the end of its node."""
    addresses = ports(quick, "workq")
    leader = quick.leader()
    mine = next(number for number in range(3) if number != leader)
    order = [addresses[mine], *(address for i, address in enumerate(addresses) if i != mine)]
    with Client(order) as client, Client(order[1:]) as other:
        jobs = [client.add(b"moving", b"%d" % number, ttr_ms=LONG_TTR_MS) for number in range(3)]
        taken = client.lease([b"moving"])
        assert taken is not None and taken.id == jobs[0]
        quick.kill(mine)
        # A lease belongs to no session: any client can complete the job.
        client.complete(taken.id, b"after")
        assert client.address != addresses[mine]
        assert other.result(jobs[0], WAIT_MS) == Result(True, b"after")
        added = client.add(b"moving", b"3", ttr_ms=LONG_TTR_MS)
        left = [other.lease([b"moving"]) for _ in range(3)]
        assert [job and job.id for job in left] == [jobs[1], jobs[2], added]
        other.complete(added, b"last")
        assert client.result(added, 0) == Result(True, b"last")


def test_the_node_of_a_worker_dies(quick: Cluster) -> None:
    """A lease ends with its TTR even if its worker's node is dead: another worker gets the job."""
    addresses = ports(quick, "workq")
    leader = quick.leader()
    dying, second = (number for number in range(3) if number != leader)
    job = uuid.uuid4()
    with Client([addresses[dying]]) as worker, Client([addresses[second]]) as other:
        other.add(b"given", b"x", job=job, ttr_ms=TTR_MS)
        leased = worker.lease([b"given"], WAIT_MS)
        assert leased is not None and leased.id == job
        assert other.inspect_job(job).state == State.LEASED
        quick.kill(dying)
        again = other.lease([b"given"], WAIT_MS)
        assert again == leased
        info = other.inspect_job(job)
        assert (info.state, info.attempts) == (State.LEASED, 2)
        other.complete(job, b"done")
        assert other.result(job, 0) == Result(True, b"done")

"""The administration of jobs and queues on a real cluster, by commands and calls.

The requests are tested one by one in tests/unit/beanpoled/test_jobs_rpc.py, the effect of a change
on a job in tests/unit/core/test_administering.py. With TEST_FULL=1 a list has 100,000 jobs.
"""

import itertools
import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final

import grpc
import pytest

from beanpole.client.admin import Admin
from beanpole.client.rpc import Nodes
from beanpole.errors import ClientError
from beanpole.pb import (
    jobs_pb2,
    policies_pb2,
    policies_pb2_grpc,
    queue_pb2,
    queue_pb2_grpc,
    users_pb2,
    users_pb2_grpc,
)
from beanpole.protocol.gearman import packets as p
from tests.integration.support.backups import Packets
from tests.integration.support.commands import Commands
from tests.integration.support.nodes import Cluster
from tests.integration.support.raw import Raw

CALL_TIMEOUT_S: Final = 60.0
JOBS: Final = 100_000 if "TEST_FULL" in os.environ else 20_000
PAGES: Final = 100
PART: Final = 4_000
DELETE: Final = jobs_pb2.JOB_ACTION_DELETE
MOVE: Final = jobs_pb2.JOB_ACTION_MOVE
NO_MAJORITY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def put(node_grpc: str, tube: str, bodies: Sequence[bytes]) -> list[int]:
    with grpc.insecure_channel(node_grpc) as channel:
        stub = queue_pb2_grpc.QueueStub(channel)
        found: list[int] = []
        for first in range(0, len(bodies), PART):
            jobs = [queue_pb2.PutJob(tube=tube, body=body) for body in bodies[first : first + PART]]
            reply = stub.Put(queue_pb2.PutRequest(jobs=jobs), timeout=CALL_TIMEOUT_S)
            found += [result.job_id for result in reply.results]
    assert all(found)
    return found


def bury(client: Raw, tube: bytes, job: int) -> None:
    client.command(b"watch " + tube)
    assert client.command(b"reserve-job %d" % job)[0].startswith(b"RESERVED")
    assert client.command(b"bury %d 0" % job)[0] == b"BURIED"


@contextmanager
def admin_at(*addresses: str) -> Iterator[Admin]:
    with Nodes(addresses) as nodes:
        yield Admin(nodes)


def listed(admin: Admin, limit: int = 1000, **wanted: Any) -> list[int]:
    """Return the ids of all jobs that match a filter, in the order of the list."""
    request = jobs_pb2.ListJobsRequest(filter=jobs_pb2.JobFilter(**wanted), limit=limit)
    return [job.id for page in admin.pages(request) for job in page.jobs]


# --- every command at a follower ------------------------------------------------------------------


def test_dead_letters_are_found_and_come_back(shared: Cluster) -> None:
    """An investigation through a follower: the oldest job, reasons of burials, a redrive."""
    node = shared.nodes[shared.followers()[0]]
    run = Commands(node.grpc)
    jobs = put(node.grpc, "mail", [b'{"to": "ann"}', b'{"to": "bob"}', b'{"to": "eve"}'])
    with Raw(node.beanstalk) as client:
        for job in jobs[:2]:
            bury(client, b"mail", job)
        client.command(b"use mail.failures")
        client.put(b"job %d\n\nKeyError: 'ann'" % jobs[0])

        mail = run.json("queue show mail")
        assert (mail["ready"], mail["buried"], mail["oldest_job"]) == (1, 2, jobs[0])
        queues = {one["name"]: one for one in run.json("queue list --sort oldest")}
        assert queues["mail"]["buried"] == 2 and queues["mail.failures"]["ready"] == 1
        assert "mail.failures" in run("queue list")
        buried = run.json("job list --queue mail --state buried")
        assert [one["id"] for one in buried] == jobs[:2]
        assert [one["buries"] for one in buried] == [1, 1]
        assert [one["id"] for one in run.json("job search bob --queue mail")] == [jobs[1]]
        shown = run(f"job show {jobs[0]}")
        assert '{"to": "ann"}' in shown and "KeyError: 'ann'" in shown

        dead = "--from mail --to mail-dead --state buried --as buried"
        assert "2 jobs would be moved" in run(f"job move {dead} --dry-run")
        assert run("job move " + dead) == "2 jobs moved to mail-dead\n"
        assert run.json("queue show mail-dead")["buried"] == 2
        assert run("job move --from mail-dead --to mail") == "2 jobs moved to mail\n"
        assert "no queue" in run("queue show mail-dead", status=1)
        # Ordered by priority, then by id: the job that was put first is first again.
        client.command(b"watch mail")
        line, body = client.command(b"reserve-with-timeout 1")
        assert (line.split()[1], body) == (b"%d" % jobs[0], b'{"to": "ann"}')


def test_one_job_is_changed_and_deleted(shared: Cluster) -> None:
    node = shared.nodes[shared.followers()[0]]
    run = Commands(node.grpc)
    first, second = put(node.grpc, "one", [b"1", b"2"])
    assert run(f"job change {first} --priority 9") == f"job {first} changed\n"
    assert run(f"job change {second} --delay 2h") == f"job {second} changed\n"
    one, two = run.json("job list --queue one")
    assert (one["priority"], two["state"], two["left_s"] > 7100) == (9, "delayed", True)
    assert run(f"job kick {second}") == f"job {second} kicked\n"
    assert run(f"job bury {first} {second}") == "2 jobs buried\n"
    assert run("queue kick one 1") == "1 job kicked\n"
    assert "not in a state" in run(f"job kick {first}", status=1)
    assert run.json(f"job delete {first} {second} 999999999", status=1)["changed"] == 2
    assert "there is no job" in run(f"job show {first}", status=1)


def test_a_queue_is_paused_and_cleared(shared: Cluster) -> None:
    node = shared.nodes[shared.followers()[0]]
    run = Commands(node.grpc)
    put(node.grpc, "full", [b"x"] * 700)
    with Raw(node.beanstalk) as client:
        client.command(b"watch full")
        run("queue pause full --for 15m")
        assert client.command(b"reserve-with-timeout 0")[0] == b"TIMED_OUT"
        assert run.json("queue show full")["paused"] is True
        run("queue resume full")
        line, _ = client.command(b"reserve-with-timeout 1")
        held = int(line.split()[1])
        assert "--yes" in run("queue clear full", status=2)
        assert run.json("queue clear full --dry-run")["changed"] == 699
        assert run("queue clear full --yes") == "699 jobs deleted\n"
        assert [one["id"] for one in run.json("job list --queue full")] == [held]
        holder = run.json(f"job show {held}")["holder"]
        assert (holder["node"], holder["protocol"]) == (node.id, "beanstalk")
        assert run("queue clear full --state reserved --yes") == "1 job deleted\n"
        assert client.command(b"delete %d" % held)[0] == b"NOT_FOUND"
    assert "NO_QUEUE" not in run("queue pause nothing", status=1)


def test_jobs_of_gearman_are_changed_and_not_taken_elsewhere(shared: Cluster) -> None:
    node = shared.nodes[shared.followers()[0]]
    run = Commands(node.grpc)
    with closing(Packets(node.speaks("gearman"))) as gearman:
        gearman.ask(p.SUBMIT_JOB_BG, b"resize", b"unique", b"picture")
        [job] = run.json("job list --queue gearman:resize")
        assert (job["external_id"], job["body"]) == ("unique", "picture")
        number = job["id"]
        refused = run(f"job move {number} --to resize", status=1)
        assert "another protocol" in refused
        run(f"job move {number} --to gearman:crop")
        assert run.json("queue show gearman:crop")["ready"] == 1
        assert run("queue clear gearman:crop --yes") == "1 job deleted\n"
        created, (handle,) = gearman.ask(p.SUBMIT_JOB, b"resize", b"waits", b"picture")
        assert created == p.JOB_CREATED
        [job] = run.json("job list --queue gearman:resize")
        assert run(f"job bury {job['id']}") == f"job {job['id']} buried\n"
        run(f"job delete {job['id']}")
        # Its client is notified before the reply to its next request.
        assert gearman.ask(p.ECHO_REQ, b"still there") == (p.WORK_FAIL, (handle,))
    assert "qless" in run("job list --queue qless:q", status=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("job delete", "which jobs"),
        ("job delete 1 --queue q", "either ids"),
        ("job change 1", "--priority or --delay"),
        ("job move --from q --to q", "there already"),
        ("job move --from q --to workq:q", "two protocols"),
        ("job kick --queue q --state ready", "cannot be done"),
        ("job list --queue nothing:q", "no protocol"),
        ("job list --older 3x", "no time"),
        ("queue pause q --for 0", "1 to"),
    ],
)
def test_what_is_wrong_is_said(shared: Cluster, words: str, said: str) -> None:
    run = Commands(shared.nodes[0].grpc)
    assert said in run(words, status=2)


# --- while the leader is killed (all commands: test_everything) -----------------------------------


def test_a_move_of_many_goes_on_at_another_node(cluster: Cluster) -> None:
    """The leader serves the move and is killed during it: each job moves once, none is lost."""
    leader, followers = cluster.roles()
    jobs = put(cluster.nodes[leader].grpc, "many", [b"x"] * 20_000)
    killed = threading.Event()

    def look(told: jobs_pb2.ChangeProgress) -> None:
        if told.changed > 2_000 and not killed.is_set():
            killed.set()
            cluster.kill(leader)

    request = jobs_pb2.ChangeRequest(
        action=MOVE, filter=jobs_pb2.JobFilter(queue="many"), to_queue="other"
    )
    addresses = [cluster.nodes[number].grpc for number in (leader, *followers)]
    with admin_at(*addresses) as admin:
        told = admin.change(request, look)
        assert killed.is_set() and told.complete
        # A request in progress when the leader died may have taken effect; it is not counted.
        assert 20_000 - 256 <= told.changed <= 20_000
        assert listed(admin, queue="other") == jobs
        assert listed(admin, queue="many") == []


# --- lists ----------------------------------------------------------------------------------------


class Churn(threading.Thread):
    """Two clients that run until stopped: one puts and deletes jobs, the other moves some."""

    def __init__(self, address: str, beanstalk: str, movable: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self.ending = threading.Event()
        self.rounds = 0
        self.failure: BaseException | None = None
        self._address = address
        self._beanstalk = beanstalk
        self._movable = itertools.cycle(movable)

    def run(self) -> None:
        try:
            with ExitStack() as stack:
                client = stack.enter_context(Raw(self._beanstalk))
                admin = stack.enter_context(admin_at(self._address))
                client.command(b"use churn")
                while not self.ending.is_set():
                    job = client.put(b"short life")
                    move = jobs_pb2.ChangeRequest(
                        action=MOVE,
                        job_ids=[next(self._movable) for _ in range(20)],
                        to_queue=("left", "right")[self.rounds % 2],
                    )
                    admin.change(move)
                    assert client.command(b"delete %d" % job)[0] == b"DELETED"
                    self.rounds += 1
        except (OSError, AssertionError, ClientError) as error:
            self.failure = error


@contextmanager
def churning(churns: Sequence[Churn]) -> Iterator[None]:
    """Run these clients, and end them also when the test fails: other tests use the machine."""
    for churn in churns:
        churn.start()
    try:
        yield
    finally:
        for churn in churns:
            churn.ending.set()
        for churn in churns:
            churn.join(30)


def test_pages_are_stable_while_jobs_come_go_and_move(cluster: Cluster) -> None:
    """Each job that exists throughout is listed exactly once, with pages from all nodes."""
    nodes = cluster.nodes
    jobs = put(nodes[0].grpc, "much", [b"body %d" % number for number in range(JOBS)])
    stay, go, movable = jobs[::2], set(jobs[1::4]), jobs[3::4]
    churns = [Churn(node.grpc, node.beanstalk, movable[n::3]) for n, node in enumerate(nodes)]
    seen: Counter[int] = Counter()
    pages = 0
    deleting = iter(sorted(go, key=lambda job: hash((job, 7))))
    with churning(churns), ExitStack() as stack:
        admins = [stack.enter_context(admin_at(node.grpc)) for node in nodes]
        request = jobs_pb2.ListJobsRequest(limit=JOBS // PAGES)
        complete = False
        while not complete:
            # Each page comes from another node, which may be behind.
            reply = admins[pages % 3].ask("ListJobs", request)
            ids = [job.id for job in reply.jobs]
            assert ids == sorted(ids) and all(one > request.after_id for one in ids)
            seen.update(ids)
            request.after_id, complete = reply.next_after_id, reply.complete
            pages += 1
            some = list(itertools.islice(deleting, JOBS // 1000))
            if some:
                told = admins[0].change(jobs_pb2.ChangeRequest(action=DELETE, job_ids=some))
                assert told.changed == len(some)
    for churn in churns:
        assert not churn.is_alive()
        assert churn.failure is None and churn.rounds > 0, churn.failure
    assert pages > PAGES * 9 // 10
    assert max(seen.values()) == 1
    assert not [job for job in itertools.chain(stay, movable) if seen[job] != 1]


def test_a_list_by_a_node_without_a_majority_is_asked_for(cluster: Cluster) -> None:
    number = cluster.followers()[0]
    jobs = put(cluster.nodes[number].grpc, "alone", [b"x"] * 3)
    with admin_at(cluster.nodes[number].grpc) as admin:
        assert listed(admin, queue="alone") == jobs
        for other in range(3):
            if other != number:
                cluster.kill(other)
        reply = admin.ask("ListJobs", jobs_pb2.ListJobsRequest(local=True))
        assert [job.id for job in reply.jobs] == jobs
    with grpc.insecure_channel(cluster.nodes[number].grpc) as channel:
        users, policies = users_pb2_grpc.UsersStub(channel), policies_pb2_grpc.PoliciesStub(channel)
        aliases = queue_pb2_grpc.QueueStub(channel).ListAliases
        for call, request in (
            (users.List, users_pb2.ListUsersRequest),
            (users.ListRules, users_pb2.ListRulesRequest),
            (policies.List, policies_pb2.ListPoliciesRequest),
            (aliases, queue_pb2.ListAliasesRequest),
        ):
            call(request(local=True), timeout=CALL_TIMEOUT_S)
            with pytest.raises(grpc.RpcError) as refused:
                call(request(), timeout=CALL_TIMEOUT_S)
            assert refused.value.code() in NO_MAJORITY, refused.value

"""Users at three real nodes: tokens, rights, rules and quotas, through a follower and a failover.

The rights are tested in tests/unit/core/test_permission.py, the replies to clients of beanstalk in
tests/unit/node/test_auth.py, of other protocols in tests/unit/beanpoled/test_auth_protocols.py.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import greenstalk
import grpc
import pytest

from beanpole.client.blocking import Client, DeniedError
from beanpole.client.rpc import TOKEN_KEY, detail_of
from beanpole.pb import queue_pb2, queue_pb2_grpc, users_pb2, users_pb2_grpc
from beanpole.protocol.gearman import packets as p
from beanpoled.rpc.callers import WAITING_MAX
from tests.integration.support.backups import SCRIPT
from tests.integration.support.commands import Commands
from tests.integration.support.gearmand import Packets
from tests.integration.support.nodes import STEADY, Cluster, Node, http_get
from tests.integration.support.raw import Raw
from tests.integration.support.resp import Failure, Resp
from tests.integration.support.waiting import wait_until

PATIENCE_S: Final = 60.0
# Calls of strangers that come at once, more than may wait, and puts behind them.
FLOOD: Final = 200
PUTS: Final = 5
# A cluster where anonymous clients have no rights, and commands with an administrator's token.
Locked = tuple[Cluster, Commands]


@contextmanager
def stock(node: Node, token: str = "", tube: str = "mail") -> Iterator["greenstalk.Client[str]"]:
    """An unmodified client, which is only authenticated by its first command."""
    host, _, port = node.beanstalk.rpartition(":")
    with greenstalk.Client((host, int(port))) as client:
        if token:
            client._send_cmd(b"auth %b" % token.encode(), b"ACCEPTED")
        client.use(tube)
        client.watch(tube)
        yield client


def lock(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, place: Path) -> Locked:
    """Lock a cluster, unless it is; return it with commands that ask a follower first."""
    leader, followers = cluster.roles()
    run = Commands(*[cluster.nodes[number].grpc for number in (*followers, leader)])
    file = place / "token"
    if cluster.directory not in LOCKED:
        run("user set root --right all=all:*")
        file.write_text(run("user token root"))
        monkeypatch.setenv("BEANPOLE_TOKEN_FILE", str(file))
        run("user set anonymous")
        LOCKED[cluster.directory] = file.read_text()
    file.write_text(LOCKED[cluster.directory])
    monkeypatch.setenv("BEANPOLE_TOKEN_FILE", str(file))
    return cluster, run


@pytest.fixture
def locked(quick: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Locked:
    """The module's cluster, locked."""
    return lock(quick, monkeypatch, tmp_path)


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Locked]:
    """A locked cluster whose calls wait for a majority longer than a slow machine takes."""
    with Cluster(tmp_path / "steady", settings=STEADY).running() as cluster:
        yield lock(cluster, monkeypatch, tmp_path)


LOCKED: Final[dict[Path, str]] = {}


def denied(act: object) -> bool:
    """Whether a stock client gets DENIED; its connection stays open."""
    assert callable(act)
    with pytest.raises(greenstalk.UnknownResponseError) as told:
        act()
    return bool(told.value.status == b"DENIED")


def test_a_stock_client_is_denied_and_allowed_through_a_follower(
    locked: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, run = locked
    node = cluster.nodes[cluster.followers()[0]]
    host, _, port = node.beanstalk.rpartition(":")
    with greenstalk.Client((host, int(port))) as nobody:
        assert denied(lambda: nobody.put("x"))
        assert denied(lambda: nobody.watch("mail"))
        assert denied(lambda: nobody.reserve(timeout=0))
        assert nobody.tubes() == []
    run("user set lee --right put,work=mail*")
    token = run("user token lee").strip()
    with stock(node, token) as lee:
        job = lee.put("hello")
        assert lee.reserve(timeout=5).body == "hello"
        assert denied(lambda: lee.use("other"))
        assert denied(lambda: lee.kick(1))
        lee.delete(greenstalk.Job(job, ""))
    monkeypatch.delenv("BEANPOLE_TOKEN_FILE")
    assert "a token is needed" in run("queue list", status=3)
    monkeypatch.setenv("BEANPOLE_TOKEN", token)
    assert run.json("user whoami")["user"] == "lee"
    assert "lee lacks the right admin in all:*" in run("user list", status=3)
    assert Commands(node.beanstalk)("put --tube mail --ttr 60 hello").strip()
    assert "DENIED" in Commands(node.beanstalk)("put --tube other hello", status=3)
    monkeypatch.setenv("BEANPOLE_TOKEN", "of-nobody")
    assert "no user has this token" in run("queue list", status=3)
    _, page = http_get(node.http, "/metrics")
    assert 'beanpole_auth_refused_total{reason="unknown_token"}' in page
    assert token not in page and token not in cluster.story()


def test_wrong_tokens_keep_nobody_from_putting(steady: Locked) -> None:
    """Their checks share barriers, and take no place of calls that do something."""
    cluster, _ = steady
    leader, (follower, other) = cluster.roles()
    node = cluster.nodes[follower]
    request = queue_pb2.PutRequest(jobs=[queue_pb2.PutJob(tube="flooded", body=b"x")])
    with ExitStack() as stack:
        strangers, known = (stack.enter_context(grpc.insecure_channel(node.grpc)) for _ in range(2))

        def bearer(token: str) -> dict[str, Any]:
            return {"metadata": ((TOKEN_KEY, f"Bearer {token}"),), "timeout": PATIENCE_S}

        def put(channel: grpc.Channel, token: str) -> Any:
            return queue_pb2_grpc.QueueStub(channel).Put.future(request, **bearer(token))

        root = LOCKED[cluster.directory].strip()
        put(known, root).result()
        with paused(cluster, [leader, other]):
            wrong = [put(strangers, f"wrong-{number}") for number in range(FLOOD)]
            wait_until(
                lambda: sum(call.done() for call in wrong) >= FLOOD - WAITING_MAX,
                PATIENCE_S,
                "strangers beyond the limits are refused",
            )
            puts = [put(known, root) for _ in range(PUTS)]
            who = users_pb2_grpc.UsersStub(known).WhoAmI
            for _ in range(PUTS):  # calls that wait for no barrier, so that the puts have come
                assert who(users_pb2.WhoAmIRequest(), **bearer(root)).user == "root"
        assert all(call.result().results[0].job_id for call in puts)
        told = Counter(detail_of(call.exception()).reason for call in wrong)
    assert set(told) == {"TOO_MANY_CHECKS", "UNKNOWN_TOKEN"}, told


@contextmanager
def paused(cluster: Cluster, numbers: Sequence[int]) -> Iterator[None]:
    """Stop nodes for a moment: the other one is without a majority, and answers no barrier."""
    pids = [cluster.pid(number) for number in numbers]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def agree(nodes: Sequence[Node]) -> bool:
    """Whether all nodes know the same users; each node lists its own table."""
    tables = [Commands(node.grpc).json("user list") for node in nodes]
    return all(table == tables[0] for table in tables)


def test_a_token_is_rotated_while_the_leader_is_killed(locked: Locked) -> None:
    cluster, run = locked
    run("user set ann --right put,work=jobs")
    old, new = (run("user token ann").strip() for _ in range(2))
    leader, followers = cluster.roles()
    nodes = [cluster.nodes[number] for number in (leader, *followers)]
    follower = nodes[1]
    addresses = [node.beanstalk for node in nodes]
    with (
        stock(follower, old, "jobs") as by_old,
        Client(addresses, use="jobs", watch="jobs", spread=False, token=new) as by_new,
    ):
        by_new.put("before")
        cluster.kill(leader)
        by_new.put("after")  # at another node, where the client authenticates again
        assert by_old.reserve(timeout=20).body == "before"
        shown = Commands(follower.grpc).json("user show ann")["token_ids"]
        run(f"user token ann --drop {shown[0]}")
        assert denied(lambda: by_old.put("x"))
        assert denied(lambda: by_old.reserve(timeout=0))
        assert by_new.reserve(timeout=20).body == "after"
        with pytest.raises(DeniedError):
            Client(addresses[1:], use="jobs", token=old)
        with pytest.raises(DeniedError):
            Client(addresses[1:], use="other", token=new)
    cluster.mend()
    wait_until(lambda: agree(nodes), PATIENCE_S, "the same users at every node")


def test_a_rule_makes_clients_of_a_network_users(locked: Locked, tmp_path: Path) -> None:
    cluster, run = locked
    node = cluster.nodes[cluster.followers()[-1]]
    run("user set local --right put,work=near")
    rules = tmp_path / "rules"
    rules.write_text("# nearest first\nbeanstalk 127.0.0.0/8 - local\n- 10.0.0.0/8 - anonymous\n")
    run(f"user rules --set {rules}")

    def served() -> bool:
        try:
            with stock(node, tube="near") as client:
                client.put("x")
            return True
        except greenstalk.UnknownResponseError:
            return False

    # A rule applies to new clients, once their node has applied it.
    wait_until(served, PATIENCE_S, "the rule at another node")
    found = Commands(node.grpc).json("user rules")
    assert [rule["user"] for rule in found] == ["local", "anonymous"]
    assert "a rule names" in run("user drop local", status=3)
    rules.write_text("")
    run(f"user rules --set {rules}")
    wait_until(lambda: not served(), PATIENCE_S, "no rule")


# --- other protocols ------------------------------------------------------------------------------


class Given(NamedTuple):
    """A user with a token, and the node that its clients use, a follower.

    Attributes:
        change: sets the user's rights through another node and waits until this node knows them.
    """

    token: str
    node: Node
    change: Callable[[str], object]


@pytest.fixture
def given(locked: Locked, request: pytest.FixtureRequest) -> Given:
    """A user named after the test."""
    cluster, run = locked
    name = request.node.name.removeprefix("test_")
    run(f"user set {name}")
    node = cluster.nodes[cluster.followers()[-1]]

    def change(words: str) -> None:
        run(f"user set {name} {words}")
        wait_until(lambda: agree(cluster.nodes), PATIENCE_S, "the change at every node")

    return Given(run(f"user token {name}").strip(), node, change)


def add(number: int, queue: str = "mail") -> bytes:
    """Return the command that adds a job by Workq."""
    return b"add 0253b98a-025b-4730-b795-%012d %b 60000 600000 1\r\nx" % (number, queue.encode())


def test_workq_is_allowed_refused_and_told_at_a_follower(given: Given) -> None:
    denied = b"-CLIENT-ERROR Denied"
    given.change("--right put,work=workq:mail")
    with Raw(given.node.speaks("workq"), PATIENCE_S) as client:
        client.ask(add(1), denied)
        client.ask(b"lease mail 0", denied)
        client.ask(b"auth %b" % given.token.encode(), b"+OK")
        client.ask(add(1), b"+OK")
        client.ask(add(2, "other"), denied)
        client.ask(b"lease mail other 0", denied)
        client.ask(b"lease mail 0", b"+OK 1")
        client.line()
        assert client.body(1) == b"x"
        client.ask(b"complete 0253b98a-025b-4730-b795-000000000001 1\r\nx", b"+OK")
        client.send(b"lease mail 600000\r\n")
        given.change("--right put=workq:mail")
        client.expect(denied)
        client.ask(b"lease mail 0", denied)
        client.ask(add(3), b"+OK")
        given.change("--right put,work=workq:mail --jobs-max 1")
        client.ask(b"lease mail 0", b"+OK 1")
        client.line()
        client.body(1)
        client.ask(add(4), b"+OK")  # the other jobs are from before the quota
        client.ask(add(5), b"-SERVER-ERROR Out of memory")
        client.ask(b"delete 0253b98a-025b-4730-b795-000000000004", b"+OK")
        client.ask(add(5), b"+OK")


def test_gearman_is_allowed_refused_and_told_at_a_follower(given: Given) -> None:
    denied = (p.ERROR, [b"ACCESS_DENIED", b"The user may not do this"])
    given.change("--right put,work=gearman:mail")
    with closing(Packets(given.node.speaks("gearman"))) as client:
        assert client.ask(p.SUBMIT_JOB_BG, b"mail", b"", b"x") == denied
        assert client.ask(p.CAN_DO, b"mail") == denied
        assert client.admin("status") == ["ERR ACCESS_DENIED The+user+may+not+do+this"]
        assert client.admin(f"auth {given.token}") == ["OK"]
        assert client.ask(p.SUBMIT_JOB_BG, b"mail", b"", b"x")[0] == p.JOB_CREATED
        assert client.ask(p.SUBMIT_JOB_BG, b"other", b"", b"x") == denied
        assert client.ask(p.CAN_DO, b"other") == denied
        assert client.admin("drop function mail") == ["ERR ACCESS_DENIED The+user+may+not+do+this"]
        client.send(p.CAN_DO, b"mail")
        kind, (handle, *_) = client.ask(p.GRAB_JOB)
        assert kind == p.JOB_ASSIGN
        client.send(p.WORK_COMPLETE, handle, b"done")
        client.send(p.PRE_SLEEP)
        assert client.ask(p.ECHO_REQ, b"asleep") == (p.ECHO_RES, [b"asleep"])
        given.change("--right put=gearman:mail --bytes-max 3")
        assert client.receive() == denied
        assert client.ask(p.GRAB_JOB) == (p.NO_JOB, [b""])
        assert client.ask(p.SUBMIT_JOB_BG, b"mail", b"", b"1234")[1][0] == b"QUEUE_ERROR"
        assert client.ask(p.SUBMIT_JOB_BG, b"mail", b"", b"123")[0] == p.JOB_CREATED
        given.change("--right put,work=gearman:mail")
        assert client.ask(p.GRAB_JOB)[0] == p.JOB_ASSIGN


def test_qless_is_allowed_and_refused_at_a_follower(given: Given) -> None:
    unknown, no_right = Failure("NOAUTH Authentication required."), "NOPERM "
    given.change("--right put,work=qless:mail")

    def put(client: Resp, queue: str, jid: str) -> object:
        return client.ask("EVAL", SCRIPT, 0, "put", 1, "worker", queue, jid, "Klass", "{}", 0)

    def pop(client: Resp, queue: str = "mail") -> object:
        return client.ask("EVAL", SCRIPT, 0, "pop", 2, queue, "worker", 1)

    def is_refused(reply: object) -> bool:
        return isinstance(reply, Failure) and reply.text.startswith(no_right)

    with Resp(given.node.speaks("qless")) as client:
        assert put(client, "mail", "one") == pop(client) == unknown
        assert client.ask("SUBSCRIBE", "ql:log") == unknown
        assert client.ask("AUTH", given.token) == "OK"
        assert put(client, "mail", "one") == b"one"
        assert is_refused(put(client, "other", "two"))
        assert is_refused(pop(client, "other"))
        given.change("--right put=qless:mail")
        assert is_refused(pop(client))
        assert put(client, "mail", "two") == b"two"
        given.change("--right put,work=qless:mail")
        popped = pop(client)
        assert isinstance(popped, bytes) and b'"state":"running"' in popped
        given.change("--right put,work=qless:mail --jobs-max 1")
        assert put(client, "mail", "three") == b"three"  # the others are from before the quota
        refusal = put(client, "mail", "four")
        assert isinstance(refusal, Failure) and "the quota of the user is used up" in refusal.text
        client.ask("EVAL", SCRIPT, 0, "cancel", 3, "three")
        assert put(client, "mail", "four") == b"four"
        assert client.ask("PING") == "PONG"


# --- waits, quotas and rates ----------------------------------------------------------------------


def test_a_stock_worker_that_waits_is_told_at_a_follower(given: Given) -> None:
    given.change("--right put,work=mail*")
    with stock(given.node, given.token, "mail-wait") as worker, ThreadPoolExecutor() as pool:
        waiting = pool.submit(denied, lambda: worker.reserve(timeout=60))

        def waits() -> bool:
            # Ask the worker's node, as a client with a right in the queue.
            with stock(given.node, given.token, "mail-wait") as asking:
                return bool(asking.stats_tube("mail-wait")["current-waiting"])

        wait_until(waits, PATIENCE_S, "the worker at its node")
        given.change("--right put=mail*")
        assert waiting.result(PATIENCE_S)
        worker.put("still here")


def test_quotas_and_a_rate_count_at_every_node(locked: Locked) -> None:
    cluster, run = locked
    quota = "user set tenant --right all=mail-of-tenant --jobs-max 3 --bytes-max 100"
    run(f"{quota} --commands-per-second-max 50")
    token = run("user token tenant").strip()
    with ExitStack() as stack:
        clients = [
            stack.enter_context(stock(node, token, "mail-of-tenant")) for node in cluster.nodes
        ]
        jobs = [client.put("x" * 20) for client in clients]
        for client in clients:
            with pytest.raises(greenstalk.OutOfMemoryError):
                client.put("one too many")
        clients[0].delete(greenstalk.Job(jobs[1], ""))
        with pytest.raises(greenstalk.OutOfMemoryError):
            clients[1].put("x" * 61)
        clients[1].put("x" * 60)
    shown = run("user show tenant")
    assert "3 of 3 jobs" in shown and "100 of 100 bytes" in shown
    assert run.json("user show tenant")["limits"]["commands_per_second_max"] == 50
    with Raw(cluster.nodes[cluster.followers()[0]].beanstalk, PATIENCE_S) as fast:
        fast.ask(b"auth %b" % token.encode(), b"ACCEPTED")
        begun = time.monotonic()
        # One and a half seconds of its rate, beyond the burst that it has saved.
        fast.send(b"list-tube-used\r\n" * 125)
        fast.expect(*[b"USING default"] * 125)
        assert time.monotonic() - begun > 1.2


def test_nobody_locks_everybody_out(locked: Locked) -> None:
    _, run = locked
    for words in ("user drop root", "user set root --right put=*"):
        assert "nobody could change users any more" in run(words, status=3)
    (token,) = run.json("user show root")["token_ids"]
    assert "nobody could change" in run(f"user token root --drop {token}", status=3)

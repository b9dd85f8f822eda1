"""Users at three real nodes: tokens, rights and rules through a follower, and over a failover.

What each right means is in tests/unit/core/test_permission.py, what a client of beanstalk hears in
tests/unit/node/test_auth.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import greenstalk
import pytest

from beanpole.client.blocking import Client, DeniedError
from tests.integration.support.commands import Commands
from tests.integration.support.nodes import Cluster, Node, http_get
from tests.integration.support.waiting import wait_until

PATIENCE_S: Final = 20.0
# A cluster with users of which all that say nothing may do nothing, and an administrator's token.
Locked = tuple[Cluster, Commands]


@contextmanager
def stock(node: Node, token: str = "", tube: str = "mail") -> Iterator["greenstalk.Client[str]"]:
    """A client that knows nothing of Beanpole, but for its first command."""
    host, _, port = node.beanstalk.rpartition(":")
    with greenstalk.Client((host, int(port))) as client:
        if token:
            client._send_cmd(b"auth %b" % token.encode(), b"ACCEPTED")
        client.use(tube)
        client.watch(tube)
        yield client


@pytest.fixture
def locked(quick: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Locked:
    """Commands ask a follower first."""
    followers = [quick.nodes[number] for number in quick.followers()]
    run = Commands(*[node.grpc for node in (*followers, quick.nodes[quick.leader()])])
    file = tmp_path / "token"
    if quick.directory not in LOCKED:
        run("user set root --right all=all:*")
        file.write_text(run("user token root"))
        monkeypatch.setenv("BEANPOLE_TOKEN_FILE", str(file))
        run("user set anonymous")
        LOCKED[quick.directory] = file.read_text()
    file.write_text(LOCKED[quick.directory])
    monkeypatch.setenv("BEANPOLE_TOKEN_FILE", str(file))
    return quick, run


LOCKED: Final[dict[Path, str]] = {}


def denied(act: object) -> bool:
    """Whether a stock client is told so, and goes on to live."""
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
    assert "lee has not the right admin in all:*" in run("user list", status=3)
    assert Commands(node.beanstalk)("put --tube mail --ttr 60 hello").strip()
    assert "DENIED" in Commands(node.beanstalk)("put --tube other hello", status=3)
    monkeypatch.setenv("BEANPOLE_TOKEN", "of-nobody")
    assert "no user has this token" in run("queue list", status=3)
    _, page = http_get(node.http, "/metrics")
    assert 'beanpole_auth_refused_total{reason="unknown_token"}' in page
    assert token not in page and token not in cluster.story()


def test_a_token_is_rotated_while_the_leader_is_killed(locked: Locked) -> None:
    cluster, run = locked
    run("user set ann --right put,work=jobs")
    old, new = (run("user token ann").strip() for _ in range(2))
    nodes = [cluster.nodes[number] for number in (cluster.leader(), *cluster.followers())]
    follower = nodes[1]
    addresses = [node.beanstalk for node in nodes]
    with (
        stock(follower, old, "jobs") as by_old,
        Client(addresses, use="jobs", watch="jobs", spread=False, token=new) as by_new,
    ):
        by_new.put("before")
        cluster.kill(cluster.leader())
        by_new.put("after")  # at another node, where it says its token again
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
    tables = [Commands(node.grpc).json("user list") for node in nodes]
    assert tables[0] == tables[1] == tables[2]


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

    # A rule counts for clients that come, as their node knows it then.
    wait_until(served, PATIENCE_S, "the rule at another node")
    found = Commands(node.grpc).json("user rules")
    assert [rule["user"] for rule in found] == ["local", "anonymous"]
    assert "a rule names" in run("user drop local", status=3)
    rules.write_text("")
    run(f"user rules --set {rules}")
    wait_until(lambda: not served(), PATIENCE_S, "no rule")


def test_nobody_locks_everybody_out(locked: Locked) -> None:
    _, run = locked
    for words in ("user drop root", "user set root --right put=*"):
        assert "nobody could change users any more" in run(words, status=3)
    (token,) = run.json("user show root")["token_ids"]
    assert "nobody could change" in run(f"user token root --drop {token}", status=3)

"""The client of RESP: greetings, pipelined requests, and retries after a lost connection."""

import time
from types import SimpleNamespace

import pytest

from beanpole.client import redis, stream
from beanpole.client.patience import PAUSE_MIN_S
from beanpole.client.redis import AuthenticationFailed, Redis
from beanpole.errors import ClientError
from beanpole.protocol.resp.client import encode
from beanpole.protocol.resp.values import Error
from tests.unit.client.scripted import Node, Script

A, B = encode([b"GET", b"a"]), encode([b"GET", b"b"])


def test_a_connection_begins_with_its_greetings() -> None:
    auth, select = encode([b"AUTH", b"u", b"p"]), encode([b"SELECT", b"3"])
    node = Node([(auth, b"+OK\r\n"), (select, b"+OK\r\n"), (A, b"$1\r\nx\r\n")])
    with Redis([node.address], user="u", password="p", database=3) as client:
        assert client.ask(b"GET", b"a") == b"x"
    node.finish()


def test_a_password_that_is_wrong_is_told_at_once() -> None:
    node = Node([(encode([b"AUTH", b"p"]), b"-WRONGPASS no\r\n")])
    with Redis([node.address], password="p") as client, pytest.raises(AuthenticationFailed) as told:
        client.ask(b"GET", b"a")
    assert "WRONGPASS no" in str(told.value)
    node.finish()


def test_a_database_that_is_none_is_told_at_once() -> None:
    node = Node([(encode([b"SELECT", b"99"]), b"-ERR DB index is out of range\r\n")])
    with Redis([node.address], database=99) as client, pytest.raises(ClientError) as told:
        client.ask(b"GET", b"a")
    assert "DB index" in str(told.value)
    node.finish()


def test_a_server_that_wants_a_password_is_told_apart() -> None:
    node = Node([(A, b"-NOAUTH Authentication required.\r\n")])
    with Redis([node.address]) as client, pytest.raises(AuthenticationFailed):
        client.ask(b"GET", b"a")
    node.finish()


def test_what_a_lost_connection_leaves_is_asked_again() -> None:
    """All requests are repeated: a reply that had arrived is not used twice."""
    first = Node([(A + B, b"$1\r\n1\r\n"), (b"", None)])
    second = Node([(A + B, b"$1\r\n2\r\n-ERR no\r\n")])
    with Redis([first.address, second.address]) as client:
        replies = client.ask_all([[b"GET", b"a"], [b"GET", b"b"]])
    assert replies == [b"2", Error(b"ERR no")]
    first.finish()
    second.finish()


def test_requests_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "PIECE_BYTES", len(A) + 1)
    node = Node([(A + B, b":1\r\n:2\r\n"), (A, b":3\r\n")])
    with Redis([node.address]) as client:
        assert client.ask_all([[b"GET", b"a"], [b"GET", b"b"], [b"GET", b"a"]]) == [1, 2, 3]
        assert client.ask_all([]) == []
    node.finish()


INFO, AUTH = encode([b"INFO", b"server"]), encode([b"AUTH", b"a-token"])


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


def test_a_token_goes_to_a_node() -> None:
    facts = bulk(b"# Server\r\nredis_version:7.0.15\r\nbeanpole_version:0.4.0\r\n")
    node = Node([(INFO, facts), (AUTH, b"+OK\r\n"), (A, bulk(b"x"))])
    with Redis([node.address], token="a-token") as client:
        assert client.ask(b"GET", b"a") == b"x"
    node.finish()


@pytest.mark.parametrize(
    "reply",
    [
        bulk(b"# Server\r\nredis_version:7.0.15\r\n"),
        b"-NOAUTH Authentication required.\r\n",
        b"-ERR unknown command\r\n",
        b":1\r\n",
    ],
)
def test_another_server_never_sees_a_token(reply: bytes) -> None:
    other = Node([(INFO, reply), (b"", None)])
    with Redis([other.address], token="a-token") as client, pytest.raises(ClientError):
        client.ask(b"GET", b"a")
    other.finish()


@pytest.mark.parametrize(
    "reply", [b"-ERR max number of clients reached\r\n", b"-LOADING it reads its data\r\n"]
)
@pytest.mark.parametrize("greeting", ["token", "password"])
def test_a_server_that_refuses_its_greeting_for_now_is_passed_over(
    reply: bytes, greeting: str
) -> None:
    facts = (INFO, bulk(b"beanpole_version:0.4.0\r\n"))
    auth = (AUTH, b"+OK\r\n")
    taken = [facts, auth] if greeting == "token" else [auth]
    refused = Node([(taken[0][0], reply), (b"", None)])
    other = Node([*taken, (A, bulk(b"x"))])
    given = {greeting: "a-token"}
    with Redis([refused.address, other.address], **given) as client:  # type: ignore[arg-type]
        assert client.ask(b"GET", b"a") == b"x"
    refused.finish()
    other.finish()


def test_a_full_server_is_passed_over() -> None:
    full = Node([(A, b"-ERR max number of clients reached\r\n"), (b"", None)])
    other = Node([(A, bulk(b"x"))])
    with Redis([full.address, other.address]) as client:
        assert client.ask(b"GET", b"a") == b"x"
    full.finish()
    other.finish()


def test_pauses_before_a_full_server_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses_s: list[float] = []
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=pauses_s.append)
    monkeypatch.setattr(stream, "time", clock)
    monkeypatch.setattr(stream, "jitter", lambda pause_s: pause_s)
    full: Script = [(A, b"-ERR max number of clients reached\r\n"), (b"", None)]
    node = Node(full, full, full, [(A, bulk(b"x"))])
    with Redis([node.address]) as client:
        assert client.ask(b"GET", b"a") == b"x"
    node.finish()
    assert pauses_s == [PAUSE_MIN_S, 2 * PAUSE_MIN_S, 4 * PAUSE_MIN_S]

"""The keys in which reqless keeps patterns: Redis's replies, a command and transactions."""

import pytest

from tests.unit.beanpoled.qless_scene import Client, Scene, array

DYNAMIC, PRIORITY = b"qmore:dynamic", b"qmore:priority"


@pytest.fixture
def client() -> Client:
    return Scene().connect()


def test_a_hash_of_patterns(client: Client) -> None:
    assert client.ask(array(b"HGETALL", DYNAMIC)) == b"*0\r\n"
    assert client.ask(array(b"HSET", DYNAMIC, b"a", b"[1]", b"b", b"[2]")) == b":2\r\n"
    assert client.ask(array(b"HSET", DYNAMIC, b"b", b"[3]", b"c", b"[]")) == b":1\r\n"
    items = (b"a", b"[1]", b"b", b"[3]", b"c", b"[]")
    assert client.ask(array(b"HGETALL", DYNAMIC)) == array(*items)
    assert client.ask(b"KEYS *\r\n") == array(b"ql:")
    assert client.ask(array(b"DEL", DYNAMIC) * 2) == b":1\r\n:0\r\n"
    assert client.ask(array(b"HGETALL", DYNAMIC)) == b"*0\r\n"


def test_a_list_of_priorities(client: Client) -> None:
    assert client.ask(array(b"RPUSH", PRIORITY, b"x", b"y")) == b":2\r\n"
    assert client.ask(array(b"RPUSH", PRIORITY, b"x")) == b":3\r\n"
    for start, stop, found in (
        (b"0", b"-1", (b"x", b"y", b"x")),
        (b"1", b"1", (b"y",)),
        (b"-2", b"99", (b"y", b"x")),
        (b"-99", b"0", (b"x",)),
        (b"2", b"1", ()),
        (b"0", b"-9", ()),
    ):
        assert client.ask(array(b"LRANGE", PRIORITY, start, stop)) == array(*found)


def test_a_transaction_is_one_command(client: Client) -> None:
    client.ask(array(b"RPUSH", PRIORITY, b"old"))
    said = client.ask(
        array(b"MULTI")
        + array(b"DEL", PRIORITY)
        + array(b"RPUSH", PRIORITY, b"a")
        + array(b"RPUSH", PRIORITY, b"b", b"c")
        + array(b"EXEC")
    )
    assert said == b"+OK\r\n" + b"+QUEUED\r\n" * 3 + b"*3\r\n:1\r\n:1\r\n:3\r\n"
    assert client.ask(array(b"LRANGE", PRIORITY, b"0", b"-1")) == array(b"a", b"b", b"c")
    assert client.ask(array(b"MULTI") + array(b"EXEC")) == b"+OK\r\n*0\r\n"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (array(b"GET", b"x"), b"-ERR unknown command"),
        (array(b"HSET", b"other", b"a", b"b"), b"-ERR the only keys"),
        (array(b"HSET", DYNAMIC, b"a", b"b", b"c"), b"-ERR wrong number"),
        (array(b"HSET", PRIORITY, b"a", b"b"), b"-WRONGTYPE"),
        (array(b"RPUSH", DYNAMIC, b"a"), b"-WRONGTYPE"),
        (array(b"DEL", PRIORITY), b"-ERR a transaction"),
        (array(b"HGETALL", DYNAMIC), b"-ERR a transaction"),
        (array(b"PING"), b"-ERR a transaction"),
    ],
)
def test_a_wrong_command_ends_a_transaction(client: Client, wrong: bytes, error: bytes) -> None:
    said = client.ask(
        array(b"MULTI") + array(b"HSET", DYNAMIC, b"a", b"[]") + wrong + array(b"EXEC")
    )
    ok, queued, refused, aborted, rest = said.split(b"\r\n")
    assert (ok, queued, rest) == (b"+OK", b"+QUEUED", b"")
    assert refused.startswith(error)
    assert aborted.startswith(b"-EXECABORT ")
    assert client.ask(array(b"HGETALL", DYNAMIC)) == b"*0\r\n", "nothing of it was done"
    assert client.ask(b"PING\r\n") == b"+PONG\r\n"


def test_a_transaction_has_a_bounded_size(client: Client) -> None:
    """It is kept for as long as the client likes, which needs no right for that."""
    edit = array(b"HSET", DYNAMIC, b"a", bytes(500_000))
    assert client.ask(array(b"MULTI") + edit * 4) == b"+OK\r\n" + b"+QUEUED\r\n" * 4
    assert client.ask(edit) == b"-ERR a transaction has 2097152 bytes at most\r\n"
    assert client.ask(b"EXEC\r\n").startswith(b"-EXECABORT ")
    edit = array(b"RPUSH", PRIORITY, *[b""] * 9000)
    assert client.ask(array(b"MULTI") + edit * 4) == b"+OK\r\n" + b"+QUEUED\r\n" * 4
    assert client.ask(edit).startswith(b"-ERR a transaction has "), "of many objects, too"


@pytest.mark.parametrize("end", [b"DISCARD\r\n", b"RESET\r\n", b"EXEC\r\n"])
def test_a_transaction_counts_as_a_request_that_does_not_end(client: Client, end: bytes) -> None:
    unfinished = client.scene.node.clients.unfinished
    client.ask(array(b"MULTI") + array(b"HSET", DYNAMIC, b"a", bytes(20_000)))
    assert 20_000 <= unfinished.bytes < 21_000
    client.ask(array(b"HSET", DYNAMIC, b"b", bytes(20_000)))
    assert 40_000 <= unfinished.bytes < 41_000
    client.ask(end)
    assert unfinished.bytes == 0


def test_discard_and_reset_forget_a_transaction(client: Client) -> None:
    assert client.ask(b"EXEC\r\n").startswith(b"-ERR EXEC without MULTI")
    assert client.ask(b"DISCARD\r\n").startswith(b"-ERR DISCARD without MULTI")
    for end in (b"DISCARD\r\n", b"RESET\r\n"):
        client.ask(b"MULTI\r\n" + array(b"DEL", DYNAMIC))
        assert client.ask(b"MULTI\r\n").startswith(b"-ERR MULTI calls")
        client.ask(end)
        assert client.ask(b"EXEC\r\n").startswith(b"-ERR EXEC without MULTI")


def test_wrong_ranges_and_keys(client: Client) -> None:
    assert client.ask(array(b"LRANGE", PRIORITY, b"x", b"1")).startswith(b"-ERR value is not")
    assert client.ask(array(b"LRANGE", DYNAMIC, b"0", b"1")).startswith(b"-WRONGTYPE")
    assert client.ask(array(b"HGETALL", b"qmore:other")).startswith(b"-ERR the only keys")
    large = b"x" * (1024 * 1024)
    assert client.ask(array(b"RPUSH", PRIORITY, large, b"x")).startswith(b"-ERR nothing was done")
    assert client.ask(array(b"LRANGE", PRIORITY, b"0", b"-1")) == b"*0\r\n"

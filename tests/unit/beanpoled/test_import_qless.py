"""Options and report of `beanpole import-qless`; `make test-qless` runs it with a Redis."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from beanpole import qless as q
from beanpole.client.qless_import import _DEPENDS_AT, SCRIPT, _Import, _import
from beanpole.client.qless_outcome import Outcome, Tally
from beanpole.client.qless_source import THROTTLES, Found, Source, Throttle
from beanpole.client.redis import Redis
from beanpole.errors import ClientError
from beanpole.protocol.qless.recognition import recognise
from beanpole.protocol.resp.client import Reply, ReplyParser, encode
from beanpole.protocol.resp.values import Error
from beanpoled.cli import import_qless, main
from tests.unit.beanpoled.qless_scene import Scene
from tests.unit.client.scripted import Node


def test_nodes_know_the_script_of_an_import() -> None:
    script = recognise(SCRIPT)
    assert script is not None
    assert script.flavour == q.THROTTLES


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("host:1", ("", "host:1", 0)),
        ("redis://host", ("", "host:6379", 0)),
        ("redis://a%20b@host:1/7", ("a b", "host:1", 7)),
        ("redis://[::1]", ("", "[::1]:6379", 0)),
        ("redis://[::1]:5/", ("", "[::1]:5", 0)),
    ],
)
def test_where_a_redis_is(text: str, place: tuple[str, str, int]) -> None:
    assert import_qless._place(text) == place


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["host"], "REDIS = 'host' is not allowed: it must be HOST:PORT"),
        (["redis://u:p@host"], "REDIS must not hold a password: use --password-file"),
        (["redis://a%20b@host"], "REDIS names the user 'a b': --password-file is required"),
        (["redis://host/one"], "the database 'one' is no number"),
        (["redis://host/" + "1" * 5000], "1' is no number"),
        (["h:1", "--password-file", "/nowhere"], "--password-file /nowhere: "),
    ],
)
def test_what_is_not_allowed_is_named(
    line: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import-qless", *line]) == 2
    assert words in capsys.readouterr().err


def test_a_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("open sesame\nmore\n")
    assert import_qless._password(path) == "open sesame"


def test_a_report_counts_by_state() -> None:
    outcome = Outcome()
    outcome.note("waiting", brought=3, there=1)
    outcome.refuse("waiting", b"j\xff", "why")
    outcome.note("failed")
    lines = import_qless._report(outcome, dry=False).splitlines()
    assert [line.split() for line in lines] == [
        ["found", "imported", "already", "there", "refused"],
        ["waiting", "5", "3", "1", "1"],
        ["failed", "0", "0", "0", "0"],
    ]
    assert (outcome.refused, len(outcome.reasons)) == (1, 1)


def test_a_long_name_is_cut_off() -> None:
    """Redis bounds no name: that of one job would have filled the screen."""
    outcome = Outcome()
    outcome.refuse("waiting", b"x" * 80, "why")
    outcome.refuse("waiting", b"x" * 5000, "why")
    assert outcome.reasons[0] == f"waiting '{'x' * 80}': why"
    assert outcome.reasons[1] == f"waiting '{'x' * 80}'... (5000 bytes): why"


def test_a_job_that_waits_for_a_refused_one_names_it_in_short() -> None:
    arguments = tuple((b"x" * 5000,) if place == _DEPENDS_AT else 0 for place in range(16))
    bringing = _Import(Source(Scripted({}), 0.0), Scripted({}), 0.0, lambda *_: None, Outcome())
    bringing._batch([Found(b"x" * 5000, q.WAITING, "too long")])
    bringing._batch([Found(b"y", q.DEPENDS, arguments)])
    words = f"it waits for '{'x' * 80}'... (5000 bytes), which was refused"
    assert bringing._outcome.reasons[1] == f"depends 'y': {words}"


def test_the_nodes_get_the_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, tuple[str, str]] = {}

    class Server(Redis):
        """A server that answers everything."""

        def __init__(
            self, addresses: list[str], *, password: str = "", token: str = "", **_: Any
        ) -> None:
            super().__init__(addresses)
            told[addresses[0]] = (password, token)

        def ask(self, *words: bytes) -> Any:
            return b"PONG"

    monkeypatch.setattr(import_qless, "Redis", Server)
    monkeypatch.setattr(import_qless, "bring", lambda *_: Outcome())
    monkeypatch.setenv("BEANPOLE_TOKEN", "a-token")
    assert main(["import-qless", "redis:1", "--to", "node:1"]) == 0
    assert told == {"redis:1": ("", ""), "node:1": ("", "a-token")}


class Scripted(Redis):
    """A server with replies by the first word of a request."""

    def __init__(self, replies: dict[bytes, list[Reply]]) -> None:
        super().__init__(["127.0.0.1:1"])
        self.replies = replies

    def ask_all(self, requests: Sequence[Sequence[bytes]]) -> list[Reply]:
        return [self.replies[words[0]].pop(0) for words in requests]


def test_a_throttle_that_has_expired_is_not_set_for_ever() -> None:
    keys: list[Reply] = [THROTTLES + name for name in (b"for ever", b"soon", b"now", b"gone")]
    replies: dict[bytes, list[Reply]] = {
        b"SCAN": [[b"0", keys]],
        b"HGET": [b"5"] * 4,
        b"TTL": [-1, 9, 0, -2],
    }
    found = list(Source(Scripted(replies), 0.0).throttles())
    assert found == [Throttle(b"for ever", b"5", 0), Throttle(b"soon", b"5", 9)]


def test_patterns_that_a_node_does_not_show_are_not_said_to_be_there() -> None:
    error = Error(b"ERR the disk is full")
    target = Scripted({b"HGETALL": [error], b"LRANGE": [[b"p"]]})
    source = Scripted({b"HGETALL": [[b"a", b"b"]], b"LRANGE": [[b"p"]]})
    found = Source(source, 0.0)
    bringing = _Import(found, target, 0.0, lambda *_: None, Outcome())
    bringing._patterns(*found.patterns())
    assert bringing._outcome.kinds["patterns"] == Tally(found=2, there=1, refused=1)


def test_a_throttle_that_a_node_does_not_show_is_not_said_to_be_there() -> None:
    keys: list[Reply] = [THROTTLES + name for name in (b"long", b"there", b"new")]
    replies: dict[bytes, list[Reply]] = {
        b"SCAN": [[b"0", keys]],
        b"HGET": [b"5"] * 3,
        b"TTL": [-1] * 3,
    }
    error = Error(b"ERR nothing was done: bytes of a name: 4096 at most")
    target = Scripted({b"EVAL": [error, -1, -2, None]})
    found = Source(Scripted(replies), 0.0)
    bringing = _Import(found, target, 0.0, lambda *_: None, Outcome())
    bringing._throttles(found.throttles())
    outcome = bringing._outcome
    assert outcome.kinds["throttles"] == Tally(found=3, brought=1, there=1, refused=1)
    assert outcome.reasons == ["throttles 'long': nothing was done: bytes of a name: 4096 at most"]


@pytest.mark.constants
def test_patterns_whose_reply_is_lost_come_once() -> None:
    class Lossy(Redis):
        """A node that does all requests and loses the replies, and then is asked again."""

        def ask_all(self, requests: Sequence[Sequence[bytes]]) -> list[Reply]:
            said = b""
            for _ in range(2):
                said = client.ask(b"".join(map(encode, requests)))
            parser = ReplyParser()
            parser.feed(said)
            return [found[0] for _ in requests if (found := parser.next())]

    client = Scene().connect()
    source = Scripted({b"HGETALL": [[b"a", b"b"]], b"LRANGE": [[b"one", b"two"]]})
    target = Lossy(["127.0.0.1:1"])
    found = Source(source, 0.0)
    bringing = _Import(found, target, 0.0, lambda *_: None, Outcome())
    bringing._patterns(*found.patterns())
    assert bringing._outcome.kinds["patterns"] == Tally(found=3, brought=3)
    assert target.ask(b"LRANGE", b"qmore:priority", b"0", b"-1") == [b"one", b"two"]


QUEUES = [(name, 1.0, (name, False)) for name in (b"a", b"b")]
SENT = b"".join(encode(_import(b"queue", at, arguments)) for _, at, arguments in QUEUES)
DRAINING = b"-ERR this node is draining: it makes no jobs\r\n"


def test_an_import_that_a_limit_ends_has_counted_what_was_made() -> None:
    """A node makes a request although it refuses the one before: it needs less room."""
    refusal = b"-ERR a limit of the cluster is reached: not enough room\r\n"
    node = Node([(SENT, refusal + b":1\r\n")])
    outcome = Outcome()
    with (
        Redis([node.address]) as target,
        pytest.raises(ClientError, match="takes no more: a limit"),
    ):
        bringing = _Import(Source(Scripted({}), 0.0), target, 0.0, lambda *_: None, outcome)
        bringing._imports("queues", b"queue", QUEUES)
    assert outcome.kinds["queues"] == Tally(found=1, brought=1)
    node.finish()


def test_a_node_that_drains_is_passed_over() -> None:
    """It had done the first request, which is there already when the next node does all again."""
    first, second = Node([(SENT, b":1\r\n" + DRAINING)]), Node([(SENT, b":0\r\n:1\r\n")])
    with Redis([first.address, second.address]) as target:
        bringing = _Import(Source(Scripted({}), 0.0), target, 0.0, lambda *_: None, Outcome())
        bringing._imports("queues", b"queue", QUEUES)
        assert target.address == second.address
    assert bringing._outcome.kinds["queues"] == Tally(found=2, brought=2)
    first.finish()
    second.finish()


def test_an_import_ends_where_every_node_drains() -> None:
    nodes = [Node([(SENT, 2 * DRAINING)]) for _ in range(2)]
    addresses = [node.address for node in nodes]
    with Redis(addresses) as target, pytest.raises(ClientError) as raised:
        bringing = _Import(Source(Scripted({}), 0.0), target, 0.0, lambda *_: None, Outcome())
        bringing._imports("queues", b"queue", QUEUES)
    words = "every node that answers is draining, and makes no jobs"
    assert f"{words} ({', '.join(addresses)}): name others" in str(raised.value)
    for node in nodes:
        node.finish()

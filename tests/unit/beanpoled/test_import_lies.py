"""`beanpole import-qless` from a server that answers as no Redis does."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from beanpole.client import qless_source, redis
from beanpole.client.qless_source import JOBS, Source
from beanpole.client.redis import Redis
from beanpole.errors import ClientError
from beanpole.protocol.resp.client import Reply, encode
from beanpole.protocol.resp.values import Error
from beanpoled.cli import exits, import_qless, main
from tests.unit.beanpoled.test_import_breaks import Cluster, Keys, jobs
from tests.unit.client.scripted import Node


class Liar(Keys):
    """A Redis with a job, a throttle and a template, and a wrong reply to one command."""

    def __init__(self, name: bytes, wrong: Reply) -> None:
        throttle, template = {b"maximum": b"5"}, {b"queue": b"q"}
        super().__init__({**jobs(1), b"ql:th:t": throttle, b"ql:r:r": template})
        self.name = name
        self.wrong = wrong

    def reply(self, name: bytes, key: bytes = b"", *words: bytes) -> Reply:
        if name == self.name:
            return self.wrong
        if name == b"TTL":
            return -1
        found = super().reply(name, key, *words)
        return found[0] if name == b"HGET" and isinstance(found, list) else found


def run(monkeypatch: pytest.MonkeyPatch, source: Redis) -> int:
    def server(addresses: list[str], **_: Any) -> Redis:
        return source if addresses == ["redis:1"] else Cluster()

    monkeypatch.setattr(import_qless, "Redis", server)
    return main(["import-qless", "redis:1", "--to", "node:1"])


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *[(b"HMGET", wrong) for wrong in (b"x", 7, None, [b"1"], [b"1", 2], [b"1"] * 3)],
        *[(b"HGETALL", wrong) for wrong in (b"x", 7, None, [b"x"], [b"x", None])],
        *[(b"ZRANGE", wrong) for wrong in (7, None, [b"x"], [b"x", b"y"], [b"x", b"nan"])],
        *[(b"ZSCORE", wrong) for wrong in (7, b"x", b"nan", [b"1"])],
        *[(b"SMEMBERS", wrong) for wrong in (7, None, b"x", [None])],
        *[(b"LRANGE", wrong) for wrong in (7, None, b"x", [3])],
        *[(b"HGET", 7), (b"TTL", b"1"), (b"TTL", None)],
        *[(b"SCAN", wrong) for wrong in ([b"0", b"x"], [b"0", None], [b"0", [b"other"]])],
    ],
)
def test_a_reply_that_no_redis_gives_is_one_line(
    name: bytes, wrong: Reply, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, Liar(name, wrong)) == exits.EXIT_NO_ANSWER
    error = capsys.readouterr().err.removesuffix(f"{import_qless._BROKEN_OFF}\n")
    (line,) = [one for one in error.splitlines() if one.startswith("beanpole: ")]
    assert f"the Redis does not answer {name.decode()} of " in line
    assert "as a Redis does: this is another server, or one that is damaged" in line


class Walking(Redis):
    """A server with these cursors, and a key in each step that has one."""

    def __init__(self, cursors: Sequence[bytes] = (), has_keys: bool = False) -> None:
        super().__init__(["redis:1"])
        self.cursors = iter(cursors) if cursors else map(b"%d".__mod__, count(1))
        self.has_keys = has_keys

    def ask_all(self, requests: Sequence[Sequence[bytes]]) -> list[Reply]:
        cursor = next(self.cursors)
        return [[cursor, [JOBS + cursor] if self.has_keys else []] for _ in requests]


@pytest.mark.parametrize("has_keys", [False, True])
def test_a_walk_whose_cursor_comes_again_ends(has_keys: bool) -> None:
    source = Source(Walking([b"7", b"3", b"7"], has_keys), 0.0)
    with pytest.raises(ClientError, match="does not end SCAN: after 3 steps its cursor is '7'"):
        list(source._walk(JOBS))


def test_a_walk_of_too_many_steps_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qless_source, "SCAN_STEPS_MAX", 50)
    with pytest.raises(ClientError, match="does not end SCAN: after 51 steps its cursor is '51'"):
        list(Source(Walking(), 0.0)._walk(JOBS))


def test_a_walk_has_each_key_once() -> None:
    source = Source(Walking([b"7", b"3", b"0"], has_keys=True), 0.0)
    assert list(source._walk(JOBS)) == [[JOBS + b"7"], [JOBS + b"3"], [JOBS + b"0"]]


EVIL = b"-ERR \x1b[2Jevil\x07 \xff" + 300 * b"x" + b"\r\n"
TAMED = r"ERR \x1b[2Jevil\x07 \xff"


def test_the_text_of_an_error_is_not_obeyed_by_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scan = encode([b"SCAN", b"0", b"MATCH", b"ql:j:*", b"COUNT", qless_source.SCAN_COUNT])
    server = Node([(encode([b"PING"]), b"+PONG\r\n"), (scan, EVIL)])
    assert main(["import-qless", server.address, "--dry-run"]) == exits.EXIT_NO_ANSWER
    error = capsys.readouterr().err
    assert f"the Redis refuses SCAN: {TAMED}" in error
    assert error.rstrip("\n").isprintable()
    server.finish()
    server = Node([(encode([b"SELECT", b"3"]), EVIL)])
    assert main(["import-qless", f"redis://{server.address}/3"]) == exits.EXIT_NO_ANSWER
    error = capsys.readouterr().err
    assert TAMED in error and error.rstrip("\n").isprintable()
    server.finish()


def test_a_long_text_of_an_error_is_cut_off() -> None:
    assert redis.words_of(Error(b"x" * 200)) == "x" * 200
    assert redis.words_of(Error(b"x" * 5000)) == "x" * 200 + "... (5000 bytes)"

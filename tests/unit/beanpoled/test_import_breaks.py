"""`beanpole import-qless` where the Redis has keys of other types, or does not answer any more."""

from collections.abc import Sequence
from typing import Any, Final

import pytest

from beanpole.client.qless_import import bring, look
from beanpole.client.qless_outcome import REASONS_MAX, Outcome
from beanpole.client.qless_source import BATCH_JOBS, SCAN_COUNT, Source
from beanpole.client.redis import Redis
from beanpole.errors import ClientError
from beanpole.protocol.resp.client import Reply, encode
from beanpole.protocol.resp.values import Error
from beanpoled.cli import exits, import_qless, main
from tests.unit.client.scripted import Node

Value = bytes | list[bytes] | dict[bytes, bytes]
WRONG_TYPE: Final = Error(b"WRONGTYPE Operation against a key holding the wrong kind of value")


class Keys(Redis):
    """A Redis with some keys: strings, lists (also for sets and sorted sets) and hashes."""

    def __init__(self, keys: dict[bytes, Value]) -> None:
        super().__init__(["redis:1"])
        self.keys = keys

    def ask_all(self, requests: Sequence[Sequence[bytes]]) -> list[Reply]:
        return [self.reply(*words) for words in requests]

    def reply(self, name: bytes, key: bytes = b"", *words: bytes) -> Reply:
        if name == b"PING":
            return b"PONG"
        if name == b"SCAN":
            prefix = words[1].removesuffix(b"*")
            return [b"0", [one for one in self.keys if one.startswith(prefix)]]
        kind = dict if name in (b"HMGET", b"HGETALL", b"HGET") else list
        value = self.keys.get(key, kind())
        if not isinstance(value, kind):
            return WRONG_TYPE
        if isinstance(value, dict):
            if name == b"HGETALL":
                return [word for pair in value.items() for word in pair]
            return [value.get(word) for word in words]
        return None if name == b"ZSCORE" else list(value)


class Cluster(Redis):
    """The nodes: they make whatever they get, and count it."""

    def __init__(self) -> None:
        super().__init__(["node:1"])
        self.made = 0

    def ask_all(self, requests: Sequence[Sequence[bytes]]) -> list[Reply]:
        self.made += sum(words[0] == b"BEANPOLE.IMPORT" for words in requests)
        return [b"{}" if b"config.get" in words else 1 for words in requests]


def jobs(count: int, **fields: bytes) -> dict[bytes, Value]:
    """Return the keys of jobs in a queue."""
    its = {b"state": b"waiting", b"queue": b"q", b"klass": b"K", b"data": b"{}"}
    its |= {b"priority": b"0", b"retries": b"5", b"remaining": b"5", b"tags": b"[]"}
    its |= {name.encode(): value for name, value in fields.items()}
    jids = [b"%05d" % number for number in range(count)]
    found: dict[bytes, Value] = {b"ql:j:" + jid: {**its, b"jid": jid} for jid in jids}
    return found


@pytest.mark.parametrize(
    "key",
    [b"ql:tracked", b"ql:failures", b"ql:paused_queues", b"qmore:dynamic", b"ql:r:x", b"ql:th:x"],
)
def test_a_key_of_another_type_ends_an_import_before_it_begins(key: bytes) -> None:
    source = Source(Keys({**jobs(2), b"ql:queues": [b"q", b"1"], key: b"text"}), 0.0)
    cluster, outcome = Cluster(), Outcome()
    with pytest.raises(ClientError, match="has another type than qless gives it"):
        bring(source, cluster, 0.0, lambda *_: None, outcome)
    assert cluster.made == 0 and not outcome.begun
    with pytest.raises(ClientError, match="has another type than qless gives it"):
        look(source)


def test_what_a_job_waits_for_is_read_before_an_import_begins() -> None:
    key = b"ql:j:00001-dependencies"
    source = Source(Keys({**jobs(2, state=b"depends"), b"ql:queues": [b"q", b"1"], key: b""}), 0.0)
    cluster = Cluster()
    with pytest.raises(ClientError, match=key.decode()):
        bring(source, cluster, 0.0, lambda *_: None, Outcome())
    assert cluster.made == 0


class Leaving(Keys):
    """A Redis during whose second batch of jobs the command is ended by Ctrl-C."""

    def reply(self, name: bytes, key: bytes = b"", *words: bytes) -> Reply:
        if (name, key) == (b"HGETALL", b"ql:j:%05d" % BATCH_JOBS):
            raise KeyboardInterrupt
        return super().reply(name, key, *words)


@pytest.mark.parametrize("ends_by", ["type", "signal"])
def test_an_import_that_breaks_off_says_what_stays(
    ends_by: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = jobs(BATCH_JOBS + 1)
    kind: type[Keys] = Leaving
    status = 130
    if ends_by == "type":
        keys[b"ql:j:%05d-history" % BATCH_JOBS] = b"text"
        kind, status = Keys, exits.EXIT_NO_ANSWER
    cluster = Cluster()

    def server(addresses: list[str], **_: Any) -> Redis:
        return kind(keys) if addresses == ["redis:1"] else cluster

    monkeypatch.setattr(import_qless, "Redis", server)
    assert main(["import-qless", "redis:1", "--to", "node:1"]) == status
    said = capsys.readouterr()
    rows = [line.split() for line in said.out.splitlines()]
    assert ["waiting", str(BATCH_JOBS), str(BATCH_JOBS), "0", "0"] in rows
    assert cluster.made == BATCH_JOBS
    assert "what was brought stays; repeat the command" in said.err


def test_an_import_that_does_not_begin_says_nothing_of_what_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys: dict[bytes, Value] = {**jobs(1), b"ql:tracked": b"text"}
    monkeypatch.setattr(import_qless, "Redis", lambda *_, **__: Keys(keys))
    assert main(["import-qless", "redis:1", "--to", "node:1"]) == exits.EXIT_NO_ANSWER
    said = capsys.readouterr()
    assert said.out == "" and "stays" not in said.err


def test_a_redis_that_closes_is_named_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    scan = encode([b"SCAN", b"0", b"MATCH", b"ql:j:*", b"COUNT", SCAN_COUNT])
    redis = Node([(encode([b"PING"]), b"+PONG\r\n"), (scan, None)])
    assert main(["import-qless", redis.address, "--dry-run"]) == exits.EXIT_NO_ANSWER
    words = f"cannot be read any more: {redis.address}: the Redis closed the connection"
    assert words in capsys.readouterr().err
    redis.finish()


def test_what_does_not_come_over_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job is imported, and the status says that something is missing."""
    keys: dict[bytes, Value] = {
        **jobs(REASONS_MAX + 2, tags=b"[1"),
        b"ql:j:00001-history": [b"no JSON"],
        b"ql:config": {b"heartbeat": b"inf", b"grace-period": b"20", b"q-heartbeat": b"nan"},
    }
    cluster = Cluster()

    def server(addresses: list[str], **_: Any) -> Redis:
        return Keys(keys) if addresses == ["redis:1"] else cluster

    monkeypatch.setattr(import_qless, "Redis", server)
    assert main(["import-qless", "redis:1", "--to", "node:1"]) == exits.EXIT_NO_ANSWER
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert "refused: options 'heartbeat': its value 'inf' is not finite" in lines
    assert "refused: options 'q-heartbeat': its value 'nan' is not finite" in lines
    without = "imported without what cannot be read: waiting"
    assert f"{without} '00000': its tags" in lines
    assert f"{without} '00001': its tags and an item of its history" in lines
    assert lines[-1] == "... and 2 more"
    rows = [line.split() for line in said.out.splitlines()]
    assert ["waiting", "22", "22", "0", "0"] in rows
    assert ["options", "3", "1", "0", "2"] in rows
    del keys[b"ql:config"]
    for job in keys.values():
        assert isinstance(job, dict | list)
        if isinstance(job, dict):
            job[b"tags"] = b"[]"
    assert main(["import-qless", "redis:1", "--to", "node:1"]) == exits.EXIT_NO_ANSWER
    del keys[b"ql:j:00001-history"]
    assert main(["import-qless", "redis:1", "--to", "node:1"]) == 0

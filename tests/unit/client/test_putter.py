"""Puts in bulk over gRPC, with replies that the tests give."""

import pytest

from beanpole.client import queue
from beanpole.client.queue import Putter
from beanpole.errors import ClientError
from beanpole.pb import queue_pb2

INSERTED = queue_pb2.PUT_OUTCOME_INSERTED
FULL = queue_pb2.PUT_OUTCOME_OUT_OF_MEMORY


class Call:
    """A call whose reply is there."""

    def __init__(self, *outcomes: queue_pb2.PutOutcome) -> None:
        self.reply = queue_pb2.PutReply(
            results=[queue_pb2.PutResult(outcome=one) for one in outcomes]
        )

    def result(self) -> queue_pb2.PutReply:
        """Return the reply, as the calls of gRPC do."""
        return self.reply


def putter(monkeypatch: pytest.MonkeyPatch, *replies: Call) -> Putter:
    """Return a putter whose patience is over after one attempt for each but the first reply."""
    first, *others = replies
    left = iter(others)
    monkeypatch.setattr(Putter, "_send", lambda self: self._sent.append((self._jobs, "", first)))
    monkeypatch.setattr(queue, "_put", lambda *_: next(left).reply)
    monkeypatch.setattr(queue, "pauses", lambda _: iter([None] * len(others)))
    return Putter(["127.0.0.1:1"])


def test_room_that_the_last_attempt_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    with putter(monkeypatch, Call(FULL), Call(FULL), Call(INSERTED)) as some:
        some.put(queue_pb2.PutJob(body=b"x", key=b"k"))
        assert some.finish().inserted == 1


def test_no_room_at_all_is_told_with_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with putter(monkeypatch, Call(FULL), Call(FULL)) as some:
        some.put(queue_pb2.PutJob(body=b"x", key=b"k"))
        with pytest.raises(ClientError, match="the cluster is full: 1 of 1 jobs"):
            some.finish()

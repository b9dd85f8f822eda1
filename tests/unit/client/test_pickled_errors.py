"""Exceptions of the clients survive pickling, as a ProcessPoolExecutor needs."""

import copy
import pickle
from typing import Any

import grpc
import pytest

from beanpole.client import admin, aio, blocking, events, queue, rpc, stream, worker, workq


class Failed(grpc.RpcError):
    """A call that a node refused."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.INVALID_ARGUMENT

    def details(self) -> str:
        return "it is wrong"

    def trailing_metadata(self) -> tuple[()]:
        return ()


LOST = blocking.MayBeDoneError("lost")
ARGUMENTS: dict[type[BaseException], tuple[Any, ...]] = {
    admin.AdminRefused: (Failed(),),
    blocking.BatchError: ([1, None, LOST, blocking.BuriedError([b"7"])],),
    blocking.BuriedError: ([b"17"],),
    blocking.UnknownResponseError: (b"USING", [b"t"]),
    events.EventsLost: (1, 2, {"a:1": "refused"}),
    queue.JobRefused: (3, "too large"),
    rpc.Refused: ("a:1", Failed()),
    stream.Unanswered: ("no node answers: a:1: refused", ["a:1"]),
    worker.Retry: (1.5,),
}
KINDS: set[type[Exception]] = {
    kind
    for module in (admin, aio, blocking, events, queue, rpc, stream, worker, workq)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Exception)
    if kind.__module__.startswith("beanpole.client.")
}


def made(kind: type[Exception]) -> Exception:
    if kind in ARGUMENTS:
        return kind(*ARGUMENTS[kind])
    return kind() if issubclass(kind, blocking.BeanstalkdError) else kind("why")


def shown(error: Exception) -> object:
    state = {name: repr(value) for name, value in vars(error).items()}
    return type(error), str(error), state


@pytest.mark.parametrize("kind", sorted(KINDS, key=repr))
def test_an_error_is_the_same_after_pickling(kind: type[Exception]) -> None:
    error = made(kind)
    error.add_note("a note")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert shown(pickle.loads(pickle.dumps(error, protocol))) == shown(error)
    assert shown(copy.copy(error)) == shown(error)

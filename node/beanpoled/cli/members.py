"""Calls about one member, for commands: any node that answers forwards them to it."""

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import grpc

from beanpole.client.rpc import Nodes, Refused, detail_of, details_of, is_refused, told, words_of
from beanpole.errors import ClientError, ConfigurationError
from beanpoled.cli import status

_Answer = TypeVar("_Answer")

# The node that takes the call, and the member that it asks, give up first and report why.
CALL_TIMEOUT_S: Final = 5.0


class Gone(ClientError):
    """The call is about an object that is gone."""


class Timed(NamedTuple):
    """An answer, and when the call that got it began and ended, by this machine's wall clock."""

    answer: Any
    begun_s: float
    ended_s: float


def members(targets: list[str]) -> list[str]:
    """Return the ids of all members, as known to the first node that answers.

    Raises:
        ClientError: no node answers.
    """
    return [node.id for node in status.first_answer(targets).nodes]


def ask_each(
    wanted: list[str], ask: Callable[[str], _Answer]
) -> tuple[dict[str, _Answer], dict[str, str]]:
    """Ask one member after the other.

    Args:
        wanted: the ids of the members.
        ask: makes the call about one member, by `first_answer`.

    Returns:
        The answers by member, and the reasons of those that do not answer.

    Raises:
        ConfigurationError, Refused: see `timed_answer`; every member would refuse it.
    """
    found: dict[str, _Answer] = {}
    silent: dict[str, str] = {}
    for member in wanted:
        try:
            found[member] = ask(member)
        except Refused:
            raise
        except ClientError as error:
            silent[member] = str(error)
    return found, silent


def first_answer(nodes: Nodes, stub: Any, method: str, request: Any, timeout_s: float) -> Any:
    """Return the answer of `timed_answer` alone."""
    return timed_answer(nodes, stub, method, request, timeout_s).answer


def timed_answer(nodes: Nodes, stub: Any, method: str, request: Any, timeout_s: float) -> Timed:
    """Try one node after the other; a wrong request, a missing right, or a missing object is final.

    Args:
        nodes: the nodes to try.
        stub: the class of the service.
        method: of the service.
        request: of that method.
        timeout_s: the time limit of each node.

    Raises:
        ConfigurationError: the request is wrong.
        Refused: the caller lacks the right, at every node.
        Gone: the object does not exist at its node.
        ClientError: no node answers, or the member's configuration is wrong.
    """
    failures: dict[str, str] = {}
    for target in nodes.in_turn():
        call = getattr(stub(nodes.channel(target)), method)
        begun_s = time.time()
        try:
            return Timed(call(request, timeout=timeout_s), begun_s, time.time())
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
                raise ConfigurationError(details_of(error) or "the request is wrong") from None
            if is_refused(error):
                raise Refused(target, error) from None
            if detail_of(error).reason == "NO_CONNECTION":
                raise Gone(details_of(error) or "it is gone") from None
            if detail_of(error).reason == "BAD_CONFIGURATION":
                raise ClientError(details_of(error) or "its configuration is wrong") from None
            failures[target] = words_of(error)
    raise ClientError(told(failures))

"""Calls that any node answers for the whole cluster: nodes are tried in turn.

The commands themselves are in `alias`, `policy` and `user`.
"""

import argparse
from collections.abc import Callable
from typing import Final, TypeVar

import grpc

from beanpole.client import where
from beanpole.client.admin import AdminRefused, is_refused_by_all
from beanpole.client.rpc import (
    TOO_OLD,
    Nodes,
    detail_of,
    details_of,
    told,
    was_sent,
    words_of,
)
from beanpole.errors import ClientError, ConfigurationError
from beanpoled.cli.exits import say_no

# Reasons of RESOURCE_EXHAUSTED that are limits of the cluster. All others are of one node, which
# is busy: another one may do it.
_FULL: Final = frozenset(
    {
        "TOO_MANY_USERS",
        "TOO_MANY_TOKENS",
        "TOO_MANY_POLICIES",
        "TOO_MANY_ALIASES",
        "TOO_MANY_SESSIONS",
    }
)

Stub = TypeVar("Stub")
T = TypeVar("T")


def ask(
    arguments: argparse.Namespace,
    make: Callable[[grpc.Channel], Stub],
    call: Callable[[Stub], T],
    look: str = "",
) -> T:
    """Try one node after the other and return the first answer.

    A lost node may have removed the object. So `not found` from a later node leaves the outcome
    of a change unknown.

    Args:
        arguments: of the command line, with the nodes' addresses.
        make: makes the stub of a service.
        call: makes the call at such a stub.
        look: the command that shows whether a change without an answer took effect; empty for a
            call that only reads.

    Raises:
        AdminRefused: a node has refused it.
        ConfigurationError: an argument is wrong.
        ClientError: no node has answered.
    """
    failures: dict[str, str] = {}
    lost: dict[str, str] = {}  # those that may have done it
    are_old = True
    with Nodes(where.addresses(arguments, where.GRPC)) as nodes:
        for target in nodes.in_turn():
            try:
                return call(make(nodes.channel(target)))
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
                    raise ConfigurationError(details_of(error)) from None
                if error.code() == grpc.StatusCode.NOT_FOUND and lost and look:
                    words = f"{details_of(error)}; a node that was lost may have done it, look at "
                    raise ClientError(f"{words}`{look}`: {told(lost)}") from None
                if _is_final(error):
                    raise AdminRefused(error) from None
                failures[target] = words_of(error)
                are_old = are_old and error.code() == grpc.StatusCode.UNIMPLEMENTED
                if was_sent(error) and not detail_of(error).reason:
                    lost[target] = failures[target]
    if are_old:
        raise ClientError(f"{TOO_OLD}: {told(failures)}")
    also = f", look at `{look}`" if look else ""
    raise ClientError(f"no answer{also}: {told(failures)}")


def _is_final(error: grpc.RpcError) -> bool:
    """Whether every other node would refuse the call, too."""
    return detail_of(error).reason in _FULL or is_refused_by_all(error)


def says_absent(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Return a command for which it is an answer, and no failure, that something does not exist."""

    def run_or_say(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except AdminRefused as error:
            if error.code != grpc.StatusCode.NOT_FOUND:
                raise
            return say_no(error, getattr(arguments, "json", False))

    return run_or_say

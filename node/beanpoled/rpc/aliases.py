"""Aliases in calls of the gRPC service `Queue`: parse requests, explain refusals, list aliases.

The calls themselves are in `queue`; aliases are in `beanpole.core.jobs.aliases`.
"""

from collections.abc import Iterator

import grpc

from beanpole import commands as c
from beanpole.core.jobs import display_names
from beanpole.core.jobs.aliases import ALIASES_MAX
from beanpole.core.machine import Machine
from beanpole.events import QLESS
from beanpole.pb import queue_pb2
from beanpoled.rpc.queue_names import is_of, new_queue_name
from beanpoled.rpc.server import CallRefused

# (status, message for people, reason code for programs)
Refusal = tuple[grpc.StatusCode, str, str]


def read(request: queue_pb2.SetAliasRequest) -> tuple[bytes, bytes]:
    """Return alias and queue with their prefixes; the queue is empty to remove the alias.

    Raises:
        CallRefused: they are not names of queues in two different spaces.
    """
    alias = _read(request.alias, "alias")
    queue = _read(request.queue, "queue") if request.queue else b""
    if queue and display_names.space_of(queue) == display_names.space_of(alias):
        message = f"{request.alias!r} and {request.queue!r} are queues of one protocol"
        raise CallRefused("BAD_NAME", "alias", message)
    return alias, queue


def _read(text: str, field: str) -> bytes:
    if is_of(text, QLESS):
        words = f"{text!r} is a queue of qless, which has no aliases"
        raise CallRefused("QLESS", field, words)
    return new_queue_name(text, field)


def refusal_of(result: int, request: queue_pb2.SetAliasRequest) -> Refusal | None:
    """Return why an alias was not set or removed; None if it was."""
    alias = repr(request.alias)
    code = grpc.StatusCode
    if result == c.OK:
        return None
    if result == c.NOT_FOUND:
        return code.NOT_FOUND, f"{alias} is no alias", "NO_ALIAS"
    if result == c.BUSY:
        words = f"a queue {alias} is in use: it has jobs, or clients that watch it"
        return code.FAILED_PRECONDITION, words, "ALIAS_IN_USE"
    if result == c.EXISTS:
        words = f"{alias} or {request.queue!r} has an alias already, or is one; remove that first"
        return code.FAILED_PRECONDITION, words, "ALIAS_EXISTS"
    if result == c.OUT_OF_MEMORY:
        words = f"there are {ALIASES_MAX} aliases already; remove one"
        return code.RESOURCE_EXHAUSTED, words, "TOO_MANY_ALIASES"
    return code.INTERNAL, f"the machine refused {alias}: {result}", ""


def refusal_as_dead(
    machine: Machine, alias: bytes, request: queue_pb2.SetAliasRequest
) -> Refusal | None:
    """Return why a tube to which policies move jobs cannot become an alias; None if it is none.

    The machine accepts such an alias, and then buries these jobs.
    """
    rows, aliases = machine.queue.policies.rows, machine.queue.aliases.queues
    if not rows or not request.queue or alias in aliases:
        return None
    patterns = sorted(pattern for pattern, row in rows.items() if row.dead == alias)
    if not patterns:
        return None
    first, others = repr(display_names.queue(patterns[0])), len(patterns) - 1
    whose, which = f"the policy of {first} moves", "that policy"
    if others:
        others_words = f"{others} other pattern{'s' * (others > 1)}"
        whose, which = f"the policies of {first} and {others_words} move", "each of them"
    words = (
        f"{request.alias!r} is in use: {whose} jobs there, and could not to {request.queue!r}; "
        f"set {which} with another dead tube first"
    )
    return grpc.StatusCode.FAILED_PRECONDITION, words, "ALIAS_IN_USE"


def listed(machine: Machine) -> Iterator[queue_pb2.Alias]:
    """Yield all aliases in the order of their names."""
    aliases = machine.queue.aliases.queues
    text_of = display_names.queue
    named = [(text_of(alias), text_of(queue)) for alias, queue in aliases.items()]
    for alias, queue in sorted(named):
        yield queue_pb2.Alias(alias=alias, queue=queue)

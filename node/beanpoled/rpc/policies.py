"""The gRPC service `Policies`: rules that apply to queues.

This file parses and refuses requests; the commands take the path of every client's (`call`).
Policies are explained in `beanpole.core.jobs.policies`.
"""

from typing import Final

import grpc
import grpc.aio

from beanpole import commands as c
from beanpole.constants import U32_MAX
from beanpole.core.jobs import display_names
from beanpole.core.jobs.policies import POLICIES_MAX
from beanpole.core.jobs.policies import Policy as Row
from beanpole.core.jobs.prefixes import ANY
from beanpole.core.jobs.rates import RATE_MAX, RATE_PERIOD_MAX_US, RATE_PERIOD_MIN_US
from beanpole.core.jobs.spaces import PREFIX_END, bare
from beanpole.core.operations.policies import BYTES_MAX, RETAIN_MAX_US, UNIQUE_WINDOW_MAX_US
from beanpole.events import PROTOCOL_NAMES, QLESS, WORKQ
from beanpole.pb import policies_pb2, policies_pb2_grpc
from beanpole.protocol.beanstalk.requests import is_tube_name
from beanpole.protocol.workq.requests import is_name
from beanpoled.rpc.callers import Callers
from beanpoled.rpc.queue_names import NO_TUBE, is_of, queue_name
from beanpoled.rpc.server import CallRefused, Context, fail, refuse
from beanpoled.turn.node import Node

SERVICE: Final = policies_pb2.DESCRIPTOR.services_by_name["Policies"].full_name
# In the machine, names of other protocols' queues begin with a byte below this one.
_FIRST_BYTE: Final = bytes([PREFIX_END])
# Field, least and largest value; 0 is the same as a field that is left out.
_NUMBERS: Final = (
    ("attempts_max", 1, U32_MAX),
    ("jobs_max", 1, U32_MAX),
    ("bytes_max", 1, BYTES_MAX),
    ("ttr_s", 1, U32_MAX),
    ("priority", 1, U32_MAX),
    ("retain_buried_us", 1, RETAIN_MAX_US),
    ("retain_delayed_us", 1, RETAIN_MAX_US),
    ("unique_window_us", 1, UNIQUE_WINDOW_MAX_US),
    ("rate", 1, RATE_MAX),
    ("rate_period_us", RATE_PERIOD_MIN_US, RATE_PERIOD_MAX_US),
)


class PoliciesServicer(policies_pb2_grpc.PoliciesServicer):
    """Sets, drops and lists policies for callers of this node."""

    def __init__(self, node: Node, callers: Callers) -> None:
        self._node = node
        self._callers = callers

    def add_to(self, server: grpc.aio.Server) -> str:
        """Add the service to a server; return its full name."""
        policies_pb2_grpc.add_PoliciesServicer_to_server(self, server)
        return SERVICE

    async def Set(
        self, request: policies_pb2.SetPolicyRequest, context: Context
    ) -> policies_pb2.SetPolicyReply:
        try:
            pattern, row = read_policy(request.policy)
            self._check_no_alias(pattern)
            self._check_dead(row.dead)
        except CallRefused as error:
            await refuse(context, error)
        result = await self._do(context, c.SET_POLICY, pattern, *row)
        if result == c.OUT_OF_MEMORY:
            words = f"there are {POLICIES_MAX} policies already; drop one"
            await fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, words, "TOO_MANY_POLICIES")
        return policies_pb2.SetPolicyReply()

    def _check_no_alias(self, name: bytes) -> None:
        """Check, as far as this node knows, that the policy would have an effect."""
        queue = self._node.context.machine.queue.aliases.queues.get(name)
        if queue is not None:
            alias, target = display_names.queue(name), display_names.queue(queue)
            words = f"{alias!r} is an alias of {target!r}: name that queue"
            raise CallRefused("ALIAS", "policy.pattern", words)

    def _check_dead(self, dead: bytes) -> None:
        """Check, as far as this node knows, that jobs can move to the dead tube."""
        queue = self._node.context.machine.queue.aliases.queues.get(dead)
        if queue is not None:
            alias, target = display_names.queue(dead), display_names.queue(queue)
            words = (
                f"dead: {alias!r} is an alias of {target!r}, where no job of beanstalk can move: "
                "name a tube that is no alias"
            )
            raise CallRefused("ALIAS", "policy.dead", words)

    async def Drop(
        self, request: policies_pb2.DropPolicyRequest, context: Context
    ) -> policies_pb2.DropPolicyReply:
        try:
            pattern = read_pattern(request.pattern)
        except CallRefused as error:
            await refuse(context, error)
        if await self._do(context, c.DROP_POLICY, pattern) == c.NOT_FOUND:
            words = f"there is no policy of {request.pattern!r}"
            await fail(context, grpc.StatusCode.NOT_FOUND, words, "NO_POLICY")
        return policies_pb2.DropPolicyReply()

    async def List(
        self, request: policies_pb2.ListPoliciesRequest, context: Context
    ) -> policies_pb2.ListPoliciesReply:
        if not request.local:
            await self._callers.barrier(context)
        queue = self._node.context.machine.queue
        rows = sorted(queue.policies.rows.items())
        if request.queue:
            try:
                name = _read_queue(request.queue)
            except CallRefused as error:
                await refuse(context, error)
            # Puts into an alias are under the policy of its queue.
            name = queue.aliases.queue_of(name)
            counts = queue.policies.of(name)
            rows = [row for row in rows if row[1] is counts]
        return policies_pb2.ListPoliciesReply(policies=[_policy(*row) for row in rows])

    async def _do(self, context: Context, operation: int, *fields: int | bytes) -> int:
        await self._callers.check_known(operation, "policies", context)
        result: int = c.AGAIN
        while result == c.AGAIN:  # the entry reached its limit of queues
            results = await self._callers.do(context, lambda call: call.submit(operation, *fields))
            result = results[0]
        assert result != c.BAD_COMMAND, "what the machine refuses was refused before"
        return result


def read_policy(policy: policies_pb2.Policy) -> tuple[bytes, Row]:
    """Return a pattern and its policy in the machine's form.

    Raises:
        CallRefused: the policy is invalid.
    """
    pattern = read_pattern(policy.pattern)
    _check_matches(policy.pattern, pattern)
    if pattern[0] < PREFIX_END:
        for name in ("dead", "priority", "unique_window_us"):
            if getattr(policy, name):
                words = f"{name} is for tubes of beanstalk only, and {policy.pattern!r} is none"
                raise CallRefused("OTHER_PROTOCOL", f"policy.{name}", words)
    if policy.attempts_max and is_of(policy.pattern, WORKQ):
        words = "attempts_max has no effect on queues of workq, whose jobs have their own"
        raise CallRefused("OTHER_PROTOCOL", "policy.attempts_max", words)
    if policy.ttr_s and is_of(policy.pattern, WORKQ):
        words = "ttr_s has no effect on queues of workq, whose clients always give a TTR"
        raise CallRefused("OTHER_PROTOCOL", "policy.ttr_s", words)
    for name, least, most in _NUMBERS:
        number = getattr(policy, name)
        if number and not least <= number <= most:
            words = f"{name} = {number} is not allowed: {least} to {most}, or left out"
            raise CallRefused("OUT_OF_RANGE", f"policy.{name}", words)
    if policy.dead and not policy.attempts_max:
        words = "a dead tube has no effect without attempts_max"
        raise CallRefused("NO_ATTEMPTS", "policy.dead", words)
    if policy.when_full and not (policy.jobs_max or policy.bytes_max):
        words = "when_full has no effect without jobs_max or bytes_max"
        raise CallRefused("NO_LIMIT", "policy.when_full", words)
    if policy.when_full not in policies_pb2.WhenFull.values():
        words = f"when_full = {policy.when_full} is unknown"
        raise CallRefused("OUT_OF_RANGE", "policy.when_full", words)
    if bool(policy.rate) != bool(policy.rate_period_us):
        words = "rate and rate_period_us must both be given, or none"
        raise CallRefused("HALF_A_RATE", "policy.rate", words)
    fields = {name: getattr(policy, name) for name in Row._fields}
    return pattern, Row(**{**fields, "dead": _read_dead(policy.dead)})


def read_pattern(text: str) -> bytes:
    """Return a pattern in the machine's form.

    Raises:
        CallRefused: it is not a pattern.
    """
    any_text = ANY.decode()
    stem = text.removesuffix(any_text)
    _check_not_of_qless(text, "BAD_PATTERN", "policy.pattern")
    try:
        name = display_names.parsed(stem) if stem else b""
    except ValueError as error:
        raise CallRefused("BAD_PATTERN", "policy.pattern", str(error)) from None
    is_name = name[:1] < _FIRST_BYTE or is_tube_name(name)
    if (not name and text != any_text) or not is_name:
        words = f"{text!r} {NO_TUBE}; perhaps with {any_text} at its end"
        raise CallRefused("BAD_PATTERN", "policy.pattern", words)
    if ANY in name:
        words = f"{text!r} has {any_text} in its middle; it may stand at the end only"
        raise CallRefused("BAD_PATTERN", "policy.pattern", words)
    return name + ANY if stem != text else name


def _check_matches(text: str, pattern: bytes) -> None:
    """Check that a queue may match a pattern; a policy that was set without this can be dropped.

    A function of Gearman may have an empty name. It is matched by `gearman:*`, for which `gearman:`
    is more likely a slip.
    """
    stem = pattern.removesuffix(ANY)
    if stem[:1] >= _FIRST_BYTE or pattern in (ANY, stem[:1] + ANY):
        return
    if len(stem) == 1:
        every = text + ANY.decode()
        words = f"{text!r} has no name after the colon; all queues of this protocol are {every!r}"
        raise CallRefused("BAD_PATTERN", "policy.pattern", words)
    if display_names.space_of(stem) == PROTOCOL_NAMES[WORKQ] and not is_name(bare(stem)):
        words = f"{text!r} matches no queue: names have A-Z a-z 0-9 _ . -"
        raise CallRefused("BAD_PATTERN", "policy.pattern", words)


def _check_not_of_qless(text: str, reason: str, field: str) -> None:
    if is_of(text, QLESS):
        words = f"{text!r} is a queue of qless, which has no policies but throttles of its own"
        raise CallRefused(reason, field, words)


def _read_queue(text: str) -> bytes:
    """Return the name of a queue in the machine's form.

    Raises:
        CallRefused: no queue has such a name, so that no policy counts for it.
    """
    _check_not_of_qless(text, "BAD_NAME", "queue")
    name = queue_name(text, "queue")
    if name[:1] >= _FIRST_BYTE and not is_tube_name(name):
        raise CallRefused("BAD_NAME", "queue", f"{text!r} {NO_TUBE}")
    return name


def _read_dead(text: str) -> bytes:
    name = text.encode(errors="replace")
    if text and not is_tube_name(name):
        raise CallRefused("BAD_TUBE", "policy.dead", f"dead: {text!r} {NO_TUBE}")
    return name


def _policy(pattern: bytes, row: Row) -> policies_pb2.Policy:
    fields = {**row._asdict(), "dead": row.dead.decode()}
    return policies_pb2.Policy(pattern=display_names.queue(pattern), **fields)

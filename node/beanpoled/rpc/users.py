"""The gRPC service `Users`: users, their tokens, and rules.

This file has the refusals and their words; messages are converted in `user_shapes`. `guarding`
decides which callers may use the service.
"""

from typing import Final

import grpc
import grpc.aio

from beanpole import commands as c
from beanpole.core.users import (
    ANONYMOUS,
    TOKEN_DIGEST_BYTES,
    TOKENS_MAX,
    USERS_MAX,
)
from beanpole.pb import users_pb2, users_pb2_grpc
from beanpoled.rpc import user_shapes as shapes
from beanpoled.rpc.caller import CALLER
from beanpoled.rpc.callers import Callers
from beanpoled.rpc.server import CallRefused, Context, fail, refuse
from beanpoled.turn.node import Node

SERVICE: Final = users_pb2.DESCRIPTOR.services_by_name["Users"].full_name
# Rights in one reply to a list, with each user as one more: some 10 ms of the loop, and half a
# megabyte with the longest patterns. All users that there may be would take a second.
PAGE_RIGHTS_MAX: Final = 1000
# The refusals of all changes; the name of the user is inserted.
_REFUSALS: Final = {
    c.NOT_FOUND: (grpc.StatusCode.NOT_FOUND, "there is no user {!r}", "NO_USER"),
    c.BUSY: (
        grpc.StatusCode.FAILED_PRECONDITION,
        "a rule names {!r}: remove it first",
        "USER_IN_RULE",
    ),
    c.OUT_OF_MEMORY: (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"there are {USERS_MAX} users already; drop one before {{!r}}",
        "TOO_MANY_USERS",
    ),
    c.FULL: (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"{{!r}} has {TOKENS_MAX} tokens already; drop one",
        "TOO_MANY_TOKENS",
    ),
    c.EXISTS: (
        grpc.StatusCode.FAILED_PRECONDITION,
        "another user than {!r} has this token",
        "TOKEN_TAKEN",
    ),
    c.LOCKED_OUT: (
        grpc.StatusCode.FAILED_PRECONDITION,
        "after that perhaps nobody could change users any more: no user would have admin in all:* "
        "and a token; first give another user both: beanpole user set NAME --right all='all:*', "
        "then beanpole user token NAME",
        "LOCKED_OUT",
    ),
}


class UsersServicer(users_pb2_grpc.UsersServicer):
    """Changes and lists users for callers of this node."""

    def __init__(self, node: Node, callers: Callers) -> None:
        self._node = node
        self._callers = callers

    def add_to(self, server: grpc.aio.Server) -> str:
        """Add the service to a server; return its full name."""
        users_pb2_grpc.add_UsersServicer_to_server(self, server)
        return SERVICE

    async def Set(
        self, request: users_pb2.SetUserRequest, context: Context
    ) -> users_pb2.SetUserReply:
        try:
            name = shapes.read_name(request.name, "name")
            rights = shapes.read_rights(request.rights)
            limits = shapes.read_limits(request.limits)
        except CallRefused as error:
            await refuse(context, error)
        await self._do(context, request.name, c.SET_USER, name, rights, *limits)
        return users_pb2.SetUserReply()

    async def Drop(
        self, request: users_pb2.DropUserRequest, context: Context
    ) -> users_pb2.DropUserReply:
        try:
            name = shapes.read_name(request.name, "name")
        except CallRefused as error:
            await refuse(context, error)
        await self._do(context, request.name, c.DROP_USER, name)
        return users_pb2.DropUserReply()

    async def List(
        self, request: users_pb2.ListUsersRequest, context: Context
    ) -> users_pb2.ListUsersReply:
        if not request.local:
            await self._callers.barrier(context)
        machine = self._node.context.machine
        rows, usages = machine.users.rows, machine.queue.quotas.usages
        name, after = (text.encode(errors="replace") for text in (request.name, request.after))
        names = [name] if name else sorted([one for one in rows if one > after])
        reply = users_pb2.ListUsersReply()
        weight = 0
        for one in names:
            user = rows.get(one)
            if user is None:
                continue
            weight += 1 + len(user.rights)
            if weight > PAGE_RIGHTS_MAX and reply.users:
                reply.next_after = reply.users[-1].name
                break
            reply.users.append(shapes.user(user, usages.get(one)))
        return reply

    async def AddToken(
        self, request: users_pb2.AddTokenRequest, context: Context
    ) -> users_pb2.AddTokenReply:
        try:
            name = shapes.read_name(request.user, "user")
            _check_token(name, request.digest)
        except CallRefused as error:
            await refuse(context, error)
        await self._do(context, request.user, c.SET_TOKEN, name, request.digest, 1)
        return users_pb2.AddTokenReply()

    async def DropToken(
        self, request: users_pb2.DropTokenRequest, context: Context
    ) -> users_pb2.DropTokenReply:
        try:
            name = shapes.read_name(request.user, "user")
            if not request.token_id:
                words = "an id of a token, or its beginning, is missing"
                raise CallRefused("NO_TOKEN", "token_id", words)
        except CallRefused as error:
            await refuse(context, error)
        await self._callers.barrier(context)
        user = self._node.context.machine.users.rows.get(name)
        tokens = () if user is None else user.tokens
        found = [token for token in tokens if token.hex().startswith(request.token_id.lower())]
        if user is not None and len(found) != 1:
            begin = f"{len(found)} tokens of {request.user!r} begin"
            begin = begin if found else f"no token of {request.user!r} begins"
            words = f"{begin} with {request.token_id!r}"
            code = grpc.StatusCode.NOT_FOUND if not found else grpc.StatusCode.INVALID_ARGUMENT
            await fail(context, code, words, "NO_TOKEN", field="token_id")
        digest = found[0] if found else bytes(TOKEN_DIGEST_BYTES)
        await self._do(context, request.user, c.SET_TOKEN, name, digest, 0)
        return users_pb2.DropTokenReply()

    async def SetRules(
        self, request: users_pb2.SetRulesRequest, context: Context
    ) -> users_pb2.SetRulesReply:
        try:
            rules = shapes.read_rules(request.rules)
        except CallRefused as error:
            await refuse(context, error)
        await self._callers.barrier(context)
        known = self._node.context.machine.users.rows
        unknown = [
            rule.user
            for rule in request.rules
            if rule.user.encode() not in known and rule.user.encode() != ANONYMOUS
        ]
        await self._do(context, (unknown or [""])[0], c.SET_RULES, rules)
        return users_pb2.SetRulesReply()

    async def ListRules(
        self, request: users_pb2.ListRulesRequest, context: Context
    ) -> users_pb2.ListRulesReply:
        if not request.local:
            await self._callers.barrier(context)
        rules = self._node.context.machine.users.rules
        return users_pb2.ListRulesReply(rules=map(shapes.rule, rules))

    async def WhoAmI(
        self, request: users_pb2.WhoAmIRequest, context: Context
    ) -> users_pb2.WhoAmIReply:
        user = CALLER.get().user(self._node.context.machine.users)
        if user is None and self._node.serving:
            await self._callers.recheck(context)
            user = CALLER.get().user(self._node.context.machine.users)
        if user is None:
            words = "no user has this token"
            await fail(context, grpc.StatusCode.UNAUTHENTICATED, words, "UNKNOWN_TOKEN")
        return users_pb2.WhoAmIReply(
            user=(user.name or ANONYMOUS).decode(),
            rights=shapes.rights(user.rights),
            has_users=bool(self._node.context.machine.users.rows),
        )

    async def _do(self, context: Context, name: str, operation: int, *fields: int | bytes) -> None:
        await self._callers.check_known(operation, "users", context)
        results = await self._callers.do(context, lambda call: call.submit(operation, *fields))
        result: int = results[0]
        assert result != c.BAD_COMMAND, "what the machine refuses was refused before"
        if result != c.OK:
            code, words, reason = _REFUSALS[result]
            await fail(context, code, words.format(name), reason)


def _check_token(name: bytes, digest: bytes) -> None:
    if name == ANONYMOUS:
        words = "anonymous is the user of those without a token; it has none"
        raise CallRefused("BAD_USER", "user", words)
    if len(digest) != TOKEN_DIGEST_BYTES:
        words = f"a digest of {len(digest)} bytes; SHA-256 gives {TOKEN_DIGEST_BYTES}"
        raise CallRefused("BAD_DIGEST", "digest", words)

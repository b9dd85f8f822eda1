"""Callers of gRPC without the right for a call: their lines in the audit log, and their hints."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from beanpole import commands as c
from beanpole.client.rpc import ERROR_KEY
from beanpole.pb import errors_pb2
from beanpoled.rpc.caller import CALLER, Caller
from beanpoled.rpc.forwarding import fail_as
from tests.unit.beanpoled.fakes import until
from tests.unit.beanpoled.test_users_rpc import LEE, ROOT, Guarded, bearer, run


def test_a_call_counts_as_refused_until_the_right_for_it_has_been_seen() -> None:
    """Else a caller without a right could fill the audit log, by any other outcome."""

    async def test(it: Guarded) -> None:
        it.lock()
        await it.reason(it.set_user("ann", LEE))
        gone = it.set_user("ann", "wrong")
        asked = asyncio.ensure_future(it.refusal(_awaited(gone)))
        await until(lambda: it.stage.node.clients.calls)
        gone.cancel()
        await until(lambda: len(it.told) == 2)
        asked.cancel()
        await it.ask(it.set_user("ann", ROOT))
        assert [(entry.outcome, entry.refused) for entry in it.told] == [
            ("PERMISSION_DENIED", True),
            ("CANCELLED", True),
            ("OK", False),
        ]

    run(test)


async def _awaited(call: Any) -> Any:
    return await call


def test_a_refusal_for_an_alias_names_the_queue_whose_rights_count() -> None:
    """A right for the alias, which the refusal named, would have no effect."""

    async def test(it: Guarded) -> None:
        it.lock()
        it.apply((c.SET_ALIAS, 1, b"post", b"\x02send"))
        refused = []
        for token in (LEE, ""):
            with pytest.raises(AioRpcError) as failed:
                await it.ask(it.put_in("post", token))
            refused.append(failed.value.details())
        assert refused == [
            "lee lacks the right put in gearman:send, of which post is an alias",
            # This caller may be anybody.
            "a token is needed: callers without one lack the right put in post",
        ]

    run(test)


class Aborted(Exception):
    """The end of a call."""


class FakeContext:
    """The context of a call that is refused."""

    async def abort(self, code: grpc.StatusCode, words: str, metadata: Any) -> None:
        """End the call."""
        raise Aborted(words)


BY_RULE = "; you are ops by a rule, and rules count at the node that is asked"


@pytest.mark.parametrize(("token", "hint"), [("", BY_RULE), (LEE, "")])
def test_a_user_by_a_rule_is_told_why_another_node_refuses_it(token: str, hint: str) -> None:
    detail = errors_pb2.ErrorDetail(reason="NO_TOKEN").SerializeToString()
    error = AioRpcError(
        grpc.StatusCode.UNAUTHENTICATED,
        Metadata(),
        Metadata((ERROR_KEY, detail)),
        "a token is needed",
    )

    async def test() -> None:
        CALLER.set(Caller(name="ops", metadata=bearer(token)))
        context: Any = FakeContext()
        await fail_as("n1", error, context)

    with pytest.raises(Aborted) as told:
        asyncio.run(test())
    assert str(told.value) == "n1: a token is needed" + hint

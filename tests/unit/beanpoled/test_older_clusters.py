"""Calls that need a machine version that the cluster does not have, or not yet."""

import asyncio

import grpc.aio
import pytest

from beanpoled.rpc import callers
from beanpoled.rpc.callers import Callers
from tests.unit.beanpoled.fakes import ended_by_hand
from tests.unit.beanpoled.test_users_rpc import Guarded, run


@pytest.mark.constants
@pytest.mark.parametrize("by_hand", [True, False])
def test_an_older_cluster_tells_how_its_upgrade_ends(
    monkeypatch: pytest.MonkeyPatch, by_hand: bool
) -> None:
    """At once: where it ends by itself, a member shows that it runs an older program."""
    monkeypatch.setattr(callers, "RAISE_PATIENCE_S", 1e9)

    async def test(it: Guarded) -> None:
        node = it.stage.node
        node.context.machine.activate(3)
        if by_hand:
            ended_by_hand(node.context)
        else:
            node.peers.peers["n2"].knows = 0
            assert node.leader.versions.coming() == 4
            node.peers.peers["n1"].knows = 3
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await it.ask(it.set_user("eve", ""))
        assert caught.value.details() == (
            "the cluster works at a machine version without users (it is 3, 4 has them); "
            "`beanpole cluster finalize` ends an upgrade"
        )

    run(test)


@pytest.mark.constants
def test_a_new_cluster_is_waited_for_until_it_has_raised_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first user was refused, with the advice to end an upgrade."""
    asked = []

    def knows(operation: int) -> bool:
        asked.append(operation)
        return len(asked) > 2

    async def test(it: Guarded) -> None:
        monkeypatch.setattr(it.stage.node.origin, "knows", knows)
        await it.ask(it.set_user("eve", ""))

    run(test)
    assert len(asked) > 2


def test_a_call_before_the_ports_open_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that waited for the RAISE of a new cluster refused its first user."""
    knows_soon = vars(Callers)["_knows_soon"]

    async def test(it: Guarded) -> None:
        lifecycle = it.stage.node.lifecycle

        async def open_meanwhile(self: Callers, operation: int) -> bool:
            assert lifecycle.is_opening
            asyncio.get_running_loop().call_soon(lifecycle.open_in_time)
            found: bool = await knows_soon(self, operation)
            assert not lifecycle.is_opening
            return found

        monkeypatch.setattr(Callers, "_knows_soon", open_meanwhile)
        lifecycle.is_opening = True
        await it.ask(it.set_user("eve", ""))

    run(test)


@pytest.mark.constants
@pytest.mark.parametrize(
    ("is_fenced", "patience_s"), [(True, 1e9), (False, 0.0)], ids=["fenced", "impatient"]
)
def test_a_node_that_does_not_open_refuses_it(
    monkeypatch: pytest.MonkeyPatch, is_fenced: bool, patience_s: float
) -> None:
    monkeypatch.setattr(callers, "RAISE_PATIENCE_S", patience_s)

    async def test(it: Guarded) -> None:
        it.stage.node.lifecycle.is_opening = True
        it.stage.node.lifecycle.fenced = is_fenced
        assert await it.reason(it.set_user("eve", "")) == "UNAVAILABLE NOT_SERVING"

    run(test)


@pytest.mark.constants
def test_calls_that_wait_for_the_ports_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "WAITING_MAX", 0)

    async def test(it: Guarded) -> None:
        it.stage.node.lifecycle.is_opening = True
        assert await it.reason(it.set_user("eve", "")) == "RESOURCE_EXHAUSTED TOO_MANY_CALLS"

    run(test)

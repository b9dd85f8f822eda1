"""Calls that need a machine version that the cluster does not have, or not yet."""

import grpc.aio
import pytest

from beanpoled.rpc import callers
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
            "the cluster works at a machine version without users; "
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

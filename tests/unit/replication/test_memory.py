"""Tests of the replica without a disk, with the promises that the real one also keeps."""

import pytest

from beanpole.replication.consensus import Replica
from beanpole.replication.memory import MemoryReplica
from tests.sim.lone import Lone


def test_it_applies_in_the_next_turn_and_confirms_after_it() -> None:
    outside = Lone()
    replica: Replica = MemoryReplica(outside)
    replica.start()
    assert (replica.role, replica.can_propose()) == ("follower", False)
    replica.turn()
    assert (replica.role, replica.leader, replica.majority_answers) == ("leader", "n0", True)
    order: list[str] = []
    index = replica.propose(b"a")
    replica.confirm(lambda: order.append(f"confirmed after {len(outside.applied)}"))
    assert not outside.applied and not replica.can_propose()
    replica.turn()
    assert outside.applied == [(index, b"a")] and order == ["confirmed after 1"]
    assert replica.applied_index == replica.commit_index == replica.durable_index == index


def test_alone_nothing_is_handed_over_or_received() -> None:
    replica = MemoryReplica(Lone())
    replica.start()
    replica.turn()
    assert not replica.transfer(None)
    assert replica.snapshot_source() is None
    assert replica.match_index("n1") == 0
    replica.connected("n1")
    replica.disconnected("n1")
    replica.compact()
    with pytest.raises(AssertionError):
        replica.receive("n1", b"")
    replica.close()
    replica.turn()
    assert not replica.can_propose()

"""When the ports of a node open: with the RAISE, if the cluster is about to be raised."""

from collections.abc import Callable
from typing import Any

import pytest

from beanpole import commands as c
from beanpole.core.machine import Machine
from beanpoled.leading.versions import RAISE_PATIENCE_S
from beanpoled.links import frames
from tests.unit.node.stage import MEMBERS, Stage
from tests.unit.node.test_peers import heartbeat

NODE_UP = (0, 1, 1, ())
RAISE = (c.LEADER, 0, 0, ((c.RAISE, c.MACHINE_VERSION),))
SERVES = "serving clients as incarnation 1"
PATIENCE_US = int(RAISE_PATIENCE_S * 1_000_000)


def born(**overrides: Any) -> Stage:
    """Return a follower in a new cluster; its NODE_UP is sent, and no member has announced."""
    stage = Stage(**overrides)
    stage.follow()
    stage.node.lifecycle._begin_incarnation()
    stage.run()
    return stage


def up(stage: Stage, incarnation: int = 1) -> None:
    """Apply NODE_UP and check that the ports are shut."""
    stage.apply_sections((0, incarnation, 1, ()))
    assert stage.node.origin.up
    assert not (stage.host.clients_open or stage.node.serving)


def pass_in_contact(stage: Stage, us: int) -> None:
    for _ in range(us // 50_000):
        for peer in MEMBERS[1:]:
            stage.node.heartbeats.received_from(peer)
        stage.pass_us(50_000)


def test_the_ports_of_a_new_cluster_open_with_the_raise() -> None:
    """A client that came before it was not kept, and was told that there is no `auth`."""
    stage = born()
    up(stage)
    told = stage.node.condition
    assert (told.state, told.waits_for()) == ("starting", "waiting for the cluster to be raised")
    assert SERVES not in stage.host.lines
    for peer in MEMBERS[1:]:
        heartbeat(stage, peer)
    stage.pass_us(150_000)
    assert not stage.host.clients_open
    stage.apply_sections(RAISE)
    assert stage.host.clients_open and stage.node.serving
    stage.node.heartbeats.received_from("n1")
    assert (told.state, told.waits_for()) == ("serving", "")
    assert stage.host.lines.count(SERVES) == 1
    connection, port = stage.client(b"keep 0123456789abcdefghijkl 60\r\n")
    (frame,) = stage.sent(frames.BATCH, "n1")[-1:]
    assert not connection.closed and port.take() == b""
    assert c.unpack_commands(frames.decode_batch(frame)[6])[-1][0] == c.KEEP


def test_an_image_of_a_raised_cluster_opens_them() -> None:
    stage = born()
    up(stage)
    machine = Machine()
    machine.apply(100, 0, 0, 0, [NODE_UP, RAISE])
    stage.load(machine)
    stage.pass_us(200_000)
    assert stage.host.clients_open


def test_a_leader_waits_for_its_own_raise() -> None:
    stage = Stage()
    stage.lead()
    stage.come_up()
    assert not stage.host.clients_open
    for peer in MEMBERS[1:]:
        heartbeat(stage, peer)
    stage.pass_us(20_000)
    stage.commit()
    assert stage.host.clients_open


def test_a_lone_node_opens_with_its_raise() -> None:
    stage = Stage()
    stage.node.peers.peers.clear()
    stage.become("leader", "n0", 1)
    stage.commit()
    stage.come_up()
    assert stage.node.context.machine.version == c.MACHINE_VERSION
    assert stage.host.clients_open


def is_away(stage: Stage) -> None:
    stage.node.router.link_down("n2")


def is_older(stage: Stage) -> None:
    heartbeat(stage, "n2", machine_version=c.BASE_VERSION)


def is_raised(stage: Stage) -> None:
    stage.apply_sections(RAISE)


@pytest.mark.parametrize("change", [is_away, is_older, is_raised])
def test_nothing_is_waited_for_if_no_raise_will_come(change: Callable[[Stage], None]) -> None:
    stage = born()
    change(stage)
    stage.apply_sections(NODE_UP)
    assert stage.host.clients_open and stage.node.serving


def test_an_operator_who_ends_upgrades_is_not_waited_for() -> None:
    stage = born(upgrade_finalize="manual")
    stage.apply_sections(NODE_UP)
    assert stage.host.clients_open


def test_a_restart_does_not_wait_for_a_member_that_is_away() -> None:
    """At the birth of a cluster all members were there, and their links may be a moment late."""
    files = None
    for incarnation, opens in ((1, False), (2, True)):
        stage = Stage(files=files)
        files = stage.host.files
        stage.node.router.link_up("n1")
        stage.become("follower", "n1", 1)
        stage.node.lifecycle._begin_incarnation()
        stage.run()
        stage.apply_sections((0, incarnation, 1, ()))
        assert stage.node.serving == stage.host.clients_open == opens


@pytest.mark.parametrize("change", [is_away, is_older])
def test_the_wait_ends_when_no_raise_will_come(change: Callable[[Stage], None]) -> None:
    stage = born()
    up(stage)
    change(stage)
    stage.pass_us(100_000)
    assert stage.host.clients_open


def test_the_patience_ends() -> None:
    stage = born()
    up(stage)
    pass_in_contact(stage, PATIENCE_US - 100_000)
    assert not stage.host.clients_open
    pass_in_contact(stage, 250_000)
    assert stage.host.clients_open and SERVES in stage.host.lines
    stage.apply_sections(RAISE)
    pass_in_contact(stage, 200_000)
    assert stage.host.lines.count(SERVES) == 1


@pytest.mark.constants
def test_a_fence_outlasts_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = born()
    up(stage)
    monkeypatch.setattr(stage.node.disk_health, "is_left_behind", lambda _: True)
    pass_in_contact(stage, 200_000)
    assert stage.node.lifecycle.fenced
    stage.apply_sections(RAISE)
    assert not (stage.host.clients_open or stage.node.serving)
    monkeypatch.setattr(stage.node.disk_health, "is_left_behind", lambda _: False)
    pass_in_contact(stage, 200_000)
    assert stage.host.clients_open and stage.host.lines.count(SERVES) == 1


def test_a_node_that_stops_opens_nothing() -> None:
    stage = born()
    up(stage)
    stage.node.stopping.stop()
    stage.apply_sections(RAISE)
    stage.pass_us(PATIENCE_US + 200_000)
    assert stage.host.opened == []
    assert SERVES not in stage.host.lines


def test_the_next_incarnation_waits_for_the_raise_too() -> None:
    stage = born()
    up(stage)
    stage.apply_sections((c.LEADER, 0, 0, ((c.NODE_DOWN, 0, 1),)))
    stage.pass_us(200_000)
    assert not stage.host.clients_open
    up(stage, 2)
    stage.apply_sections(RAISE)
    assert stage.host.clients_open
    assert stage.host.lines[-1] == "serving clients as incarnation 2"
    assert SERVES not in stage.host.lines

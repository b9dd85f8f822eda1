"""When a leader raises the machine's version, and when a node stops at an unknown one."""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole.core.machine import Machine
from beanpole.core.operations.operation import FREE, SESSION, ClientOperation
from beanpole.core.operations.table import OPERATIONS
from beanpoled.leading.versions import FINALIZE_REQUEST_US
from beanpoled.links import frames
from beanpoled.origin.batches import Batch, Wait
from tests.unit.node.stage import MEMBERS, Stage, Stopped
from tests.unit.node.test_peers import heartbeat

NEW = c.BASE_VERSION + 1
UPGRADE = rf"need machine version {NEW}, this program knows up to {c.BASE_VERSION}: upgrade "


@pytest.fixture
def leader() -> Stage:
    """Return a leader whose program knows the next version; it has no heartbeat of any member."""
    return leading()


def leading(knows: int = NEW, **overrides: Any) -> Stage:
    stage = Stage(knows=knows, **overrides)
    stage.lead()
    stage.come_up()
    return stage


def raises(stage: Stage) -> list[c.Command]:
    """Return the uncommitted RAISEs of a few turns, before any peer counts as silent."""
    stage.pass_us(30_000)
    return [command for command in stage.proposed() if command[0] == c.RAISE]


def heartbeat_from(stage: Stage, *peers: str, version: int = NEW) -> None:
    for peer in peers:
        heartbeat(stage, peer, machine_version=version)


def test_it_is_raised_once_when_every_member_knows_it(leader: Stage) -> None:
    heartbeat_from(leader, "n1", "n2")
    assert raises(leader) == [(c.RAISE, NEW)]
    leader.commit()
    assert leader.node.context.machine.version == NEW
    heartbeat_from(leader, "n1", "n2")
    assert raises(leader) == []


def test_a_member_without_a_heartbeat_is_unknown(leader: Stage) -> None:
    """At 519da29 it counted as knowing the same version as the leader."""
    assert raises(leader) == []
    heartbeat_from(leader, "n1")
    assert raises(leader) == []


def test_one_old_member_holds_it_back(leader: Stage) -> None:
    heartbeat_from(leader, "n1")
    heartbeat_from(leader, "n2", version=c.BASE_VERSION)
    assert raises(leader) == []
    assert leader.node.leader.versions.common() == c.BASE_VERSION


def test_a_heartbeat_of_an_earlier_term_does_not_count(leader: Stage) -> None:
    heartbeat(leader, "n1", machine_version=NEW)
    heartbeat(leader, "n2", machine_version=NEW, term=leader.replica.term - 1)
    assert raises(leader) == []


def test_a_new_link_may_be_another_program(leader: Stage) -> None:
    """A member may restart with the older program without a change of term."""
    heartbeat_from(leader, "n1")
    leader.node.router.link_down("n1")
    heartbeat_from(leader, "n2")
    assert raises(leader) == []
    leader.node.router.link_up("n1")
    assert raises(leader) == []
    heartbeat_from(leader, "n1", version=c.BASE_VERSION)
    assert raises(leader) == []
    heartbeat_from(leader, "n1")
    assert raises(leader) == [(c.RAISE, NEW)]


def test_a_late_heartbeat_of_a_link_that_ended_does_not_count(leader: Stage) -> None:
    leader.node.router.link_down("n1")
    heartbeat_from(leader, "n1", "n2")
    assert raises(leader) == []


def test_a_member_that_died_without_a_word_does_not_count(leader: Stage) -> None:
    """After a power cut the link lasts for seconds, and the program may be a different one then."""
    leader.node.context.knows = c.BASE_VERSION
    heartbeat_from(leader, "n1", "n2")
    leader.pass_us(200_000)
    leader.node.context.knows = NEW
    heartbeat_from(leader, "n1")
    assert raises(leader) == []
    heartbeat_from(leader, "n1", "n2")
    assert raises(leader) == [(c.RAISE, NEW)]


def test_a_leader_that_does_not_serve_yet_raises_nothing() -> None:
    stage = Stage(knows=NEW)
    for peer in MEMBERS[1:]:
        stage.node.router.link_up(peer)
    stage.become("leader", "n0", 1)
    heartbeat_from(stage, "n1", "n2")
    assert raises(stage) == []
    assert not stage.node.leader.term.serving


def test_a_follower_raises_nothing() -> None:
    stage = Stage(knows=NEW)
    stage.follow()
    heartbeat_from(stage, "n1", "n2")
    assert raises(stage) == []


def test_a_lone_node_raises_by_itself() -> None:
    """There is no member to wait for."""
    stage = Stage(knows=NEW)
    stage.node.peers.peers.clear()
    stage.become("leader", "n0", 1)
    stage.commit()
    assert stage.node.context.machine.version == NEW


def test_a_raise_that_was_lost_with_its_term_is_proposed_again(leader: Stage) -> None:
    heartbeat_from(leader, "n1", "n2")
    assert raises(leader) == [(c.RAISE, NEW)]
    leader.replica.proposed.clear()
    leader.become("follower", "n1", 2)
    leader.become("leader", "n0", 3)
    leader.commit()
    heartbeat_from(leader, "n1", "n2")
    assert raises(leader) == [(c.RAISE, NEW)]


def test_the_highest_common_version_is_taken_at_once() -> None:
    stage = leading(NEW + 2)
    heartbeat_from(stage, "n1", version=NEW + 5)
    heartbeat_from(stage, "n2", version=NEW + 1)
    assert raises(stage) == [(c.RAISE, NEW + 1)]


# --- an operator ends the upgrade -----------------------------------------------------------------


@pytest.fixture
def manual() -> Stage:
    """Return a leader whose operator ends upgrades; its peers know the same version."""
    stage = leading(upgrade_finalize="manual")
    heartbeat_from(stage, "n1", "n2")
    return stage


def test_a_leader_waits_for_its_operator(manual: Stage) -> None:
    assert raises(manual) == []
    assert manual.node.leader.versions.finalize(0) == (NEW, "")
    assert raises(manual) == [(c.RAISE, NEW)]
    assert manual.node.leader.versions.finalize(0) == (NEW, ""), "it is on its way"
    manual.commit()
    assert manual.node.context.machine.version == NEW
    assert manual.node.leader.versions.finalize(0) == (NEW, "")
    assert manual.node.leader.versions.finalize(c.BASE_VERSION) == (NEW, "")
    assert raises(manual) == []


def test_an_operator_may_ask_for_less_than_all_know() -> None:
    stage = leading(NEW + 2, upgrade_finalize="manual")
    heartbeat_from(stage, "n1", "n2", version=NEW + 2)
    assert stage.node.leader.versions.finalize(NEW) == (NEW, "")
    assert raises(stage) == [(c.RAISE, NEW)]


def test_a_member_that_holds_it_back_is_named(manual: Stage) -> None:
    heartbeat_from(manual, "n1", version=c.BASE_VERSION)
    manual.node.router.link_down("n2")
    old = f"n1 knows up to {c.BASE_VERSION} and must be upgraded"
    away = "n2 is away, and may come back with an older release"
    assert manual.node.leader.versions.finalize(0) == (NEW, f"{old}; {away}")
    heartbeat_from(manual, "n1")
    assert manual.node.leader.versions.finalize(NEW) == (NEW, away)
    words = f"n0 knows up to {NEW} and must be upgraded"
    assert words in manual.node.leader.versions.finalize(NEW + 1)[1]
    assert raises(manual) == []


def test_without_a_version_the_newest_of_any_member_is_meant(manual: Stage) -> None:
    """Without a number, an unfinished upgrade is not ended at the version of the older nodes."""
    heartbeat_from(manual, "n1", version=NEW + 1)
    version, reason = manual.node.leader.versions.finalize(0)
    assert version == NEW + 1
    assert reason == "; ".join(
        f"{name} knows up to {NEW} and must be upgraded" for name in ("n0", "n2")
    )
    assert raises(manual) == []


def test_a_refused_wish_is_not_remembered(manual: Stage) -> None:
    manual.node.router.link_down("n2")
    assert manual.node.leader.versions.finalize(0)[1]
    manual.node.router.link_up("n2")
    heartbeat_from(manual, "n2")
    assert raises(manual) == []


def test_a_wish_ends_with_its_caller_and_with_its_term(manual: Stage) -> None:
    """Nothing can be proposed for a while; when it can be, no caller waits for it any more."""
    manual.node.leader.versions.finalize(0)
    manual.node.context.loop_us += FINALIZE_REQUEST_US + 1
    assert raises(manual) == []
    manual.node.leader.versions.finalize(0)
    manual.become("follower", "n1", 2)
    manual.become("leader", "n0", 3)
    manual.commit()
    heartbeat_from(manual, "n1", "n2")
    assert raises(manual) == []
    assert manual.node.leader.versions.finalize(0) == (NEW, "")
    assert raises(manual) == [(c.RAISE, NEW)]


def test_a_member_that_goes_before_the_entry_holds_it_back(manual: Stage) -> None:
    manual.node.leader.versions.finalize(0)
    manual.node.router.link_down("n1")
    assert raises(manual) == []


def test_a_leader_that_was_just_elected_says_so() -> None:
    stage = Stage(knows=NEW, upgrade_finalize="manual")
    for peer in MEMBERS[1:]:
        stage.node.router.link_up(peer)
    stage.become("leader", "n0", 1)
    heartbeat_from(stage, "n1", "n2")
    assert stage.node.leader.versions.finalize(0) == (NEW, "n0 has just been elected")


# --- programs that do not know it -----------------------------------------------------------------


def test_the_heartbeat_tells_what_is_known_and_what_is_active(leader: Stage) -> None:
    leader.node.heartbeats.send()
    told = frames.decode_heartbeat(leader.sent(frames.HEARTBEAT, "n1")[-1])
    assert (told.machine_version, told.active_version) == (NEW, c.BASE_VERSION)
    leader.apply_sections((c.LEADER, 0, 0, ((c.RAISE, NEW),)))
    leader.node.heartbeats.send()
    told = frames.decode_heartbeat(leader.sent(frames.HEARTBEAT, "n1")[-1])
    assert (told.machine_version, told.active_version) == (NEW, NEW)


def test_a_program_that_does_not_know_it_stops_at_the_raise() -> None:
    stage = Stage(knows=c.BASE_VERSION)
    stage.follow()
    with pytest.raises(Stopped, match=UPGRADE):
        stage.apply_sections((c.LEADER, 0, 0, ((c.RAISE, NEW),)))


def test_a_program_that_does_not_know_it_stops_at_the_snapshot() -> None:
    machine = Machine()
    machine.apply(1, 0, 0, 0, [(c.LEADER, 0, 0, ((c.RAISE, NEW),))])
    stage = Stage(knows=c.BASE_VERSION)
    with pytest.raises(Stopped, match=UPGRADE):
        stage.load(machine)
    stage = Stage(knows=NEW)
    stage.load(machine)
    assert stage.node.context.machine.version == NEW


def test_a_command_of_a_later_version_does_not_leave_its_origin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is answered in order with the others, and the log does not contain it."""
    invented = 31
    entry = ClientOperation(invented, (SESSION,), lambda *_: c.OK, FREE, since=NEW)
    monkeypatch.setitem(OPERATIONS, invented, entry)
    stage = leading()
    answers: list[tuple[int, object]] = []

    class Asking:
        """A client that records its answers."""

        client_host = b"10.0.0.1"
        client_names: tuple[bytes, ...] = ()
        user = token = b""
        number = 0
        batch: Batch | None = None
        wait: Wait | None = None

        def answered(self, kind: int, result: object) -> None:
            answers.append((kind, result))

        def wait_ended(self, job: object, until_us: int = 0) -> None:
            raise AssertionError

        def failed(self, kind: int, why: int) -> None:
            raise AssertionError

        def drop(self) -> None:
            raise AssertionError

    client = Asking()
    origin = stage.node.origin
    origin.open_session(client)
    for command in ((c.USE, 1, b"a"), (invented, 1), (c.USE, 1, b"b")):
        origin.submit(client, command[0], command)
    stage.run()
    packed = b"".join(stage.replica.proposed)
    assert c.pack_commands([(c.USE, 1, b"a"), (0,), (c.USE, 1, b"b")])[1:] in packed
    stage.commit()
    assert answers[1:] == [(c.USE, c.OK), (invented, c.BAD_COMMAND), (c.USE, c.OK)]
    stage.apply_sections((c.LEADER, 0, 0, ((c.RAISE, NEW),)))
    assert origin.knows(invented)
    origin.submit(client, invented, (invented, 1))
    stage.run()
    assert c.pack_commands([(invented, 1)]) in b"".join(stage.replica.proposed)

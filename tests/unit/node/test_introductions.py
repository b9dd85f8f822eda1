"""Introductions at a node: remembered peers, fatal refusals, and the founding of a cluster."""

from typing import Any

import pytest

from beanpoled.disk.disks import Disks
from beanpoled.disk.identity import FOUNDING, REJOINING, VOTER, birth_of
from beanpoled.links.admission import REFUSE, TALK, WAIT
from beanpoled.links.link import DISK, MEMBERS, OLDER, VERSIONS, Hello
from beanpoled.turn.node import Node
from tests.unit.node.stage import Stage, StageHost, Stopped, config

DISKS = {"n0": b"0" * 16, "n1": b"1" * 16, "n2": b"2" * 16}
FOUNDERS = tuple(sorted(DISKS.items()))
BIRTH = birth_of("stage", FOUNDERS)


class Start:
    """Member n0 from its first start, with the peers that connect."""

    def __init__(self, **overrides: Any) -> None:
        self.host = StageHost()
        self.begun = 0
        wanted = config(**overrides)
        self.disks = Disks(self.host.files, wanted, DISKS["n0"])
        self.node = Node(wanted, self.host, self.disks)
        self.node.introductions.begin = self.begin
        self.who = self.node.introductions

    def begin(self) -> None:
        assert self.disks.own.runs
        self.begun += 1


def hello(node: str, **changes: Any) -> Hello:
    """Return the hello of an empty disk."""
    said = Hello(3, 3, "stage", node, "", b"", DISKS[node], b"", FOUNDING, False, 0, 0, ())
    return said._replace(**changes)


def founded(node: str, **changes: Any) -> Hello:
    """Return the hello of a disk that is part of the cluster."""
    known = {"birth": BIRTH, "founders": FOUNDERS, "standing": VOTER, **changes}
    return hello(node, **known)


def test_the_first_member_founds_and_says_so_before_it_begins() -> None:
    start = Start()
    said = start.who.hello(bytes(16))
    assert start.who.meet(hello("n1")).kind == WAIT
    assert start.who.waiting_for() == ("n2",)
    assert start.who.meet(hello("n2")).kind == WAIT
    assert (start.begun, start.disks.own.birth, start.disks.own.standing) == (1, BIRTH, VOTER)
    assert not start.who.is_current(said), "links are made anew"
    assert start.who.waiting_for() == ()
    start.host.files.crash()
    again = Disks(start.host.files, config(), b"x" * 16)
    assert (again.own.birth, again.own.founders) == (BIRTH, FOUNDERS)


def test_a_member_that_went_away_is_not_there() -> None:
    start = Start()
    gone = hello("n1")
    start.who.meet(gone)
    start.who.parted(gone)
    start.who.meet(hello("n2"))
    assert (start.begun, start.who.waiting_for()) == (0, ("n1",))
    start.who.meet(hello("n1"))
    assert start.begun == 1


def test_the_end_of_an_older_link_does_not_take_the_newer_away() -> None:
    start = Start()
    older, newer = hello("n1"), hello("n1", last_index=1)
    start.who.meet(older)
    start.who.meet(newer)
    start.who.parted(older)
    start.who.meet(hello("n2"))
    assert start.begun == 1


def test_a_founder_that_stopped_too_early_takes_the_cluster_over() -> None:
    start = Start()
    assert start.who.meet(founded("n2")).kind == WAIT
    assert (start.begun, start.disks.own.standing, start.disks.own.birth) == (1, VOTER, BIRTH)


def test_a_disk_that_rejoins_takes_the_cluster_over_without_a_vote() -> None:
    start = Start(rejoin=True)
    assert start.node.context.replica.rejoining
    start.who.meet(founded("n1"))
    assert (start.begun, start.who.waiting_for()) == (0, ("n2",))
    start.who.meet(founded("n2"))
    assert (start.begun, start.disks.own.standing) == (1, REJOINING)


def test_what_cannot_be_written_ends_the_node() -> None:
    start = Start()
    start.host.files.failing = OSError(28, "No space left on device")
    with pytest.raises(Stopped, match="cannot write the identity of this disk: No space"):
        start.who.meet(founded("n1"))
    assert (start.begun, start.disks.own.runs) == (0, False)


def test_an_empty_disk_beside_a_cluster_without_it_ends_with_what_to_do() -> None:
    start = Start()
    other = founded("n1", founders=FOUNDERS[1:], birth=birth_of("stage", FOUNDERS[1:]))
    assert start.who.meet(other).kind == REFUSE
    with pytest.raises(Stopped, match=r"refusing to start: n0 has an empty disk.*--rejoin"):
        start.who.meet(other)


def test_a_peer_is_remembered_before_it_is_talked_to_and_a_stranger_never() -> None:
    stage = Stage()
    who, disks = stage.node.introductions, stage.node.context.disks
    own = disks.own
    known = {"birth": own.birth, "standing": VOTER}
    assert who.meet(hello("n1", **known)).kind == TALK
    assert disks.known("n1") == (DISKS["n1"],)
    stranger = hello("n1", **known)._replace(node="n9")
    assert who.meet(stranger).kind == REFUSE
    assert disks.known("n9") == ()
    assert who.meet(hello("n1", birth=BIRTH, standing=VOTER)).kind == REFUSE


def test_one_wrong_peer_never_ends_a_start_and_is_told_once() -> None:
    """Finding C: `LinkRefused` was fatal to a node that did not serve yet."""
    stage = Stage()
    assert not stage.node.origin.up
    for _ in range(50):
        stage.node.introductions.refused("n2", MEMBERS, "the member list differs")
    lines = [line for line in stage.host.lines if "no link to" in line]
    own = "node_id n0, cluster stage, members n0, n1, n2, durability sync"
    assert lines == [f"no link to n2: the member list differs (this node has {own})"]
    stage.node.introductions.refused("n1", DISK, "another disk")
    with pytest.raises(Stopped, match="refusing to start: another disk"):
        stage.node.introductions.refused("n1", DISK, "another disk")


def test_wrong_disks_of_others_never_end_a_node_whose_own_is_right() -> None:
    """The others must rejoin, not this node."""
    stage = Stage()
    for node in ("n1", "n2") * 3:
        assert stage.node.introductions.meet(hello(node)).kind == REFUSE
    assert sum("no link to" in line for line in stage.host.lines) == 2


def test_a_member_that_speaks_again_refuses_no_longer() -> None:
    stage = Stage()
    who = stage.node.introductions
    for _ in range(2):
        who.refused("n2", DISK, "a wrong disk")
    who.accepted("n2", 0)
    for _ in range(2):
        who.refused("n1", DISK, "a wrong disk")
    assert "no link to n1: a wrong disk" in stage.host.lines


def test_a_node_that_serves_goes_on_without_all_that_refuse_it() -> None:
    stage = Stage()
    stage.lead()
    stage.come_up()
    for name in ("n1", "n2") * 3:
        stage.node.introductions.refused(name, DISK, "another birth")
    assert stage.node.origin.up


@pytest.mark.parametrize("serves", [False, True])
def test_an_older_copy_ends_although_only_one_member_knows_it(serves: bool) -> None:
    """It voted with a member that had restarted since and could not know its earlier state."""
    stage = Stage()
    if serves:
        stage.lead()
        stage.come_up()
    who = stage.node.introductions
    who.refused("n2", OLDER, "it is an older copy")
    who.accepted("n1", 0)  # another member does not notice that it is an older copy
    words = "stopping" if serves else "refusing to start"
    with pytest.raises(Stopped, match=f"{words}: it is an older copy"):
        who.refused("n2", OLDER, "it is an older copy")


def test_hellos_that_were_overtaken_never_end_a_node() -> None:
    """Each is overtaken by a newer incarnation or log; the next hello shows the newer one."""
    stage = Stage()
    who = stage.node.introductions
    for older in range(1, 9):
        who.refused("n1", OLDER, f"n0 was incarnation {older} before")
        who.refused("n1", OLDER, f"n0 had the log up to {older}")
        who.refused("n2", OLDER, "the same words")
        who.accepted("n2", 0)
    assert not stage.node.context.stopped


def test_a_node_that_refuses_an_older_copy_goes_on() -> None:
    stage = Stage()
    known = {"birth": stage.node.context.disks.own.birth, "standing": VOTER}
    who = stage.node.introductions
    for name in ("n1", "n2"):
        who.meet(hello(name, last_index=80, **known))
        who.accepted(name, 77)
    for name in ("n1", "n2") * 3:
        verdict = who.meet(hello(name, last_index=76, **known))
        assert (verdict.kind, verdict.cause) == (REFUSE, OLDER)


def test_another_version_never_ends_a_node() -> None:
    stage = Stage()
    for name in ("n1", "n2") * 3:
        stage.node.introductions.refused(name, VERSIONS, "knows the link versions 4 to 5")
    assert sum("no link to" in line for line in stage.host.lines) == 2


def test_a_hello_that_was_overtaken_by_a_new_incarnation_is_no_older_disk() -> None:
    """The hello was in progress while its node began the next incarnation."""
    stage = Stage()
    stage.follow()
    stage.apply_sections((1, 7, 1, ()))
    known = {"birth": stage.node.context.disks.own.birth, "standing": VOTER}
    assert stage.node.introductions.meet(hello("n1", incarnation=6, **known)).kind == REFUSE
    assert not any("no link to" in line for line in stage.host.lines)
    assert stage.node.introductions.meet(hello("n1", incarnation=7, **known)).kind == TALK


def test_a_disk_that_lost_what_it_had_said_to_have_is_refused() -> None:
    stage = Stage()
    who = stage.node.introductions
    known = {"birth": stage.node.context.disks.own.birth, "standing": VOTER}
    assert who.meet(hello("n1", last_index=80, **known)).kind == TALK
    who.accepted("n1", 77)
    assert who.meet(hello("n1", last_index=77, **known)).kind == TALK
    assert who.meet(hello("n1", last_index=76, **known)).kind == REFUSE
    other = hello("n1", disk_id=b"x" * 16, replacement=True, last_index=2, **known)
    assert who.meet(other).kind == TALK
    assert who.meet(other).kind == TALK, "another disk never had it"


def test_only_what_is_committed_and_synced_is_said_to_be_kept() -> None:
    stage = Stage()
    stage.replica.durable_index, stage.replica.commit_index = 9, 7
    assert stage.node.introductions.kept_index() == 7
    stage.replica.durable_index = 5
    assert stage.node.introductions.kept_index() == 5
    assert Stage(durability="memory").node.introductions.kept_index() == 0

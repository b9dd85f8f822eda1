"""The condition of a node in words: its state, and the members or events that it waits for."""

from beanpole import commands as c
from beanpoled.disk.identity import REJOINING
from beanpoled.links.link import DISK
from tests.unit.node.stage import Stage
from tests.unit.node.test_introductions import Start, founded, hello

SECOND_US = 1_000_000


def test_a_disk_without_a_cluster_waits_for_all_members() -> None:
    start = Start()
    start.host.reasons = {"n1": "h:1 refused", "n2": "h:2 timed out"}
    told = start.node.condition
    assert told.state == "starting"
    words = "waiting for all members to found the cluster: n1 h:1 refused, n2 h:2 timed out"
    assert told.waits_for() == words
    start.who.meet(hello("n1"))
    words = "waiting for all members to found the cluster: n2 h:2 timed out"
    assert told.waits_for() == words


def test_a_disk_that_comes_back_empty_is_rejoining() -> None:
    start = Start(rejoin=True)
    start.who.meet(founded("n1"))
    assert start.node.condition.state == "rejoining"
    assert start.node.condition.waits_for().startswith("waiting for a majority of the others: n2 ")


def test_a_majority_without_data_is_named_with_the_remedy() -> None:
    """The members waited for each other for ever, and the words named no reason."""
    lost = "; the data of a majority is lost, and no wait ends that: see `beanpole recover`"
    empty = {"standing": REJOINING, "replacement": True}
    start, keeper = Start(rejoin=True), Stage()
    start.who.meet(founded("n2"))
    told = start.node.condition
    assert told.waits_for() == "waiting for a majority of the others: n1 is connected"
    start.who.meet(hello("n1", **empty))
    words = "waiting for a majority of the others: n1 has an empty disk and waits to rejoin"
    assert told.waits_for() == words + lost
    none = Start(rejoin=True)
    for name in ("n1", "n2"):
        none.who.meet(hello(name, **empty))
    ends = "; no member has data: a new cluster starts without --rejoin"
    assert none.node.condition.waits_for().endswith(ends)
    for name, ends in (("n1", "n2 is connected"), ("n2", lost)):
        keeper.node.introductions.meet(hello(name, **empty))
        waits = keeper.node.condition.waits_for()
        assert waits.startswith("waiting for a majority: n1 has an empty disk and waits to rejoin")
        assert waits.endswith(ends)


def test_a_refusal_is_told_as_the_reason() -> None:
    stage = Stage()
    for _ in range(2):
        stage.node.introductions.refused("n1", DISK, "n1 has another disk", is_mutual=False)
    words = "waiting for a majority: n1 is refused: n1 has another disk, n2 is connected"
    assert stage.node.condition.waits_for() == words
    stage.node.introductions.accepted("n1", 0)
    assert "refused" not in stage.node.condition.waits_for()


def test_the_reasons_of_absent_members_are_sentences() -> None:
    """A node logs them after "serving without"."""
    stage = Stage()
    told = stage.node.condition
    stage.host.reasons = {"n1": "has made no link to this node", "n2": "h:2 has not answered yet"}
    words = "n1: it has made no link to this node; without n2: h:2 has not answered yet"
    assert told.absent_words() == words
    for _ in range(2):
        stage.node.introductions.refused("n1", DISK, "n1 has another disk", is_mutual=False)
    stage.node.router.link_up("n2")
    assert told.absent_words() == "n1: it is refused: n1 has another disk"
    stage.node.router.link_up("n1")
    assert told.absent_words() == ""


def test_from_the_start_to_serving_to_cut_off_and_back() -> None:
    stage = Stage(c.BASE_VERSION)
    told = stage.node.condition
    stage.host.reasons = {"n1": "h:1 refused", "n2": "h:2 refused"}
    assert told.waits_for() == "waiting for a majority: n1 h:1 refused, n2 h:2 refused"
    stage.node.router.link_up("n1")
    assert told.waits_for() == "waiting for a leader: n2 h:2 refused"
    stage.follow()
    stage.replica.commit_index += 7
    assert told.waits_for() == "catching up with n1: 7 entries to apply"
    stage.replica.commit_index -= 7
    stage.node.lifecycle._begin_incarnation()
    stage.run()
    stage.apply_sections((0, 1, 1, ()))
    assert (told.state, told.waits_for()) == ("serving", "")
    stage.node.peers.peers["n1"].silent = True
    assert told.waits_for() == "waiting for the leader n1, which is silent"
    stage.lead(2)
    stage.replica.majority_answers = False
    assert told.waits_for() == "waiting for answers of a majority"
    stage.follow(term=3)
    for name in ("n1", "n2"):
        stage.node.router.link_down(name)
    assert told.absent_words() == "n1: h:1 refused; without n2: h:2 refused"
    stage.pass_us(7 * SECOND_US)
    assert told.state == "cut off"
    assert told.waits_for() == "waiting for a majority: n1 h:1 refused, n2 h:2 refused"

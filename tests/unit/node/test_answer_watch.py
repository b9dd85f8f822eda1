"""A node whose frames arrive, whose commands are not answered, and around which others go on."""

from collections.abc import Callable

import pytest

from beanpole import commands as c
from beanpole.replication.consensus import DiskRoom
from beanpoled.links import frames
from tests.unit.node.stage import MEMBERS, SECOND, Port, Stage
from tests.unit.node.test_peers import heartbeat

FENCE_US = 6_500_000
STEP_US = 50_000
WHY = "the majority goes on and this node's commands are not answered: closing all clients"
PUT = b"put 0 0 60 1\r\nx\r\n"


class Follower(Stage):
    """A follower that hears heartbeats, and whose batches are applied when the test says so."""

    def __init__(self) -> None:
        super().__init__(c.BASE_VERSION)  # nothing will raise the cluster
        self.come_up_behind()
        machine = self.node.context.machine
        self._begun = (machine.index, machine.state_hash)
        # What the others have applied: never what this node has, so that no hashes are compared.
        self.others = machine.index + 1000
        self.sent(frames.BATCH)

    def live(
        self,
        us: int,
        growth: int = 1,
        told_by: tuple[str, ...] = ("n2",),
        heard: tuple[str, ...] = MEMBERS[1:],
    ) -> None:
        """Let time pass with heartbeats of all, of which some tell of new entries."""
        for _ in range(us // STEP_US):
            self.others += growth
            for peer in heard:
                index, state_hash = self._begun
                if peer in told_by:
                    index = self.others
                heartbeat(self, peer, applied_index=index, state_hash=state_hash)
            self.pass_us(STEP_US)

    def answer(self) -> int:
        """Apply the batches that this node has sent, and return their number."""
        batches = [frames.decode_batch(frame) for frame in self.sent(frames.BATCH, "n1")]
        for _, incarnation, number, _, _, _, payload in batches:
            self.apply_sections((0, incarnation, number, c.unpack_commands(payload)))
        return len(batches)

    @property
    def is_open(self) -> bool:
        return self.node.serving and self.host.clients_open


@pytest.fixture
def follower() -> Follower:
    """Return a follower that has served for a while."""
    stage = Follower()
    stage.live(2 * SECOND)
    return stage


def worker(follower: Follower) -> Port:
    """Return a client that holds nothing and waits."""
    _, port = follower.client(b"reserve\r\n")
    follower.answer()
    return port


def test_a_node_whose_commands_are_not_answered_closes_its_clients(follower: Follower) -> None:
    waiting = worker(follower)
    follower.client(PUT)
    follower.live(FENCE_US - 100_000)
    assert follower.is_open and not waiting.closed
    follower.live(300_000)
    assert waiting.closed and not follower.host.clients_open
    assert follower.node.condition.state == "cut off"
    assert follower.node.condition.waits_for() == "waiting for answers of n1 in time"
    assert [line for line in follower.host.lines if WHY in line] == [WHY]


def test_it_comes_back_when_a_command_is_answered_in_time(follower: Follower) -> None:
    follower.client(PUT)
    follower.live(FENCE_US + 200_000)
    assert follower.answer()
    follower.live(200_000)
    assert not follower.is_open  # that answer was late
    follower.live(2 * SECOND)
    assert follower.answer() == 1
    follower.live(200_000)
    assert not follower.is_open  # and so was that of the probe
    assert follower.answer() == 1
    follower.live(200_000)
    assert follower.is_open
    assert follower.node.condition.waits_for() == ""


def test_a_node_that_was_declared_down_comes_back_as_another_incarnation(
    follower: Follower,
) -> None:
    follower.client(PUT)
    follower.live(FENCE_US + 200_000)
    follower.sent(frames.BATCH)
    follower.apply_sections((c.LEADER, 0, 0, ((c.NODE_DOWN, 0, 1),)))
    follower.live(2 * SECOND)
    assert follower.answer() == 1  # NODE_UP
    assert follower.node.origin.up and not follower.is_open
    follower.live(200_000)
    assert follower.answer() == 1
    follower.live(200_000)
    assert follower.is_open


def test_a_node_that_leads_is_not_left_behind(follower: Follower) -> None:
    follower.client(PUT)
    follower.live(FENCE_US + 200_000)
    assert not follower.is_open
    follower.become("leader", "n0", 2)
    follower.live(200_000)
    assert follower.is_open


def _nothing_is_committed(follower: Follower) -> None:
    follower.live(500_000)
    follower.live(3 * FENCE_US, growth=0)


def _the_cluster_stops(follower: Follower) -> None:
    """The last entries went without the batch, as they do where disks or a leader are slow."""
    follower.live(4 * SECOND)
    follower.live(3 * FENCE_US, growth=0)


def _others_are_unheard(follower: Follower) -> None:
    """Nobody tells of entries; that may be a cluster whose disks all hang."""
    follower.live(3 * FENCE_US, told_by=())


def _nothing_is_asked(follower: Follower) -> None:
    follower.answer()
    follower.live(3 * FENCE_US)


def _one_after_the_other_is_answered(follower: Follower) -> None:
    for _ in range(6):
        follower.live(4 * SECOND)
        assert follower.answer()
        follower.client(PUT)


def _a_link_is_new(follower: Follower) -> None:
    """The batches were sent again on it, and the node has to catch up before they are applied."""
    follower.live(SECOND)
    follower.node.router.link_down("n1")
    follower.live(FENCE_US - SECOND, told_by=("n2",), heard=("n2",))
    follower.node.router.link_up("n1")
    follower.live(4 * SECOND)
    assert follower.answer()
    follower.live(FENCE_US)


def _leaders_change(follower: Follower) -> None:
    """Each new leader gets the batches again."""
    for term in range(2, 6):
        follower.live(FENCE_US - 500_000)
        follower.become("follower", "n1", term)


def _it_leads(follower: Follower) -> None:
    """A leader waits for the answers of no other node."""
    follower.become("leader", "n0", 2)
    follower.live(3 * FENCE_US)


def _all_stood_still(follower: Follower) -> None:
    """The cluster goes on late, and the batch is among what it commits then."""
    follower.live(FENCE_US + SECOND, growth=0)
    follower.live(800_000)
    assert follower.answer()
    follower.live(FENCE_US)


def _megabytes_are_in_flight(follower: Follower) -> None:
    """They may take a while, but not for ever."""
    follower.answer()
    for _ in range(frames.BATCHES_IN_FLIGHT_MAX):
        follower.client(b"put 0 0 60 60000\r\n%b\r\n" % bytes(60_000))
    assert 900_000 < follower.node.origin.bytes_in_flight < 1_000_000
    follower.live(FENCE_US + 800_000)
    assert not follower.node.lifecycle.answer_watch.is_left_behind
    follower.answer()
    follower.live(FENCE_US)


@pytest.mark.parametrize(
    "healthy",
    [
        _nothing_is_committed,
        _the_cluster_stops,
        _others_are_unheard,
        _nothing_is_asked,
        _one_after_the_other_is_answered,
        _a_link_is_new,
        _leaders_change,
        _it_leads,
        _all_stood_still,
        _megabytes_are_in_flight,
    ],
)
def test_what_has_another_cause_closes_no_clients(
    follower: Follower, healthy: Callable[[Follower], None]
) -> None:
    waiting = worker(follower)
    follower.client(PUT)
    healthy(follower)
    assert follower.is_open and not waiting.closed
    assert WHY not in follower.host.lines


def test_a_log_that_must_not_grow_has_a_case_of_its_own(follower: Follower) -> None:
    follower.client(PUT)
    follower.live(3 * SECOND, told_by=("n1", "n2"))
    follower.replica.space = DiskRoom(full=True)
    follower.live(FENCE_US - 200_000, told_by=("n1", "n2"))
    assert follower.is_open
    follower.live(400_000, told_by=("n1", "n2"))
    lines = [line for line in follower.host.lines if "closing all clients" in line]
    assert lines == ["the others go on and this node's disk is full: closing all clients"]


def test_entries_that_trickle_in_show_that_others_go_on() -> None:
    """Without a word of the third member: each entry is seconds old when it arrives."""
    follower = Follower()
    follower.live(2 * SECOND, told_by=())
    waiting = worker(follower)
    follower.client(PUT)
    for _ in range(3):
        follower.live(2 * SECOND, told_by=())
        follower.apply_sections((c.LEADER, 0, 0, ()))
    follower.live(SECOND, told_by=())
    assert waiting.closed and not follower.is_open


def test_what_a_silent_member_told_is_no_news(follower: Follower) -> None:
    assert follower.node.peers.applied_index() == follower.others
    follower.node.router.link_down("n2")
    assert follower.node.peers.applied_index() == follower.node.context.machine.index
    follower.node.peers.peers["n1"].silent = True
    assert follower.node.peers.applied_index() == 0

"""Heartbeats come back with the next ones: a node knows when its leader last heard it, at most."""

import pytest

from beanpole import commands as c
from beanpoled.links import frames
from beanpoled.links.frames import Heartbeat
from beanpoled.peers.peers import STEADY_US
from tests.unit.node.stage import MEMBERS, SECOND, Port, Stage
from tests.unit.node.test_peers import heartbeat

FENCE_US = 6_500_000
STEP_US = 50_000
WHY = "n1 does not hear this node in time, as far as known: closing all clients"
CUT_OFF = "cut off from the majority: closing all clients"
PASSED_US = 30 * SECOND


class Follower(Stage):
    """A follower that hears its leader, which echoes what it heard a while ago."""

    def __init__(self) -> None:
        super().__init__(c.BASE_VERSION)  # nothing will raise the cluster
        self.come_up_behind()
        self.sent(frames.BATCH)

    def live(self, us: int, late_us: int = 0, told: dict[str, object] | None = None) -> None:
        """Let time pass with heartbeats of all; this node's come back from the leader so late.

        `told` replaces fields of the leader's heartbeats.
        """
        for _ in range(us // STEP_US):
            echo_us = self.host.us - late_us
            heartbeat(self, "n1", **{"echo_us": echo_us, **(told or {})})
            heartbeat(self, "n2")
            self.pass_us(STEP_US)

    @property
    def is_open(self) -> bool:
        return self.node.serving and self.host.clients_open

    def ends(self) -> list[str]:
        """The lines about ends of all clients."""
        return [line for line in self.host.lines if "closing all clients" in line]


@pytest.fixture
def follower() -> Follower:
    """Return a follower that has served for a while."""
    stage = Follower()
    stage.live(PASSED_US)
    return stage


def holder(follower: Follower) -> Port:
    """Return a client that sends nothing any more."""
    _, port = follower.client(b"reserve\r\n")
    for frame in follower.sent(frames.BATCH, "n1"):
        _, incarnation, number, _, _, _, payload = frames.decode_batch(frame)
        follower.apply_sections((0, incarnation, number, c.unpack_commands(payload)))
    return port


def test_a_node_that_its_leader_does_not_hear_closes_its_clients(follower: Follower) -> None:
    port = holder(follower)
    heard_us = follower.host.us
    follower.live(FENCE_US - 100_000, told={"echo_us": heard_us})
    assert follower.is_open and not port.closed
    follower.live(200_000, told={"echo_us": heard_us})
    assert port.closed and not follower.host.clients_open
    assert follower.node.condition.state == "cut off"
    assert follower.node.condition.waits_for() == "waiting to be heard by n1 in time"
    assert follower.ends() == [WHY]


def test_a_path_that_becomes_slower_counts_from_what_was_sent(follower: Follower) -> None:
    """Each heartbeat arrives, and the newest one that the leader heard is older than the last."""
    port = holder(follower)
    for late_us in range(0, FENCE_US - 2 * STEP_US, STEP_US):
        follower.live(STEP_US, late_us)
        assert not port.closed, late_us
    follower.live(2 * STEP_US, FENCE_US)
    assert not port.closed  # an echo that is older than the last one says nothing
    follower.live(200_000, FENCE_US)
    assert port.closed and follower.ends() == [WHY]


def test_it_comes_back_when_the_path_is_fast_again(follower: Follower) -> None:
    follower.live(2 * FENCE_US, FENCE_US + SECOND)
    assert not follower.is_open
    follower.live(2 * FENCE_US, SECOND)  # echoes within the time of the fence, and still late
    assert not follower.is_open
    follower.live(300_000, SECOND - 2 * STEP_US)
    assert follower.is_open
    assert follower.node.condition.waits_for() == ""
    assert follower.ends() == [WHY]


def test_a_node_that_hears_nobody_says_so(follower: Follower) -> None:
    port = holder(follower)
    follower.pass_us(FENCE_US + 100_000)
    assert port.closed and follower.ends() == [CUT_OFF]


def test_a_pause_counts_and_leaves_a_moment_for_an_echo(follower: Follower) -> None:
    port = holder(follower)
    follower.pass_us(FENCE_US, step_us=FENCE_US)  # paused: as good as cut off, or about to be heard
    follower.pass_us(SECOND - 100_000)
    assert not port.closed
    follower.live(300_000)
    assert not port.closed
    follower.pass_us(FENCE_US - SECOND, step_us=FENCE_US - SECOND)
    follower.pass_us(SECOND - 100_000)
    assert not port.closed
    follower.pass_us(300_000)
    assert port.closed and follower.ends() == [CUT_OFF]


def test_a_node_that_is_paused_again_and_again_counts_its_pauses(follower: Follower) -> None:
    port = holder(follower)
    follower.pass_us(FENCE_US - 100_000, step_us=800_000)
    assert not port.closed
    follower.pass_us(200_000)
    assert port.closed


def test_a_node_that_leads_needs_no_echo(follower: Follower) -> None:
    follower.live(2 * FENCE_US, FENCE_US + SECOND)
    assert not follower.is_open
    follower.become("leader", "n0", 2)
    follower.live(200_000, FENCE_US + SECOND)
    assert follower.is_open


@pytest.mark.parametrize(
    "told",
    [
        {"leading": False},  # another member, or one that does not lead yet
        {"term": 7},  # a leader of a term of which this node has not heard
        {"echo_us": 0},  # it has heard nothing on this link
    ],
    ids=lambda told: next(iter(told)),
)
def test_only_the_leader_s_echo_counts(follower: Follower, told: dict[str, object]) -> None:
    port = holder(follower)
    follower.live(FENCE_US + 200_000, told=told)
    assert port.closed


def test_a_leader_of_a_release_without_echoes_is_in_contact_while_it_is_heard(
    follower: Follower,
) -> None:
    follower.sent(frames.HEARTBEAT)
    follower.live(2 * FENCE_US, told={"sent_us": 0, "echo_us": 0})
    assert follower.is_open
    beats = 2 * FENCE_US // STEP_US
    assert len(follower.sent(frames.HEARTBEAT, "n1")) <= beats + 1, "each is answered"
    follower.pass_us(FENCE_US + 100_000)
    assert follower.ends() == [CUT_OFF]


# --- the other side: what is echoed ---------------------------------------------------------------


def beat(stage: Stage, peer: str) -> Heartbeat:
    """Return the next heartbeat to a member."""
    stage.sent(frames.HEARTBEAT)
    stage.pass_us(2 * STEP_US)
    return frames.decode_heartbeat(stage.sent(frames.HEARTBEAT, peer)[-1])


def test_each_member_gets_back_what_it_sent(follower: Follower) -> None:
    heartbeat(follower, "n1", sent_us=71)
    heartbeat(follower, "n2", sent_us=72)
    assert [beat(follower, peer).echo_us for peer in MEMBERS[1:]] == [71, 72]
    sent_us = beat(follower, "n1").sent_us
    assert 0 <= follower.host.us - sent_us < 2 * STEP_US


def test_a_leader_echoes_while_a_majority_answers_it(follower: Follower) -> None:
    follower.become("leader", "n0", 2)
    heartbeat(follower, "n1", sent_us=71)
    assert beat(follower, "n1").echo_us == 71
    follower.replica.majority_answers = False
    assert beat(follower, "n1").echo_us == 71  # it did a moment ago
    follower.pass_us(SECOND)
    assert beat(follower, "n1").echo_us == 0


def test_nothing_is_echoed_of_another_link(follower: Follower) -> None:
    """The process at the other end may be a new one, whose loop begins at 0 again."""
    heartbeat(follower, "n1", sent_us=71)
    follower.node.router.link_down("n1")
    follower.node.router.link_up("n1")
    assert beat(follower, "n1").echo_us == 0
    heartbeat(follower, "n1", sent_us=73)
    assert beat(follower, "n1").echo_us == 73


def test_on_a_new_link_echoes_come_at_once(follower: Follower) -> None:
    follower.node.router.link_down("n1")
    follower.sent(frames.HEARTBEAT)
    follower.node.router.link_up("n1")
    heartbeat(follower, "n1", sent_us=71)
    heartbeat(follower, "n1", sent_us=72)
    told = [frames.decode_heartbeat(one) for one in follower.sent(frames.HEARTBEAT, "n1")]
    assert [one.echo_us for one in told] == [0, 71]  # with the link, and for its first heartbeat


def test_while_links_stall_nothing_is_echoed_and_no_echo_counts(follower: Follower) -> None:
    """As for the silence: the first frames of a new link do not show that the path works."""
    port = holder(follower)
    for _ in range(2):
        follower.node.router.link_up("n1")
        heartbeat(follower, "n1", sent_us=71)
        follower.pass_us(3 * SECOND)
        follower.node.router.link_down("n1")
    assert not port.closed
    follower.node.router.link_up("n1")
    heartbeat(follower, "n1", sent_us=72)
    assert beat(follower, "n1").echo_us == 0
    follower.pass_us(SECOND)
    assert port.closed and follower.ends() == [CUT_OFF]
    follower.live(STEADY_US)
    assert follower.is_open
    heartbeat(follower, "n1", sent_us=73)
    assert beat(follower, "n1").echo_us == 73

"""Planted defects at the edges of a life, in streams, frames and slices.

The patches and their table; see `mutations` and `mutant_table`.
"""

from typing import Any, Final

from beanpole.replication.pysyncobj.acks import LeaderAcks
from beanpole.replication.pysyncobj.appends import Appends
from beanpoled.links import link
from beanpoled.links.frames import Heartbeat
from beanpoled.peers.peers import Peer, Peers
from beanpoled.turn.heartbeats import Heartbeats
from beanpoled.turn.lifecycle import Lifecycle
from tests.sim import schedules as s
from tests.sim.mutant import Mutant
from tests.sim.mutations import Patch, nothing
from tests.sim.schedules_links import (
    a_bit_of_a_body_flips_on_its_way,
    a_leader_is_left_with_one_of_five,
    a_paused_node_is_cut_off,
    frames_arrive_and_none_leave,
    large_packets_are_lost,
    late_answers_reach_a_leader,
    the_leader_s_frames_arrive_late,
)


def tail_left() -> list[Patch]:
    """Entries behind a large entry are left to the library, which does not see them."""
    return [(Appends, "_cut_behind", nothing)]


def frames_believed() -> list[Patch]:
    """A frame is accepted whatever its checksum is."""

    def next_frame(reader: Any) -> link.Frame | None:
        buffer = reader._buffer
        if len(buffer) < link._HEAD_BYTES:
            return None
        size, _, kind = link._unpack_head(buffer, 0)
        end = link._HEAD_BYTES + size
        if len(buffer) < end:
            return None
        payload = bytes(buffer[link._HEAD_BYTES : end])
        del buffer[:end]
        return kind, payload

    return [(link.FrameReader, "next", next_frame)]


def new_links_believed() -> list[Patch]:
    """A link counts from its first frame on, although the one before stalled at once."""

    def wrong(self: Peers, peer: Peer) -> bool:
        return True

    return [(Peers, "is_steady", wrong)]


def late_frames_believed() -> list[Patch]:
    """A node that hears its leader keeps its clients, whether or not it is heard itself."""

    def wrong(self: Peers) -> int:
        return self._context.now_us if self.has_contact() else 0

    return [(Peers, "heard_without_echo_us", wrong)]


def late_answers_believed() -> list[Patch]:
    """An answer shows a leader that it was heard when it arrives, however old it is."""

    def wrong(self: LeaderAcks) -> float:
        return self._shared.callbacks.now_s() if self.majority_answers() else 0.0

    return [(LeaderAcks, "majority_heard_s", wrong)]


def pauses_do_not_count() -> list[Patch]:
    """The time of a pause is none in which the leader heard nothing."""
    paused = Lifecycle.paused

    def wrong(self: Lifecycle, pause_us: int) -> None:
        paused(self, pause_us)
        self._peers.heard_us += pause_us

    return [(Lifecycle, "paused", wrong)]


def back_at_once() -> list[Patch]:
    """Any echo within the time of the fence is enough for a node to accept clients again."""

    def wrong(self: Lifecycle) -> bool:
        return False

    return [(Lifecycle, "is_path_slow", wrong)]


def stalls_are_echoed() -> list[Patch]:
    """A heartbeat comes back whatever its link is, also while it does not end the silence."""
    receive = Heartbeats.receive

    def wrong(self: Heartbeats, name: str, heartbeat: Heartbeat) -> None:
        receive(self, name, heartbeat)
        if self._peers.peers[name].stalls:
            self._peers.peers[name].echo_us = heartbeat.sent_us
            self.greet(name)

    return [(Heartbeats, "receive", wrong)]


def minorities_echo() -> list[Patch]:
    """A leader that no majority answers tells others that it hears them."""

    def wrong(self: Heartbeats) -> bool:
        return True

    return [(Heartbeats, "_echoes", wrong)]


EDGES: Final = (
    Mutant(
        "tail_left",
        "entries of another leader stay behind a large entry",
        s.a_large_entry_before_a_conflict,
        r"behind a large entry",
        tail_left,
    ),
    Mutant(
        "frames_believed",
        "links: a flipped bit of a frame is taken over",
        a_bit_of_a_body_flips_on_its_way,
        r"the body that was put is",
        frames_believed,
    ),
    Mutant(
        "new_links_believed",
        "links: a path that loses large packets counts as one that works",
        large_packets_are_lost,
        r"nothing large keeps its worker",
        new_links_believed,
    ),
    Mutant(
        "stalls_are_echoed",
        "links: a node is told that it was heard on a link that stalls",
        large_packets_are_lost,
        r"is declared down and has not closed its clients",
        stalls_are_echoed,
    ),
    Mutant(
        "minorities_echo",
        "links: a leader without a majority keeps the clients of others",
        a_leader_is_left_with_one_of_five,
        r"is declared down and has not closed its clients",
        minorities_echo,
    ),
    Mutant(
        "late_frames_believed",
        "links: whatever arrives shows that the path works, late or not",
        the_leader_s_frames_arrive_late,
        r"not heard in time keeps its worker",
        late_frames_believed,
    ),
    Mutant(
        "late_frames_believed",
        "links: a node that the leader does not hear counts its silence from the end of the link",
        frames_arrive_and_none_leave,
        r"is declared down and has not closed its clients",
        late_frames_believed,
    ),
    Mutant(
        "late_answers_believed",
        "links: a leader counts from when answers arrive",
        late_answers_reach_a_leader,
        r"is declared down and has not closed its clients",
        late_answers_believed,
    ),
    Mutant(
        "pauses_do_not_count",
        "links: a node that was paused, and then cut off, counts from the end of the pause",
        a_paused_node_is_cut_off,
        r"while its worker was connected",
        pauses_do_not_count,
    ),
    Mutant(
        "back_at_once",
        "links: a node accepts clients again before it is heard in time",
        the_leader_s_frames_arrive_late,
        r"accepts clients while it is not heard",
        back_at_once,
    ),
)

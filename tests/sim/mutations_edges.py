"""Planted defects at the edges of a life, in streams, frames and slices.

The patches and their table; see `mutations` and `mutant_table`.
"""

from typing import Any, Final

from beanpole.replication.pysyncobj.appends import Appends
from beanpoled.links import link
from beanpoled.peers.peers import Peer, Peers
from beanpoled.turn.answer_watch import AnswerWatch
from tests.sim import schedules as s
from tests.sim.mutant import Mutant
from tests.sim.mutations import Patch, nothing
from tests.sim.schedules_links import (
    a_bit_of_a_body_flips_on_its_way,
    large_packets_are_lost,
    late_frames_arrive_and_none_leave,
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
    """A node that hears anything keeps its clients, although its commands are not answered."""

    def wrong(self: AnswerWatch) -> bool:
        return False

    return [(AnswerWatch, "_misses_an_answer", wrong)]


def back_at_once() -> list[Patch]:
    """A late answer is enough for a node to accept clients again."""

    def wrong(self: AnswerWatch) -> bool:
        return True

    return [(AnswerWatch, "_is_answered_in_time", wrong)]


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
        "late_frames_believed",
        "links: whatever arrives shows that the path works, late or not",
        the_leader_s_frames_arrive_late,
        r"commands are not answered keeps its worker",
        late_frames_believed,
    ),
    Mutant(
        "late_frames_believed",
        "links: a node that the leader does not hear counts its silence from the end of the link",
        late_frames_arrive_and_none_leave,
        r"while its worker was connected",
        late_frames_believed,
    ),
    Mutant(
        "back_at_once",
        "links: a node accepts clients again before an answer comes in time",
        the_leader_s_frames_arrive_late,
        r"accepts clients while its commands",
        back_at_once,
    ),
)

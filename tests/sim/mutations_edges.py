"""Planted defects at the edges of a life, in streams, frames and slices.

The patches and their table; see `mutations` and `mutant_table`.
"""

from typing import Any, Final

from beanpole.replication.pysyncobj.appends import Appends
from beanpoled.links import link
from tests.sim import schedules as s
from tests.sim.mutant import Mutant
from tests.sim.mutations import Patch, nothing
from tests.sim.schedules_links import a_bit_of_a_body_flips_on_its_way


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
)

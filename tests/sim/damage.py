"""Flipped bits in the files of a stopped node: the node must refuse to start.

Only bytes that later bytes prove to have been durable are damaged. The last batch of the log is cut
if it is torn, and a damaged batch looks like a torn one.
"""

import random
from typing import Final

from beanpole.storage.format import FILE_HEADER_BYTES, segment_seed
from beanpole.storage.segment import scan_segment, segment_name, segment_names
from tests.sim.disk import Disk

SMALL: Final = ("identity", "clock", "peers")


def flip(disk: Disk, name: str, dice: random.Random) -> str | None:
    """Flip a bit of a node's files; returns the path, or None if nothing can be damaged."""
    places: list[tuple[str, int]] = []
    kind = dice.random()
    if kind < 0.6:
        places = _log(disk, f"/{name}/log")
    elif kind < 0.8:
        directory = f"/{name}/snapshots"
        newest = sorted(item for item in disk.list(directory) if not item.endswith(".tmp"))[-1:]
        places = [(f"{directory}/{item}", disk.size(f"{directory}/{item}")) for item in newest]
    else:
        paths = [f"/{name}/{item}" for item in SMALL]
        places = [(path, disk.size(path)) for path in paths if disk.exists(path)]
    places = [place for place in places if place[1] > 0]
    if not places:
        return None
    path, size = dice.choice(places)
    disk.flip(path, dice.randrange(size), 1 << dice.randrange(8))
    return path


def _log(disk: Disk, directory: str) -> list[tuple[str, int]]:
    """Return the segments, each with the length that is proved to have been durable."""
    places: list[tuple[str, int]] = []
    names = segment_names(disk, directory)
    for name in names:
        path = f"{directory}/{name}"
        data = disk.open(path).read(0, disk.size(path))
        base = int(name.split(".")[0])
        assert segment_name(base) == name
        scan = scan_segment(data, base, segment_seed(data[:FILE_HEADER_BYTES]), _ignore)
        last = name == names[-1]
        if scan.offset > FILE_HEADER_BYTES:
            places.append((path, scan.front if last else scan.offset))
    return places


def _ignore(at: int, kind: int, index: int, term: int, payload: bytes) -> None:
    """Ignore the record: only the positions matter."""

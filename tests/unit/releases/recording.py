"""The recording of a release, and the invariants that later releases must keep.

`record` makes it. The checks find a change without a condition on the machine's version (ADR 0018):
of the results of `apply`, of the state hash, of the image, of a file.
"""

import io
import json
import lzma
import tarfile
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple

from beanpole import commands as c
from beanpole.core.hosts import HOSTS_SINCE
from beanpole.core.machine import Machine
from beanpole.storage.format import Identity
from beanpoled.eventlog import columns
from beanpoled.eventlog import segment as segments
from beanpoled.eventlog.events import NOTE, Events
from tests.sim.clock import Clock
from tests.sim.cluster import Violation
from tests.sim.disk import Disk
from tests.sim.event_log import EventWitness
from tests.sim.host import SimHost
from tests.sim.schedules_node import Hand
from tests.sim.storm import Stuck
from tests.sim.witness import Witness
from tests.sim.world import CLUSTER, World, image_crc

FIXTURES: Final = Path(__file__).resolve().parents[2] / "fixtures"
# Folders of a node's data directory.
FOLDERS: Final = ("", "/log", "/snapshots", "/events")
# An image is compared after this many entries each time, and at the end.
IMAGE_EVERY: Final = 50
SERVES_S: Final = 20.0

# Entries with their indexes, in order.
Log = list[tuple[int, bytes]]

_HEAD: Final = Struct("<QI")  # index, bytes of the entry


class Recording(NamedTuple):
    """The files and facts of one release.

    Attributes:
        facts: see `facts_of`.
        log: the log of three nodes.
        operations: the log of one machine, with every operation.
        files: the files of the three nodes, by path ("/n0/log/...").
    """

    facts: dict[str, Any]
    log: Log
    operations: Log
    files: dict[str, bytes]


class Replayed(NamedTuple):
    """The results of replaying a log."""

    chains: list[int]
    images: list[int]
    events: list[dict[str, Any]]
    machine: Machine


def replay(log: Log) -> Replayed:
    """Apply a log from its beginning."""
    machine, names = Machine(), dict[int, bytes]()
    found = Replayed([], [], [], machine)
    for place, (index, entry) in enumerate(log, 1):
        flags, time_us, wall_us, sections = c.decode_entry(entry)
        machine.apply(index, flags, time_us, wall_us, sections)
        found.chains.append(machine.state_hash)
        if place % IMAGE_EVERY == 0 or place == len(log):
            found.images.append(image_crc(machine))
        names.update(machine.queue.tubes_named)
        if machine.queue.events:
            first = len(found.events)
            note = NOTE.pack(index, machine.queue.now_us, wall_us, first, machine.state_hash)
            events = Events(
                first,
                bytes(machine.queue.events),
                note,
                names,
                ("n0", "n1", "n2"),
                machine.hosts.names if machine.version >= HOSTS_SINCE else None,
                machine.queue.externals,
                machine.queue.details,
            )
            found.events.extend(columns.conformed(columns.to_arrow(events)).to_pylist())
            machine.queue.events.clear()
            machine.queue.externals.clear()
            machine.queue.details.clear()
    return found


def facts_of(log: Log, operations: Log) -> dict[str, Any]:
    """Return the facts that this program computes from the logs."""
    facts: dict[str, Any] = {"machine_version": Machine().version}
    for name, one in (("log", log), ("operations", operations)):
        found = replay(one)
        facts[name] = {
            "chains": found.chains,
            "images": found.images,
            "events": len(found.events),
            "jobs": found.machine.queue.jobs_total,
        }
    return facts


# --- one file -------------------------------------------------------------------------------------


def pack(recording: Recording) -> bytes:
    """Return the recording as one file: the same bytes each time."""
    parts = {
        "facts.json": json.dumps(recording.facts).encode(),
        "log": _pack_log(recording.log),
        "operations": _pack_log(recording.operations),
        **{f"disks{path}": data for path, data in recording.files.items()},
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in sorted(parts.items()):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return lzma.compress(buffer.getvalue(), preset=9)


def unpack(data: bytes) -> Recording:
    """Read the output of `pack`."""
    parts = {}
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(data))) as tar:
        for info in tar:
            content = tar.extractfile(info)
            assert content is not None
            parts[info.name] = content.read()
    files = {
        name.removeprefix("disks"): data
        for name, data in parts.items()
        if name.startswith("disks/")
    }
    facts = json.loads(parts["facts.json"])
    return Recording(facts, _unpack_log(parts["log"]), _unpack_log(parts["operations"]), files)


def _pack_log(log: Log) -> bytes:
    return b"".join(_HEAD.pack(index, len(entry)) + entry for index, entry in log)


def _unpack_log(data: bytes) -> Log:
    entries: Log = []
    at = 0
    while at < len(data):
        index, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        entries.append((index, data[at : at + size]))
        at += size
    return entries


# --- invariants -----------------------------------------------------------------------------------


def check(recording: Recording) -> None:
    """Raise AssertionError if this program derives anything else from the recording."""
    facts = recording.facts
    for name, log in (("log", recording.log), ("operations", recording.operations)):
        found, wanted = replay(log), facts[name]
        for (index, _), chain, before in zip(log, found.chains, wanted["chains"], strict=True):
            assert chain == before, f"{name}: another state after entry {index}"
        assert found.images == wanted["images"], f"{name}: another image"
        assert len(found.events) == wanted["events"], f"{name}: other events"
    check_events(recording)
    check_start(recording)


def disks_of(recording: Recording, clock: Clock) -> dict[str, Disk]:
    """Return the nodes' disks as they were."""
    disks: dict[str, Disk] = {}
    for path, data in recording.files.items():
        name = path.split("/")[1]
        disk = disks.setdefault(name, Disk(clock, len(disks)))
        disk.make_directory(path.rpartition("/")[0])
        handle = disk.open(path, create=True)
        handle.write(0, data)
        handle.sync()
        disk.sync_directory(path.rpartition("/")[0])
    return disks


def check_events(recording: Recording) -> None:
    """Assert that the recorded events of the nodes are those that the log makes now."""
    made, read = replay(recording.log).events, 0
    for name, disk in disks_of(recording, Clock()).items():
        for file in disk.list(f"/{name}/events"):
            segment = segments.inspect(disk, f"/{name}/events/{file}", Identity(CLUSTER, name))
            handle = disk.open(segment.path)
            for place in segment.places:
                batch = columns.from_stream(segments.read(handle, segment, place))
                rows = columns.conformed(batch).to_pylist()
                first = rows[0]["offset"]
                assert rows == made[first : first + len(rows)], f"{file}: other events"
                read += len(rows)
    assert read, "no events were recorded"


class _Applying(Witness):
    """Applies committed entries; all nodes must agree with it, and clients' replies are unknown."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(lambda: 0.0)
        self.events = _NoEvents()
        for index, entry in recording.log:
            self._take(index, entry)

    def committed(self, name: str, index: int, term: int, entry: bytes) -> None:
        """Compare the entry that a node is about to apply."""
        if index > self.machine.index:
            self._take(index, entry)
        assert self.log[index][1] == entry, f"{name} has another entry at {index}"

    def _take(self, index: int, entry: bytes) -> None:
        flags, time_us, wall_us, sections = c.decode_entry(entry)
        self.log[index] = (0, entry)
        self.machine.apply(index, flags, time_us, wall_us, sections)
        self.outcomes[index] = (self.machine.state_hash, 0, 0)
        self.costs[index] = 0

    def check_events(self, name: str, index: int, crc: int, total: int) -> None:
        """Do nothing: `recording.check_events` reads the files."""


class _NoEvents(EventWitness):
    def check(self, host: SimHost, whole: bool) -> int:
        """See `check_events`."""
        return 0


def check_start(recording: Recording) -> None:
    """Start the nodes on their disks; they agree with the log, and go on."""
    world = World(1, 3)
    world.disks = disks_of(recording, world.clock)
    world.witness = _Applying(recording)
    assert tuple(sorted(world.disks)) == world.names
    for name in world.names:
        assert world.disks[name].list(f"/{name}/snapshots"), f"{name} has no snapshot"
        world.start(name)
    if not world.clock.run_until(lambda: len(world.serving()) == 3, SERVES_S):
        raise Stuck(f"not all nodes serve: {world.describe()}")
    for host in world.serving():
        hand = Hand(world, host)
        hand.put(b"of a later release")
        hand.wait(1)
        if hand.replies[0][0] != b"INSERTED":
            raise Violation(f"{host.name} answers {hand.replies[0]}")
    assert world.clock.run_until(world.is_equal, SERVES_S), world.describe()
    world.check_equal()
    assert world.witness.machine.index > recording.log[-1][0]

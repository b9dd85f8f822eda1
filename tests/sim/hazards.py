"""Faults of only some lives: each kind is drawn for a life, with a random generator of its own.

So a seed without a kind is the same life as before that kind existed. The faults of every life are
in `troubles`.
"""

import random
from contextlib import suppress
from typing import Final

from beanpole.commands import BASE_VERSION, MACHINE_VERSION
from beanpole.constants import JOB_SIZE_MAX_BYTES
from beanpole.errors import BeanpoleError
from beanpole.storage.segment import NO_LOG
from beanpoled.config.node import SETTINGS
from beanpoled.disk import identity
from tests.sim.disk import Disk
from tests.sim.links import KIND_AT
from tests.sim.troubles import LATENCY_S
from tests.sim.world import World

DEFAULTS: Final = {setting.name: setting.default for setting in SETTINGS}

# The share of the lives in which each kind happens.
SHARES: Final = {
    "calls": 0.25,  # processes die at calls of their disks
    "frames": 0.1,  # bytes between nodes go wrong
    "streams": 0.15,  # and snapshots between them
    "versions": 0.25,  # programs of other machine versions are installed
    "costs": 0.2,  # work takes processor time
    "members": 0.1,  # the member list of one node is edited
    "parts": 0.1,  # a part of a data directory is gone
    "paths": 0.1,  # one kind of files finds no room
    "small": 0.05,  # disks have a capacity
    "hung": 0.05,  # disks hang until they are reset
    "trickles": 0.15,  # a direction between two nodes drains slowly
    "two": 0.3,  # of five nodes, two may have lost their disks at once
    "sizes": 0.03,  # limits are the real ones, and some bodies as large as they allow
}
# Events per second.
RATES: Final = {
    "calls": 0.5,
    "versions": 0.4,
    "members": 0.6,
    "parts": 0.1,
    "paths": 0.2,
    "hung": 0.15,
    "trickles": 0.4,
}
# About the number of changing calls of `Files` in a start; a busy second has some more.
CALLS_MAX: Final = 40
# The share of the disks whose first start is hit.
FIRST_CALLS_SHARE: Final = 0.5
# Installed programs know these machine versions; the newest is more frequent, or none would be
# raised.
PROGRAMS: Final = (BASE_VERSION, MACHINE_VERSION - 1, MACHINE_VERSION, MACHINE_VERSION)
# The share of the writes of one node to another.
WRONG_FRAMES_SHARE: Final = 0.0005
# Factors over the priced processor time: the processor is busy with something else, or old.
SLOWNESSES: Final = (1.0, 1.0, 5.0, 20.0)
# Paths that may find no room while the rest of a disk does.
FULL_PATHS: Final = ("snapshots/", "events/", "clock", "peers", "identity", "log/")
PATH_FULL_S: Final = 3.0
# The log refuses appends when less than an entry of the largest size is free. A life writes
# between some hundred kilobytes and a little more than a megabyte above that.
SMALL_BYTES: Final = (7_300_000, 7_600_000, 8_000_000, 9_000_000)
# From hardly anything to less than a busy leader sends. A node is declared down within the time.
TRICKLES_BYTES_S: Final = (1, 1, 8_000)
TRICKLE_MAX_S: Final = 12.0
HANGS_S: Final = 1e6
HUNG_MAX_S: Final = 8.0
# A data directory is invalid without any of these.
PARTS: Final = ("log/", "identity")
# Limits that storms lower, here with their defaults; and the sizes of bodies with them.
REAL_LIMITS: Final = (
    "client_output_bytes_max",
    "log_memory_bytes",
    "log_retain_bytes",
    "max_job_size",
    "outbox_bytes_max",
    "snapshot_bytes_min",
    "wal_segment_bytes",
)
REAL_BODY_BYTES: Final = (0, 0, 10, 10, 200, 200, 900, 900, 5_000, 65_000)
# The share of these lives with bodies of the largest size.
LARGEST_SHARE: Final = 0.3
LARGEST_BODY_BYTES: Final = (*REAL_BODY_BYTES, *REAL_BODY_BYTES, JOB_SIZE_MAX_BYTES - 20)


def draw(seed: int) -> frozenset[str]:
    """Draw the kinds of a life."""
    return frozenset(
        kind for kind, share in SHARES.items() if random.Random(f"{kind} {seed}").random() < share
    )


class Hazards:
    """The hazards of one life."""

    def __init__(self, world: World, seed: int, kinds: frozenset[str]) -> None:
        self.world = world
        self.kinds = kinds
        self.dice = random.Random(seed * 32_452_843 + 5)
        rated = sorted(kinds & RATES.keys())
        self._rates = [(getattr(self, f"_{kind}"), RATES[kind]) for kind in rated]

    def begin(self) -> None:
        """Prepare the world before its nodes start."""
        world, dice, kinds = self.world, self.dice, self.kinds
        for kind in kinds:
            world.counts[f"lives with {kind}"] += 1
        if "calls" in kinds:
            for name in world.names:
                if dice.random() < FIRST_CALLS_SHARE:
                    world.disks[name].calls_left = dice.randrange(CALLS_MAX)
        if "frames" in kinds:
            world.frames_go_wrong = True
            world.network.spoil = self._spoil
        if "streams" in kinds:
            world.stream_dice = dice
        if "versions" in kinds:
            for name in world.names:
                world.versions[name] = dice.choice(PROGRAMS)
        if "two" in kinds and len(world.names) > 3:
            world.lost_disks_max = 2
        if "small" in kinds:
            for disk in world.disks.values():
                disk.capacity_bytes = dice.choice(SMALL_BYTES)
        if "costs" in kinds:
            world.slowness = dice.choice(SLOWNESSES)
        if "sizes" in kinds:
            for limit in REAL_LIMITS:
                world.overrides[limit] = DEFAULTS[limit]
            world.body_bytes = REAL_BODY_BYTES
            if dice.random() < LARGEST_SHARE:
                world.overrides["max_job_size"] = JOB_SIZE_MAX_BYTES
                world.body_bytes = LARGEST_BODY_BYTES

    def strike(self, step_s: float) -> None:
        """Let a step pass, in which each hazard may happen."""
        for hazard, rate in self._rates:
            if self.dice.random() < rate * step_s:
                hazard()

    def mend(self) -> None:
        """End all hazards."""
        for disk in self.world.disks.values():
            disk.calls_left = None
            disk.capacity_bytes = None
            disk.full_path = ""
        self.world.edited.clear()
        raised = self.world.witness.machine.version > BASE_VERSION
        self.world.counts["raised versions"] += raised
        self.world.network.spoil = None
        self.world.network.mend()
        self.world.stream_dice = None

    def _calls(self) -> None:
        """Let a process die at a call of its disk: that of a running node, or of the next start."""
        world = self.world
        down = sum(name not in world.hosts for name in world.names)
        name = self.dice.choice(world.names)
        if not down or name not in world.hosts:
            world.disks[name].calls_left = self.dice.randrange(CALLS_MAX)

    def _down(self) -> str | None:
        """Return the node that is down, if it is the only one."""
        down = [name for name in self.world.names if name not in self.world.hosts]
        return down[0] if len(down) == 1 else None

    def _members(self) -> None:
        """Let a node that is down start with a shortened member list, perhaps only itself.

        A disk that is not part of a cluster yet has no list to compare it with.
        """
        world, name = self.world, self._down()
        if name is None or name in world.damaged or not world.is_founded(name):
            return
        others = [other for other in world.names if other != name]
        kept = self.dice.sample(others, self.dice.randrange(len(others)))
        world.edited[name] = (name, *kept)

    def _parts(self) -> None:
        """Remove a part of the data directory of a node that is down: it must not start."""
        world, name = self.world, self._down()
        if name is None or not world.may_lose_disk() or name in world.edited:
            return
        part = f"/{name}/{self.dice.choice(PARTS)}"
        if _has_log(world.disks[name], name) and world.disks[name].lose(part):
            world.damaged[name] = part
            world.counts["lost parts"] += 1

    def _paths(self) -> None:
        """Let one kind of files find no room for a while."""
        name = self.dice.choice(self.world.names)
        disk = self.world.disks[name]
        disk.full_path = path = f"/{name}/{self.dice.choice(FULL_PATHS)}"

        def end() -> None:
            if disk.full_path == path:
                disk.full_path = ""

        self.world.clock.after(PATH_FULL_S * self.dice.random(), end)
        self.world.counts["full paths"] += 1

    def _hung(self) -> None:
        """Hang a disk until it is reset."""
        disk = self.world.disks[self.dice.choice(self.world.names)]
        disk.latency_s = HANGS_S

        def end() -> None:
            if disk.latency_s == HANGS_S:
                disk.hasten(LATENCY_S)

        self.world.clock.after(HUNG_MAX_S * self.dice.random(), end)
        self.world.counts["hung disks"] += 1

    def _trickles(self) -> None:
        """Let one direction between the leader and another node drain slowly for a while."""
        network, leader = self.world.network, self.world.leader()
        if leader is None or network.rates:
            return
        other = self.dice.choice([name for name in self.world.names if name != leader.name])
        ends = (leader.name, other)
        way = ends if self.dice.random() < 0.5 else ends[::-1]
        network.rates[way] = self.dice.choice(TRICKLES_BYTES_S)
        self.world.clock.after(TRICKLE_MAX_S * self.dice.random(), network.mend)
        self.world.counts["trickles"] += 1

    def _versions(self) -> None:
        """Install another program; a running node uses it from its next start."""
        self.world.versions[self.dice.choice(self.world.names)] = self.dice.choice(PROGRAMS)

    def _spoil(self, sender: str, receiver: str, message: bytes) -> bytes:
        """Flip a bit of a message, or truncate it and reset the link."""
        dice = self.dice
        if dice.random() >= WRONG_FRAMES_SHARE:
            return message
        # The first head stays right: the trace recognizes an introduction by it.
        place = dice.randrange(KIND_AT, len(message))
        self.world.counts["bad frames"] += 1
        if dice.random() < 0.5:
            flipped = message[place] ^ 1 << dice.randrange(8 if place > KIND_AT else 7)
            return message[:place] + bytes((flipped,)) + message[place + 1 :]
        network = self.world.network
        self.world.clock.after(0.005, lambda: network.reset(sender, receiver))
        return message[: place + 1]


def _has_log(disk: Disk, name: str) -> bool:
    """Whether a disk has noted its log, which comes before the first record.

    Without that no part is missed: an identity alone is a new disk (life 13134).
    """
    with suppress(BeanpoleError):
        found = identity.read(disk, f"/{name}")
        return found is not None and found.log_base != NO_LOG
    return False

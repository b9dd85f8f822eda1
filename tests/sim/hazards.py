"""What goes wrong only in some lives: each kind is drawn for a life, with dice of its own.

So a seed without a kind is the life that it was before that kind existed. What happens in every
life is in `troubles`.
"""

import random
from typing import Final

from beanpole.commands import BASE_VERSION, MACHINE_VERSION
from beanpole.constants import JOB_SIZE_MAX_BYTES
from beanpoled.config.node import SETTINGS
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
    "costs": 0.2,  # work takes time
    "members": 0.1,  # the member list of one node is edited
    "parts": 0.1,  # a part of a data directory is gone
    "paths": 0.1,  # there is no room for one kind of files
    "small": 0.05,  # disks have an end
    "hung": 0.05,  # disks hang until somebody does something
    "two": 0.3,  # of five nodes, two may have lost their disks at once
    "sizes": 0.03,  # limits are the real ones, and some bodies as large as they allow
}
# How often, per second.
RATES: Final = {
    "calls": 0.5,
    "versions": 0.4,
    "members": 0.6,
    "parts": 0.1,
    "paths": 0.2,
    "hung": 0.15,
}
# About the calls of `Files` in a start that change something; a busy second has some more.
CALLS_MAX: Final = 40
# ... in the first start of a disk.
FIRST_CALLS_SHARE: Final = 0.5
# Programs of these machine versions are installed; the newest more often, or none would be raised.
PROGRAMS: Final = (BASE_VERSION, MACHINE_VERSION - 1, MACHINE_VERSION, MACHINE_VERSION)
# Of the writes of one node to another.
WRONG_FRAMES_SHARE: Final = 0.0005
# How much slower than priced a processor is: busy with something else, or old.
SLOWNESSES: Final = (1.0, 1.0, 5.0, 20.0)
# What may find no room while the rest of a disk does.
FULL_PATHS: Final = ("snapshots/", "events/", "clock", "peers", "identity", "log/")
PATH_FULL_S: Final = 3.0
# The log takes nothing more when the room of an entry of the largest size is gone. A life writes
# from some hundred kilobytes to more than a megabyte above that.
SMALL_BYTES: Final = (7_300_000, 7_600_000, 8_000_000, 9_000_000)
HANGS_S: Final = 1e6
HUNG_MAX_S: Final = 8.0
# Parts without which a data directory is none.
PARTS: Final = ("log/", "identity")
# Limits that storms lower, as they are by default; and what clients put then.
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
# Of these lives.
LARGEST_SHARE: Final = 0.3
LARGEST_BODY_BYTES: Final = (*REAL_BODY_BYTES, *REAL_BODY_BYTES, JOB_SIZE_MAX_BYTES - 20)


def draw(seed: int) -> frozenset[str]:
    """Draw the kinds of a life."""
    return frozenset(
        kind for kind, share in SHARES.items() if random.Random(f"{kind} {seed}").random() < share
    )


class Hazards:
    """The kinds of one life."""

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
        """Let something happen, or not."""
        for hazard, rate in self._rates:
            if self.dice.random() < rate * step_s:
                hazard()

    def mend(self) -> None:
        """Let nothing happen any more."""
        for disk in self.world.disks.values():
            disk.calls_left = None
            disk.capacity_bytes = None
            disk.full_path = ""
        self.world.edited.clear()
        raised = self.world.witness.machine.version > BASE_VERSION
        self.world.counts["raised versions"] += raised
        self.world.network.spoil = None
        self.world.stream_dice = None

    def _calls(self) -> None:
        """A process dies at a call of its disk: of a node that runs, or of one that will start."""
        world = self.world
        down = sum(name not in world.hosts for name in world.names)
        name = self.dice.choice(world.names)
        if not down or name not in world.hosts:
            world.disks[name].calls_left = self.dice.randrange(CALLS_MAX)

    def _down(self) -> str | None:
        """A node that is down, if it is the only one."""
        down = [name for name in self.world.names if name not in self.world.hosts]
        return down[0] if len(down) == 1 else None

    def _members(self) -> None:
        """A node is to be started with a member list that was cut, perhaps to itself.

        A disk that is part of no cluster yet has nothing to compare it with.
        """
        world, name = self.world, self._down()
        if name is None or name in world.damaged or not world.is_founded(name):
            return
        others = [other for other in world.names if other != name]
        kept = self.dice.sample(others, self.dice.randrange(len(others)))
        world.edited[name] = (name, *kept)

    def _parts(self) -> None:
        """A part of the data directory of a node is gone: it must not start."""
        world, name = self.world, self._down()
        if name is None or not world.may_lose_disk() or name in world.edited:
            return
        part = f"/{name}/{self.dice.choice(PARTS)}"
        # What was never begun cannot be missed: an identity alone is a new disk.
        if world.disks[name].list(f"/{name}/log") and world.disks[name].lose(part):
            world.damaged[name] = part
            world.counts["lost parts"] += 1

    def _paths(self) -> None:
        """One kind of files finds no room for a while."""
        name = self.dice.choice(self.world.names)
        disk = self.world.disks[name]
        disk.full_path = path = f"/{name}/{self.dice.choice(FULL_PATHS)}"

        def end() -> None:
            if disk.full_path == path:
                disk.full_path = ""

        self.world.clock.after(PATH_FULL_S * self.dice.random(), end)
        self.world.counts["full paths"] += 1

    def _hung(self) -> None:
        """A disk answers nothing until somebody resets it."""
        disk = self.world.disks[self.dice.choice(self.world.names)]
        disk.latency_s = HANGS_S

        def end() -> None:
            if disk.latency_s == HANGS_S:
                disk.hasten(LATENCY_S)

        self.world.clock.after(HUNG_MAX_S * self.dice.random(), end)
        self.world.counts["hung disks"] += 1

    def _versions(self) -> None:
        """Another program is installed; a node that runs is started with it when it is down."""
        self.world.versions[self.dice.choice(self.world.names)] = self.dice.choice(PROGRAMS)

    def _spoil(self, sender: str, receiver: str, message: bytes) -> bytes:
        """Flip a bit of what travels, or let the rest of it be lost with the link."""
        dice = self.dice
        if dice.random() >= WRONG_FRAMES_SHARE:
            return message
        # The first head stays right: the trace knows an introduction by it.
        place = dice.randrange(KIND_AT, len(message))
        self.world.counts["bad frames"] += 1
        if dice.random() < 0.5:
            flipped = message[place] ^ 1 << dice.randrange(8 if place > KIND_AT else 7)
            return message[:place] + bytes((flipped,)) + message[place + 1 :]
        network = self.world.network
        self.world.clock.after(0.005, lambda: network.reset(sender, receiver))
        return message[: place + 1]

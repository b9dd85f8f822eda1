"""Upgrades in a storm: an operator upgrades node by node while they die and clients work.

    python -m tests.sim.upgrades FIRST [HOW_MANY]

All nodes begin with an older program. Each is stopped and started with a newer one, which may be
the next release (`next_release`), then each goes back, then forward again, and the upgrade is
finalized; afterwards the older program is started once more and must refuse. Everything else is a
life of `storm` and is judged as one. Half of the lives let the leaders finalize ("auto").
"""

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from typing import Final, NamedTuple

from beanpole import commands as c
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS, Repairs
from beanpoled.node_view import LocalNodeView
from tests.sim import next_release
from tests.sim.cluster import Violation
from tests.sim.hazards import Hazards, draw
from tests.sim.host import ERRORS, SimHost
from tests.sim.many import say
from tests.sim.storm import SETTLED_S, Storm, Stuck
from tests.sim.world import World
from tests.unit.beanpoled.fakes import trust_of

# The versions that the older and the newer program know: from the last release or from the base to
# this one, and from the last release or from this one to the next.
_THIS: Final = c.MACHINE_VERSION
PROGRAMS: Final = (
    (_THIS - 1, _THIS),
    (_THIS - 1, _THIS),
    (c.BASE_VERSION, _THIS),
    (_THIS - 1, next_release.VERSION),
    (_THIS, next_release.VERSION),
)
# The cluster works for this long before the upgrade begins.
BEFORE_S: Final = 1.5
# The operator waits at most this long for a node to serve, and then continues with the next one.
STEP_MAX_S: Final = 1.0
# The operator watches a cluster that serves for this long before the next step.
STEP_MIN_S: Final = 0.15
# After this time the leader has heard of a restart, whatever was in flight before.
SERVES_S: Final = 0.5
# Members report their versions with each heartbeat, and a RAISE is one commit.
RAISED_S: Final = 5.0
# Hazards that change programs, member lists or disks in other ways than an upgrade.
WITHOUT: Final = frozenset({"versions", "members", "parts", "small"})
# The counters of the summary.
FIGURES: Final = (
    *("programs installed", "programs that were too old", "raised within the storm"),
    *("raised by an operator", "lives of five nodes", "crashes", "deaths at a call", "stops"),
    *("pauses", "partitions", "lost disks", "snapshots", "fetches"),
)


class Operator(Hazards):
    """The hazards of a life, and an operator that upgrades the cluster meanwhile."""

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed, draw(seed) - WITHOUT)
        self._choices = random.Random(seed * 49_979_687 + 11)
        self.manual = bool(seed % 2)
        self.old, self.new = self._choices.choice(PROGRAMS)
        turns = (self.new, self.old, self.new)
        self._steps = [(name, version) for version in turns for name in world.names]
        self._stepped_s = 0.0
        # The first and the last time at which each older program was seen to serve.
        self._old_s: dict[SimHost, tuple[float, float]] = {}
        self._judged = False
        self._ends = False  # the operator finalizes the upgrade
        self.too_old = 0  # older programs that were installed after the raise

    def begin(self) -> None:
        """Start all nodes with the older program."""
        super().begin()
        world = self.world
        world.overrides["upgrade_finalize"] = "manual" if self.manual else "auto"
        world.versions = dict.fromkeys(world.names, self.old)
        self._stepped_s = world.clock.now_s + BEFORE_S

    @property
    def raised(self) -> bool:
        """Whether the cluster works at the new version."""
        return self.world.witness.machine.version == self.new

    def strike(self, step_s: float) -> None:
        """Let a step pass: the hazards of any life, and the upgrade's next step when it is due."""
        super().strike(step_s)
        world = self.world
        if self.manual and not self._ends and self.raised:
            raise Violation("the cluster is raised before its operator has asked")
        self._judge_raise()
        if self._ends and not self.raised:
            self.finalize()
        serving = len(world.serving()) == len(world.names)
        waited_s = world.clock.now_s - self._stepped_s
        if waited_s < (STEP_MIN_S if serving else STEP_MAX_S):
            return
        self._stepped_s = world.clock.now_s
        if self._steps:
            self._install(*self._steps.pop(0))
        elif not self._ends:
            self._ends = True
        elif self.raised and not self.too_old:
            self.too_old = 1
            self._install(self._choices.choice(world.names), self.old)

    def _judge_raise(self) -> None:
        """Check that no version is raised while a member serves with a program that lacks it."""
        world = self.world
        for host in world.serving():
            if host.node.context.knows == self.old:
                now_s = world.clock.now_s
                self._old_s[host] = (self._old_s.get(host, (now_s, now_s))[0], now_s)
        if not self.raised or self._judged:
            return
        self._judged = True
        proposed_s = self._proposed_s()
        for host, (since_s, seen_s) in self._old_s.items():
            if since_s < proposed_s - SERVES_S and seen_s >= proposed_s:
                raise Violation(f"raised while {host.name} serves with the older program")

    def _proposed_s(self) -> float:
        """Return the time at which the applied RAISE was proposed."""
        witness = self.world.witness
        for _, entry in reversed(witness.log.values()):
            for section in c.decode_entry(entry)[3]:
                if any(command[0] == c.RAISE for command in section[3]):
                    return witness.proposed_s[entry]
        raise AssertionError("the log has no RAISE")

    def _install(self, name: str, version: int) -> None:
        """Stop a node, gracefully or not, and start it with the given program."""
        world = self.world
        host = world.hosts.get(name)
        world.versions[name] = version
        if host is not None and not host.paused and self._choices.random() < 0.5:
            host.enter(host.node.stopping.stop)  # restarted like any node that is down
        else:
            if host is not None:
                world.crash(name)
            world.start(name)
        world.counts["programs installed"] += 1

    def finalize(self) -> str:
        """Ask the leader, if there is one, to finalize; returns its refusal."""
        leader = self.world.leader()
        if leader is None:
            return "nobody leads"
        return LocalNodeView(leader.node, trust_of()).finalize(self.new)[1]

    def mend(self) -> None:
        """End the hazards and the steps; `Upgrade.settle` completes the upgrade."""
        super().mend()
        self._steps.clear()
        self._ends = True

    def older(self) -> list[str]:
        """Return the nodes that run the older program."""
        hosts = sorted(self.world.hosts.items())
        return [name for name, host in hosts if host.node.context.knows == self.old]


class Upgrade(Storm):
    """One upgrade of one seed."""

    def __init__(self, seed: int, repairs: Repairs = ALL_REPAIRS) -> None:
        super().__init__(seed, repairs=repairs)
        self.operator = Operator(self.world, seed)
        self.hazards = self.operator

    def run(self) -> None:
        """Play, heal, finalize, judge. See `Storm`."""
        with next_release.installed():
            super().run()

    def settle(self) -> None:
        """Settle as `Storm`, then finalize the upgrade; the nodes must be equal afterwards, too."""
        super().settle()
        world, operator = self.world, self.operator
        world.counts["raised within the storm"] += operator.raised
        for name in operator.older():
            world.crash(name)
            world.versions[name] = operator.new
            world.start(name)
            if not world.clock.run_until(self._all_serve, SETTLED_S):
                raise Stuck(f"{name} does not serve with the newer program: {world.describe()}")
        said, asked_s = "", -1.0

        def ended() -> bool:
            nonlocal said, asked_s
            # A node that is asked takes another turn. Asking after each turn would repeat that for
            # ever at one moment of virtual time, while the awaited event is still to come.
            if world.clock.now_s > asked_s:
                asked_s = world.clock.now_s
                said = operator.finalize()
            return operator.raised

        if not world.clock.run_until(ended, RAISED_S):
            raise Stuck(f"the upgrade cannot be ended: {said}")
        if not world.clock.run_until(world.is_equal, RAISED_S):
            raise Stuck(f"not all nodes are equal: {world.describe()}")
        world.check_equal()
        too_old = world.counts["programs that were too old"]
        if operator.manual and too_old > operator.too_old:
            raise Violation(f"{too_old} nodes were stopped by a RAISE that came too early")


def upgrade(seed: int, repairs: Repairs) -> None:
    """Run one upgrade as a check."""
    Upgrade(seed, repairs).run()


class Life(NamedTuple):
    """The result of one seed."""

    seed: int
    failure: str  # empty, or the kind of verdict and its message
    counts: Counter[str]


def live(seed: int) -> Life:
    """Run one seed."""
    storm = Upgrade(seed)
    failure = ""
    try:
        storm.run()
    except ERRORS as error:  # errors of the code as well as verdicts
        failure = f"{type(error).__name__}: {str(error)[:300]}"
    counts = Counter(storm.world.counts)
    counts["raised by an operator"] += storm.operator.manual and not failure
    return Life(seed, failure, counts)


def show(seed: int) -> None:
    """Run one seed, and print its log if it fails."""
    storm = Upgrade(seed)
    try:
        storm.run()
    except BaseException:
        sys.stdout.write("\n".join(storm.world.lines) + "\n")
        raise
    sys.stdout.write(f"{dict(sorted(storm.world.counts.items()))}\n{storm.world.digest()}\n")


def main() -> int:
    """Run the seeds of the command line; returns 1 if any failed."""
    parser = argparse.ArgumentParser(description="upgrades in a storm, one for each seed")
    parser.add_argument("first", type=int)
    parser.add_argument("how_many", type=int, nargs="?", default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    first, count = arguments.first, arguments.how_many
    if count == 1:
        show(first)
        return 0
    begun_s = time.monotonic()
    bad = 0
    totals: Counter[str] = Counter()
    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.processes) as pool:
        for life in pool.imap_unordered(live, range(first, first + count), chunksize=4):
            totals.update(life.counts)
            if life.failure:
                bad += 1
                say(f"{life.seed} {life.failure}\n    python -m tests.sim.upgrades {life.seed}")
    say(
        f"{count - bad} of {count} upgrades from {first} kept every promise, in "
        f"{time.monotonic() - begun_s:.0f} s: "
        + ", ".join(f"{totals[words]} {words}" for words in FIGURES)
    )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

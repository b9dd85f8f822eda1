"""The form of a mutant, and the checks of random lives. All mutants are in `mutant_table`."""

from collections.abc import Callable
from typing import Final, NamedTuple

from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS, Repairs
from tests.sim import mutations as m
from tests.sim.cluster import Cluster
from tests.sim.faults import Plan, Run, world
from tests.sim.storm import CALM, Storm

# A check raises AssertionError (Violation, Stuck) if something is broken. A schedule ignores its
# seed.
Check = Callable[[int, Repairs], None]
# A mutant that random lives have to catch is caught within this number of seeds, from any seed on.
WITHIN: Final = 60


def storm(seed: int, repairs: Repairs) -> None:
    """Run a life of whole nodes and their clients."""
    Storm(seed, repairs=repairs).run()


def calm(seed: int, repairs: Repairs) -> None:
    """Run a life of whole nodes and their clients without a fault: no client is cut off."""
    storm = Storm(seed, CALM, repairs=repairs)
    storm.run()
    cut_off = storm.world.counts["guests cut off"]
    assert not cut_off, f"a guest was cut off, and {cut_off - 1} others"


def replicas(seed: int, repairs: Repairs) -> None:
    """Run replicas alone on a network that also loses and reorders, with small logs."""
    cluster = Cluster(
        3,
        seed,
        repairs,
        start=False,
        snapshot_bytes_min=30_000,
        log_retain_bytes=20_000,
        log_memory_bytes=20_000,
    )
    world(seed, cluster)
    for name in cluster.names:
        cluster.start(name)
    run = Run(cluster, seed, Plan())
    run.play(15.0)
    run.settle()


class Mutant(NamedTuple):
    """One defect, and how it is caught."""

    name: str
    breaks: str
    check: Check
    words: str  # a regular expression that the right verdict matches
    patches: m.Patches = m.no_patch
    seed: int = 0  # the first seed that catches it; 0 for a schedule

    @property
    def repairs(self) -> Repairs:
        """The repairs that stay on: a mutant without a patch is named after its repair."""
        return ALL_REPAIRS if self.patches is not m.no_patch else ALL_REPAIRS.without(self.name)

    @property
    def way(self) -> str:
        """A description of how it is caught."""
        name = self.check.__name__
        return f"{name}, seed {self.seed}" if self.seed else f"schedule `{name}`"

    @property
    def row(self) -> str:
        """Its row in the table of docs/testing/mutants.md."""
        name = self.check.__name__
        way = f"`{name}`, seed {self.seed}" if self.seed else f"schedule `{name}`"
        return f"| `{self.name}` | {self.breaks} | {way} |"


def in_lives(
    name: str, breaks: str, words: str, patches: m.Patches, seed: int = 1, check: Check = storm
) -> Mutant:
    """Return a mutant that lives of whole nodes catch, from a seed on."""
    return Mutant(name, breaks, check, words, patches, seed=seed)

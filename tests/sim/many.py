"""Many seeds on all cores: `make sim SEEDS=300 FIRST=1`. Prints figures and how to replay.

One seed's run is in `storm`; the few seeds of every test run are in `test_sim`.
"""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final, NamedTuple

from tests.sim.cluster import Violation
from tests.sim.host import ERRORS
from tests.sim.storm import Storm, Stuck, replay

FAULTS: Final = (
    "lives of five nodes",
    "crashes",
    "stops",
    "pauses",
    "freezes of all",
    "partitions",
    "resets",
    "deaths at a call",
    "deaths within a start",
    "lives with versions",
    "raised versions",
    "programs that were too old",
    "blackouts",
    "losses of quorum for hours",
    "failed disks",
    "ends by a failed disk",
    "slow disks",
    "stalled syncs",
    "flipped bits",
    "refused starts",
    "lost disks",
    "drains",
    "nodes down that had no clients",
    "quits",
    "keyed puts",
    "repeated puts",
    "calls that failed",
    "transfers",
    "nodes that led again",
    "leaders that kept pace",
    "snapshots",
    "refused member lists",
    "lost parts",
    "full paths",
    "hung disks",
    "trickles",
    "lives with small",
    "fetches",
    "wrong streams",
    "bad frames",
    "links cut for a bad frame",
    "whole event logs",
    "events read",
    "events with a host",
    "jobs that keepers had after they came back",
    "jobs of replies that were lost",
    "keepers that left their connection open",
    "lives with policies",
    "jobs that a policy took out",
    "puts into full queues",
    "jobs that were dropped for another",
    "puts that were equal to another",
    "jobs that were there long enough",
    "rates that were reached",
    "changes by an administrator",
    "lives with ruled queues",
    "puts into full ruled queues",
    "ruled jobs that were dropped for another",
    "ruled rates that were reached",
    "ruled jobs without attempts left",
    "lives with users",
    "changes of users",
    "commands without the right",
    "puts beyond a user's quota",
    "lives with senders",
    "jobs of senders",
    "jobs of senders that found no room",
)
# Replies that acknowledge a change.
CHANGES: Final = frozenset(
    {"INSERTED", "RESERVED", "DELETED", "RELEASED", "BURIED", "TOUCHED", "KICKED", "PAUSED"}
)


class Life(NamedTuple):
    """The result of one seed."""

    seed: int
    failure: str  # empty, or the kind of verdict and its message
    simulated_s: float  # without the hours in which quorum was lost
    counts: Counter[str]


def live(seed: int) -> Life:
    """Run one seed and name its failure: SAFETY, LIVENESS, or CRASH for any other error."""
    storm = Storm(seed)
    begun_s = storm.world.clock.now_s
    failure = ""
    try:
        storm.run()
    except Violation as error:
        failure = f"SAFETY: {error}"
    except Stuck as error:
        failure = f"LIVENESS: {error}"
    except ERRORS as error:
        failure = f"CRASH: {error!r}"
    counts = Counter(storm.world.counts)
    counts["steps"] = storm.steps
    passed_s = storm.world.clock.now_s - begun_s - counts["seconds without quorum"]
    return Life(seed, failure, passed_s, counts)


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the seeds of the command line; returns 1 if any failed."""
    parser = argparse.ArgumentParser(description="simulate whole clusters, a life for each seed")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=300)
    arguments = parser.parse_args()
    begun_s = time.monotonic()
    totals: Counter[str] = Counter()
    simulated_s = 0.0
    failed = 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    # A process that is killed breaks this pool; one of `multiprocessing` would wait for its lives.
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for life in pool.map(live, seeds, chunksize=4):
            totals.update(life.counts)
            simulated_s += life.simulated_s
            if life.failure:
                failed += 1
                say(f"seed {life.seed} {life.failure[:300]}\n    {replay(life.seed)}")
    changes = sum(count for word, count in totals.items() if word.split()[-1] in CHANGES)
    say(
        f"{arguments.seeds} seeds from {arguments.first} in {time.monotonic() - begun_s:.0f} s: "
        f"{simulated_s / 3600:.1f} simulated hours (and {totals['seconds without quorum'] // 3600} "
        f"without quorum), {totals['steps']} steps, {changes} acknowledged changes, "
        + ", ".join(f"{totals[fault]} {fault}" for fault in FAULTS)
        + f"; {failed} failed"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

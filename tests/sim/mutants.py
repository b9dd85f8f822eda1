"""Mutation tests of the checks: each mutant breaks one rule, and a check has to catch it.

    make mutants                                  the whole table, on all cores
    python -m tests.sim.mutants NAME ...          some of them

A mutant is caught by a storm of whole nodes, by random faults on replicas alone, both within a
stated number of seeds, or by a directed schedule; always by the verdict that belongs to it. A
defect that only makes the code raise an unexpected error counts as not caught, and the check that
caught it must pass without the mutant. The table is in `mutant_table`.
"""

import argparse
import multiprocessing
import os
import re
import sys
from typing import Final, NamedTuple

from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS, Repairs
from tests.sim import mutations as m
from tests.sim.host import ERRORS
from tests.sim.mutant import WITHIN, Check, Mutant
from tests.sim.mutant_table import MUTANTS, SCHEDULES

ALL: Final = MUTANTS + SCHEDULES
# An error in a mutant's own code is no verdict; a failed assertion of the product is one.
SLIPS: Final = re.compile(
    r"\ba crash:|\b(Type|Name|Attribute|Index|Key|Value|Unbound\w+|ZeroDivision|Overflow)Error\b"
)


def verdict(check: Check, seed: int, repairs: Repairs, patches: m.Patches = m.no_patch) -> str:
    """Return the message of a check; empty if it finds nothing wrong."""
    with m.planted(patches):
        try:
            check(seed, repairs)
        except AssertionError as error:
            return str(error) or "an assertion failed"
        except ERRORS as error:
            return f"a crash: {error!r}"
    return ""


def is_right(mutant: Mutant, words: str) -> bool:
    """Whether a verdict is the one that belongs to the mutant."""
    return re.search(mutant.words, words) is not None and SLIPS.search(words) is None


class Outcome(NamedTuple):
    """The result of one mutant."""

    caught: bool
    seed: int  # 0 for a schedule
    line: str


def hunt(mutant: Mutant) -> Outcome:
    """Find the check that catches a mutant, and verify that it passes without the mutant."""
    name, found = mutant.name, "nothing was found"
    for seed in range(1, WITHIN + 1) if mutant.seed else (0,):
        words = verdict(mutant.check, seed, mutant.repairs, mutant.patches)
        if not is_right(mutant, words):
            found = words or found
            continue
        clean = verdict(mutant.check, seed, ALL_REPAIRS)
        way = mutant._replace(seed=seed).way
        if clean:
            return Outcome(False, seed, f"{name}: {way} fails without it: {clean[:200]}")
        after = f", after {seed} seeds" if seed else ""
        return Outcome(True, seed, f"{name}: caught by {way}{after}: {words[:100]}")
    return Outcome(False, 0, f"{name}: SURVIVED: {found[:200]}")


def hunt_at(place: int) -> Outcome:
    """Hunt a mutant by its index, because functions cannot be sent between processes."""
    return hunt(ALL[place])


def main() -> int:
    """Hunt the mutants of the command line, or all; returns 1 if any survives."""
    parser = argparse.ArgumentParser(description="see whether planted defects are noticed")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a mutant; all by default")
    names = parser.parse_args().names
    if unknown := sorted(set(names) - {one.name for one in ALL}):
        parser.error(
            f"there are no mutants {', '.join(unknown)}; docs/testing/mutants.md lists them"
        )
    wanted = [place for place, one in enumerate(ALL) if not names or one.name in names]
    survivors = 0
    context = multiprocessing.get_context("spawn")
    with context.Pool(os.cpu_count()) as pool:
        for outcome in pool.imap_unordered(hunt_at, wanted):
            survivors += not outcome.caught
            sys.stdout.write(outcome.line.replace("\n", " ") + "\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(wanted) - survivors} of {len(wanted)} mutants caught\n")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())

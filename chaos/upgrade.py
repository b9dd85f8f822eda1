"""Upgrade real nodes under load: from a release to this program, back, forward again, finalize.

`python -m chaos.upgrade` (`make upgrade MINUTES=n`) runs it for n minutes, with kills; zero minutes
are one upgrade without kills. Clients and judges are those of a soak. In addition, a client of a
node that keeps its program may see no error, all images and events must be equal on the way, and
after finalization the older program must refuse to start and leave its disk as it was.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from beanpole import VERSION
from beanpole.commands import MACHINE_VERSION
from chaos import compiled_tree, members, memory, plan, record, soak
from chaos.ground import COUNT, Kind
from chaos.members import Says
from chaos.record import Op
from tests.integration.support.nodes import status
from tests.integration.support.releases import (
    KNOWS,
    LAST,
    Program,
    install,
    release,
    this_program,
    wait_until_raised,
)
from tests.integration.support.waiting import wait_for_time, wait_until

# Event files that are soon complete, so that each program writes some.
SETTINGS: Final[Mapping[str, object]] = {
    "event_segment_bytes": 64 * 1024,
    "event_segment_age_s": 1,
    "disk_reserve_bytes": 0,
}
# In a run with minutes, this share of the time is left for the finalized cluster.
RAISED_SHARE: Final = 0.2
STATUS_TIMEOUT_S: Final = 30.0
RAISED_TIMEOUT_S: Final = 30.0
END_TIMEOUT_S: Final = 40.0
DOWN_S_MAX: Final = 1.0
TOO_OLD: Final = (
    f"need machine version {MACHINE_VERSION}, this program knows up to {KNOWS[LAST]}: upgrade"
)
# Outcomes that no client may see while its node is up.
ERRORS: Final = frozenset(
    {
        *(record.UNKNOWN, record.SILENT, record.GARBLED),
        *("INTERNAL_ERROR", "DRAINING", "OUT_OF_MEMORY"),
    }
)


class Away(NamedTuple):
    """A time in which a node was stopped or starting, so that its clients may see errors."""

    node: int
    from_s: float
    until_s: float


class Upgrade(soak.Soak):
    """One run.

    Args:
        manual: an operator raises the version; otherwise the leader does when all nodes know it.
    """

    def __init__(
        self,
        directory: Path,
        seed: int,
        minutes: float,
        tell: soak.Tell,
        *,
        compiled: bool = False,
        manual: bool = True,
    ) -> None:
        kind = Kind(compiled=compiled, calm=True, settings=SETTINGS)
        super().__init__(directory, seed, minutes, tell, kind)
        self.manual = manual
        self.old = release(LAST, directory)
        word = "manual" if manual else "auto"
        self.new = this_program({"upgrade_finalize": word}, compiled_tree.prefix(compiled))
        self.events: pa.Table | None = None
        self._chance = random.Random(seed)
        self._away: list[Away] = []
        self._runs: dict[int, Program] = {}
        self._kept: list[dict[str, int]] = [{} for _ in range(COUNT)]
        self._counts: Counter[str] = Counter()
        # The program's own command line has the prefix.
        self._ground.prefix = []
        for number in range(COUNT):
            self._install(number, self.old)

    @property
    def kills(self) -> bool:
        """Whether nodes are also killed."""
        return self.minutes > 0

    def measured(self) -> list[tuple[int, float, int]]:
        """Return only nodes with the new program: the two need different sizes for one queue."""
        living = self._ground.living()
        return [node for node in living if self._runs[node[0]] is self.new]

    # --- the way ----------------------------------------------------------------------------------

    def _break(self) -> None:
        wait_until_raised(self._ground.cluster, KNOWS[LAST])
        began_s = time.monotonic()
        raise_s = began_s + self.minutes * 60 * (1 - RAISED_SHARE)
        numbers = list(range(COUNT))
        # An automatic raise comes as soon as the last node knows the version.
        some = COUNT if self.manual else COUNT - 1
        while True:
            there = self._chance.sample(numbers, some)
            self._move(there, self.new)
            self._move(self._chance.sample(there, some), self.old)
            if time.monotonic() >= raise_s:
                break
        self._move(self._chance.sample(numbers, COUNT), self.new)
        self._raise()
        self._refuse(self._chance.choice(numbers))
        while time.monotonic() < began_s + self.minutes * 60:
            self._kill()
        self._check_images("raised")

    def _move(self, numbers: Sequence[int], program: Program) -> None:
        """Install a program on nodes in turn; compare images after the first, and after all."""
        for number in numbers:
            self._replace(number, program)
            self._check_versions()
            if self.kills and self._chance.random() < 0.5:
                self._kill()
            have = list(self._runs.values()).count(program)
            raising = not self.manual and program is self.new and have == COUNT
            if number in (numbers[0], numbers[-1]) and not raising:
                self._check_images(f"{program.name} on {have}")

    def _install(self, number: int, program: Program) -> None:
        ground = self._ground
        self._runs[number] = program
        install(ground.cluster, number, program)

    def _replace(self, number: int, program: Program) -> None:
        """Stop a node, install a program, and start it."""
        self._kept[number].update(members.event_files(self._ground.cluster.nodes[number]))
        killed = self.kills and self._chance.random() < 0.5
        began_s = time.monotonic()
        if killed:
            self._ground.kill(number)
        else:
            self._ground.stop(number)
        self._install(number, program)
        self._start(number)
        self._away.append(Away(number, began_s, time.monotonic()))
        self._counts["programs installed"] += 1
        self._say(f"n{number} runs {program.name} ({'killed' if killed else 'stopped'})")

    def _start(self, *numbers: int) -> None:
        ground = self._ground
        for number in numbers:
            ground.start(number)
            if self.kills and self._chance.random() < 0.2:
                wait_for_time(self._chance.uniform(0, DOWN_S_MAX))  # at a random point of its start
                ground.kill(number)
                self._counts["kills within a start"] += 1
                ground.start(number)
        ground.wait_until_serving(*numbers)

    def _kill(self) -> None:
        """Kill the leader, another node or all, and restart them with their data."""
        ground, chance = self._ground, self._chance
        dice, leader = chance.random(), ground.leader()
        kind = plan.KILL_LEADER if dice < 0.45 else plan.KILL if dice < 0.9 else plan.KILL_ALL
        victims = [leader] if kind == plan.KILL_LEADER else list(range(COUNT))
        if kind == plan.KILL:
            victims = [chance.choice([number for number in victims if number != leader])]
        began_s = time.monotonic()
        ground.kill(*victims)
        wait_for_time(chance.uniform(0, DOWN_S_MAX))
        self._start(*chance.sample(victims, len(victims)))
        self._away += [Away(number, began_s, time.monotonic()) for number in victims]
        self._done.append(kind)
        self._say(f"{kind}: {' '.join(f'n{number}' for number in victims)}")

    def _raise(self) -> None:
        """Finalize the upgrade."""
        nodes = self._ground.cluster.nodes
        if self.manual:
            assert {one.active for one in self._says()} == {KNOWS[LAST]}, "raised without a request"
            asked = self._chance.choice(nodes)
            done, words = members.beanpole("cluster", "finalize", "--addr", asked.grpc)
            assert done == 0, words
            assert words == f"the cluster works at machine version {MACHINE_VERSION}\n"

        def raised() -> bool:
            return {one.active for one in self._says()} == {MACHINE_VERSION}

        wait_until(raised, RAISED_TIMEOUT_S, "all nodes work at the next version")
        self._say(f"machine version {MACHINE_VERSION}")

    def _refuse(self, number: int) -> None:
        """Check that the older program ends at once and leaves everything as it was.

        It finds the raise in a snapshot before it does anything. It finds the raise in its log only
        when the leader has announced its commit. Until then it appends entries from the leader, and
        it may write a snapshot of what was applied before the raise.
        """
        ground = self._ground
        for found in ("log", "snapshot"):
            began_s = time.monotonic()
            if found == "snapshot":
                members.take_snapshot(ground.cluster.nodes[number])
            ground.stop(number)
            before = members.contents(ground.data(number))
            self._install(number, self.old)
            ground.start(number, wanted=False)
            process = ground.process(number)
            code = process.wait(END_TIMEOUT_S)
            last = (process.log.read_text().splitlines() or [""])[-1]
            assert code == 1 and TOO_OLD in last, f"{code}: {last}"
            after = members.contents(ground.data(number))
            changed = sorted(
                name for name in before.keys() | after if not _is_same(name, before, after)
            )
            if found == "log":
                changed = [name for name in changed if not _goes_on(name, before, after)]
            assert not changed, (
                f"the older program, which found the raise in the {found}, has changed {changed} "
                f"of {sorted(before)} to {sorted(after)}"
            )
            self._say(f"n{number} with {self.old.name}: {last}")
            self._install(number, self.new)
            self._start(number)
            self._away.append(Away(number, began_s, time.monotonic()))

    # --- what is looked at ------------------------------------------------------------------------

    def _says(self) -> list[Says]:
        """Return the versions that each node reports; ConnectionError if one is unreachable."""
        asked = self._chance.choice(self._ground.cluster.nodes)
        found = status(asked)["nodes"]
        if not all(node["reachable"] for node in found):
            raise ConnectionError(f"{asked.id} does not reach all: {found}")
        names = ("version", "machine_version", "machine_version_known")
        return [Says(*(node[name] for name in names)) for node in found]

    def _check_versions(self) -> None:
        """Check that all nodes are up, with their programs and their known versions."""
        wanted = {
            number: (LAST, KNOWS[LAST]) if program is self.old else (VERSION, MACHINE_VERSION)
            for number, program in self._runs.items()
        }

        found: list[Says] = []

        def right() -> bool:
            found[:] = self._says()
            told = [(one.program, one.known) for one in found]
            return told == [wanted[number] for number in range(COUNT)]

        try:
            wait_until(right, STATUS_TIMEOUT_S, f"the nodes say that they run {wanted}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {found}") from None

    def _check_images(self, when: str) -> None:
        """Pause the clients, and check that all nodes have the same image at one index."""
        ground = self._ground
        ground.wait_until_serving(*range(COUNT))
        assert self._load
        self._load.signal(signal.SIGSTOP)
        try:
            index, size = members.equal_images(ground.cluster.nodes)
        finally:
            self._load.signal(signal.SIGCONT)
        self._counts["images compared"] += 1
        self._say(f"{when}: equal images of {size} bytes at index {index}")

    def _say(self, line: str) -> None:
        self._tell(f"{time.monotonic() - self._began_s:7.1f} s  {line}")

    # --- the end ----------------------------------------------------------------------------------

    def _finish(self) -> None:
        super()._finish()
        nodes = self._ground.cluster.nodes
        for node, kept in zip(nodes, self._kept, strict=True):
            now = members.event_files(node)
            gone = [name for name, check in kept.items() if now.get(name) != check]
            assert not gone, f"files of events of {node.id} are not as they were: {gone}"
            self._counts["files of events from before"] += len(kept)
        self.events = members.all_events(nodes)
        self._counts["events"] = self.events.num_rows
        assert members.exported(nodes, self.directory / "exported") == self.events
        self._counts["digests in files of events compared"] = members.digests_in_events(nodes)

    def _judge(self, seconds: float, samples: Sequence[memory.Sample]) -> None:
        super()._judge(seconds, samples)
        clients = list(record.read(self._history))
        self.findings += errors_elsewhere(clients, self._away)
        if self.events is not None:
            try:
                members.check_events(self.events, clients)
            except AssertionError as error:
                self.findings.append(str(error))
        words = ", ".join(f"{words} {n}" for words, n in self._counts.items())
        self.figures.append(f"from {self.old.name} to {VERSION}: {words}")


def _is_same(name: str, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> bool:
    """Whether a file has the same content, or is a log with more room for its next records.

    A start fills the newest segment with zeros if the previous program had just begun it.
    """
    if name in before and name in after and name.startswith("log/"):
        return before[name].rstrip(b"\0") == after[name].rstrip(b"\0")
    return before.get(name) == after.get(name)


def _goes_on(name: str, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> bool:
    """Whether a file is as a follower leaves it: a log only grows, or ends at a snapshot.

    A new segment of the log is recorded in the identity, through a temporary file; time is saved.
    """
    if name.startswith("log/"):  # zeros are room for the next records
        return name not in after or after[name].startswith(before.get(name, b"").rstrip(b"\0"))
    return name.startswith(("snapshots/", "identity", "clock")) or name not in before


def errors_elsewhere(clients: Iterable[list[Op]], away: Sequence[Away]) -> list[str]:
    """Return the errors that clients saw although their node was up during their connection."""
    found = []
    for ops in clients:
        connected_s = None
        for op in ops:
            connected_s = op.sent_s if connected_s is None else connected_s
            gone = any(
                one.node == op.node and one.from_s <= op.done_s and connected_s <= one.until_s
                for one in away
            )
            if op.outcome in ERRORS and not gone:
                found.append(f"an error at a node that was up: {op}")
            if op.kind in (record.LEFT, record.CONNECT):
                connected_s = None
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run upgrades according to the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m chaos.upgrade", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--seed", type=int, help="decides the order (default: any)")
    parser.add_argument("--dir", type=Path, help="where to put the files of the run")
    parser.add_argument("--auto", action="store_true", help="let the leader end the upgrade")
    parser.add_argument("--compiled", action=argparse.BooleanOptionalAction, help="as of a soak")
    parser.add_argument("--keep", action="store_true", help="keep the files of a good run, too")
    options = parser.parse_args(arguments)
    if options.compiled and (words := compiled_tree.missing()):
        print(words, file=sys.stderr)
        return 2
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix="beanpole-upgrade-", dir=options.dir))
    run = Upgrade(
        *(directory, seed, options.minutes, lambda line: print(line, flush=True)),
        compiled=bool(options.compiled),
        manual=not options.auto,
    )
    return soak.run_and_tell(run, options.keep)


if __name__ == "__main__":
    sys.exit(main())

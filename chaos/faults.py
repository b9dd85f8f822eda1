"""The faults: how each is applied to the cluster, and how the cluster is repaired afterwards.

Each function applies one fault from begin to end and returns a short description. `plan` schedules
the faults.
"""

import random
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from beanpoled.disk.identity import REJOINING
from chaos import plan, power
from chaos.ground import COUNT, PAIRS, Ground
from chaos.scenarios.clock_steps import STEPS_S
from chaos.scenarios.common import spread
from tests.integration.support.disks import standing
from tests.integration.support.waiting import wait_for_time

DISTURBANCE_S: Final = (0.1, 10.0)
DOWN_S_MAX: Final = 2.0
# After an election among the two other nodes, which by then have jobs again.
LATE_S: Final = 3.0
# A power cut comes with one of the node's next writes or renames, at most this many on.
MOMENT_MAX: Final = 12
START_WRITES_MAX: Final = 40
# Waited after a new leader is ready, so that the window also shows a second interruption.
SETTLED_S: Final = 1.0
# Long enough for pauses and cuts of the other lane.
END_TIMEOUT_S: Final = 40.0
FULL_S: Final = (2.0, 5.0)
FILE_BYTES_MAX: Final = 4096
# A flip in the last record of a log looks like an incomplete write, which is not damage.
DAMAGE_SHARE: Final = 0.25
DAMAGE_BYTES_MIN: Final = 16384
# (system call, error) that strace injects into a node.
INJECTIONS: Final = (("pwritev2", "EIO"), ("pwritev2", "ENOSPC"), ("fdatasync", "EIO"))

Story = tuple[str, float, float]  # description, begin and end


def kill(ground: Ground, chance: random.Random) -> str:
    followers = [number for number in range(COUNT) if not ground.cluster.is_leader(number)]
    victim = chance.choice(followers)
    ground.kill(victim)
    wait_for_time(chance.uniform(0, DOWN_S_MAX))
    ground.start(victim)
    if chance.random() < 0.2:
        # Once more, at a random point of its start.
        wait_for_time(chance.uniform(0, 1))
        ground.kill(victim)
        ground.start(victim)
    ground.wait_until_serving(victim)
    return f"n{victim}"


def kill_leader(ground: Ground, chance: random.Random) -> str:
    with ground.quiet:
        ground.wait_until_serving(*range(COUNT))
        victim = ground.leader()
        wait_for_time(0.2)
        killed_s = time.monotonic()
        ground.kill(victim)
        successor = ground.leader(other_than=victim)
        wait_for_time(SETTLED_S)
        ended_s = time.monotonic()
    ground.windows.append((killed_s, ended_s))
    wait_for_time(chance.uniform(0, DOWN_S_MAX))
    ground.start(victim)
    ground.wait_until_serving(victim)
    return f"n{victim}, then n{successor} led"


def kill_all(ground: Ground, chance: random.Random) -> str:
    ground.kill(*range(COUNT))
    wait_for_time(chance.uniform(0, DOWN_S_MAX))
    for number in chance.sample(range(COUNT), COUNT):
        ground.start(number)
        wait_for_time(chance.choice((0, 0, 0.3)))
    ground.wait_until_serving(*range(COUNT))
    return "all"


def power_cut(ground: Ground, chance: random.Random) -> str:
    """Cut the power of one node, sometimes again while it starts."""
    victim = chance.randrange(COUNT)
    leads = ground.cluster.is_leader(victim)
    moment = _moment(chance)
    ground.cut_power([victim], moment)
    wait_for_time(chance.uniform(0, DOWN_S_MAX))
    ground.start(victim)
    again = chance.random() < 0.3
    if again:
        # At a random point of its start, which begins with writes.
        ground.cut_power([victim], power.Moment("bytes", chance.randrange(1, START_WRITES_MAX)))
        ground.start(victim)
    ground.wait_until_serving(victim)
    words = f"{' (leader)' if leads else ''} {moment}"
    return f"n{victim}{words}{', and again in its start' if again else ''}"


def _moment(chance: random.Random) -> power.Moment:
    """Return when power fails: mostly in the middle of a write or a rename."""
    kind = chance.choice(("now", "bytes", "bytes", "names", "names"))
    return power.NOW if kind == "now" else power.Moment(kind, chance.randrange(1, MOMENT_MAX))


def power_cut_all(ground: Ground, chance: random.Random) -> str:
    """Cut all power. Two nodes return first: any two must have what was acknowledged."""
    moment = _moment(chance)
    ground.cut_power(chance.sample(range(COUNT), COUNT), moment)
    order = chance.sample(range(COUNT), COUNT)
    for number in order[:2]:
        wait_for_time(chance.choice((0, 0, 0.3)))
        ground.start(number)
    wait_for_time(chance.choice((0, 0, 0.5, LATE_S)))
    ground.start(order[2])
    ground.wait_until_serving(*range(COUNT))
    return f"all {moment}, n{order[2]} came back last"


def restart(ground: Ground, chance: random.Random) -> str:
    """Stop a node as an operator does, and start it again."""
    victim = chance.randrange(COUNT)
    leads = ground.cluster.is_leader(victim)
    ground.stop(victim)
    ground.start(victim)
    ground.wait_until_serving(victim)
    return f"n{victim}{' (leader)' if leads else ''}"


def fail_disk(ground: Ground, chance: random.Random) -> str:
    """Let a write or a sync of one node fail: the node must end by itself, with one line."""
    victim = chance.randrange(COUNT)
    process = ground.process(victim)
    ground.release(victim)
    tracer: subprocess.Popen[bytes] | None = None
    words = "RLIMIT_FSIZE"
    if chance.random() < 0.5 and shutil.which("strace"):
        call, error = chance.choice(INJECTIONS)
        words = f"{call} {error}"
        inject = ["-e", f"trace={call}", "-e", f"inject={call}:error={error}"]
        command = ["strace", "-qq", "-f", "-o", "/dev/null", *inject, "-p", str(process.pid)]
        tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    else:
        limit = (FILE_BYTES_MAX, FILE_BYTES_MAX)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limit)
    try:
        status = process.wait(END_TIMEOUT_S)
    finally:
        if tracer:
            tracer.terminate()
            tracer.wait()
    if status <= 0:
        ground.findings.append(f"after {words} n{victim} ended with {status}")
    ground.disk_words.append(words)
    wait_for_time(chance.uniform(0, DOWN_S_MAX))
    ground.start(victim)
    ground.wait_until_serving(victim)
    return f"n{victim}: {words}"


def wipe(ground: Ground, chance: random.Random) -> str:
    """Wipe a node's disk and bring the node back with --rejoin, perhaps with further faults."""
    ground.wait_until_serving(*range(COUNT))
    victim = chance.randrange(COUNT)
    ground.kill(victim)
    return _rejoin(ground, chance, victim)


def _rejoin(ground: Ground, chance: random.Random, victim: int) -> str:
    ground.wipe(victim)
    wait_for_time(chance.uniform(0, DOWN_S_MAX))
    ground.start(victim, ["--rejoin"])
    trouble = chance.choice(("", "", "the leader was killed meanwhile", "it was killed meanwhile"))
    if trouble:
        wait_for_time(chance.uniform(0, 1.5))
        other = victim
        if trouble.startswith("the"):
            other = ground.leader(other_than=victim)
        if ground.disks and chance.random() < 0.5:
            trouble = trouble.replace("was killed", "lost power")
            ground.cut_power([other], _moment(chance))
        else:
            ground.kill(other)
        # Once it has begun to rejoin, the node remembers that by itself.
        marked = standing(ground.data(victim)) == REJOINING
        ground.start(other, () if other != victim or marked else ["--rejoin"])
        ground.wait_until_serving(other)
    ground.wait_until_rejoined(victim)
    ground.rejoins += 1
    return f"n{victim} {trouble}"


def damage(ground: Ground, chance: random.Random) -> str:
    """Flip a bit in a stopped node's stored data: the node must refuse to start."""
    ground.wait_until_serving(*range(COUNT))
    victim = chance.randrange(COUNT)
    ground.kill(victim)
    flipped = _flip(ground.data(victim), chance)
    if flipped is None:
        return f"nothing to damage; wiped {_rejoin(ground, chance, victim)}"
    path, place = flipped
    ground.start(victim, wanted=False)
    status = ground.process(victim).wait(END_TIMEOUT_S)
    said = ground.process(victim).log.read_text(errors="replace")
    if status <= 0 or str(path) not in said:
        ground.findings.append(
            f"a flipped bit at {place} of {path} was met with status {status}: {said}"
        )
    words = _rejoin(ground, chance, victim)
    return f"{path.name} at {place} of {words}"


def _flip(data: Path, chance: random.Random) -> tuple[Path, int] | None:
    """Flip one bit early in the log or a snapshot; return its place, None if both are small."""
    paths = [*sorted((data / "log").glob("*.wal"))[:1], *(data / "snapshots").glob("*.snapshot")]
    used = {path: len(path.read_bytes().rstrip(b"\0")) for path in sorted(paths)}
    choice = [path for path, size in used.items() if size > DAMAGE_BYTES_MIN]
    if not choice:
        return None
    path = chance.choice(choice)
    content = bytearray(path.read_bytes())
    place = chance.randrange(int(used[path] * DAMAGE_SHARE))
    content[place] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return path, place


def stop(ground: Ground, chance: random.Random) -> str:
    leader = [number for number in range(COUNT) if ground.cluster.is_leader(number)]
    victim = leader[0] if leader and chance.random() < 0.4 else chance.randrange(COUNT)
    seconds = spread(chance, DISTURBANCE_S)
    ground.signal(victim, signal.SIGSTOP)
    wait_for_time(seconds)
    ground.signal(victim, signal.SIGCONT)
    return f"n{victim}{' (leader)' if [victim] == leader else ''} for {seconds:.1f} s"


def cut(ground: Ground, chance: random.Random) -> str:
    """Cut one link, or all links of one node, silently or with resets."""
    lonely = chance.randrange(COUNT)
    alone = chance.random() < 0.5
    pairs = [pair for pair in PAIRS if lonely in pair] if alone else [chance.choice(PAIRS)]
    silent = chance.random() < 0.5
    seconds = spread(chance, DISTURBANCE_S)
    for pair in pairs:
        ground.links.cut(*pair, silent)
    wait_for_time(seconds)
    for pair in pairs:
        ground.links.restore(*pair)
    names = " ".join(f"n{one}-n{other}" for one, other in pairs)
    return f"{names} {'silent' if silent else 'reset'} for {seconds:.1f} s"


def clock(ground: Ground, chance: random.Random) -> str:
    """Step the wall clock of one node, or of all, until the next step."""
    numbers = list(range(COUNT)) if chance.random() < 0.3 else [chance.randrange(COUNT)]
    seconds = chance.choice(STEPS_S)
    for number in numbers:
        ground.step_clock(number, seconds)
    return f"{' '.join(f'n{number}' for number in numbers)} to {seconds:+g} s"


def fill_disk(ground: Ground, chance: random.Random) -> str:
    """Leave less than the reserve on the disk: puts are refused, all else works."""
    words = ground.fill_disk()
    wait_for_time(chance.uniform(*FULL_S))
    ground.empty_disk()
    ground.disk_words.append("full")
    return words


FAULTS: Final[dict[str, Callable[[Ground, random.Random], str]]] = {
    plan.KILL: kill,
    plan.KILL_LEADER: kill_leader,
    plan.KILL_ALL: kill_all,
    plan.POWER_CUT: power_cut,
    plan.POWER_CUT_ALL: power_cut_all,
    plan.RESTART: restart,
    plan.FAIL_DISK: fail_disk,
    plan.WIPE: wipe,
    plan.DAMAGE: damage,
    plan.STOP: stop,
    plan.CUT: cut,
    plan.CLOCK: clock,
    plan.FILL_DISK: fill_disk,
}


class Nemesis:
    """Executes a plan, with one thread for each lane."""

    def __init__(self, ground: Ground, schedule: plan.Plan, tell: Callable[[str], None]) -> None:
        self.done: list[str] = []
        self._ground = ground
        self._tell = tell
        self._ending = threading.Event()
        self._began_s = time.monotonic()
        self._threads = [
            threading.Thread(target=self._carry_out, args=(lane, alone), name="nemesis")
            for lane, alone in ((schedule.breaking, False), (schedule.disturbing, True))
        ]

    def run(self) -> None:
        """Execute the plan; return when it is complete, or when there is a finding."""
        for thread in self._threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in self._threads):
                self._ground.look()
                if self._ground.findings:
                    break
                wait_for_time(0.1)
        finally:
            self._ending.set()
            for thread in self._threads:
                thread.join()

    def _carry_out(self, lane: list[plan.Fault], quiet: bool) -> None:
        for fault in lane:
            if self._ending.wait(max(0.0, self._began_s + fault.at_s - time.monotonic())):
                return
            if fault.kind == plan.CLOCK and not self._ground.clocks.works:
                continue
            try:
                if quiet:
                    with self._ground.quiet:
                        words = FAULTS[fault.kind](self._ground, random.Random(fault.seed))
                else:
                    words = FAULTS[fault.kind](self._ground, random.Random(fault.seed))
            except Exception as error:  # of any kind: the end of a thread is not seen otherwise
                self._ground.findings.append(f"{fault.kind}: {type(error).__name__}: {error}")
                return
            self.done.append(fault.kind)
            self._tell(f"{time.monotonic() - self._began_s:7.1f} s  {fault.kind}: {words}")

"""Record the files that this release writes, for every later release to read.

    .venv/bin/python -m tests.unit.releases.record        writes tests/fixtures/VERSION.tar.xz

A recording has the log of three simulated nodes and a log of every operation with random numbers,
the state hash after each entry, images, and the three nodes' disks after a power cut. The
permanent invariants are in `recording`. Commit the file; a release is never recorded again.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import msgpack

from beanpole import VERSION
from beanpole import commands as c
from beanpole import events as e
from beanpole.core.jobs.job import BURIED, DELAYED, DONE, FAILED
from beanpole.core.machine import Machine
from beanpole.core.operations.table import OPERATIONS
from beanpole.core.users import ANY_RIGHT, EVERYWHERE
from beanpoled.eventlog import columns
from beanpoled.eventlog.events import EventBatch, Events
from tests.sim.event_log import EventWitness
from tests.sim.host import SimHost
from tests.sim.schedules_node import Hand
from tests.sim.storm import CALM, Storm, Stuck
from tests.sim.world import World
from tests.unit.core.qless.random_calls import Calls
from tests.unit.releases.recording import FIXTURES, FOLDERS, Recording, facts_of, pack

SEED: Final = 3
# Longer than a silent node is tolerated (`node_timeout`) in the simulation.
SILENCE_S: Final = 12.0
SERVES_S: Final = 20.0
OPERATIONS_ENTRIES: Final = 1000
# From this entry on the machine works at the newest version.
RAISED_AT: Final = 200
# Small, so that commands often name the same sessions, jobs and keys.
NUMBERS: Final = (0, 1, 1, 1, 2, 2, 3, 4, 5, 7, 60, 2**32 - 1)
BYTES: Final = (b"default", b"a", b"b", b"a secret of 16 b", b"another secret..", b"x" * 64)
LIMIT: Final = 1_000_000
# Sessions of other protocols, and their queues.
WORKQ, WORKQ_QUEUE = 4, b"\x01w"
GEARMAN, GEARMAN_QUEUE = 5, b"\x02g"
QLESS = 6
# TICK of release 0.2.0, a command of the leader without effect: logs may contain it.
RETIRED: Final = 65
# Commands that name a job: (operation, session, job, ...).
OF_JOBS: Final = frozenset(
    {
        *(c.DELETE, c.RELEASE, c.BURY, c.TOUCH, c.KICK_JOB),
        *(c.RESERVE_JOB, c.RETURN, c.PEEK, c.STATS_JOB, c.NOTIFY),
        *(c.FINISH, c.PROGRESS, c.SET_TTR, c.RESULT, c.CHANGE_JOB),
    }
)


def record() -> Recording:
    """Make a recording with this program."""
    with _real_columns():
        life = Storm(SEED, CALM)
        life.run()
        world = life.world
        _go_on(world)
        files: dict[str, bytes] = {}
        for name in world.names:
            world.crash(name)
            files |= _disk_of(world, name)
    log = [(index, entry) for index, (_, entry) in sorted(world.witness.log.items())]
    operations = list(operations_log())
    return Recording(facts_of(log, operations), log, operations, files)


def _go_on(world: World) -> None:
    """Declare a node down and restart it; all nodes make a snapshot and keep some later entries."""
    leader = world.leader()
    assert leader is not None
    name = next(name for name in world.names if name != leader.name)
    world.crash(name)
    world.clock.run(SILENCE_S)
    world.start(name)
    _all_serve(world)
    for host in list(world.hosts.values()):
        host.node.context.replica.compact()
    world.clock.run(1.0)
    for host in world.serving():
        hand = Hand(world, host)
        hand.put(b"behind the snapshot", 3)
        hand.wait(1)
        hand.send(b"reserve")
        hand.wait(2)
    world.clock.run(6.0)  # TTRs expire
    _all_serve(world)


def _all_serve(world: World) -> None:
    wanted = len(world.names)
    if not world.clock.run_until(lambda: len(world.serving()) == wanted, SERVES_S):
        raise Stuck(f"not all nodes serve: {world.describe()}")


def _disk_of(world: World, name: str) -> dict[str, bytes]:
    disk = world.disks[name]
    found = {}
    for folder in FOLDERS:
        directory = f"/{name}{folder}"
        for file in disk.list(directory):
            path = f"{directory}/{file}"
            found[path] = disk.open(path).read(0, disk.size(path))
    return found


@contextmanager
def _real_columns() -> Iterator[None]:
    """Let simulated nodes write real columns of events; the simulation cannot read them."""

    def encode(_: SimHost, events: Events, within_us: int = 0) -> list[EventBatch]:
        return columns.encode(events)

    def check(*_: Any) -> int:
        return 0

    with (
        patch.object(SimHost, "encode_events", encode),
        patch.object(EventWitness, "check", check),
    ):
        yield


# --- every operation ------------------------------------------------------------------------------


def operations_log() -> Iterator[tuple[int, bytes]]:
    """Yield entries with every operation of the table many times, mostly with valid arguments."""
    dice, machine = random.Random(SEED), Machine()
    numbers = {0: (1, 0), 1: (1, 0)}
    calls = Calls(SEED)
    time_us = 1_000_000
    clients = [code for code in OPERATIONS if code < c.EPOCH]
    leaders = [code for code in OPERATIONS if code >= c.EPOCH and code != c.RAISE]
    leaders.insert(1, RETIRED)
    for index in range(1, OPERATIONS_ENTRIES + 1):
        time_us += dice.choice((0, 1, 10_000, 500_000, 2_000_000))
        sections: list[tuple[int, int, int, bytes]] = []
        for origin in dice.sample((0, 1), dice.randint(0, 2)):
            incarnation, number = numbers[origin]
            if dice.random() < 0.02:
                incarnation, number = incarnation + 1, 0
            numbers[origin] = incarnation, number + 1
            wanted = dice.choices(clients, k=dice.randint(1, 12))
            commands = [_aimed(dice, machine, _command(dice, operation)) for operation in wanted]
            commands += [_put(dice) for _ in range(dice.randint(0, 3))]
            if index > RAISED_AT:
                foreign = dice.choices(FOREIGN, k=dice.randint(0, 16))
                commands += [_aimed(dice, machine, _command_of(dice, one)) for one in foreign]
                # The current state chooses them: otherwise most would name no existing job.
                calls.tables = machine.qless
                commands += [calls.command(QLESS) for _ in range(calls.dice.randint(0, 12))]
            if number < 1:
                commands = [(c.OPEN, session) for session in range(1, 7)] + commands
            sections.append((origin, incarnation, number + 1, c.pack_commands(commands)))
        leading = [_command(dice, dice.choice(leaders)) for _ in range(dice.randint(0, 2))]
        leading += [_grant(dice, numbers) for _ in range(dice.randint(0, 2))]
        if index == RAISED_AT:
            leading.append((c.RAISE, c.MACHINE_VERSION))
        if leading:
            sections.insert(0, (c.LEADER, 0, 0, c.pack_commands(leading)))
        flags = c.FLAG_PUTS_REFUSED if dice.random() < 0.05 else 0
        entry = c.encode_entry(flags, time_us, time_us, sections)
        machine.apply(index, *c.decode_entry(entry))
        yield index, entry


# Valid values for sessions of other protocols; a tuple stands for any of its items.
IDS: Final = (b"", b"one", b"two", b"three")
FOREIGN: Final[tuple[tuple[Any, ...], ...]] = (
    (c.OPEN, (WORKQ, GEARMAN, QLESS)),
    (c.SET_PROTOCOL, WORKQ, e.WORKQ),
    (c.SET_PROTOCOL, GEARMAN, e.GEARMAN),
    (c.SET_PROTOCOL, QLESS, e.QLESS),
    (c.WATCH, WORKQ, WORKQ_QUEUE),
    (c.WATCH, GEARMAN, GEARMAN_QUEUE),
    (c.TAKE, WORKQ),
    (c.TAKE, GEARMAN),
    (c.ADD, WORKQ, WORKQ_QUEUE, 5, (0, 1), (0, 900_000), (0, 9_000_000), IDS, (0, 2), (0, 2), b"x"),
    (c.SUBMIT, GEARMAN, GEARMAN_QUEUE, (0, 2**31), (0, 9), IDS, (0, 2), (0, 1), b"", b"body"),
    (c.FINISH, GEARMAN, 1, (DONE, FAILED), b"result"),
    (c.FINISH_NAMED, (WORKQ, GEARMAN), IDS, (DONE, FAILED), b"result"),
    (c.DELETE_NAMED, (WORKQ, GEARMAN), IDS),
    (c.SET_TTR, GEARMAN, 1, (0, 500_000)),
    (c.PROGRESS, GEARMAN, 1, (b"1/3", b"2/3")),
    (c.FIND, WORKQ, IDS),
    (c.RESULT, WORKQ, 1),
    (c.CREATE_QUEUE, GEARMAN, b"\x02h"),
    (c.LIMIT_QUEUE, GEARMAN, GEARMAN_QUEUE, (0, 3), 0, 5),
    (c.DROP_QUEUE, GEARMAN, (GEARMAN_QUEUE, b"\x02h")),
    (c.SET_ALIAS, GEARMAN, (b"\x02alias", b"\x01alias"), (BYTES[1], b"")),
    (c.WATCH, (WORKQ, GEARMAN), (b"\x02alias", b"\x01alias")),
    (c.SUBMIT, GEARMAN, b"\x02alias", 5, 0, IDS, 0, (0, 1), b"", b"body"),
    (c.CHANGE_JOB, (1, 2), 1, (2, 3, 4, 5), -1, b"", b"", (0, 1)),
    (
        *(c.SET_POLICY, 1, (b"*", BYTES[1]), (5, 9), (b"", b"dead"), (0, 50), (0, 10**6), (0, 1)),
        *((0, 2), (0, 7), (0, 2_000_000), (0, 1_000_000), (0, 500_000), 9, 900_000),
    ),
    (c.DROP_POLICY, 1, (b"*", BYTES[1])),
    (c.SET_USER, 1, b"lee", msgpack.packb([(EVERYWHERE, ANY_RIGHT)]), (0, 2), (0, 9), (0, 100)),
    (c.SET_TOKEN, 1, b"lee", (bytes(32), b"t" * 32), (0, 1)),
    (c.AS_USER, (1, 2), b"lee", b""),
    (c.DROP_USER, 1, b"lee"),
    (c.SET_RULES, 1, msgpack.packb([])),
)


def _command_of(dice: random.Random, pattern: tuple[Any, ...]) -> c.Command:
    return tuple(dice.choice(item) if type(item) is tuple else item for item in pattern)


def _command(dice: random.Random, operation: int) -> c.Command:
    if operation == c.EPOCH:  # with sufficient limits
        return (operation, *(dice.randint(1, 9) for _ in range(2)), *[LIMIT] * 4)
    if operation == RETIRED:
        return (RETIRED,)
    if operation == c.NOTIFY:  # mostly with legal kinds
        return (operation, 1, 1, dice.choice((0, 16, 255)), dice.choice(BYTES))
    shape = OPERATIONS[operation].shape[1:]
    return (operation, *(dice.choice(NUMBERS if kind is int else BYTES) for kind in shape))


def _aimed(dice: random.Random, machine: Machine, command: c.Command) -> c.Command:
    """Let a command that names a job name an existing one, and come from its holder."""
    jobs = list(machine.queue.jobs.values())
    if command[0] not in OF_JOBS or not jobs:
        return command
    if command[0] == c.KICK_JOB:
        jobs = [job for job in jobs if job.state in (BURIED, DELAYED)] or jobs
    held = [job for job in jobs if job.holder is not None]
    if command[0] in (c.FINISH, c.PROGRESS, c.SET_TTR):  # for sessions of other protocols
        held = [job for job in held if job.holder is not None and job.holder.number == command[1]]
    job = dice.choice(held if held and dice.random() < 0.7 else jobs)
    session = command[1] if job.holder is None else job.holder.number
    return (command[0], session, job.id, *command[3:])


def _put(dice: random.Random) -> c.Command:
    delay_s = dice.choice((0, 0, 0, 1, 3))
    return (c.PUT, dice.randint(1, 3), dice.choice(BYTES[:3]), dice.randint(0, 9), delay_s, 2, b"x")


def _grant(dice: random.Random, numbers: dict[int, tuple[int, int]]) -> c.Command:
    origin = dice.randint(0, 1)
    return (c.GRANT, origin, numbers[origin][0], dice.randint(1, 3), dice.randint(1, 10**6), 0)


def main() -> None:
    """Write the recording of this release."""
    path = FIXTURES / f"{VERSION}.tar.xz"
    if path.exists():
        sys.exit(f"{path} is there; what a release wrote is recorded once, before its commit")
    FIXTURES.mkdir(exist_ok=True)
    recording = record()
    path.write_bytes(pack(recording))
    said = f"{len(recording.log)} entries, raised to machine version {c.MACHINE_VERSION}"
    sys.stdout.write(f"{path}: {path.stat().st_size} bytes, {said}\n")


if __name__ == "__main__":
    main()

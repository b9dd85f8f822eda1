"""Random logs for the properties of `core`: entries of a few clients of two nodes.

Numbers are small, so that commands often name the same jobs, tubes and sessions.
"""

import msgpack
import pytest
from hypothesis import strategies as st

from beanpole import commands as c
from beanpole.constants import (
    EXTERNAL_ID_MAX_BYTES,
    EXTRA_MAX_BYTES,
    HOST_NAME_MAX_BYTES,
    NOTIFY_MAX_BYTES,
)
from beanpole.core import hosts, keys
from beanpole.core import machine as machine_module
from beanpole.core.jobs import tubes
from beanpole.core.machine import Machine
from beanpole.core.users import ANONYMOUS, EVERYWHERE
from beanpole.events import GEARMAN, WORKQ
from tests.unit.core.cluster import DEFAULT, Entry
from tests.unit.core.foreign import QUEUES as FOREIGN_QUEUES
from tests.unit.core.foreign import ROWS

SECOND = 1_000_000
# Queues of real protocols and of invented ones.
QUEUES = {**FOREIGN_QUEUES, WORKQ: b"\x01q", GEARMAN: b"\x02q"}
SINCE_4 = (WORKQ, GEARMAN)
SESSION = st.sampled_from([1, 1, 2, 3])
TUBE = st.sampled_from([DEFAULT, DEFAULT, b"a", b"b", *QUEUES.values()])
JOB = st.integers(1, 12)
PRIORITY = st.sampled_from([0, 1, 1024, 2**32 - 1])
SECONDS = st.sampled_from([0, 0, 1, 2, 3, 70])
TTR = st.sampled_from([1, 1, 2, 90])
SECRET = st.sampled_from([b"first secret....", b"second secret..."])
BODY = st.sampled_from([b"", b"body"])
NOTICE = st.sampled_from([b"", b"body", b"x" * (NOTIFY_MAX_BYTES + 1)])
ORIGIN = st.integers(0, 1)
HOSTS = [b"10.0.0.1", b"::1", b"unix"]
HOST = st.sampled_from([*HOSTS, *HOSTS, b"", b"x" * (HOST_NAME_MAX_BYTES + 1)])


def command(operation: int, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[c.Command]:
    return st.tuples(st.just(operation), *arguments)


KEY = st.sampled_from([b"one", b"two", b"three", b"four", b"five", b"x" * 64, b"", b"x" * 65])
PUTS = st.one_of(
    command(c.PUT, SESSION, TUBE, PRIORITY, SECONDS, TTR, BODY),
    command(c.PUT_KEYED, SESSION, TUBE, PRIORITY, SECONDS, TTR, BODY, KEY),
)
TIME_US = st.sampled_from([0, 0, 0, 1, SECOND, 3 * SECOND])
EXTERNAL_ID = st.sampled_from([b"", b"one", b"two", b"x" * (EXTERNAL_ID_MAX_BYTES + 1)])
LIMIT = st.integers(0, 2)
COMMANDS = st.one_of(
    PUTS,
    PUTS,
    PUTS,
    st.one_of(
        command(c.OPEN, SESSION),
        command(c.OPEN_FROM, SESSION, HOST),
        command(c.CLOSE, SESSION, st.integers(0, 1)),
        command(c.SET_PROTOCOL, SESSION, st.sampled_from([0, 1, 2, 3, 4, *ROWS])),
        command(c.KEEP, SESSION, SECRET, st.sampled_from([1, SECOND])),
        command(c.RESUME, SESSION, SECRET),
    ),
    st.one_of(
        command(c.USE, SESSION, TUBE),
        command(c.WATCH, SESSION, TUBE),
        command(c.IGNORE, SESSION, TUBE),
        command(c.PAUSE_TUBE, SESSION, TUBE, SECONDS),
        command(c.KICK, SESSION, TUBE, st.integers(-1, 9), st.sampled_from([0, 3, 4])),
    ),
    st.one_of(
        command(c.DELETE, SESSION, JOB),
        command(c.RELEASE, SESSION, JOB, PRIORITY, SECONDS),
        command(c.BURY, SESSION, JOB, PRIORITY),
        command(c.TOUCH, SESSION, JOB),
        command(c.KICK_JOB, SESSION, JOB),
        command(c.RETURN, SESSION, JOB),
    ),
    command(c.RESERVE_JOB, SESSION, JOB),
    command(c.TAKE, SESSION),
    command(c.NOTIFY, SESSION, JOB, st.sampled_from([16, 255]), NOTICE),
    st.one_of(
        command(c.PEEK, SESSION, JOB),
        command(c.PEEK_READY, SESSION, TUBE),
        command(c.PEEK_DELAYED, SESSION, TUBE),
        command(c.PEEK_BURIED, SESSION, TUBE),
        command(c.STATS, SESSION),
        command(c.STATS_JOB, SESSION, JOB),
        command(c.STATS_TUBE, SESSION, TUBE),
        command(c.LIST_TUBES, SESSION),
    ),
)
# Commands of sessions in a space with external ids; BAD_COMMAND to others, and before version 3.
EXTENDED = st.one_of(
    command(
        c.ADD, SESSION, TUBE, PRIORITY, TIME_US, TIME_US, TIME_US, EXTERNAL_ID, LIMIT, LIMIT, BODY
    ),
    command(c.FINISH, SESSION, JOB, st.integers(4, 7), BODY),
    st.one_of(
        command(c.PROGRESS, SESSION, JOB, st.sampled_from([b"", b"1/2"])),
        command(c.FIND, SESSION, EXTERNAL_ID),
        command(c.RESULT, SESSION, JOB),
    ),
)
# Commands that version 4 added for Workq and Gearman.
NAMED = st.sampled_from([b"", b"one", b"one", b"two"])
QUEUE = st.sampled_from([*(QUEUES[protocol] for protocol in (WORKQ, GEARMAN, GEARMAN)), b"\x02r"])
FLAG = st.integers(0, 1)
# Names in other spaces than that of the queue, and queues that may have aliases.
ALIAS = st.sampled_from([b"\x01al", b"\x02al", b"\x02al", b"\x02r", b"al"])
ALIASED = st.sampled_from([b"", b"a", b"a", DEFAULT, QUEUES[WORKQ], QUEUES[GEARMAN]])
SUBMITS = command(
    *(c.SUBMIT, SESSION, QUEUE, PRIORITY, TIME_US, NAMED),
    *(LIMIT, FLAG, st.sampled_from([b"", b"extra", b"x" * (EXTRA_MAX_BYTES + 1)]), BODY),
)
# Changes by an administrator; by the time they apply, the job may have another state or queue.
CHANGES = command(
    *(c.CHANGE_JOB, SESSION, JOB, st.integers(0, 7), st.sampled_from([-1, -1, -1, 0b10])),
    *(st.sampled_from([b"", b"", DEFAULT]), st.one_of(QUEUE, TUBE, ALIAS)),
    st.sampled_from([-1, 0, 0, 1, 4, 16, SECOND]),
)
# Policies of queues, some of them invalid.
PATTERN = st.sampled_from([DEFAULT, b"*", b"a*", b"a", b"", b"**", b"\x02turn", bytes(300)])
POLICIES = st.one_of(
    command(
        *(c.SET_POLICY, SESSION, PATTERN, st.sampled_from([-1, 0, 1, 1, 2])),
        *(st.one_of(PATTERN, TUBE), *[LIMIT] * 3, *[FLAG] * 2, *[TIME_US] * 3, LIMIT, TIME_US),
    ),
    command(
        *(c.SET_POLICY, SESSION, st.sampled_from([b"*", b"a*", DEFAULT, b"\x01*", b"\x02*"])),
        *(st.just(0), st.just(b""), LIMIT, st.sampled_from([0, 4, 9]), FLAG, FLAG, st.just(0)),
        *(TIME_US, TIME_US, st.just(0), LIMIT, st.sampled_from([SECOND, 3 * SECOND])),
    ),
    command(
        *(c.SET_POLICY, SESSION, st.sampled_from([b"*", b"a*", DEFAULT])),
        *(st.just(0), st.just(b""), LIMIT, st.just(0), st.just(0), FLAG, FLAG),
        *(TIME_US, TIME_US, TIME_US, st.just(0), st.just(0)),
    ),
    command(c.PUT, SESSION, TUBE, st.sampled_from([-1, 0, 7]), SECONDS, st.just(-1), BODY),
    command(c.DROP_POLICY, SESSION, PATTERN),
)
# Users; root may do everything, with its token.
ROOT, LEE = b"root", b"lee"
TOKENS = (b"r" * 32, b"l" * 32)
USER = st.sampled_from([ROOT, LEE, LEE, ANONYMOUS, b"", b"no user"])
TOKEN = st.sampled_from([*TOKENS, TOKENS[1], b"", b"x" * 32, b"short"])
RIGHTS = [
    *((), ((EVERYWHERE, 15),), ((DEFAULT, 15), (b"a", 2)), ((b"*", 3), (b"\x02*", 6))),
    *(((b"a*", 15), (b"\x01q", 1), (b"\x02q", 2)), ((b"**", 1),), ((DEFAULT, 16),), 5),
]
RULES = [(), ((0, b"", b"", LEE),), ((1, b"\x08\x0a\0\0\0", b"name", ROOT),), ((9, b"", b"", LEE),)]
USERS = st.one_of(
    command(c.AS_USER, SESSION, USER, TOKEN),
    command(c.AS_USER, SESSION, st.just(b""), st.sampled_from(TOKENS)),
    command(
        *(c.SET_USER, SESSION, USER, st.sampled_from(list(map(msgpack.packb, RIGHTS)))),
        *(st.sampled_from([0, 0, 1, 3, -1]), st.sampled_from([0, 0, 9, 2**62 + 1]), LIMIT),
    ),
    command(c.SET_TOKEN, SESSION, USER, TOKEN, st.sampled_from([0, 1, 1, 2])),
    command(c.DROP_USER, SESSION, USER),
    command(c.SET_RULES, SESSION, st.sampled_from(list(map(msgpack.packb, RULES)))),
)
LATEST = st.one_of(
    SUBMITS,
    SUBMITS,
    command(c.TAKE, SESSION),
    st.one_of(
        command(c.FINISH_NAMED, SESSION, NAMED, st.integers(4, 7), BODY),
        command(c.FINISH, SESSION, JOB, st.integers(5, 6), BODY),
        command(c.DELETE_NAMED, SESSION, NAMED),
        command(c.PROGRESS, SESSION, JOB, BODY),
    ),
    st.one_of(
        command(c.SET_TTR, SESSION, JOB, st.sampled_from([-1, 0, 1, SECOND])),
        command(c.RELEASE, SESSION, JOB, PRIORITY, SECONDS),
        command(c.BURY, SESSION, JOB, PRIORITY),
    ),
    st.one_of(
        command(c.CREATE_QUEUE, SESSION, QUEUE),
        command(c.DROP_QUEUE, SESSION, QUEUE),
        command(c.LIMIT_QUEUE, SESSION, QUEUE, LIMIT, LIMIT, st.sampled_from([-1, 0, 3])),
        command(c.WATCH, SESSION, QUEUE),
        command(c.IGNORE, SESSION, QUEUE),
    ),
    st.one_of(
        command(c.SET_ALIAS, SESSION, ALIAS, ALIASED),
        command(c.WATCH, SESSION, ALIAS),
        command(c.IGNORE, SESSION, ALIAS),
        command(c.USE, SESSION, ALIAS),
        command(c.PUT, SESSION, ALIAS, PRIORITY, SECONDS, TTR, BODY),
        command(c.SUBMIT, SESSION, ALIAS, PRIORITY, TIME_US, NAMED, LIMIT, FLAG, BODY, BODY),
        command(c.ADD, SESSION, ALIAS, *([TIME_US] * 4), NAMED, LIMIT, LIMIT, BODY),
        command(c.STATS_TUBE, SESSION, ALIAS),
    ),
    CHANGES,
    CHANGES,
    command(c.DELETE, SESSION, JOB),
    command(c.CLOSE, SESSION, FLAG),
    st.one_of(
        command(c.PAUSE_QUEUE, SESSION, QUEUE, SECONDS),
        command(c.OPEN_FROM, SESSION, HOST),
        command(c.SET_PROTOCOL, SESSION, st.sampled_from(SINCE_4)),
    ),
    POLICIES,
    USERS,
)
INCARNATION = st.sampled_from([1, 1, 1, 2])
GRANTS = command(
    c.GRANT, ORIGIN, INCARNATION, SESSION, st.integers(1, 50), st.sampled_from([0, 0, 3])
)
LEADS = st.one_of(
    GRANTS,
    GRANTS,
    GRANTS,
    command(c.DIGEST),
    command(c.NODE_DOWN, ORIGIN, INCARNATION),
    command(c.RAISE, st.integers(c.BASE_VERSION - 1, c.BASE_VERSION + 2)),
    st.builds(
        lambda term, expiry_floor_us, jobs: (c.EPOCH, term, expiry_floor_us, jobs, 3, 4, 9_999_999),
        st.integers(1, 3),
        st.integers(0, 9 * SECOND),
        st.sampled_from([5, 100]),
    ),
)
# (origin or LEADER, fate of the batch's number, commands)
BATCHES = st.tuples(
    ORIGIN,
    st.sampled_from(["next", "next", "next", "next", "next", "again", "gap", "restart"]),
    st.lists(st.one_of(COMMANDS, COMMANDS, EXTENDED), max_size=8),
)
LATEST_BATCHES = st.tuples(
    ORIGIN,
    st.sampled_from([*("next",) * 8, "again", "restart"]),
    st.lists(st.one_of(COMMANDS, EXTENDED, LATEST, LATEST, LATEST), max_size=8),
)
LEADER_SECTIONS = st.tuples(st.just(c.LEADER), st.just("next"), st.lists(LEADS, max_size=6))
STEPS = st.tuples(
    st.sampled_from([-SECOND, 0, 0, 1, SECOND // 2, SECOND, SECOND, 5 * SECOND]),
    st.sampled_from([0, 0, 0, 0, 0, c.FLAG_PUTS_REFUSED]),
    st.lists(st.one_of(BATCHES, LEADER_SECTIONS), max_size=3),
)
LATEST_STEPS = st.tuples(
    st.sampled_from([-SECOND, 0, 0, 1, SECOND // 2, SECOND, SECOND, 5 * SECOND]),
    st.sampled_from([0, 0, 0, 0, 0, c.FLAG_PUTS_REFUSED]),
    st.lists(st.one_of(LATEST_BATCHES, LATEST_BATCHES, LEADER_SECTIONS), max_size=3),
)
Step = tuple[int, int, list[tuple[int, str, list[c.Command]]]]


def log_of(
    steps: list[Step], protocol: int = 0, version: int = 3, users: bool = False
) -> list[Entry]:
    """Return entries with times and batch numbers, after one that opens sessions and puts jobs.

    With a protocol, the machine works at a version from the start, and session 3 is of its space.
    With users, session 1 has all rights, and anonymous sessions have few.
    """
    put = (c.PUT, 1, DEFAULT, 0, 0, 1, b"first")
    opened: tuple[c.Command, ...] = ((c.OPEN, 1), (c.OPEN, 2), put, put, (c.WATCH, 2, b"a"))
    first: list[c.Section] = []
    if protocol:
        first.append((c.LEADER, 0, 0, ((c.RAISE, version),)))
        queue = QUEUES[protocol]
        rest = (3 * SECOND, b"one", 2, 2)
        opening = (c.OPEN, 3) if version < hosts.HOSTS_SINCE else (c.OPEN_FROM, 3, HOSTS[0])
        opened += (opening, (c.SET_PROTOCOL, 3, protocol), (c.WATCH, 3, queue))
        opened += ((c.ADD, 3, queue, 1, 0, SECOND, *rest, b"added"),)
        if version >= 4:
            alias = queue[:1] + b"al"
            opened += ((c.SET_ALIAS, 1, alias, b"a"), (c.WATCH, 3, alias))
        if protocol == GEARMAN:
            # Session 2 of each node is attached to one job of its own, and to one that both share.
            opened += ((c.SET_PROTOCOL, 2, GEARMAN), (c.WATCH, 2, queue))
            opened += tuple(
                (c.SUBMIT, 2, queue, 1, 0, name, 0, 1, b"extra", b"mine") for name in (b"", b"two")
            )
    if users:
        opened += (
            (c.SET_USER, 1, ROOT, msgpack.packb(RIGHTS[1]), 0, 0, 0),
            (c.SET_TOKEN, 1, ROOT, TOKENS[0], 1),
            (c.SET_USER, 1, LEE, msgpack.packb(RIGHTS[3]), 4, 0, 0),
            (c.SET_TOKEN, 1, LEE, TOKENS[1], 1),
            (c.AS_USER, 1, b"", TOKENS[0]),
            (c.SET_USER, 1, ANONYMOUS, msgpack.packb(RIGHTS[4]), 2, 20, 0),
        )
    time_us = SECOND
    first += [(0, 1, 1, opened), (1, 1, 1, opened)]
    entries: list[Entry] = [(1, 0, time_us, 0, first)]
    numbers = {0: (1, 1), 1: (1, 1)}
    for index, (passed_us, flags, specs) in enumerate(steps, 2):
        time_us += passed_us
        sections: list[c.Section] = []
        for origin, how, commands in specs:
            if origin == c.LEADER:
                sections.append((origin, 0, 0, tuple(commands)))
                continue
            incarnation, number = numbers[origin]
            if how == "restart":
                incarnation, number = incarnation + 1, 0
            number += {"again": 0, "gap": 2}.get(how, 1)
            if how in ("next", "restart"):
                numbers[origin] = incarnation, number
            sections.append((origin, incarnation, number, tuple(commands)))
        entries.append((index, flags, time_us, 0, sections))
    return entries


# The number of transitions by timers and lost sessions that one entry may do.
BUDGETS = st.sampled_from([1, 2, 3, 1000])
LOGS = st.one_of(
    st.builds(
        log_of,
        st.lists(STEPS, min_size=1, max_size=12),
        st.sampled_from([0, *ROWS]),
        st.sampled_from([3, 4]),
    ),
    st.builds(
        log_of,
        st.lists(LATEST_STEPS, min_size=1, max_size=12),
        st.sampled_from([WORKQ, GEARMAN, GEARMAN]),
        st.just(4),
        st.booleans(),
    ),
)


def replay(entries: list[Entry], own: int = -1, machine: Machine | None = None) -> Machine:
    machine = machine or Machine()
    for entry in entries:
        machine.apply(*entry, own=own)
    return machine


def tighten(patch: pytest.MonkeyPatch, transitions: int) -> None:
    """Lower the limits so that short logs meet them: work per entry, sizes and key lifetimes."""
    patch.setattr(machine_module, "TRANSITIONS_PER_ENTRY_MAX", transitions)
    patch.setattr(machine_module, "KICKS_PER_ENTRY_MAX", transitions)
    patch.setattr(machine_module, "LOOKS_PER_ENTRY_MAX", transitions)
    patch.setattr(machine_module, "DROPS_PER_ENTRY_MAX", transitions)
    patch.setattr(tubes, "BUCKETS_MAX", 2)
    patch.setattr(hosts, "HOSTS_MAX", 2)
    patch.setattr(keys, "GENERATION_KEYS_MAX", 2)
    patch.setattr(keys, "DEDUP_WINDOW_US", 4 * SECOND)

"""The workloads, and the sets of systems and workloads that are measured together."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from bench.peers import GEARMAND, GEARMAND_DURABLE, PEERS, QLESS_ON_REDIS
from bench.processes import BenchError
from bench.servers import (
    BEANPOLE_1,
    BEANPOLE_1_OFF,
    BEANPOLE_3,
    BEANPOLE_3_MEMORY,
    BEANPOLE_3_OFF,
    BEANPOLE_GEARMAN,
    BEANPOLE_LEADER,
    BEANPOLE_MEMORY,
    BEANPOLE_QLESS,
    BEANPOLE_SOURCES,
    BEANPOLE_WORKQ,
    BEANSTALKD,
    BEANSTALKD_DURABLE,
    System,
)

# The largest body that Beanpole and beanstalkd accept by default.
LARGE_BODY_BYTES: Final = 65535
BACKLOG_JOBS: Final = 1_000_000
# The protocols whose clients can wait for results.
FOREGROUND: Final = ("gearman", "workq")


class Workload(NamedTuple):
    """One kind of load. The options are those of the generator (`bench/build/load --help`)."""

    name: str
    title: str
    options: Mapping[str, str]
    # Whether jobs remain: then every measurement gets a server of its own.
    leaves_jobs: bool = False
    # The share of the rate that the same server has just reached in a closed loop; 0: closed loop.
    rate_share: float = 0.0
    # Whether it needs more of the protocol than put, reserve and delete in one queue.
    beanstalk_only: bool = False
    # The number of connections, regardless of the set; 0: those of the set.
    connections: int = 0

    @property
    def fill(self) -> int:
        return int(self.options.get("fill", "0"))

    def fits(self, system: System) -> bool:
        if self.options.get("workload") == "foreground":
            # gearmand keeps these jobs in memory, regardless of the queue of its background jobs.
            return system.protocol in FOREGROUND and system is not GEARMAND_DURABLE
        return system.protocol == "beanstalk" or not self.beanstalk_only


def full(name: str, title: str, leaves_jobs: bool = False, **options: str) -> Workload:
    """Return a workload of full cycles with these options of the generator."""
    only = bool(options.keys() & {"tubes", "idle", "delay"})
    return Workload(name, title, options, leaves_jobs, beanstalk_only=only)


FULL: Final = full("full", "put, reserve, delete")
WORKLOADS: Final = (
    FULL,
    Workload("put", "put only", {"workload": "put"}, leaves_jobs=True),
    Workload(
        "take",
        "reserve, delete of 300,000 jobs put before",
        {"workload": "take", "fill": "300000"},
        leaves_jobs=True,
    ),
    full("backlog", "full cycle before 1,000,000 ready jobs", True, fill=str(BACKLOG_JOBS)),
    full("tubes", "full cycle in 1,000 tubes", tubes="1000"),
    full("idle", "full cycle beside 10,000 waiting workers", idle="10000"),
    full("large", "full cycle of 64 KiB bodies", body=str(LARGE_BODY_BYTES)),
    full("pipelined", "full cycle, 16 commands in a batch", depth="16"),
    # The latencies of reserve and put in the same run show the cost of consecutive reserves.
    full("rows", "full cycle of one connection, 100 commands in a batch", depth="100")._replace(
        connections=1
    ),
    full("delayed", "full cycle, each job delayed by 1 s", True, delay="1", fill="100000"),
    Workload(
        "mixed",
        "put, reserve, touch, release, reserve, bury, kick, reserve, delete",
        {"workload": "mixed"},
        beanstalk_only=True,
    ),
    Workload(
        "handoff",
        "put for a worker that is blocked in reserve",
        {"workload": "handoff"},
        leaves_jobs=True,
        beanstalk_only=True,
        connections=2,
    ),
    Workload(
        "foreground",
        "a job for a worker that sleeps, and its result; half of the connections are workers",
        {"workload": "foreground"},
    ),
    Workload(
        "half",
        "full cycle at half the closed loop's rate, open loop, before 1,000,000 ready jobs",
        {"fill": str(BACKLOG_JOBS)},
        leaves_jobs=True,
        rate_share=0.5,
    ),
)

SYSTEMS: Final = (
    BEANPOLE_3,
    BEANPOLE_SOURCES,
    BEANPOLE_LEADER,
    BEANPOLE_3_MEMORY,
    BEANPOLE_1,
    BEANPOLE_MEMORY,
    BEANPOLE_3_OFF,
    BEANPOLE_1_OFF,
    BEANSTALKD_DURABLE,
    BEANSTALKD,
    *PEERS,
    *BEANPOLE_GEARMAN,
    *BEANPOLE_WORKQ,
    *BEANPOLE_QLESS,
    QLESS_ON_REDIS,
)


class Series(NamedTuple):
    """One line of a chart: a workload in several sizes, which are its points."""

    name: str
    label: str
    points: tuple[tuple[int, Workload], ...]


def _series(name: str, label: str, option: str, sizes: tuple[int, ...]) -> Series:
    points = tuple(
        (
            size,
            full(f"{name}-{size}", f"{label}: {size:,}", name == "backlog", **{option: str(size)}),
        )
        for size in sizes
    )
    return Series(name, label, points)


SERIES: Final = (
    _series("backlog", "ready jobs", "fill", (1_000, 10_000, 100_000, 1_000_000)),
    _series("tubes", "tubes", "tubes", (1, 10, 100, 1_000, 10_000)),
    _series("idle", "idle waiting workers", "idle", (0, 100, 1_000, 10_000)),
)


class Set(NamedTuple):
    """Systems and workloads that are measured together, and the numbers of connections."""

    name: str
    title: str
    systems: tuple[System, ...]
    workloads: tuple[Workload, ...]
    connections: tuple[int, ...]


def _workloads(*names: str) -> tuple[Workload, ...]:
    return tuple(workload(name) for name in names)


def workload(name: str) -> Workload:
    """Return the workload of this name."""
    found = next((one for one in WORKLOADS if one.name == name), None)
    if found is None:
        allowed = ", ".join(one.name for one in WORKLOADS)
        raise BenchError(f"there is no workload {name!r}; these are known: {allowed}")
    return found


BOTH: Final = (BEANSTALKD_DURABLE, BEANSTALKD)
SETS: Final = (
    Set(
        "quick",
        "Full cycles beside beanstalkd",
        (BEANPOLE_3, BEANPOLE_SOURCES, BEANPOLE_1, *BOTH),
        (FULL,),
        (1, 16, 64, 256),
    ),
    Set(
        "peers",
        "Full cycles beside other queues",
        (
            BEANPOLE_3,
            BEANPOLE_LEADER,
            BEANPOLE_3_MEMORY,
            BEANPOLE_1,
            BEANPOLE_MEMORY,
            *BOTH,
            *PEERS,
        ),
        (FULL,),
        (1, 64, 256),
    ),
    Set(
        "workloads",
        "Other workloads",
        (BEANPOLE_3, BEANPOLE_1, *BOTH),
        _workloads(
            "full",
            "put",
            "take",
            "backlog",
            "tubes",
            "idle",
            "large",
            "pipelined",
            "rows",
            "delayed",
            "mixed",
        ),
        (64,),
    ),
    Set(
        "connections",
        "From 1 to 1,024 connections",
        (BEANPOLE_3, BEANPOLE_LEADER, BEANPOLE_MEMORY, *BOTH),
        (FULL,),
        (1, 4, 16, 64, 256, 1024),
    ),
    Set(
        "events",
        "What events cost: on beside off",
        (BEANPOLE_3, BEANPOLE_3_OFF, BEANPOLE_1, BEANPOLE_1_OFF),
        _workloads("full", "mixed"),
        (1, 64, 256),
    ),
    Set(
        "protocols",
        "Gearman and Workq: full cycles, and results in foreground",
        (BEANPOLE_3, *BEANPOLE_GEARMAN, GEARMAND_DURABLE, GEARMAND, *BEANPOLE_WORKQ),
        _workloads("full", "foreground"),
        (2, 64, 256),
    ),
    Set(
        "qless",
        "qless: put, pop, complete, beside its Lua on Redis",
        (*BEANPOLE_QLESS, QLESS_ON_REDIS),
        (FULL,),
        (1, 8, 64, 256),
    ),
    Set(
        "latency",
        "Latency at half the rate, and from put to a blocked worker",
        (BEANPOLE_3, BEANSTALKD),
        _workloads("half", "handoff"),
        (64,),
    ),
    Set(
        "charts",
        "Against backlog, tubes and idle connections",
        (BEANPOLE_3, BEANSTALKD_DURABLE),
        tuple(load for series in SERIES for _, load in series.points),
        (64,),
    ),
)

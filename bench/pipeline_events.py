"""Generate event logs of any size with NumPy, to measure the pipeline and to show its report.

The lives are valid, and resemble a busy day: load that rises and falls, tubes of different speed,
workers that are absent for a while, jobs that fail. A seed determines the log.

    python -m bench.pipeline_events DIR EVENTS [HOURS]

A log is made in slices of time, and events of a slice's jobs that lie after it are carried into the
next slice: fifty million events take no more memory than one million, about 1.5 GB.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from beanpole.exporting.directory import begun
from beanpole.exporting.files import write_range
from beanpole.exports import FILE_ROWS_MAX
from beanpole.places import resolved

SECOND_US: Final = 1_000_000
DAY_US: Final = 86_400 * SECOND_US
BEGIN: Final = datetime(2026, 3, 2, tzinfo=UTC)
# Cluster time began when the cluster was created.
CLUSTER_AGE_US: Final = 40 * DAY_US
# The approximate number of events per job.
EVENTS_PER_JOB: Final = 3.15
ATTEMPTS_MAX: Final = 4
WORKERS_PER_TUBE: Final = 12
# In this part of the log the second tube has no workers.
AWAY: Final = (0.45, 0.5)
# The number of jobs per slice: about a million events.
SLICE_JOBS: Final = 320_000
# The time of the highest load, as a share of the log.
PEAK: Final = 0.6


class Kind(NamedTuple):
    """A tube: its share of the load, its median wait and run in seconds, its rate of failure."""

    name: str
    share: float
    wait_s: float
    run_s: float
    failing: float


KINDS: Final = (
    Kind("emails", 0.40, 0.08, 0.15, 0.01),
    Kind("thumbnails", 0.25, 0.9, 1.6, 0.03),
    Kind("webhooks", 0.17, 0.3, 0.6, 0.10),
    Kind("invoices", 0.08, 2.5, 9.0, 0.02),
    Kind("search-index", 0.05, 6.0, 3.0, 0.01),
    Kind("reports", 0.02, 30.0, 95.0, 0.06),
    Kind("exports", 0.02, 12.0, 40.0, 0.04),
    Kind("cleanup", 0.01, 60.0, 5.0, 0.0),
)
STATES: Final = ("gone", "ready", "reserved", "delayed", "buried")
GONE, READY, RESERVED, DELAYED, BURIED = range(5)
# fmt: off
EVENTS: Final = (
    "put", "due", "reserved", "touched", "released", "returned", "timed_out", "buried", "kicked",
    "deleted",
)
# fmt: on
REASONS: Final = ("connection_lost", "node_down", "ttr")
COUNTS: Final = ("attempt", "timeouts", "releases", "buries", "kicks")
NONE: Final = -1

Ints = Any  # NumPy arrays of integers; a more precise type would not help here


def _when(share: Ints) -> Ints:
    """Return the time by which this share of all jobs has been put: the load peaks at PEAK."""
    rising = np.sqrt(share * PEAK)
    return np.where(share < PEAK, rising, 1 - np.sqrt((1 - share) * (1 - PEAK)))


class _Lives:
    """Many jobs at once, and the events of each step that they take together."""

    def __init__(self, jobs: int, shares: tuple[float, float], length_us: int, seed: Any) -> None:
        """Create the jobs that are put while the share of all jobs grows between two values."""
        self.random = np.random.default_rng(seed)
        self.tube = self.random.choice(len(KINDS), jobs, p=[kind.share for kind in KINDS])
        day = _when(self.random.uniform(*shares, jobs))
        self.time_us = np.sort((day * length_us).astype(np.int64))
        self.length_us = length_us
        self.counts = {name: np.zeros(jobs, np.int32) for name in COUNTS}
        self.body_bytes = self.random.integers(20, 4000, jobs)
        self.delay_s = np.where(self.random.random(jobs) < 0.06, 30, 0)
        self.ready_us = np.full(jobs, NONE, np.int64)
        self.worker = np.zeros(jobs, np.int32)
        self.steps: list[dict[str, Ints]] = []

    def emit(self, jobs: Ints, event: str, before: int, after: int, **more: Ints) -> None:
        """Record one step of these jobs."""
        if after == READY:
            self.ready_us[jobs] = self.time_us[jobs]
        none = np.full(len(jobs), NONE, np.int64)
        works = before == RESERVED or after == RESERVED
        self.steps.append(
            {
                "job": jobs,
                "step": np.full(len(jobs), len(self.steps)),
                "time_us": self.time_us[jobs].copy(),
                "event": np.full(len(jobs), EVENTS.index(event), np.int8),
                "state_before": np.full(len(jobs), before, np.int8),
                "state": np.full(len(jobs), after, np.int8),
                "worker": self.worker[jobs].copy() if works else none,
                "reason": more.get("reason", none),
                "wait_us": more.get("wait_us", none),
                "run_us": more.get("run_us", none),
                "ready_at_us": self.ready_us[jobs].copy(),
                **{name: counts[jobs].copy() for name, counts in self.counts.items()},
            }
        )

    def put(self) -> Ints:
        """Put all jobs; return all of them, because in the end all are ready."""
        jobs = np.arange(len(self.tube))
        late = self.delay_s > 0
        self.emit(jobs[~late], "put", GONE, READY)
        self.emit(jobs[late], "put", GONE, DELAYED)
        self.time_us[late] += 30 * SECOND_US
        self.emit(jobs[late], "due", DELAYED, READY)
        return jobs

    def attempt(self, jobs: Ints, last: bool) -> Ints:
        """Reserve ready jobs and end the reservations; return the jobs that are ready again."""
        kinds = self.tube[jobs]
        wait_s = np.array([kind.wait_s for kind in KINDS])[kinds]
        begun_us = self.time_us[jobs]
        busy = 1 + 4 * np.exp(-(((begun_us / self.length_us) - 0.6) ** 2) / 0.01)
        wait_us = (wait_s * busy * self.random.lognormal(0, 1, len(jobs)) * SECOND_US).astype(int)
        taken_us = begun_us + wait_us
        low, high = (int(part * self.length_us) for part in AWAY)
        away = (kinds == 1) & (taken_us > low) & (taken_us < high)
        catching_up_us = (taken_us - low) // 8 + self.random.integers(0, SECOND_US, len(jobs))
        taken_us = np.where(away, high + catching_up_us, taken_us)
        self.time_us[jobs] = taken_us
        self.worker[jobs] = kinds * WORKERS_PER_TUBE + self.random.integers(
            0, WORKERS_PER_TUBE, len(jobs)
        )
        self.counts["attempt"][jobs] += 1
        self.emit(jobs, "reserved", READY, RESERVED, wait_us=taken_us - begun_us)
        run_s = np.array([kind.run_s for kind in KINDS])[kinds]
        run_us = (run_s * self.random.lognormal(0, 0.7, len(jobs)) * SECOND_US).astype(int) + 200
        failing = np.array([kind.failing for kind in KINDS])[kinds] * (0 if last else 1)
        failed = self.random.random(len(jobs)) < failing
        how = np.where(failed, self.random.integers(0, 4, len(jobs)), NONE)
        run_us = np.where(how == 0, 120 * SECOND_US, run_us)
        self.time_us[jobs] += run_us
        self._end(jobs, how == NONE, run_us, "deleted", GONE)
        self._end(jobs, how == 0, run_us, "timed_out", READY, 2, "timeouts")
        self._end(jobs, how == 1, run_us, "released", READY, NONE, "releases")
        self._end(jobs, how == 2, run_us, "returned", READY, self.random.integers(0, 2, len(jobs)))
        self._end(jobs, how == 3, run_us, "buried", BURIED, NONE, "buries")
        again = jobs[(how >= 0) & (how < 3)]
        buried = jobs[how == 3]
        kicked = buried[self.random.random(len(buried)) < 0.7]
        self.time_us[kicked] += 1800 * SECOND_US
        self.counts["kicks"][kicked] += 1
        self.emit(kicked, "kicked", BURIED, READY)
        return np.concatenate([again, kicked])

    def _end(
        self,
        jobs: Ints,
        chosen: Ints,
        run_us: Ints,
        event: str,
        after: int,
        reason: Ints = NONE,  # one for all, or one for each
        counter: str = "",
    ) -> None:
        ended = jobs[chosen]
        if counter:
            self.counts[counter][ended] += 1
        reasons = np.broadcast_to(reason, len(jobs))[chosen]
        self.emit(ended, event, RESERVED, after, run_us=run_us[chosen], reason=reasons)


def _names(codes: Ints, names: tuple[str, ...] | list[str]) -> pa.Array:
    """Convert codes into names; NONE becomes null."""
    indices = pa.array(codes, mask=codes == NONE, type=pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(names)).cast(pa.string())


def _numbers(values: Ints) -> pa.Array:
    """Convert numbers into a column; NONE becomes null."""
    return pa.array(values, mask=values == NONE, type=pa.int64())


def slices(events: int, hours: float = 24, seed: int = 1) -> Iterator[pa.Table]:
    """Yield the events of a log that begins with offset 0, in order.

    Args:
        events: the approximate number (within a tenth).
        hours: the duration of the log.
        seed: determines everything.
    """
    length_us = int(hours * 3600 * SECOND_US)
    jobs = int(events / EVENTS_PER_JOB)
    count = max(1, round(jobs / SLICE_JOBS))
    later: dict[str, Ints] | None = None
    offset = 0
    for number in range(count):
        first, end = jobs * number // count, jobs * (number + 1) // count
        lives = _Lives(end - first, (first / jobs, end / jobs), length_us, (seed, number))
        columns = _lived(lives)
        columns["job"] += first
        if later is not None:
            columns = {name: np.concatenate([later[name], columns[name]]) for name in columns}
        order = np.lexsort((columns["step"], columns["time_us"]))
        until_us = length_us
        if number + 1 < count:
            until_us = int(_when(np.array(end / jobs)) * length_us)
        reached = int(np.searchsorted(columns["time_us"][order], until_us))
        later = {name: column[order[reached:]] for name, column in columns.items()}
        now = {name: column[order[:reached]] for name, column in columns.items()}
        yield _table(now, offset)
        offset += reached


def make(events: int, hours: float = 24, seed: int = 1) -> pa.Table:
    """Return all `slices` at once."""
    return pa.concat_tables(slices(events, hours, seed))


def _lived(lives: _Lives) -> dict[str, Ints]:
    """Return the events of all lives, unsorted."""
    jobs = lives.put()
    for attempt in range(1, ATTEMPTS_MAX + 1):
        jobs = lives.attempt(jobs, last=attempt == ATTEMPTS_MAX)
    columns = {
        name: np.concatenate([step[name] for step in lives.steps]) for name in lives.steps[0]
    }
    for name in ("tube", "body_bytes", "delay_s"):
        columns[name] = getattr(lives, name)[columns["job"]]
    return columns


def _table(columns: dict[str, Ints], first: int) -> pa.Table:
    count = len(columns["job"])
    offset = np.arange(first, first + count)
    job, time_us = columns["job"], columns["time_us"]
    wall_us = time_us + int(BEGIN.timestamp()) * SECOND_US
    ready_us = columns["ready_at_us"]
    workers = [
        f"n{number % 3}:{1 + number // 40}:{100 + number}"
        for number in range(len(KINDS) * WORKERS_PER_TUBE)
    ]
    # Eight workers share a host; puts come from another host.
    hosts = ["10.9.0.1", *[f"10.0.0.{number}" for number in range(1 + len(workers) // 8)]]
    worker = columns["worker"]
    zero = np.zeros(count, np.int64)
    node = np.where(worker == NONE, 0, worker % 3)
    # fmt: off
    return pa.table({
        "offset": pa.array(offset, pa.int64()),
        "log_index": pa.array(offset // 8 + 1, pa.int64()),
        "position": pa.array(offset % 8, pa.int32()),
        "time_us": pa.array(time_us + CLUSTER_AGE_US, pa.int64()),
        "wall_time": pa.array(wall_us, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "protocol": _names(columns["tube"] % 5 // 4, ("beanstalk", "grpc")),
        "event": _names(columns["event"], EVENTS),
        "tube": _names(columns["tube"], [kind.name for kind in KINDS]),
        "job_id": pa.array(job + 1, pa.int64()),
        "external_id": pa.nulls(count, pa.string()),
        "state_before": _names(columns["state_before"], STATES),
        "state": _names(columns["state"], STATES),
        "reason": _names(columns["reason"], REASONS),
        "priority": pa.array(zero + 1024),
        "delay_s": pa.array(columns["delay_s"], pa.int64()),
        "ttr_s": pa.array(zero + 120),
        "body_bytes": pa.array(columns["body_bytes"], pa.int64()),
        "node": _names(node, ("n0", "n1", "n2")),
        "incarnation": pa.array(zero + 1),
        "session": pa.array(np.where(worker == NONE, 1, worker + 100), pa.int64()),
        "worker": _names(worker, workers),
        "host": _names(np.where(worker == NONE, 0, 1 + worker // 8), hosts),
        **{name: pa.array(columns[name], pa.int32()) for name in COUNTS},
        "wait_us": _numbers(columns["wait_us"]),
        "run_us": _numbers(columns["run_us"]),
        "ready_at_us": _numbers(np.where(ready_us == NONE, NONE, ready_us + CLUSTER_AGE_US)),
    })
    # fmt: on


def write(
    directory: Path,
    events: pa.Table | Iterable[pa.Table],
    cluster: str = "made-up",
    rows_max: int = FILE_ROWS_MAX,
) -> int:
    """Write a log as `beanpole events export` does, and return its number of events.

    Args:
        directory: the directory to create.
        events: all at once, or slice by slice.
        cluster: the name of the cluster in the export.
        rows_max: the most events of a file.
    """
    place = resolved(str(directory))
    tables = [events] if isinstance(events, pa.Table) else events
    batches = (batch for table in tables for batch in table.to_batches())
    with begun(place, cluster, dict.fromkeys(STATES[1:], 0)) as out:
        out.add(write_range(place, cluster, batches, rows_max))
        return out.manifest.end


def main(arguments: Sequence[str]) -> int:
    """Write a log of about the given number of events into a directory."""
    directory, events, *hours = arguments
    made = slices(int(events), float(hours[0]) if hours else 24.0)
    print(f"{write(Path(directory), made):,} events in {directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

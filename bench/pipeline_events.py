"""Makes event logs of any size with numpy, for measuring the pipeline and for showing its report.

The lives are valid, and look like those of a busy day: load that rises and falls, tubes of
different speed, workers that are away for an hour, jobs that fail. One seed gives one log.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from beanpole.exporting.directory import begun
from beanpole.exporting.files import write_range
from beanpole.places import resolved

SECOND_US: Final = 1_000_000
DAY_US: Final = 86_400 * SECOND_US
BEGIN: Final = datetime(2026, 3, 2, tzinfo=UTC)
# Cluster time began when the cluster did.
CLUSTER_AGE_US: Final = 40 * DAY_US
# How many events a job has, about.
EVENTS_PER_JOB: Final = 3.15
ATTEMPTS_MAX: Final = 4
WORKERS_PER_TUBE: Final = 12
# In this part of the log the second tube has no workers.
AWAY: Final = (0.45, 0.5)
ROWS_PER_FILE: Final = 250_000


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
NONE: Final = -1

Ints = Any  # numpy's arrays of integers; their types say nothing more that helps here


class _Lives:
    """All jobs at once, and the events of every step that they made together."""

    def __init__(self, jobs: int, length_us: int, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.tube = self.random.choice(len(KINDS), jobs, p=[kind.share for kind in KINDS])
        day = self.random.triangular(0, 0.6, 1, jobs)
        self.time_us = np.sort((day * length_us).astype(np.int64))
        self.length_us = length_us
        self.counts = {
            name: np.zeros(jobs, np.int32)
            for name in ("attempt", "timeouts", "releases", "buries", "kicks")
        }
        self.body_bytes = self.random.integers(20, 4000, jobs)
        self.delay_s = np.where(self.random.random(jobs) < 0.06, 30, 0)
        self.ready_us = np.full(jobs, NONE, np.int64)
        self.worker = np.zeros(jobs, np.int32)
        self.steps: list[dict[str, Ints]] = []

    def emit(self, jobs: Ints, event: str, before: int, after: int, **more: Ints) -> None:
        """Write down one step of these jobs."""
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
        """Put all jobs; returns those that are ready, which is all of them in the end."""
        jobs = np.arange(len(self.tube))
        late = self.delay_s > 0
        self.emit(jobs[~late], "put", GONE, READY)
        self.emit(jobs[late], "put", GONE, DELAYED)
        self.time_us[late] += 30 * SECOND_US
        self.emit(jobs[late], "due", DELAYED, READY)
        return jobs

    def attempt(self, jobs: Ints, last: bool) -> Ints:
        """Reserve ready jobs and end the reservations; returns which jobs are ready again."""
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
    """Turn numbers into names; NONE becomes null."""
    indices = pa.array(codes, mask=codes == NONE, type=pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(names)).cast(pa.string())


def _numbers(values: Ints) -> pa.Array:
    """Turn numbers into a column; NONE becomes null."""
    return pa.array(values, mask=values == NONE, type=pa.int64())


def make(events: int, hours: float = 24, seed: int = 1) -> pa.Table:
    """Return events of a log that begins with offset 0.

    Args:
        events: how many, roughly (within a tenth).
        hours: how long the log lasts.
        seed: decides everything.
    """
    length_us = int(hours * 3600 * SECOND_US)
    lives = _Lives(int(events / EVENTS_PER_JOB), length_us, seed)
    jobs = lives.put()
    for attempt in range(1, ATTEMPTS_MAX + 1):
        jobs = lives.attempt(jobs, last=attempt == ATTEMPTS_MAX)
    columns = {
        name: np.concatenate([step[name] for step in lives.steps]) for name in lives.steps[0]
    }
    order = np.lexsort((columns["step"], columns["time_us"]))
    order = order[columns["time_us"][order] < length_us]
    return _table({name: column[order] for name, column in columns.items()}, lives)


def _table(columns: dict[str, Ints], lives: _Lives) -> pa.Table:
    count = len(columns["job"])
    job, time_us = columns["job"], columns["time_us"]
    wall_us = time_us + int(BEGIN.timestamp()) * SECOND_US
    ready_us = columns["ready_at_us"]
    workers = [
        f"n{number % 3}:{1 + number // 40}:{100 + number}"
        for number in range(len(KINDS) * WORKERS_PER_TUBE)
    ]
    # Eight workers share a host; puts come from another one.
    hosts = ["10.9.0.1", *[f"10.0.0.{number}" for number in range(1 + len(workers) // 8)]]
    worker = columns["worker"]
    zero = np.zeros(count, np.int64)
    node = np.where(worker == NONE, 0, worker % 3)
    # fmt: off
    return pa.table({
        "offset": pa.array(np.arange(count), pa.int64()),
        "log_index": pa.array(np.arange(count) // 8 + 1, pa.int64()),
        "position": pa.array(np.arange(count) % 8, pa.int32()),
        "time_us": pa.array(time_us + CLUSTER_AGE_US, pa.int64()),
        "wall_time": pa.array(wall_us, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "protocol": _names(lives.tube[job] % 5 // 4, ("beanstalk", "grpc")),
        "event": _names(columns["event"], EVENTS),
        "tube": _names(lives.tube[job], [kind.name for kind in KINDS]),
        "job_id": pa.array(job + 1, pa.int64()),
        "external_id": pa.nulls(count, pa.string()),
        "state_before": _names(columns["state_before"], STATES),
        "state": _names(columns["state"], STATES),
        "reason": _names(columns["reason"], REASONS),
        "priority": pa.array(zero + 1024),
        "delay_s": pa.array(lives.delay_s[job], pa.int64()),
        "ttr_s": pa.array(zero + 120),
        "body_bytes": pa.array(lives.body_bytes[job], pa.int64()),
        "node": _names(node, ("n0", "n1", "n2")),
        "incarnation": pa.array(zero + 1),
        "session": pa.array(np.where(worker == NONE, 1, worker + 100), pa.int64()),
        "worker": _names(worker, workers),
        "host": _names(np.where(worker == NONE, 0, 1 + worker // 8), hosts),
        **{name: pa.array(columns[name], pa.int32()) for name in lives.counts},
        "wait_us": _numbers(columns["wait_us"]),
        "run_us": _numbers(columns["run_us"]),
        "ready_at_us": _numbers(np.where(ready_us == NONE, NONE, ready_us + CLUSTER_AGE_US)),
    })
    # fmt: on


def write(directory: Path, events: pa.Table, cluster: str = "made-up") -> None:
    """Write a log as `beanpole events export` does."""
    place = resolved(str(directory))
    with begun(place, cluster, dict.fromkeys(STATES[1:], 0)) as out:
        out.add(write_range(place, cluster, events.to_batches(), ROWS_PER_FILE))

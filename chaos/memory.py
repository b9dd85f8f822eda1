"""Measure the memory of a soak's nodes over time, and judge whether it stays flat.

The rule is in `verdict`. Nodes are killed every few seconds, so the comparison is between the sizes
that young processes reach, not the growth of one process over hours.
"""

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

SAMPLE_S: Final = 2.0
# A younger process has not read its log yet, and has no clients.
AGE_S_MIN: Final = 4.0
# Flat: in the last quarter of a run, the median of a node is at most this much above its median in
# the quarter before. The share allows for random contents of a queue, the bytes for a small queue.
GROWTH_SHARE_MAX: Final = 0.1
GROWTH_BYTES_MAX: Final = 8 << 20
# In shorter runs a quarter has too few samples, and the queue is still growing.
MINUTES_MIN: Final = 10.0
SAMPLES_MIN: Final = 20
MEBIBYTE: Final = 1 << 20


class Sample(NamedTuple):
    """One measurement of one process."""

    at_s: float
    node: int
    age_s: float
    rss_bytes: int


def rss_bytes(pid: int) -> int | None:
    """Return the resident memory of a process; None if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return None  # a zombie process


class Watch:
    """Samples the nodes every few seconds, in a thread of its own.

    Args:
        now_s: returns the seconds since the run began.
        look: returns number, age in seconds and process id of each running node.
    """

    def __init__(
        self, now_s: Callable[[], float], look: Callable[[], Sequence[tuple[int, float, int]]]
    ) -> None:
        self.samples: list[Sample] = []
        self._now_s = now_s
        self._look = look
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self._thread.start()

    def end(self, path: Path) -> None:
        """Stop sampling, and write the samples into a file."""
        self._ending.set()
        self._thread.join()
        path.write_text("".join(json.dumps(sample) + "\n" for sample in self.samples))

    def _run(self) -> None:
        while not self._ending.wait(SAMPLE_S):
            for node, age_s, pid in self._look():
                if (size := rss_bytes(pid)) is not None:
                    self.samples.append(Sample(self._now_s(), node, age_s, size))


class Trend(NamedTuple):
    """The memory of one node: medians of the third and last quarter of a run, and the maximum."""

    node: int
    before_bytes: int
    after_bytes: int
    max_bytes: int

    @property
    def is_flat(self) -> bool:
        allowed = max(GROWTH_BYTES_MAX, int(self.before_bytes * GROWTH_SHARE_MAX))
        return self.after_bytes - self.before_bytes <= allowed

    def __str__(self) -> str:
        before, after, most = (
            size / MEBIBYTE for size in (self.before_bytes, self.after_bytes, self.max_bytes)
        )
        return f"n{self.node} {before:.1f} then {after:.1f} (at most {most:.1f})"


def trends(samples: Sequence[Sample], seconds: float) -> list[Trend]:
    """Return the trend of each node over the last half, except nodes with too few samples."""
    found: list[Trend] = []
    old = [sample for sample in samples if sample.age_s >= AGE_S_MIN]
    for node in sorted({sample.node for sample in old}):
        own = [sample for sample in old if sample.node == node]
        third = [s.rss_bytes for s in own if seconds / 2 <= s.at_s < seconds * 3 / 4]
        last = [s.rss_bytes for s in own if s.at_s >= seconds * 3 / 4]
        if min(len(third), len(last)) >= SAMPLES_MIN:
            most = max(sample.rss_bytes for sample in own)
            found.append(Trend(node, _median(third), _median(last), most))
    return found


def verdict(samples: Sequence[Sample], seconds: float, nodes: int) -> tuple[str, list[str]]:
    """Judge a run.

    Returns:
        A line with the figures, and a finding for each node whose memory grew. The line also names
        the nodes with too few samples, such as one that ran another program for a while.
    """
    found = trends(samples, seconds)
    if seconds < MINUTES_MIN * 60 or not found:
        most = max((sample.rss_bytes for sample in samples), default=0) / MEBIBYTE
        return f"memory: at most {most:.1f} MiB a node; the run is too short to say if flat", []
    unjudged = sorted(set(range(nodes)) - {one.node for one in found})
    told = "; ".join([*map(str, found), *(f"n{node} has too few samples" for node in unjudged)])
    growing = [f"memory grew over the last half: {one} MiB" for one in found if not one.is_flat]
    word = "not flat" if growing else "flat"
    rule = f"{GROWTH_SHARE_MAX:.0%} or {GROWTH_BYTES_MAX // MEBIBYTE} MiB allowed"
    line = f"memory in MiB, median of the third and of the last quarter: {told}: {word} ({rule})"
    return line, growing


def _median(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2]

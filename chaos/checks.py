"""Judge the history of a soak: lost, invented and doubled jobs, and gaps of acknowledgements.

Only facts that are certain by the clients' own clocks count. A client surely holds a job from the
reply to its reserve until it sent the last command that only the holder can do and that succeeded,
as long as the TTR cannot have ended. `python -m chaos.checks DIR` judges a kept history again.
"""

import bisect
import itertools
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from chaos import linearizable, order, record
from chaos.record import Op
from tests.integration.support import history
from tests.integration.support.history import Verdict

HOLDER_DID: Final = {
    record.TOUCH: "TOUCHED",
    record.RELEASE: "RELEASED",
    record.BURY: "BURIED",
    record.DELETE: "DELETED",
}
# Replies that need the consent of a majority.
COMMITTED: Final = frozenset(
    {"INSERTED", "RESERVED", "DELETED", "RELEASED", "BURIED", "TOUCHED", "KICKED"}
)
# Much longer than the usual time between two acknowledgements.
SILENCE_S: Final = 0.2
SHOWN_MAX: Final = 20


@dataclass
class Hold:
    """A client that surely had a job reserved from `from_s` to `until_s`."""

    client: int
    job: int
    asked_s: float
    from_s: float
    until_s: float
    # Before this time the TTR cannot have ended.
    safe_s: float
    ttr_s: int

    def __str__(self) -> str:
        return f"client {self.client} from {self.from_s:.3f} to {self.until_s:.3f}"


@dataclass
class Findings:
    """The violations in a history, and its counts; no violations if all is well."""

    verdict: Verdict
    double: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    resurrected: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    linear: list[str] = field(default_factory=list)
    # Jobs whose search was given up, neither good nor bad.
    undecided: list[str] = field(default_factory=list)
    passed: int = 0
    unknown_puts: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    commands: int = 0

    def violations(self) -> list[str]:
        """Return every violation, one line each."""
        verdict = self.verdict
        lost = [f"job {job} was acknowledged and is lost" for job in verdict.lost]
        return [
            *lost,
            *verdict.unexpected,
            *verdict.doubled,
            *self.double,
            *self.early,
            *self.resurrected,
            *self.odd,
            *self.order,
            *self.linear,
        ]

    def outcome(self) -> str:
        """Return the result in one line, in the words of Jepsen's queue checkers."""
        verdict = self.verdict
        return (
            f"ok {verdict.acknowledged}, lost {len(verdict.lost)}, "
            f"duplicated {len(verdict.doubled)}, unexpected {len(verdict.unexpected)}, "
            f"recovered {verdict.recovered}; double reservations {len(self.double)}, "
            f"early TTRs {len(self.early)}, resurrected {len(self.resurrected)}, "
            f"odd replies {len(self.odd)}, out of order {len(self.order)} "
            f"(passed over {self.passed}), not linearizable {len(self.linear)} "
            f"(undecided {len(self.undecided)})"
        )


def judge(clients: Sequence[list[Op]]) -> Findings:
    """Judge the histories of all clients of a queue that was empty before and after the run."""
    joined = history.History()
    early: list[str] = []
    holds: list[Hold] = []
    for ops in clients:
        _join(joined, ops)
        holds += find_holds(ops, early)
    found = Findings(history.judge(joined), early=early)
    found.double = list(_overlaps(holds))
    no_commands = (record.LEFT, record.CONNECT)
    ops_all = [op for ops in clients for op in ops if op.kind not in no_commands]
    found.commands = len(ops_all)
    found.resurrected = list(_resurrected(ops_all))
    in_order = order.judge(clients)
    found.order, found.passed = in_order.wrong, in_order.passed
    by_job = linearizable.judge(clients)
    found.linear, found.undecided = by_job.wrong, by_job.undecided
    for op in ops_all:
        if op.outcome in (record.SILENT, record.GARBLED):
            found.odd.append(f"{op.outcome}: {op}")
        elif op.kind == record.PUT and op.outcome == record.UNKNOWN:
            found.unknown_puts += 1
        elif op.outcome in ("DRAINING", "OUT_OF_MEMORY", "INTERNAL_ERROR"):
            found.refused[op.outcome] += 1
    return found


def _join(joined: history.History, ops: Iterable[Op]) -> None:
    """Add the commands of one client to the input of the judge of the integration tests."""
    for op in ops:
        outcome = history.UNKNOWN if op.outcome == record.SILENT else op.outcome
        if op.kind == record.PUT:
            inserted = op.job if outcome == "INSERTED" else 0
            joined.puts.append(history.Put(op.body.encode(), outcome, inserted))
        elif op.kind == record.RESERVE and op.job:
            joined.deliveries.append(history.Delivery(op.job, op.body.encode()))
        elif op.kind == record.DELETE:
            joined.deletes.append(history.Delete(op.job, outcome))


def find_holds(ops: Iterable[Op], early: list[str]) -> Iterator[Hold]:
    """Yield the sure holds of one client; add to `early` those that ended before their TTR."""
    held: dict[int, Hold] = {}
    for op in ops:
        if op.kind == record.LEFT:
            yield from held.values()
            held.clear()
        elif op.kind == record.RESERVE and op.outcome == "RESERVED":
            ttr_s = record.ttr_of(op.body)
            safe_s = op.sent_s + ttr_s - record.TTR_MARGIN_S
            held[op.job] = Hold(op.client, op.job, op.sent_s, op.done_s, op.done_s, safe_s, ttr_s)
        elif op.job in held and op.kind in HOLDER_DID:
            hold = held[op.job]
            if op.outcome == HOLDER_DID[op.kind]:
                # Other clients may delete the job, too, once the TTR has returned it.
                sure_s = min(op.sent_s, hold.safe_s) if op.kind == record.DELETE else op.sent_s
                hold.until_s = max(hold.until_s, sure_s)
                hold.safe_s = op.sent_s + hold.ttr_s - record.TTR_MARGIN_S
            elif op.outcome == "NOT_FOUND" and op.done_s < hold.safe_s:
                early.append(f"a reservation ended before its TTR: {hold}, then {op}")
            if op.kind != record.TOUCH or op.outcome != "TOUCHED":
                yield held.pop(op.job)
    yield from held.values()


def _overlaps(holds: Iterable[Hold]) -> Iterator[str]:
    """Yield the pairs of clients that surely held the same job at the same time."""
    by_job: defaultdict[int, list[Hold]] = defaultdict(list)
    for hold in holds:
        by_job[hold.job].append(hold)
    for job, several in by_job.items():
        several.sort(key=lambda hold: hold.from_s)
        for number, one in enumerate(several):
            for other in several[number + 1 :]:
                # A reply can be read late, when its reservation has already ended. It counts only
                # if it was made, or still stood, while `one` surely had the job.
                stood = other.until_s > other.from_s
                made = other.asked_s > one.from_s
                if other.from_s < one.until_s and (stood or made):
                    yield f"job {job} was reserved twice: {one}, {other}"


def _resurrected(ops: Iterable[Op]) -> Iterator[str]:
    deleted: dict[int, float] = {}
    reserved: list[Op] = []
    for op in ops:
        if op.outcome == "DELETED":
            deleted[op.job] = op.done_s
        elif op.outcome == "RESERVED":
            reserved.append(op)
    for op in reserved:
        if op.sent_s > deleted.get(op.job, float("inf")):
            yield f"job {op.job} was delivered after it was DELETED: {op}"


class Window(NamedTuple):
    """The time of one event in the cluster, for instance the kill of a leader."""

    from_s: float
    until_s: float


def gaps_s(clients: Iterable[list[Op]], windows: Iterable[Window]) -> list[float]:
    """Return for each window the longest time without an acknowledgement, in seconds.

    A silence that continues beyond the end of a window counts in full.
    """
    times = sorted(op.done_s for ops in clients for op in ops if op.outcome in COMMITTED)
    found: list[float] = []
    for window in windows:
        first = bisect.bisect_left(times, window.from_s)
        last = bisect.bisect_right(times, window.until_s)
        moments = [window.from_s, *times[first:last]]
        if window.until_s - moments[-1] > SILENCE_S:
            moments += times[last : last + 1] or [window.until_s]
        found.append(max((b - a for a, b in itertools.pairwise(moments)), default=0.0))
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that a `share` of all values does not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else 0.0


def gap_figures(gaps_s: Sequence[float]) -> list[str]:
    """Return the distribution of the gaps of acknowledgements after kills of leaders."""
    if not gaps_s:
        return ["no kill of the leader was timed"]
    p50, p95 = (percentile(gaps_s, share) for share in (0.5, 0.95))
    return [
        f"without an acknowledged command after {len(gaps_s)} kills of the leader: "
        f"p50 {p50:.2f} s, p95 {p95:.2f} s, max {max(gaps_s):.2f} s"
    ]


def main() -> int:
    """Judge again a run whose files were kept."""
    directory = Path(sys.argv[1])
    clients = list(record.read(directory / "history"))
    found = judge(clients)
    violations = found.violations()
    for line in violations[:SHOWN_MAX]:
        print(line)
    windows = json.loads((directory / "windows.json").read_text())
    print("\n".join(gap_figures(gaps_s(clients, (Window(*window) for window in windows)))))
    print(f"{found.outcome()}\nviolations {len(violations)}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())

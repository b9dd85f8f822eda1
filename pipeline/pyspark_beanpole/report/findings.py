"""Derive findings from the figures: sentences that say where to look first, each with its number.

Every rule is a function of the figures with its thresholds as constants; nothing is drawn here.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from beanpole.events import ATTEMPTS_TTR, REASON_NAMES
from pyspark_beanpole.report.figures import Figures, Queue, clock
from pyspark_beanpole.report.scales import duration, percent
from pyspark_beanpole.statistics.keys import RUN, WAIT

# The severity of a finding: work stalls or is lost; it soon will; worth knowing.
BAD, WARN, NOTE = "bad", "warn", "note"
_PRESSING: Final = (BAD, WARN, NOTE)

# A queue grows if its remaining work increased by this many jobs and this share of its puts.
GROWTH_JOBS_MIN: Final = 10
GROWTH_SHARE: Final = 0.02
# A stretch without any reservation is reported from this many minutes on.
BACKLOG_MIN: Final = 5
# The share of waits above the limit that is reported: more than `99 % within a minute` allows.
LATE_SHARE: Final = 0.01
# Failures are reported from this many on, if their share rose by this factor and by this much;
# without an earlier period, if the share is above FAILED_SHARE.
FAILED_MIN: Final = 10
FAILED_FACTOR: Final = 1.5
FAILED_RISE: Final = 0.005
FAILED_SHARE: Final = 0.05
# The share of reservations that time out, and the ratio of the 99th percentile of runs to the TTR
# that the time-outs show, above which the TTR is reported.
TIMED_OUT_SHARE: Final = 0.005
NEAR_TTR: Final = 0.7
# At most this many queues are named per rule; the table of queues has the others.
EACH_MAX: Final = 4


class Finding(NamedTuple):
    """One sentence, its severity, and the place on the page that shows it."""

    kind: str
    pressing: str  # BAD, WARN or NOTE
    weight: float  # orders findings of one kind: jobs, or seconds
    queue: str  # empty: all queues
    words: str
    anchor: str  # the anchor of the page that shows it


def findings(figures: Figures) -> list[Finding]:
    """Return the findings, the most pressing first, at most EACH_MAX of a kind."""
    found = [*_missing(figures), *_unserved(figures)]
    for queue in figures.queues:
        for rule in _RULES:
            found += rule(figures, queue)
    kept: list[Finding] = []
    for kind in dict.fromkeys(one.kind for one in found):
        alike = sorted((one for one in found if one.kind == kind), key=lambda one: -one.weight)
        more = len(alike) - EACH_MAX
        # A line that says `1 more` is no shorter than the line that it replaces.
        kept += alike if more <= 1 else [*alike[:EACH_MAX], _and_more(alike[EACH_MAX], more)]
    return sorted(kept, key=lambda one: _PRESSING.index(one.pressing))


def _and_more(like: Finding, more: int) -> Finding:
    words = f"{more:,} more queues {_TITLES[like.kind]}."
    return like._replace(queue="", weight=0.0, anchor="queues", words=words)


_TITLES: Final = {
    "grows": "have more to do than at the beginning",
    "unserved": "had ready jobs and no reservation",
    "late": "have waits above the limit",
    "fails": "failed more often",
    "oldest": "have a ready job that waits for longer than the limit",
    "buried": "have more buried jobs",
    "ttr": "lost reservations to the TTR",
}

# The chart of a queue that shows a kind of finding.
_CHARTS: Final = {
    "grows": "time", "unserved": "time", "late": "wait", "fails": "failures", "oldest": "time",
    "buried": "time", "ttr": "run",
}  # fmt: skip


def _missing(figures: Figures) -> Iterator[Finding]:
    gaps = figures.covered.missing
    if gaps:
        count = sum(end - first for first, end in gaps)
        verb = "event is" if count == 1 else "events are"
        words = (
            f"{count:,} {verb} missing: depths behind them are only relative, and counts and times "
            "lack what happened there."
        )
        yield Finding("missing", BAD, float(count), "", words, "top")


def _unserved(figures: Figures) -> Iterator[Finding]:
    if figures.covered.outside.events:
        # The jobs may have been reserved by events that have a time in the period, but are outside.
        return
    anchors = {
        queue.name: f"{queue.anchor}-time" for queue in figures.queues if queue.course is not None
    }
    longest: dict[str, Finding] = {}
    for row in figures.backlog:
        if row["minutes"] < BACKLOG_MIN:
            continue
        name, still = row["tube"], row["until_us"] >= figures.known_us
        words = (
            f"had up to {row['ready']:,} ready jobs and no reservation for "
            f"{duration(row['minutes'] * 60)} from {clock(row['begin_us'])} on"
            f"{', and has none yet' if still else ''}."
        )
        pressing = NOTE if row["ready"] < GROWTH_JOBS_MIN else BAD if still else WARN
        found = Finding(
            "unserved", pressing, row["minutes"] * row["ready"], name, words,
            anchors.get(name, "backlog"),
        )  # fmt: skip
        if name not in longest or longest[name].weight < found.weight:
            longest[name] = found
    yield from longest.values()


def _grows(figures: Figures, queue: Queue) -> Iterator[Finding]:
    puts = queue.now.counts["puts"]
    if queue.growth < max(GROWTH_JOBS_MIN, GROWTH_SHARE * puts):
        return
    ready, drain_s = queue.end["ready"], queue.drain_s
    if drain_s == 0:
        return
    until = (
        "at the rates of its end it keeps growing"
        if drain_s is None
        else f"at the rates of its end they are gone in {duration(drain_s)}"
    )
    words = (
        f"ended with {ready:,} ready jobs, and with {queue.growth:,} more to do than it began "
        f"with; {until}."
    )
    yield _about("grows", BAD if drain_s is None else WARN, queue.growth, queue, words)


def _late(figures: Figures, queue: Queue) -> Iterator[Finding]:
    share = queue.now.late_share(WAIT)
    if share is None or share <= LATE_SHARE:
        return
    p99_s = queue.now.seconds(WAIT, "p99_s") or 0.0
    before = _before(queue.before.late_share(WAIT) if queue.before is not None else None)
    words = (
        f"let {percent(share)} of its jobs wait longer than {duration(figures.wait_limit_s)}"
        f"{before}; p99 is {duration(p99_s)}."
    )
    yield _about("late", WARN, share * queue.now.levels[WAIT]["count"], queue, words)


def _fails(figures: Figures, queue: Queue) -> Iterator[Finding]:
    share, failed = queue.now.failed_share, queue.now.failed
    before = queue.before.failed_share if queue.before is not None else None
    if share is None or failed < FAILED_MIN:
        return
    least = FAILED_SHARE if before is None else max(before * FAILED_FACTOR, before + FAILED_RISE)
    if share < least:
        return
    words = f"failed in {percent(share)} of reservations: {failed:,}{_before(before)}."
    yield _about("fails", WARN, failed, queue, words)


def _oldest(figures: Figures, queue: Queue) -> Iterator[Finding]:
    oldest = queue.oldest
    if oldest is None or oldest.age_s <= figures.wait_limit_s or figures.covered.outside.events:
        return
    job = "" if oldest.job_id is None else f", {oldest.job_id},"
    words = (
        f"has a ready job{job} that waits for {duration(oldest.age_s)} at the end: "
        f"the limit is {duration(figures.wait_limit_s)}."
    )
    yield _about("oldest", WARN, oldest.age_s, queue, words)


def _buried(figures: Figures, queue: Queue) -> Iterator[Finding]:
    more = queue.end["buried"] - queue.begin["buried"]
    if more <= 0:
        return
    jobs = "1 job more" if more == 1 else f"{more:,} jobs more"
    words = f"has {queue.end['buried']:,} buried jobs, {jobs} than at the beginning."
    if queue.end["buried"] == 1:
        words = "has a buried job, and had none at the beginning."
    yield _about("buried", NOTE, more, queue, words)


def _ttr(figures: Figures, queue: Queue) -> Iterator[Finding]:
    ends = [
        row
        for row in queue.failures
        if row["event"] == "timed_out" or row["reason"] == REASON_NAMES[ATTEMPTS_TTR]
    ]
    timed_out, reserved = sum(row["count"] for row in ends), queue.now.counts["reserved"]
    p99_s = queue.now.seconds(RUN, "p99_s")
    if not timed_out or not reserved:
        return
    ttr_s = sum(row["run_s"] for row in ends) / timed_out
    share = timed_out / reserved
    near = p99_s is not None and ttr_s > 0 and p99_s > NEAR_TTR * ttr_s
    if not near and share < TIMED_OUT_SHARE:
        return
    lost = "1 reservation" if timed_out == 1 else f"{timed_out:,} reservations"
    runs = "" if p99_s is None else f"; the p99 of runs is {duration(p99_s)}"
    words = (
        f"lost {lost} ({percent(share)}) to the TTR, after {duration(ttr_s)} on average{runs}"
        f"{': the TTR may be too short' if near else ''}."
    )
    yield _about("ttr", WARN if near else NOTE, timed_out, queue, words)


_RULES: Final[tuple[Callable[[Figures, Queue], Iterator[Finding]], ...]] = (
    _grows,
    _late,
    _fails,
    _oldest,
    _ttr,
    _buried,
)


def _about(kind: str, pressing: str, weight: float, queue: Queue, words: str) -> Finding:
    anchor = f"{queue.anchor}-{_CHARTS[kind]}" if queue.course is not None else "queues"
    return Finding(kind, pressing, float(weight), queue.name, words, anchor)


def _before(share: float | None) -> str:
    return "" if share is None else f" ({percent(share)} in the period before)"

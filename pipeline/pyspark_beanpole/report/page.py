"""The HTML page: one self-contained file, its sections in the order of a reader's questions.

It has no script: folded parts are `details`, and links lead to anchors of the page.
"""

import shlex
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any, BinaryIO, Final, Protocol

from beanpole.places import shown
from pyspark_beanpole.report import blocks, queues, scales
from pyspark_beanpole.report.figures import Covered, Figures, clock
from pyspark_beanpole.report.findings import BACKLOG_MIN, GROWTH_JOBS_MIN, Finding
from pyspark_beanpole.report.period import Period
from pyspark_beanpole.statistics.keys import RUN, SECOND_US, WAIT

# The most jobs that are suggested for a look at their lives.
JOBS_NAMED_MAX: Final = 6
# How the title of a page begins; without a cluster in release 0.3.0, too.
PROGRAM: Final = "Beanpole"
NO_CLUSTER: Final = "What happened to the jobs"
# The title is behind two short lines of the head.
HEAD_BYTES: Final = 512


class Audited(Protocol):
    """The interface of an audit that the page uses."""

    @property
    def exit_code(self) -> int:
        """0 if there are no findings."""

    def lines(self) -> list[str]:
        """Return the findings as lines of text."""

    def as_json(self) -> dict[str, Any]:
        """Return the findings as a dictionary for JSON."""


_NOTES: Final = """<details id="words"><summary>What the words mean</summary>
<p><b>Wait</b> is the time from ready to reserved, without a deliberate delay; it counts where the
reservation is. <b>Run</b> is the time from reserved to deleted by the worker, and counts where it
ends. Reservations that ended otherwise (released, buried, timed out, returned) are not in it.
<b>Done</b>: deleted by the worker that held the job. <b>Removed</b>: deleted while no worker held
it. <b>Failed</b>: timed out, returned because its worker was gone, buried by its worker, said to
have failed, or buried or moved by a policy after the last attempt.
<b>Departures</b> are jobs done and removed. Times are those of the leader's wall clock in UTC;
lengths come from cluster time. Percentiles come from bins whose middle is within 1 % of what is in
them. A queue <b>keeps up</b> if its ready jobs are no more than leave it within a minute;
<b>drains in</b> is the ready jobs divided by departures less arrivals of the last hour, and
<b>grows</b> says that arrivals are not fewer. Tables for machines are beside this page in
<code>tables/</code>, as Parquet.</p></details>"""


def _document(title: str, body: str) -> str:
    style = files("pyspark_beanpole.report").joinpath("style.css").read_text()
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f'<body id="top">{body}</body></html>\n'
    )


def is_page(file: BinaryIO) -> bool:
    """Whether a file begins as the page of a report of any release."""
    head = file.read(HEAD_BYTES)
    titles = (f"<title>{escape(title)}".encode() for title in (PROGRAM, NO_CLUSTER))
    return head.startswith(b"<!doctype html>") and any(title in head for title in titles)


def _title(cluster: str) -> str:
    return f"{PROGRAM} {cluster}: what happened to the jobs" if cluster else NO_CLUSTER


def _words(period: Period) -> str:
    length = scales.duration(period.length_us / SECOND_US)
    return f"{clock(period.since_us)} to {clock(period.until_us)} UTC ({length})"


def empty_page(
    cluster: str, covered: Covered | None, period: Period | None, asked: Sequence[str]
) -> str:
    """Return the page for a log, or a range of one, without events."""
    title = _title(cluster)
    body = f"<h1>{escape(title)}</h1>"
    if covered is None or period is None:
        return _document(title, f"{body}<p>There are no events.</p>")
    named = f" of {_named(asked)}" if asked else ""
    body += (
        f"<p>There are no events{named} from {_words(period)}.</p>"
        f"<p class='faint'>The log has events from {clock(covered.begin_us)} to "
        f"{clock(covered.last_us)} UTC.</p>{_warnings(covered)}"
    )
    return _document(title, body)


def _warnings(covered: Covered) -> str:
    return "".join(f"<p class='bad'>{escape(words)}</p>" for words in covered.warnings())


def _named(asked: Sequence[str]) -> str:
    return ("queue " if len(asked) == 1 else "queues ") + ", ".join(escape(name) for name in asked)


def page(figures: Figures, found: Sequence[Finding], audited: Audited | None) -> str:
    """Return the page."""
    title = _title(figures.covered.cluster)
    charted = [queue for queue in figures.queues if queue.course is not None]
    parts = [
        _head(figures, title),
        _look_first(found, audited),
        _cluster(figures),
        _queues(figures),
        *[queues.section(figures, queue) for queue in charted],
        _workers(figures),
        _dead_letters(figures),
        _backlog(figures),
        _one_job(figures),
        _days(figures),
        _audit(audited),
        _NOTES,
    ]
    return _document(title, "".join(parts))


def _head(figures: Figures, title: str) -> str:
    covered = figures.covered
    only = f" of {_named(figures.asked)}" if figures.asked else ""
    events = "1 event" if figures.events == 1 else f"{figures.events:,} events"
    said = f"{events}{only}, {_words(figures.period)}."
    if figures.before is None:
        said += " The log has nothing of the time before, so there is nothing to compare with."
    elif figures.comparable:
        said += f" Beside it: {_words(figures.before)}."
    else:
        said += (
            f" Beside it: {_words(figures.before)}, of which the log has only what is after "
            f"{clock(covered.begin_us)}; so counts are not compared."
        )
    if covered.passed_over_us is not None:
        said += (
            f" Events before {clock(covered.passed_over_us)} were not read: jobs from before are "
            "counted, but are not among the oldest or the dead letters unless something happened "
            "to them since."
        )
    warnings = _warnings(covered)
    links = [
        ("first", "What to look at first"), ("cluster", "Cluster"), ("queues", "Queues"),
        ("workers", "Workers"), ("letters", "Dead letters"), ("backlog", "Jobs that nobody took"),
        ("job", "One job"), ("words", "Words"),
    ]  # fmt: skip
    nav = " ".join(blocks.link(anchor, words) for anchor, words in links)
    return f"<h1>{escape(title)}</h1>{blocks.faint(said)}{warnings}<nav>{nav}</nav>"


def _look_first(found: Sequence[Finding], audited: Audited | None) -> str:
    lines = [
        f'<li class="{one.pressing}"><a href="#{one.anchor}">'
        f"{f'<b>{escape(one.queue)}</b> ' if one.queue else ''}{escape(one.words)}</a></li>"
        for one in found
    ]
    if audited is not None and audited.exit_code:
        lines.insert(0, '<li class="bad"><a href="#audit">The audit does not add up.</a></li>')
    body = f'<ul class="findings">{"".join(lines)}</ul>'
    if not lines:
        body = (
            f'<p class="good">Nothing stands out: no queue has {GROWTH_JOBS_MIN} jobs more to do '
            f"than at the beginning, none had ready jobs and no reservation for {BACKLOG_MIN} "
            "minutes, waits are within the limit, and failures are not more than before.</p>"
        )
    return blocks.section("first", "What to look at first", body)


def _cluster(figures: Figures) -> str:
    whole = figures.whole
    title = "All queues" if not figures.asked else "The chosen queues together"
    return blocks.section(
        "cluster", title, queues.facts(figures, whole), queues.drawn(figures, whole),
        queues.tables(whole),
    )  # fmt: skip


def _queues(figures: Figures) -> str:
    shown = len(figures.queues)
    charted = sum(queue.course is not None for queue in figures.queues)
    words = f"{blocks.shown_of(shown, figures.queues_total)}, the most pressing first."
    if charted < shown:
        words += f" The first {charted} have charts below; <code>--queue</code> chooses others."
    return blocks.section(
        "queues",
        "Queues",
        '<div class="pair">',
        blocks.card("slowest", "<h3>Slowest</h3>", queues.slowest(figures)),
        blocks.card("failing", "<h3>Failing most</h3>", queues.most_failing(figures)),
        "</div>",
        blocks.faint(words),
        queues.overview(figures),
    )


def _workers(figures: Figures) -> str:
    counts = ("tubes", "reservations", "done", "failed", "lost_leases")
    rows = [
        [
            escape(row["worker"]),
            *[blocks.number(row[name]) for name in counts],
            blocks.percent(row["failed_share"]),
            blocks.share(row["utilisation"]),
            blocks.duration(row["busy_s"]),
        ]
        for row in figures.workers
    ]  # fmt: skip
    fleet = figures.workers[0]["fleet_failed_share"] if figures.workers else None
    head = (
        "worker", "queues", "reservations", "done", "failed", "lost leases", "failed share",
        "utilisation", "busy",
    )  # fmt: skip
    return blocks.section(
        "workers",
        "Workers by host",
        blocks.faint(
            f"{blocks.shown_of(len(rows), figures.workers_total)} by reservations; of all "
            f"reservations {blocks.percent(fleet)} failed. A worker is the address that its "
            "clients connect from, or the node where that is not known. Utilisation is how many "
            "jobs it held on average between its first and its last event."
        ),
        blocks.table(head, rows),
    )


def _dead_letters(figures: Figures) -> str:
    counts = ("attempt", "timeouts", "buries", "kicks", "body_bytes")
    rows = [
        [
            escape(row["tube"]),
            str(row["job_id"]),
            clock(row["buried_at_us"]),
            *[blocks.number(row[name]) for name in counts],
            escape(row["worker"] or blocks.NONE),
        ]
        for row in figures.buried
    ]  # fmt: skip
    head = (
        "queue", "job", "buried at", "attempts", "timeouts", "buries", "kicks", "bytes", "worker",
    )  # fmt: skip
    return blocks.section(
        "letters",
        "Dead letters",
        blocks.faint(
            f"{blocks.shown_of(len(rows), figures.buried_total)}, the latest first: jobs that are "
            "buried at the end. <code>beanpole pipeline redrive</code> kicks them."
        ),
        blocks.table(head, rows),
    )


def _backlog(figures: Figures) -> str:
    rows = [
        [escape(row["tube"]), clock(row["begin_us"]), clock(row["until_us"]),
         blocks.number(row["minutes"]), blocks.number(row["ready"])]
        for row in figures.backlog
    ]  # fmt: skip
    return blocks.section(
        "backlog",
        "Jobs that nobody took",
        blocks.faint(
            f"{blocks.shown_of(len(rows), figures.backlog_total)}, the longest first: stretches "
            "of whole minutes with ready jobs and without a reservation."
        ),
        blocks.table(("queue", "from", "until", "minutes", "ready at most"), rows, names=3),
    )


def _one_job(figures: Figures) -> str:
    """Show the command that prints a job's life, with jobs that may be worth it."""
    oldest = [queue.oldest for queue in figures.queues if queue.oldest is not None]
    oldest.sort(key=lambda one: -one.age_s)
    named = [
        (one.job_id, f"ready for {scales.duration(one.age_s)} in {one.queue}")
        for one in oldest[:JOBS_NAMED_MAX]
        if one.job_id is not None
    ]
    named += [
        (row["job_id"], f"buried in {row['tube']}") for row in figures.buried[:JOBS_NAMED_MAX]
    ]
    source = figures.covered.source
    rows = [
        [f"<code>{escape(f'beanpole pipeline job {job} {source}'.strip())}</code>", escape(words)]
        for job, words in named
    ]
    return blocks.section(
        "job",
        "One job",
        blocks.faint(
            "The life of a job, event by event: <code>beanpole pipeline job ID "
            f"{escape(source)}</code>. Jobs that are the oldest, and the latest dead letters:"
        ),
        blocks.table(("command", "job"), rows, names=2),
    )


def _days(figures: Figures) -> str:
    if len(figures.days) < 2:
        return ""
    names = ("p50_s", "p99_s")
    rows = [
        [
            str(day["day"]),
            *[blocks.number(day["counts"][name]) for name in ("puts", "done", "removed")],
            *[
                blocks.duration(day["times"][kind][name] if kind in day["times"] else None)
                for kind in (WAIT, RUN)
                for name in names
            ],
        ]
        for day in figures.days
    ]
    head = ("day (UTC)", "put", "done", "removed", "wait p50", "wait p99", "run p50", "run p99")
    return blocks.section("days", "Days", blocks.table(head, rows))


def _audit(audited: Audited | None) -> str:
    if audited is None:
        return ""
    lines = escape("\n".join(audited.lines()))
    return blocks.section("audit", "Conservation audit", f"<pre>{lines}</pre>")


def source_words(addresses: Sequence[str] | None, directory: str | None) -> str:
    """Return the command line option that names the events."""
    if directory is not None:
        # The credentials of an object store must not appear on a page.
        return f"--from {shlex.quote(shown(directory))}"
    return f"--addresses {','.join(addresses)}" if addresses else ""

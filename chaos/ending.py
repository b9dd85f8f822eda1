"""The end of a run: empty the queue, check that the nodes agree, count the jobs."""

from collections.abc import Sequence
from typing import Final

from chaos import checks
from chaos.clients import Client
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

EQUAL_TIMEOUT_S: Final = 20.0
# These fields of `stats` cover the whole queue and are the same on all nodes; so are all fields of
# `stats-tube`, except for the clients that wait.
SHARED_STATS: Final = (
    "current-jobs-urgent",
    "current-jobs-ready",
    "current-jobs-reserved",
    "current-jobs-delayed",
    "current-jobs-buried",
    "job-timeouts",
    "total-jobs",
    "current-tubes",
)
# The share of the jobs whose history may be too long to judge.
UNDECIDED_SHARE_MAX: Final = 0.01
STATES: Final = ("ready", "reserved", "delayed", "buried")

Stats = dict[str, str]


def shared_stats(client: Raw) -> Stats | None:
    """Return the statistics that all nodes must report alike.

    Returns:
        Values by name, those of a tube prefixed with the tube; None if a tube vanished between
        two commands, as an empty tube does when its last client has left.
    """
    stats = client.dictionary(b"stats")
    found = {name: stats[name] for name in SHARED_STATS}
    for tube in sorted(client.names(b"list-tubes")):
        tube_stats = client.find(b"stats-tube " + tube.encode())
        if tube_stats is None:
            return None
        for name, value in tube_stats.items():
            # These commands themselves change the counts of connected clients.
            if not name.startswith("current-") or name.startswith("current-jobs"):
                found[f"{tube} {name}"] = value
    return found


def empty(last: Client, watched: str, timeout_s: float) -> None:
    """Reserve and delete all jobs, and close the client.

    Args:
        last: a connected client.
        watched: the address of the node whose statistics show whether the queue is empty.
        timeout_s: how long jobs may take to return from clients that are gone.
    """
    with Raw(watched) as watcher:

        def is_empty() -> bool:
            last.drain()
            stats = watcher.dictionary(b"stats")
            return not any(int(stats[f"current-jobs-{state}"]) for state in STATES)

        wait_until(is_empty, timeout_s, "an empty queue")
    last.close()


def wait_until_equal(nodes: Sequence[str], told: list[Stats | None]) -> None:
    """Wait until all nodes report the same statistics.

    Args:
        nodes: their addresses.
        told: receives the latest statistics of each node, also if they never become equal.
    """

    def equal() -> bool:
        told.clear()
        for node in nodes:
            with Raw(node) as client:
                told.append(shared_stats(client))
        return told[0] is not None and all(one == told[0] for one in told)

    wait_until(equal, EQUAL_TIMEOUT_S, "equal statistics of all nodes")


def total_jobs(told: Sequence[Stats | None]) -> int:
    """Return the number of all jobs that ever existed, from the statistics of the first node."""
    return int(told[0]["total-jobs"]) if told and told[0] else 0


def figures(found: checks.Findings, clients: int, seconds: float) -> list[str]:
    """Return the counts of the judges, a line each."""
    verdict = found.verdict
    return [
        f"ran {seconds / 60:.1f} minutes with {clients} clients, {found.commands} commands",
        f"puts: attempts {verdict.attempts}, acknowledged {verdict.acknowledged}, "
        f"unknown {found.unknown_puts}",
        f"delivered {verdict.delivered}, deleted {verdict.deleted}",
        found.outcome(),
    ]


def idle(found: checks.Findings) -> list[str]:
    """Return a finding if the clients put nothing: then nothing could be lost."""
    return [] if found.verdict.acknowledged else ["no put was acknowledged: nothing was tested"]


def undecided(found: checks.Findings) -> list[str]:
    """Return a finding if too many jobs were not judged: a search that gives up finds nothing."""
    count, jobs = len(found.undecided), found.verdict.acknowledged
    if count <= jobs * UNDECIDED_SHARE_MAX:
        return []
    return [f"{count} of {jobs} jobs were not judged, for instance: {found.undecided[0]}"]


def miscounted(found: checks.Findings, total_jobs: int) -> list[str]:
    """Return a finding if the number of jobs does not match the puts."""
    low = found.verdict.acknowledged
    if low <= total_jobs <= low + found.unknown_puts:
        return []
    return [
        f"total-jobs is {total_jobs}, with {low} acknowledged and {found.unknown_puts} unknown puts"
    ]

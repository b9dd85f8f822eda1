"""The end of a run: empty the queue, check that the nodes agree, judge the clients' files.

For runs whose nodes are elsewhere (containers, namespaces); `soak` has an end of its own, which
also checks disks and memory.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chaos import checks
from chaos.clients import Client
from chaos.soak import STATES, shared_stats
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

EQUAL_TIMEOUT_S: Final = 20.0


def empty(
    address: str, nodes: Sequence[str], client: int, seed: int, history: Path, timeout_s: float
) -> int:
    """Reserve and delete all jobs; return the number of jobs that ever existed.

    Args:
        address: the address at which the queue is emptied.
        nodes: all nodes, which must then report the same statistics.
        client: the number under which this client records its commands.
        seed: of its choices.
        history: the folder of its records.
        timeout_s: how long jobs may take to return from clients that are gone.
    """
    last = Client(client, [address], seed, history)
    last.connect(0)
    with Raw(address) as watcher:

        def is_empty() -> bool:
            last.drain()
            stats = watcher.dictionary(b"stats")
            return not any(int(stats[f"current-jobs-{state}"]) for state in STATES)

        wait_until(is_empty, timeout_s, "an empty queue")
    last.close()
    told: list[dict[str, str] | None] = []

    def equal() -> bool:
        told.clear()
        for node in nodes:
            with Raw(node) as asked:
                told.append(shared_stats(asked))
        return told[0] is not None and all(one == told[0] for one in told)

    wait_until(equal, EQUAL_TIMEOUT_S, f"the nodes say the same: {told}")
    return int((told[0] or {})["total-jobs"])


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


def miscounted(found: checks.Findings, total_jobs: int) -> list[str]:
    """Return a finding if the number of jobs does not match the puts."""
    low = found.verdict.acknowledged
    if low <= total_jobs <= low + found.unknown_puts:
        return []
    return [f"total-jobs is {total_jobs}, with {low} acknowledged puts"]

"""The part of `beanpole status` about qless, in its own terms: states, workers and queues."""

from collections.abc import Sequence
from typing import Any, Final

from beanpole.pb import node_pb2
from beanpoled.cli.columns import name_words

STATES: Final = ("waiting", "running", "scheduled", "depends", "throttled", "recurring")
# Longer names of queues are cut.
NAME_MAX_CHARS: Final = 24
_COLUMNS: Final = "{:<24}" + " {:>9}" * (len(STATES) + 2)


def as_json(its: node_pb2.Qless) -> dict[str, Any]:
    """Return the documented JSON form."""
    return {
        "jobs": {**_counts(its.jobs), "failed": its.failed, "complete": its.complete},
        "workers": its.workers,
        "throttles": its.throttles,
        "locks_lost": its.locks_lost,
        "queues": [
            {"name": queue.name, "paused": queue.paused, "jobs": _counts(queue.jobs)}
            for queue in its.queues
        ],
    }


def lines(nodes: Sequence[node_pb2.Node]) -> list[str]:
    """Return a table of the largest queues, as the newest node knows them; empty without qless."""
    newest = max(nodes, key=lambda node: node.applied_index, default=None)
    if newest is None or not newest.HasField("qless"):
        return []
    its = newest.qless
    counts = (*_counts(its.jobs).values(), its.failed, its.complete)
    if not (any(counts) or its.workers or its.queues):
        return []
    found = [_COLUMNS.format("queues of qless", *STATES, "failed", "complete")]
    for queue in its.queues:
        name = name_words(queue.name + " (paused)" * queue.paused, NAME_MAX_CHARS)
        found.append(_COLUMNS.format(name, *_counts(queue.jobs).values(), "", "").rstrip())
    found.append(_COLUMNS.format("all", *counts))
    found.append(
        f"qless: {its.workers} workers, {its.throttles} throttles, {its.locks_lost} locks lost"
    )
    return found


def _counts(jobs: node_pb2.QlessJobs) -> dict[str, int]:
    return {state: getattr(jobs, state) for state in STATES}

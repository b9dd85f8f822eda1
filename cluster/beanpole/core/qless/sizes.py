"""Memory accounting of qless's objects, by constants that are the same on every node.

This module holds the sizes of single objects, whose sum is `Tables.bytes`, and of everything else.
They were measured as in `core.accounts`, and rounded up.
"""

from typing import Final

from beanpole.core.qless.job import QlessJob, Recurring, texts_bytes
from beanpole.core.qless.tables import QlessQueue, Tables

# A waiting job without its strings, with its entries in indexes: by jid, by number, in one set.
JOB_BYTES: Final = 1536
# A name in a list of a job: a tag, a dependency, a throttle, with its entry in an index.
NAME_BYTES: Final = 256
# An item of a history without its texts.
HISTORY_ITEM_BYTES: Final = 160
# A failure, and the entry in its group.
FAILURE_BYTES: Final = 512
# A template without its strings.
RECURRING_BYTES: Final = 1024
# Memory of a tag besides its jobs, for the set of these: 780 with one job, of which NAME_BYTES
# counts a part.
TAG_BYTES: Final = 640
# A worker or a tracked jid; a throttle; an option or a pattern: without their names.
WORKER_BYTES: Final = 512
THROTTLE_BYTES: Final = 1024
OPTION_BYTES: Final = 512
# A queue, and a day of its statistics with many different waits and runs.
QUEUE_BYTES: Final = 2048
DAY_BYTES: Final = 4096


def of_job(job: QlessJob) -> int:
    """Return the size of a job: an upper bound of that of its record in an image, too."""
    size = JOB_BYTES + 2 * len(job.jid) + len(job.klass) + texts_bytes(job)
    size += len(job.queue) + len(job.worker) + len(job.completed_in) + len(job.spawned_from)
    for name in job.locked:
        size += len(name)
    for name, _ in job.pending:
        size += len(name)
    names = len(job.locked) + len(job.pending)
    names += len(job.tags) + len(job.dependencies) + len(job.dependents) + len(job.throttles)
    failure = job.failure
    if failure is not None:
        size += FAILURE_BYTES + len(failure.group) + len(failure.message)
        size += len(failure.worker)
    return size + names * NAME_BYTES + len(job.history) * HISTORY_ITEM_BYTES


def of_recurring(template: Recurring) -> int:
    """Return the size of a template."""
    size = RECURRING_BYTES + 2 * len(template.jid) + len(template.data) + len(template.klass)
    size += len(template.queue)
    for tag in template.tags:
        size += NAME_BYTES + len(tag)
    for name in template.throttles:
        size += NAME_BYTES + len(name)
    return size


def of_queue(queue: QlessQueue) -> int:
    """Return the size of a queue without its jobs."""
    return QUEUE_BYTES + 2 * len(queue.name) + len(queue.days) * DAY_BYTES


def beside_jobs(t: Tables) -> int:
    """Return the size of everything but jobs, templates and queues."""
    size = (len(t.workers) + len(t.tracked)) * WORKER_BYTES + len(t.tagged) * TAG_BYTES
    size += len(t.throttles) * THROTTLE_BYTES + len(t.config) * OPTION_BYTES
    for kind in t.patterns:
        size += len(kind) * OPTION_BYTES
    return size + t.workers.bytes + t.tracked.bytes + t.names_bytes

"""The calls of reqless-core, which have dotted names, and their arguments.

Most are calls of the earlier form under another name, or with one argument less because the name
implies it: `job.addTag jid t` is `tag add jid t`.
"""

from collections.abc import Callable
from typing import Final

import beanpole.qless as q
from beanpole.protocol.qless import calls_jobs, calls_queues, calls_recurring, forms
from beanpole.protocol.qless.calls_jobs import NO_QUEUE
from beanpole.protocol.qless.calls_unified import Calls
from beanpole.protocol.qless.requests import A_TABLE, Call, Reader

# The limit of the number of patterns, and of the members of one.
PATTERNS_MAX: Final = 1000
# The pattern that is added to a set of identifiers that lacks it.
DEFAULT_IDENTIFIERS: Final = (b"default", b'["*"]')


def _command(
    function: Callable[[Reader], Call], at: int, *words: bytes
) -> Callable[[Reader], Call]:
    """Return a reader of a call of the earlier form, with `words` inserted before argument `at`."""

    def read(r: Reader) -> Call:
        # If an argument before the words is missing, do not insert them: its error comes first.
        if len(r.args) >= at:
            r.args[at:at] = words
        return function(r)

    return read


def complete(r: Reader) -> Call:
    """`job.complete jid worker queue data`."""
    del r.args[4:]
    return calls_jobs.complete(r)


def complete_and_requeue(r: Reader) -> Call:
    """`job.completeAndRequeue jid worker queue data next [options]`."""
    if len(r.args) > 4:
        r.args[4:4] = [b"next"]
    return calls_jobs.complete(r)


def recur(r: Reader) -> Call:
    """`queue.recurAtInterval queue jid klass data interval offset [options]`."""
    queue = r.name(0, NO_QUEUE)
    jid = r.name(1, b'RecurAtInterval(): Arg "jid" missing')
    klass = r.name(2, b'RecurAtInterval(): Arg "klass" missing')
    data = r.data(r.at(3), b'RecurAtInterval(): Arg "data" not JSON: ', again=False)
    return calls_recurring.template(r, (queue, jid, klass, data), 4, b"RecurAtInterval")


def queue_counts(r: Reader) -> Call:
    """`queue.counts queue`."""
    return r.call(q.QUEUE_COUNTS, (r.name(0, NO_QUEUE),), forms.QUEUE)


def queues_counts(r: Reader) -> Call:
    """`queues.counts`."""
    return r.call(q.QUEUE_COUNTS, (None,), forms.QUEUES)


def queue_names(r: Reader) -> Call:
    """`queues.names`."""
    return r.call(q.QUEUE_NAMES, (), forms.NAMES)


def failed_groups(r: Reader) -> Call:
    """`failureGroups.counts`."""
    return r.call(q.FAILED_GROUPS, (), forms.GROUPS)


def failed_jobs(r: Reader) -> Call:
    """`jobs.failedByGroup group [start [limit]]`."""
    r.name(0, b'Failed(): Arg "group" missing')
    return calls_queues.failed(r)


def worker_jobs(r: Reader) -> Call:
    """`worker.jobs worker`."""
    worker = r.name(0, b'Worker(): Arg "worker" missing')
    return r.call(q.WORKER_JOBS, (worker,), forms.WORKER)


def worker_counts(r: Reader) -> Call:
    """`workers.counts`."""
    return r.call(q.WORKER_COUNTS, (), forms.WORKERS)


def config_get(r: Reader) -> Call:
    """`config.get option`."""
    option = r.name(0, b'config.get(): Arg "key" missing')
    return r.call(q.CONFIG_GET, (option,), forms.OPTION)


def config_all(r: Reader) -> Call:
    """`config.getAll`."""
    return r.call(q.CONFIG_ALL, (), forms.OPTIONS)


def tracked(r: Reader) -> Call:
    """`jobs.tracked`."""
    return r.call(q.TRACKED, (), forms.TRACKED)


# --- patterns ------------------------------------------------------------------------------------


def identifiers(r: Reader) -> Call:
    """`queueIdentifierPatterns.getAll`."""
    return r.call(q.PATTERNS, (q.PATTERNS_OF_QUEUES,), forms.IDENTIFIERS)


def priorities(r: Reader) -> Call:
    """`queuePriorityPatterns.getAll`."""
    return r.call(q.PATTERNS, (q.PATTERNS_OF_PRIORITIES,), forms.PRIORITIES)


def set_identifiers(r: Reader) -> Call:
    """`queueIdentifierPatterns.setAll [name patterns]...`: empty lists of patterns are omitted."""
    if len(r.args) % 2:
        r.refuse(b"Odd number of identifier patterns: " + A_TABLE)
    found: dict[bytes, bytes] = {}
    wrong = b"Identifier patterns are no JSON array: "
    for name, patterns in r.options(0).items():
        if r.strings(patterns, wrong, PATTERNS_MAX, b"patterns"):
            found[r.a_name(name, b"")] = patterns
    found.setdefault(*DEFAULT_IDENTIFIERS)
    if len(found) > PATTERNS_MAX:
        r.refuse(b"more than %d patterns" % PATTERNS_MAX)
    return r.call(q.SET_PATTERNS, (q.PATTERNS_OF_QUEUES, tuple(found.items())), forms.NOTHING)


def set_priorities(r: Reader) -> Call:
    """`queuePriorityPatterns.setAll [pattern]...`: the order of the patterns is significant."""
    if len(r.args) > PATTERNS_MAX:
        r.refuse(b"more than %d patterns" % PATTERNS_MAX)
    for pattern in r.args:
        r.json(pattern, b"A priority pattern is no JSON: ")
    pairs = tuple([(b"%d" % number, pattern) for number, pattern in enumerate(r.args)])
    return r.call(q.SET_PATTERNS, (q.PATTERNS_OF_PRIORITIES, pairs), forms.NOTHING)


CALLS: Final[Calls] = {
    b"config.get": config_get,
    b"config.getAll": config_all,
    b"config.set": calls_queues.config_set,
    b"config.unset": calls_queues.config_unset,
    b"failureGroups.counts": failed_groups,
    b"job.addDependency": _command(calls_jobs.depends, 1, b"on"),
    b"job.addTag": _command(calls_queues.tag, 0, b"add"),
    b"job.cancel": calls_jobs.cancel,
    b"job.complete": complete,
    b"job.completeAndRequeue": complete_and_requeue,
    b"job.fail": calls_jobs.fail,
    b"job.get": calls_jobs.get,
    b"job.getMulti": calls_jobs.multiget,
    b"job.heartbeat": calls_jobs.heartbeat,
    b"job.log": calls_jobs.log,
    b"job.removeDependency": _command(calls_jobs.depends, 1, b"off"),
    b"job.removeTag": _command(calls_queues.tag, 0, b"remove"),
    b"job.requeue": calls_jobs.requeue,
    b"job.retry": calls_jobs.retry,
    b"job.setPriority": calls_jobs.priority,
    b"job.timeout": calls_jobs.timeout,
    b"job.track": _command(calls_jobs.track, 0, b"track"),
    b"job.untrack": _command(calls_jobs.track, 0, b"untrack"),
    b"jobs.completed": _command(calls_queues.jobs, 0, b"complete"),
    b"jobs.failedByGroup": failed_jobs,
    b"jobs.tagged": _command(calls_queues.tag, 0, b"get"),
    b"jobs.tracked": tracked,
    b"queue.counts": queue_counts,
    b"queue.forget": calls_queues.forget_queues,
    b"queue.jobsByState": calls_queues.jobs,
    b"queue.length": calls_queues.length,
    b"queue.pause": calls_queues.pause,
    b"queue.peek": calls_jobs.peek,
    b"queue.pop": calls_jobs.pop,
    b"queue.put": calls_jobs.put,
    b"queue.recurAtInterval": recur,
    b"queue.stats": calls_queues.stats,
    b"queue.throttle.get": calls_queues.queue_throttle_get,
    b"queue.throttle.set": calls_queues.queue_throttle_set,
    b"queue.unfail": calls_queues.unfail,
    b"queue.unpause": calls_queues.unpause,
    b"queueIdentifierPatterns.getAll": identifiers,
    b"queueIdentifierPatterns.setAll": set_identifiers,
    b"queuePriorityPatterns.getAll": priorities,
    b"queuePriorityPatterns.setAll": set_priorities,
    b"queues.counts": queues_counts,
    b"queues.names": queue_names,
    b"recurringJob.addTag": calls_recurring.recur_tag,
    b"recurringJob.cancel": calls_recurring.unrecur,
    b"recurringJob.get": calls_recurring.recur_get,
    b"recurringJob.removeTag": calls_recurring.recur_untag,
    b"recurringJob.update": calls_recurring.recur_update,
    b"tags.top": _command(calls_queues.tag, 0, b"top"),
    b"throttle.delete": calls_queues.throttle_delete,
    b"throttle.get": calls_queues.throttle_get,
    b"throttle.locks": calls_queues.throttle_locks,
    b"throttle.pending": calls_queues.throttle_pending,
    b"throttle.release": calls_queues.throttle_release,
    b"throttle.set": calls_queues.throttle_set,
    b"throttle.ttl": calls_queues.throttle_ttl,
    b"worker.forget": calls_queues.forget_workers,
    b"worker.jobs": worker_jobs,
    b"workers.counts": worker_counts,
}

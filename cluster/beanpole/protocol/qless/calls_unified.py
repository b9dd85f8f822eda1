"""The calls of the dialects with a single script, by their names (qless-core, reqless 0.13).

The dotted names of reqless-core are in `calls_dotted`, the seed form is in `calls_seed`.
"""

from collections.abc import Callable
from typing import Final

from beanpole.protocol.qless import calls_jobs, calls_queues, calls_recurring
from beanpole.protocol.qless.requests import Call, Reader

Calls = dict[bytes, Callable[[Reader], Call]]

CALLS: Final[Calls] = {
    b"cancel": calls_jobs.cancel,
    b"complete": calls_jobs.complete,
    b"config.get": calls_queues.config_get,
    b"config.set": calls_queues.config_set,
    b"config.unset": calls_queues.config_unset,
    b"depends": calls_jobs.depends,
    b"fail": calls_jobs.fail,
    b"failed": calls_queues.failed,
    b"get": calls_jobs.get,
    b"heartbeat": calls_jobs.heartbeat,
    b"jobs": calls_queues.jobs,
    b"length": calls_queues.length,
    b"log": calls_jobs.log,
    b"multiget": calls_jobs.multiget,
    b"pause": calls_queues.pause,
    b"peek": calls_jobs.peek,
    b"pop": calls_jobs.pop,
    b"priority": calls_jobs.priority,
    b"put": calls_jobs.put,
    b"queue.forget": calls_queues.forget_queues,
    b"queue.throttle.get": calls_queues.queue_throttle_get,
    b"queue.throttle.set": calls_queues.queue_throttle_set,
    b"queues": calls_queues.queues,
    b"recur": calls_recurring.recur,
    b"recur.get": calls_recurring.recur_get,
    b"recur.tag": calls_recurring.recur_tag,
    b"recur.untag": calls_recurring.recur_untag,
    b"recur.update": calls_recurring.recur_update,
    b"requeue": calls_jobs.requeue,
    b"retry": calls_jobs.retry,
    b"stats": calls_queues.stats,
    b"tag": calls_queues.tag,
    b"throttle.delete": calls_queues.throttle_delete,
    b"throttle.get": calls_queues.throttle_get,
    b"throttle.locks": calls_queues.throttle_locks,
    b"throttle.pending": calls_queues.throttle_pending,
    b"throttle.release": calls_queues.throttle_release,
    b"throttle.set": calls_queues.throttle_set,
    b"throttle.ttl": calls_queues.throttle_ttl,
    b"timeout": calls_jobs.timeout,
    b"track": calls_jobs.track,
    b"unfail": calls_queues.unfail,
    b"unpause": calls_queues.unpause,
    b"unrecur": calls_recurring.unrecur,
    b"worker.deregister": calls_queues.forget_workers,
    b"workers": calls_queues.workers,
}

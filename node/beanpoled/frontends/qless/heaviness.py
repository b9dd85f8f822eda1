"""How many jobs, queues or workers a call may look at: those that look at many wait in a line.

Each of them takes milliseconds of every node; see `origin.heavy`. What calls do is in `core.qless`.
"""

from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless.tables import Tables
from beanpoled.origin.heavy import LIGHT_MAX

# Where a count, or a list, stands among the arguments of a call.
_COUNTS: Final = {
    q.POP: 2,
    q.PEEK: 2,
    q.UNFAIL: 2,
    q.JOBS: 3,
    q.TAGGED: 2,
    q.TOP_TAGS: 1,
    q.FAILED_JOBS: 2,
}
# Those whose list goes to its end if the count is none, or begins before the end.
_OFFSETS: Final = {q.JOBS: 2, q.TAGGED: 1, q.TOP_TAGS: 0, q.FAILED_JOBS: 1}
_LISTS: Final = {
    q.TIMEOUT: 0,
    q.CANCEL: 0,
    q.MULTIGET: 0,
    q.PAUSE: 0,
    q.UNPAUSE: 0,
    q.FORGET_QUEUES: 0,
    q.FORGET_WORKERS: 0,
    q.DEPENDS_ON: 1,
    q.DEPENDS_OFF: 1,
    q.THROTTLE_RELEASE: 1,
}


def is_heavy(t: Tables, code: int, arguments: tuple[Any, ...]) -> bool:
    """Whether a call may look at more than LIGHT_MAX of anything."""
    place = _COUNTS.get(code)
    if place is not None:
        # Scheduled jobs that are due are moved before they are listed, whatever the count.
        moves = code == q.JOBS and arguments[0] == q.SCHEDULED
        offset = arguments[_OFFSETS[code]] if code in _OFFSETS else 0
        return moves or not 0 < arguments[place] <= LIGHT_MAX or offset < 0
    place = _LISTS.get(code)
    if place is not None:
        items = arguments[place]
        return items is not None and len(items) > LIGHT_MAX
    if code == q.QUEUE_COUNTS:
        return arguments[0] is None and len(t.queues) > LIGHT_MAX
    if code in (q.WORKER_COUNTS, q.WORKER_JOBS):  # they forget those that are old
        return len(t.workers) > LIGHT_MAX
    return code == q.FLUSH

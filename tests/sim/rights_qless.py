"""Rights of users in queues of qless, computed a second time: docs/security.md as plain code.

It shares nothing with `core.operations.qless_permission`; users and their rights are in `rights`.
"""

from typing import Any, Final

import msgpack

from beanpole import commands as c
from beanpole import qless as q
from beanpole.core.qless.tables import Tables
from tests.sim.rights import ADMIN, EVENTS, PUT, WORK, Table, Who, rights, rights_somewhere

# The prefix of its queues' names where rights are looked up.
SPACE: Final = b"\x03"
ANY: Final = PUT | WORK | ADMIN | EVENTS
# Calls about one job, the first argument, with the rights that they need in its queue.
OF_JOB: Final = {
    q.COMPLETE: WORK,
    q.FAIL: WORK,
    q.RETRY: WORK,
    q.HEARTBEAT: WORK,
    q.PRIORITY: PUT | ADMIN,
}
OF_JOBS: Final = {q.CANCEL: WORK | ADMIN, q.TIMEOUT: WORK | ADMIN}


def allows(table: Table, who: Who, command: c.Command, t: Tables) -> bool | None:
    """Whether an identity may make a call; None if this model does not know the call.

    Args:
        table: all users.
        who: the identity of the session.
        command: a QLESS command.
        t: the tables before the call.
    """
    if command[2] == q.CANCEL and not rights_somewhere(table, who, SPACE) & OF_JOBS[q.CANCEL]:
        return False  # those who watch would hear of it, although the job is missing
    needs = _needs(command[2], msgpack.unpackb(command[5], use_list=False), t)
    if needs is None:
        return None
    return all(rights(table, who, SPACE + queue) & bits for queue, bits in needs)


def _needs(call: int, args: tuple[Any, ...], t: Tables) -> list[tuple[bytes, int]] | None:
    """Return the queues in which a call needs rights, with those rights."""
    if call == q.PUT:
        return [(args[0], PUT), *_of_jobs(t, args[1:2], PUT), *_of_jobs(t, args[9], ANY)]
    if call == q.POP:
        return [(args[0], WORK)]
    if call in OF_JOB:
        own = _of_jobs(t, args[:1], OF_JOB[call])
        if call == q.COMPLETE:
            following = [] if args[4] is None else [(args[4], PUT)]
            return [*own, *following, *_of_jobs(t, args[6], ANY)]
        if call == q.RETRY and own and own[0][0] != args[1]:
            return [*own, (args[1], PUT)]
        return own
    if call in OF_JOBS:
        return _of_jobs(t, args[0], OF_JOBS[call])
    if call == q.RECUR:
        template = t.recurring.get(args[1])
        return [(args[0], PUT)] + ([] if template is None else [(template.queue, PUT)])
    return None


def _of_jobs(t: Tables, jids: tuple[bytes, ...], bits: int) -> list[tuple[bytes, int]]:
    """Return the queues of jobs, also of completed ones; jobs that do not exist have none."""
    found = [t.jobs[jid] for jid in jids if jid in t.jobs]
    return [(job.queue or job.completed_in, bits) for job in found]

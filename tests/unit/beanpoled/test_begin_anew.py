"""The state of a machine in its first moment as that of a new cluster."""

from beanpole import commands as c
from beanpole.core.machine import Machine
from beanpoled.disk.offline import begin_anew

ORIGIN = 2
INCARNATION = 3


def test_kept_sessions_end_too_and_give_their_jobs_back() -> None:
    """Both kept ones hold a job: one is attached, the connection of the other was lost."""
    machine = Machine()
    machine.activate(c.MACHINE_VERSION)
    hour_us = 3600 * 10**6
    machine.apply(1, 0, 1, 1, [(c.LEADER, 0, 0, ((c.EPOCH, 1, 3, 10, 10, 10, 2**20),))])
    machine.apply(2, 0, 2, 2, [(ORIGIN, INCARNATION, 1, ())])
    commands: list[c.Command] = []
    for session in (1, 2):
        commands += [(c.OPEN, session), (c.KEEP, session, b"%d" % session * 16, hour_us)]
        commands += [(c.PUT, session, b"default", 0, 0, 7200, b"body")]
    machine.apply(3, 0, 3, 3, [(ORIGIN, INCARNATION, 2, tuple(commands))])
    grants = tuple((c.GRANT, ORIGIN, INCARNATION, session, 1, 2) for session in (1, 2))
    machine.apply(4, 0, 4, 4, [(c.LEADER, 0, 0, grants)])
    machine.apply(5, 0, 5, 5, [(ORIGIN, INCARNATION, 3, ((c.CLOSE, 2, 1),))])
    assert (machine.queue.reserved, len(machine.detached), machine.sessions) == (2, 1, 2)
    begin_anew(machine, 5)
    assert (machine.queue.ready, machine.queue.reserved) == (2, 0)
    assert not (machine.sessions or machine.detached or machine.resumable or machine.origins)

"""A naive replay of the events, compared with the machine's jobs.

The rules that events keep among themselves belong here. `test_events` checks which command makes
which event.
"""

from dataclasses import dataclass

from beanpole import events as e
from beanpole.core.jobs.job import BURIED, DELAYED, DONE, FAILED, GONE, READY, RESERVED
from beanpole.core.machine import Machine
from tests.unit.core.cluster import Event, events_of

# The states that each kind of event may find a job in, and may leave it in.
STATES = {
    e.PUT: ({GONE}, {READY, DELAYED}),
    e.DUE: ({DELAYED}, {READY}),
    e.RESERVED: ({READY, DELAYED, BURIED}, {RESERVED}),
    e.TOUCHED: ({RESERVED}, {RESERVED}),
    e.RELEASED: ({RESERVED}, {READY, DELAYED}),
    e.RETURNED: ({RESERVED}, {READY}),
    e.TIMED_OUT: ({RESERVED}, {READY}),
    e.BURIED: ({READY, DELAYED, RESERVED}, {BURIED}),
    e.KICKED: ({BURIED, DELAYED}, {READY}),
    e.DELETED: ({READY, RESERVED, DELAYED, BURIED, DONE, FAILED}, {GONE}),
    e.DONE: ({READY, RESERVED, DELAYED, BURIED}, {DONE, GONE}),
    e.FAILED: ({READY, RESERVED, DELAYED, BURIED}, {FAILED, GONE, READY}),
    e.EXPIRED: ({READY, RESERVED, DELAYED, BURIED, DONE, FAILED}, {GONE}),
    e.MOVED: (
        {READY, RESERVED, DELAYED, BURIED, e.MOVING},
        {READY, DELAYED, BURIED, e.MOVING},
    ),
}
REASONS = {
    e.RETURNED: {e.CONNECTION_LOST, e.NODE_DOWN, e.NOBODY_WAITING},
    e.TIMED_OUT: {e.TTR},
    e.FAILED: {e.TTR, e.NO_REASON, e.CONNECTION_LOST, e.NODE_DOWN, e.NOBODY_WAITING},
    e.DELETED: {e.ABANDONED, e.NO_REASON, e.ADMIN, e.QUEUE_FULL, e.RETENTION},
    e.BURIED: {e.NO_REASON, *e.USED_UP_BY.values()},
    e.MOVED: {e.ADMIN, *e.USED_UP_BY.values()},
}
# The prefixes of the spaces whose reserved jobs belong to no session.
NOBODYS = (b"\x01", b"\x12")
# Events caused by time or a policy, and events of jobs without a holder.
BY_TIME = {e.DUE, e.EXPIRED}
BY_POLICY = {e.QUEUE_FULL, e.RETENTION}
TO_NOBODYS = {e.TIMED_OUT, e.RETURNED, e.FAILED}


@dataclass
class Account:
    """One job as reconstructed from its events."""

    state: int
    reserved_us: int = e.NO_TIME
    ready_us: int = e.NO_TIME
    reserves: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0


class Ledger:
    """Every job that still exists."""

    def __init__(self) -> None:
        self.accounts: dict[int, Account] = {}
        self.total = 0
        self.tubes: dict[int, bytes] = {}
        self.hosts = 0

    def follow(self, machine: Machine) -> None:
        """Replay the events of the last entry, and compare all jobs with the machine's."""
        queue = machine.queue
        for number, name in queue.tubes_named:
            assert self.tubes.setdefault(number, name) == name
        queue.tubes_named.clear()
        self.hosts = len(machine.hosts.names)
        for event in events_of(machine):
            self.total += 1
            self.book(event, queue.now_us)
        assert self.total == queue.events_total
        assert self.accounts.keys() == {job.id for job in queue.jobs.values()}
        for job_id, account in self.accounts.items():
            job = queue.jobs[job_id]
            for field, value in vars(account).items():
                assert getattr(job, field) == value, (job_id, field)
            assert self.tubes[job.tube.number] == job.tube.name
        states = [account.state for account in self.accounts.values()]
        counts = tuple(states.count(state) for state in (READY, RESERVED, DELAYED, BURIED))
        assert counts == (queue.ready, queue.reserved, queue.delayed, queue.buried)
        finished = sum(space.done + space.failed for space in queue.every_space)
        assert states.count(DONE) + states.count(FAILED) == finished

    def book(self, event: Event, now_us: int) -> None:
        """Replay one event."""
        assert event.kind in STATES, event
        before, after = STATES[event.kind]
        assert event.before in before, event
        assert event.state in after, event
        assert event.reason in REASONS.get(event.kind, {e.NO_REASON}), event
        unowned = event.kind in BY_TIME or event.reason in BY_POLICY
        if event.kind in TO_NOBODYS and self.tubes[event.tube][:1] in NOBODYS:
            unowned = event.origin == e.NO_ORIGIN
        if event.kind == e.EXPIRED and event.before == RESERVED:  # it names the holder, if any
            unowned = event.origin == e.NO_ORIGIN
        assert (event.origin == e.NO_ORIGIN) == unowned, event
        assert (event.protocol == e.NO_PROTOCOL) == unowned, event
        assert (event.session == 0) == unowned, event
        assert event.host in range(self.hosts + 1), event
        assert event.host == 0 or not unowned, event
        assert event.tube in self.tubes, event
        if event.kind == e.PUT:
            assert event.job not in self.accounts, event
            self.accounts[event.job] = Account(GONE)
        account = self.accounts[event.job]
        assert account.state == event.before, event
        account.state = event.state
        self.check_times(event, account, now_us)
        account.reserves += event.kind == e.RESERVED
        # A policy that takes a job away counts its last attempt as it ended, and no burial.
        is_last_attempt = event.before == RESERVED
        account.timeouts += event.reason == e.TTR
        account.timeouts += is_last_attempt and event.reason == e.ATTEMPTS_TTR
        account.releases += event.kind == e.RELEASED
        account.releases += is_last_attempt and event.reason == e.ATTEMPTS
        account.buries += event.kind == e.BURIED and event.reason not in e.USED_UP_BY.values()
        account.kicks += event.kind == e.KICKED
        for name in ("reserves", "timeouts", "releases", "buries", "kicks", "ready_us"):
            assert getattr(event, name) == getattr(account, name), (event, name)
        if event.state == GONE:
            del self.accounts[event.job]

    def check_times(self, event: Event, account: Account, now_us: int) -> None:
        """Recompute how long the job waited and ran, and when it became ready."""
        wait_us = run_us = e.NO_TIME
        if event.kind == e.RESERVED:
            if event.before == READY:
                wait_us = now_us - account.ready_us
            account.reserved_us = now_us
        elif event.before == RESERVED and event.kind != e.TOUCHED:
            run_us = now_us - account.reserved_us
        if event.state == READY and event.before != READY:  # otherwise it was ready before
            account.ready_us = now_us
        assert (event.wait_us, event.run_us) == (wait_us, run_us), event

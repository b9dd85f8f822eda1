"""All clients of other protocols in one life: their creation, when they are quiet, their judges.

The behaviour of each is in `gearman`, `gearman_admins`, `workq`, `qless`, `keepers`, `retriers`,
`rulers`, `stewards` and `senders`, the judging in the files `verdicts_*` (`keepers` judge what they
see).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from tests.sim import clerks, senders, tenants
from tests.sim.admin_log import Deed
from tests.sim.aliases import WORKERS as ALIAS_WORKERS
from tests.sim.aliases import Bridge
from tests.sim.clerks import Clerk, GearmanClerk, WorkqClerk
from tests.sim.cluster import Violation
from tests.sim.gearman import FUNCTIONS, Records, Submitter
from tests.sim.gearman_admins import LIMITED, OWN, Administrator
from tests.sim.gearman_workers import Worker
from tests.sim.guests import Guest
from tests.sim.history import Connected
from tests.sim.keepers import Claims, Keeper
from tests.sim.overseers import RETRIERS, Overseer
from tests.sim.qless import NO_JOBS, Laborer, Notes, Subscriber
from tests.sim.qless import Request as QlessRequest
from tests.sim.recount import Recount
from tests.sim.rulers import CLIENTS as RULED_CLIENTS
from tests.sim.rulers import GEARMAN_QUEUE, Ruler
from tests.sim.senders import Senders
from tests.sim.stewards import BEARERS, Steward
from tests.sim.stories import GEARMAN_PREFIX
from tests.sim.tenants import TENANTS, Tenant
from tests.sim.verdicts_admins import AdminJudge
from tests.sim.verdicts_aliases import AliasJudge
from tests.sim.verdicts_changes import ChangeJudge
from tests.sim.verdicts_gearman import GearmanJudge, nobody_waits_for_an_abandoned_job
from tests.sim.verdicts_policies import PolicyJudge
from tests.sim.verdicts_qless import QlessJudge
from tests.sim.verdicts_rates import RateJudge
from tests.sim.verdicts_ruled import RuledJudge
from tests.sim.verdicts_rules import RuleJudge
from tests.sim.verdicts_user_answers import AnswerJudge
from tests.sim.verdicts_user_puts import PutJudge, judge_qless
from tests.sim.verdicts_user_rates import UserRateJudge
from tests.sim.verdicts_users import UserJudge
from tests.sim.verdicts_workq import WorkqJudge
from tests.sim.wire import Wire
from tests.sim.workq import Ledger, Patron
from tests.sim.world import World

SUBMITTERS: Final = 2
WORKERS: Final = 4
PATRONS: Final = 4
LABORERS: Final = 3
KEEPERS: Final = 3
# Numbers of these clients begin here, behind those of beanstalk's clients.
FIRST_NUMBER: Final = 100
# The protocols whose frontends are complete.
SPOKEN: Final[tuple[str, ...]] = ("gearman", "workq", "qless")
# The machine version that introduced them.
SINCE: Final = 4


class Crowd:
    """The guests of one life."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.records = Records()
        self.ledger = Ledger()
        self.submitters: list[Submitter] = []
        self.workers: list[Worker] = []
        self.patrons: list[Patron] = []
        self.admins: list[Administrator] = []
        self.bridges: list[Bridge] = []
        self.notes = Notes()
        self.laborers: list[Laborer] = []
        self.subscribers: list[Subscriber] = []
        self.keepers: list[Keeper] = []
        self.overseers: list[Overseer] = []
        self.stewards: list[Steward] = []
        self.clerks: list[Clerk] = []
        self.senders: list[Senders] = []
        self.rulers: list[Ruler] = []
        # By worker number: its naps, the pauses of its node and the first ready job, and the index
        # that its node had applied when `look` first found these.
        self._beside: dict[int, tuple[tuple[int, ...], int]] = {}

    def begin(self) -> None:
        """Create the clients."""
        world, numbers = self.world, iter(range(FIRST_NUMBER, 2 * FIRST_NUMBER))
        if "gearman" in SPOKEN:
            self.submitters += [
                Submitter(world, next(numbers), self.records) for _ in range(SUBMITTERS)
            ]
            self.workers += [
                Worker(world, next(numbers), self.records, place == 0) for place in range(WORKERS)
            ]
        if "workq" in SPOKEN:
            self.patrons += [Patron(world, next(numbers), self.ledger) for _ in range(PATRONS)]
        if "gearman" in SPOKEN:
            for name in (*OWN, *FUNCTIONS):
                world.witness.functions.watch(name)
            self.admins.append(Administrator(world, next(numbers), self.records))
            self.workers.append(Worker(world, next(numbers), self.records, True, (LIMITED,)))
            others = tuple(next(numbers) for _ in range(1 + ALIAS_WORKERS))
            self.bridges.append(Bridge(world, others))
        if "qless" in SPOKEN:
            self.laborers += [
                Laborer(world, next(numbers), self.notes, place == 0) for place in range(LABORERS)
            ]
            self.subscribers.append(Subscriber(world, next(numbers), self.notes))
        claims = Claims()
        self.keepers += [Keeper(world, next(numbers), claims) for _ in range(KEEPERS)]
        if {"gearman", "workq"} <= set(SPOKEN) and Ruler.is_in(world.seed):
            self.rulers.append(Ruler(world, [next(numbers) for _ in range(RULED_CLIENTS)]))
        if Overseer.is_in(world.seed):
            self.overseers.append(Overseer(world, [next(numbers) for _ in range(RETRIERS)]))
        if Steward.is_in(world.seed):
            self._begin_users(numbers)

    def _begin_users(self, numbers: Iterator[int]) -> None:
        """Create an administrator of users, and clients with tokens."""
        world = self.world
        has_tenants = "qless" in SPOKEN and Tenant.is_in(world.seed)
        has_both = {"gearman", "workq"} <= set(SPOKEN)
        has_clerks = has_both and Clerk.is_in(world.seed)
        has_senders = has_both and Senders.is_in(world.seed)
        has_alias = has_senders and Senders.will_have_alias(world.seed)
        is_whole = has_alias or bool(self.overseers or self.rulers)
        is_whole |= any(bridge.wanted for bridge in self.bridges)
        bearers = [next(numbers) for _ in range(BEARERS)]
        patterns: list[Sequence[str]] = [tenants.PATTERNS] * has_tenants
        patterns += [clerks.PATTERNS] * has_clerks + [*senders.PATTERNS] * has_senders
        opened = [f"{senders.TUBE.decode()}*"] * has_alias
        steward = Steward(world, bearers, is_whole, patterns, opened)
        self.stewards.append(steward)
        asks, keyring = steward.asks, steward.keyring
        if has_tenants:
            notes = self.notes.apart()
            self.laborers += [Tenant(world, next(numbers), notes, keyring) for _ in range(TENANTS)]
        records = Records()
        if has_clerks:
            handles = records.handles
            self.clerks += [
                GearmanClerk(world, next(numbers), asks, keyring, handles),
                GearmanClerk(world, next(numbers), asks, keyring, handles),
                WorkqClerk(world, next(numbers), asks, keyring),
            ]
        if has_senders:
            some = [next(numbers) for _ in range(senders.CLIENTS)]
            self.senders.append(Senders(world, some, keyring, records))

    def look(self) -> None:
        """Check that no abandoned job waits, and no worker sleeps for long beside a ready job.

        Its own node must know that it is ready.
        A worker whose PRE_SLEEP the node has not read does not sleep: the packet waits behind a
        request that only a majority can answer. A node that applied nothing between two looks may
        be behind: at its time the rate of a queue may not allow a job yet (life 1519). A node that
        stops gives its worker no job, and closes it when the end of its last one is applied: that
        may be on its way (life 90798).

        Raises:
            Violation: a job waits although its clients are gone. Or a worker sleeps beside the
                same job as at an earlier look, and its node has applied entries since.
        """
        nobody_waits_for_an_abandoned_job(self.world.witness)
        before, self._beside = self._beside, {}
        bridged = [worker for bridge in self.bridges for worker in bridge.workers]
        sent = [worker for one in self.senders for worker in one.workers]
        for worker in (*self.workers, *bridged, *sent):
            wire = worker.wire
            if wire is None or wire.cut_s is not None or not worker.asleep:
                continue
            if wire.unread or wire.host.paused or _is_kept_by_stop(wire):
                continue
            host = wire.host
            for function in worker.functions:
                machine = host.node.context.machine
                queue = machine.queue.find(GEARMAN_PREFIX + function)
                if queue is None or not queue.ready_count:
                    continue
                beside = (worker.naps, host.pauses, queue.first_ready())
                known, index = before.get(worker.number, ((), 0))
                if known != beside:
                    index = machine.index
                elif index != machine.index:
                    raise Violation(f"worker {worker.number} sleeps beside a ready job")
                self._beside[worker.number] = (beside, index)

    def calm(self) -> None:
        """Start no new requests, and let workers complete all remaining jobs."""
        for guest in (
            *(*self.submitters, *self.patrons, *self.laborers),
            *(*self.subscribers, *self.keepers, *self.clerks),
        ):
            guest.active = False
        for worker in self.workers:
            worker.calm = True
        for admin in self.admins:
            admin.calm = True
        for bridge in self.bridges:
            bridge.calm()
        for overseer in (*self.overseers, *self.rulers):
            overseer.calm()
        for steward in self.stewards:
            steward.calm()
        for one in self.senders:
            one.calm()

    @property
    def restless(self) -> str:
        """A description of pending work; empty if there is none."""
        machine = self.world.witness.machine
        if machine.version < SINCE:
            return ""
        everybody: list[Guest] = [*self.submitters, *self.patrons, *self.admins, *self.laborers]
        for guest in (*everybody, *self.keepers, *self.clerks):
            if not guest.quiet:
                return f"{guest.protocol} client {guest.number} waits for something"
        restless = [one.restless for one in (*self.overseers, *self.rulers)]
        restless += [one.restless for one in self.stewards]
        restless += [one.restless for one in self.senders]
        for words in restless:
            if words:
                return words
        if not self.workers:
            return ""
        for name, queue in machine.queue.tubes.items():
            if name == GEARMAN_QUEUE:
                continue  # its workers are elsewhere
            if name[:1] == GEARMAN_PREFIX and (queue.ready_count or queue.reserved_count):
                sleeps = sum(worker.asleep for worker in self.workers)
                return f"{queue.ready_count} jobs of {name!r} are ready, {sleeps} workers sleep"
        for worker in self.workers:
            if not worker.quiet:
                return f"worker {worker.number} does not sleep"
        return next((bridge.restless for bridge in self.bridges if bridge.restless), "")

    def judge(self, estimated: bool, undisturbed: bool) -> None:
        """Raise Violation if a guarantee to one of these clients was broken.

        Args:
            estimated: cluster time advanced by an estimate of a downtime.
            undisturbed: no faults of nodes, links or disks happened in this life.
        """
        world = self.world
        witness = world.witness
        leaves = world.stops.since
        WorkqJudge(self.ledger.requests, witness, estimated, leaves).all()
        judge = GearmanJudge(self.records, witness, world.may_miss_events)
        judge.all()
        AdminJudge(self.records, judge).all()
        for bridge in self.bridges:
            AliasJudge(bridge, witness, world.may_miss_events).all()
        qless = QlessJudge(self.notes, witness, world.loads, leaves)
        qless.all()
        world.stops.judge(self._given())
        for overseer in self.overseers:
            _judge_policies(overseer, undisturbed)
        for ruler in self.rulers:
            ruled = RuledJudge(ruler.world.witness)
            ruled.all()
            world.counts.update(ruled.counts)
        for steward in self.stewards:
            _judge_users(steward, self.senders, qless.refused)
        world.counts["jobs of Gearman"] += len(witness.stories.of(GEARMAN_PREFIX))
        world.counts["jobs of Workq"] += len(witness.stories) - world.counts["jobs of Gearman"]

    def _given(self) -> Iterator[tuple[Connected, float, object]]:
        """Yield each job that was given out: its client, the time of the request, the record."""
        ledgers = [self.ledger, *(one.ledger for one in self.senders)]
        for request in (request for ledger in ledgers for request in ledger.requests):
            if request.kind == "lease" and request.ok:
                yield request.visit, request.at_s, request
        shared = [bridge.records for bridge in self.bridges]
        for records in (self.records, *shared, *(one.records for one in self.senders)):
            for grant in records.grants:
                yield grant.visit, grant.asked_s, grant
        for call in self.notes.requests:
            if call.name == b"pop" and type(call.reply) is bytes and call.reply not in NO_JOBS:
                yield call.visit, call.at_s, call


def _judge_policies(overseer: Overseer, undisturbed: bool) -> None:
    """Replay the life by its events, with the commands of administrators between them."""
    recount = Recount(overseer.world.witness)
    changes = ChangeJudge(recount, overseer.orders)
    policies = PolicyJudge(recount, overseer.orders, overseer.requests)
    rules = RuleJudge(recount, policies, overseer.orders, overseer.requests)
    leaves = overseer.world.stops.since
    rates = RateJudge(recount, policies, overseer.requests, leaves)
    judges = (changes, policies, rules, rates)
    for step in recount.steps():
        for judge in judges:
            if isinstance(step, Deed):
                judge.did(step)
            else:
                judge.happened(step)
    recount.check_end()
    changes.ended()
    policies.ended()
    rules.ended()
    rates.ended(undisturbed)
    counts = overseer.world.counts
    counts.update(rules.counts)
    counts.update(rates.counts)
    counts["changes by an administrator"] += sum(map(len, changes.changes.values()))
    counts["jobs that a policy took out"] += policies.taken


def _is_kept_by_stop(wire: Wire) -> bool:
    """Whether a node that stops waits for a client to end its jobs."""
    clients, connection = wire.host.node.clients, wire.connection
    return clients.leaving and connection is not None and clients.holds(connection)


def _judge_users(steward: Steward, sent: list[Senders], refused: list[QlessRequest]) -> None:
    """Replay the log, with a model of rights beside each command."""
    hosts = steward.world.hosts
    machines = {name: host.node.context.machine for name, host in hosts.items()}
    judge = UserJudge(steward.world.witness, machines)
    judge.all()
    leaves = steward.world.stops.since
    AnswerJudge(judge, steward.asks, steward.orders, leaves).all()
    rates = UserRateJudge(judge, steward.asks)
    rates.all()
    counts = steward.world.counts
    counts["changes of users"] += len(judge.changes)
    counts["commands without the right"] += judge.refused
    counts["puts beyond a user's quota"] += judge.quotas.refused
    counts["users at their rate"] += rates.reached
    judge_qless(judge, refused)
    counts["puts of qless that nodes refused"] += len(refused)
    for one in sent:
        puts = PutJudge(judge, one)
        puts.all()
        counts["jobs of senders"] += puts.made
        counts["jobs of senders that found no room"] += puts.full
        counts["jobs of senders that nodes refused"] += puts.refused

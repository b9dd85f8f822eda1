"""The clients of one node: their connections and calls, and the state that those share.

`Clients` is all that connections know of their node. It bounds the number of clients over all
protocols. Each protocol is in its own package, the code they have in common in `requests`, and the
sockets are in `host`.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from beanpole.core.jobs.job import Job
from beanpole.core.machine import Machine
from beanpole.core.sessions import Session
from beanpole.core.users import ANY_RIGHT, WORK
from beanpoled.audit.entry import Entry
from beanpoled.config.node import NodeConfig
from beanpoled.config.protocols import FIRST
from beanpoled.frontends import client_hosts
from beanpoled.frontends.client_hosts import ClientHosts
from beanpoled.frontends.client_rates import ClientRates
from beanpoled.frontends.connection import Connection
from beanpoled.frontends.held_requests import HELD_BYTES_MIN, HeldRequests
from beanpoled.frontends.large_output import LargeOutput
from beanpoled.frontends.listeners import Listeners
from beanpoled.frontends.publications import Publications
from beanpoled.frontends.unfinished import Unfinished
from beanpoled.frontends.unread import Unread
from beanpoled.frontends.user_changes import UserChanges
from beanpoled.host.seam import Timer
from beanpoled.origin.batches import Client
from beanpoled.origin.outbox import Origin
from beanpoled.shared.context import Context

# The only protocol whose clients learn of other clients' actions solely through replies to their
# own commands. Clients of every other protocol may wait for notifications: of queues with a ready
# job, of ends of jobs, of channels.
PATIENT: Final = FIRST
# Bytes behind a blocked request before its client is paused, beside one whole body.
INPUT_BYTES_MAX: Final = 64 * 1024
# A client that has not read its replies for this long is disconnected.
STALL_MAX_US: Final = 30_000_000
# Paused clients that go on in one step of the loop: up to 2,048 requests, some 20 ms.
RESUMED_IN_A_ROW_MAX: Final = 8
# Clients beyond the limit that may wait for their refusal; more are closed at once.
REFUSED_MAX: Final = 64
# Reasons for refusing a client by its user or its rights; for metrics.
UNKNOWN_TOKEN: Final = "unknown_token"
NO_TOKEN: Final = "no_token"
NO_RIGHT: Final = "no_right"
AUTH_REFUSALS: Final = (UNKNOWN_TOKEN, NO_TOKEN, NO_RIGHT)


class Clients:
    """The connections and calls of one node."""

    def __init__(self, context: Context, origin: Origin) -> None:
        config = context.config
        self._context = context
        self.config = config
        self.host = context.host
        self.origin = origin
        self.clock = context.clock
        self.hosts = ClientHosts(config)
        self.rates = ClientRates(self.hosts.find)
        self.rates.set_host_rate(config.commands_per_second_max)
        # Dicts and not sets: the order in which they are closed is the same in every run.
        self.connections: dict[Connection, None] = {}
        self._newest_id = 0
        self._impatient = 0  # connections of other protocols than PATIENT
        # By protocol, since the start of the node.
        self.connections_total: dict[str, int] = {}
        self.connections_max = config.connections_max
        self.connections_refused: dict[str, int] = {}
        self.slow_total: dict[str, int] = {}  # closed because they did not read
        # How often each error was replied, by protocol and by the bytes of the reply.
        self.errors: dict[str, dict[bytes, int]] = {}
        self.auth_refused = dict.fromkeys(AUTH_REFUSALS, 0)  # since the start of the node
        self.calls: dict[Client, None] = {}
        self.dirty: list[Connection] = []  # connections with replies to write
        # Read with every request: copied here, because access through `config` costs more.
        self.outbox_bytes_max = config.outbox_bytes_max
        self.input_bytes_max = INPUT_BYTES_MAX + config.max_job_size
        self.client_output_bytes_max = config.client_output_bytes_max
        self.unfinished = Unfinished()
        self.unread = Unread(context, self.abort_slow)
        self.unread.set_limit(config.client_output_bytes_max)
        self.large = LargeOutput(context.host.call_soon, self.unread)
        self.held_requests = HeldRequests(origin, context.host.call_soon)
        self.paused: dict[Connection, None] = {}  # connections that are not read
        self._resuming: deque[Connection] = deque()  # paused ones that are about to be read
        self.stalled: dict[Connection, int] = {}  # connections whose clients do not read
        self.leaving = False  # the node is about to stop
        self.listeners = Listeners(context)
        self.publications = Publications(context)
        self.user_changes = UserChanges(context, self.rates)
        # Stops the node gracefully; set by the node.
        self.stop: Callable[[], None]
        # Records the administrative commands of clients in the audit log; set by the program.
        self.audit: Callable[[Entry], None] = lambda _: None

    # --- the node, for its connections ----------------------------------------------------------

    @property
    def machine(self) -> Machine:
        """The machine as applied on this node; a snapshot replaces it."""
        return self._context.machine

    @property
    def draining(self) -> bool:
        """Whether this node refuses puts."""
        return self._context.draining

    @property
    def now_us(self) -> int:
        """The time of this turn, by the node's monotonic clock."""
        return self._context.now_us

    @property
    def loop_us(self) -> int:
        """The time that this node's loop has counted."""
        return self._context.loop_us

    @property
    def disk_id(self) -> bytes:
        """The identity of this node's disk."""
        return self._context.disks.own.disk_id

    def write_soon(self) -> None:
        """Request a turn that writes replies, unless the present one still does."""
        if not self._context.writes_follow:
            self._context.wake()

    def read_clock(self) -> None:
        """Set `now_us` to the present; called by timers and by code that must not be early."""
        self._context.read_clock()

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Timer:
        """See `Host`."""
        return self.host.call_later(delay_us, callback)

    def record(
        self,
        connection: Connection,
        method: str,
        line: bytes,
        outcome: str,
        begun_us: int,
        refused: bool = False,
    ) -> None:
        """Record a client's administrative command in the audit log.

        Args:
            connection: the connection of the client.
            method: the command, without its arguments.
            line: the command as received; never one with a secret.
            outcome: the answer, in the protocol's words.
            begun_us: when the command was received, by the node's monotonic clock.
            refused: whether its user lacks the right, so that it did nothing; or, if it has no
                answer yet, perhaps did nothing: then another line follows if it was done.
        """
        duration_us = self.host.now_us() - begun_us
        self.audit(
            Entry(
                self.host.wall_us() - duration_us,
                connection.client_host.decode(errors="replace"),
                connection.certificate,
                connection.user.decode(),
                f"{connection.protocol}/{method}",
                {"line": line.decode(errors="replace").strip()},
                outcome,
                duration_us,
                refused=refused,
            )
        )

    # --- rights of clients ----------------------------------------------------------------------

    def may(self, client: Client, rights: int, queue: bytes) -> bool:
        """Whether a client has one of these rights (`core.users`) in a queue, by any of its names.

        This uses the users as known on this node: the machine decides, and answers DENIED.
        """
        users = self._context.machine.users
        if not users.rows:
            return True
        own_name = self._context.machine.queue.aliases.queue_of(queue)
        return bool(users.of(client.user, client.token).on(own_name) & rights)

    def may_take(self, client: Client, name: bytes) -> bool:
        """Whether a client may work on a queue that it watches, or is about to watch, by a name.

        A session watches a queue itself, also when its name there was an alias that is removed.
        """
        session = self.session(client.number)
        tube = None if session is None else session.watched.get(name)
        return self.may(client, WORK, name if tube is None else tube.name)

    def may_hear(self, client: Client, job_id: int) -> bool:
        """Whether a client has any right in the queue of a job; a job that is gone needs none."""
        queue = self._context.machine.queue
        job = queue.jobs.get(job_id)
        return job is None or self.may(client, ANY_RIGHT, job.tube.name)

    def may_everywhere(self, client: Client, rights: int) -> bool:
        """Whether a client has one of these rights in every queue and outside all queues."""
        users = self._context.machine.users
        if not users.rows:
            return True
        return bool(users.of(client.user, client.token).everywhere & rights)

    def may_in_all_of(self, client: Client, rights: int, prefix: bytes) -> bool:
        """Whether a client has one of these rights in every queue of a protocol's prefix.

        It may have none in the queues of other protocols that have an alias there.
        """
        users = self._context.machine.users
        if not users.rows:
            return True
        return bool(users.of(client.user, client.token).on_all_of(prefix) & rights)

    def is_over_quota(self, client: Client, size: int) -> bool:
        """Whether a new job with a large body is beyond the quota of the client's user.

        This uses the quotas as known on this node: the machine decides, and answers FULL.
        """
        machine = self._context.machine
        quotas = machine.queue.quotas
        if size < HELD_BYTES_MIN or not quotas.usages:
            return False
        usage = quotas.of_user(machine.users.of(client.user, client.token).name)
        return usage is not None and not usage.admits(size)

    def refused_client(self, reason: str) -> None:
        """Count a refusal for one of AUTH_REFUSALS."""
        self.auth_refused[reason] += 1

    def take_limits(self, config: NodeConfig) -> None:
        """Apply other limits; clients above them stay, new clients are subject to them."""
        self.config = config
        self.connections_max = config.connections_max
        self.outbox_bytes_max = config.outbox_bytes_max
        self.client_output_bytes_max = config.client_output_bytes_max
        self.unread.set_limit(config.client_output_bytes_max)
        self.hosts.set_limits(config)
        self.rates.set_host_rate(config.commands_per_second_max)

    # --- the beginning and the end of connections -----------------------------------------------

    def is_crowded(self, frontend: str, client_host: bytes) -> bool:
        """Whether one more client must be closed at once."""
        ended = self.unread.lingering + self.large.ending
        room = self.connections_max + REFUSED_MAX - len(self.connections) - ended
        if room <= 0 or self._context.stopped:
            return True
        is_crowded = not self.hosts.has_room(client_host, client_hosts.REFUSED_MAX)
        if is_crowded:
            self.hosts.count_refused(frontend)
        return is_crowded

    def add(self, connection: Connection) -> None:
        """Register a connection. A client above a limit is refused at its first command."""
        refused = len(self.connections) >= self.connections_max
        connection.refused = refused
        if not (refused or self.hosts.has_room(connection.client_host)):
            self.hosts.count_refused(connection.protocol)
            connection.refused = True
        self.hosts.add(connection)
        self._newest_id += 1
        connection.id, connection.since_us = self._newest_id, self.now_us
        self.connections[connection] = None
        self._impatient += connection.protocol != PATIENT
        for totals, more in ((self.connections_total, 1), (self.connections_refused, refused)):
            totals[connection.protocol] = totals.get(connection.protocol, 0) + more

    def forget(self, connection: Connection) -> None:
        """Unregister a connection that ended."""
        if connection in self.connections:
            del self.connections[connection]
            self._impatient -= connection.protocol != PATIENT
        self.paused.pop(connection, None)
        self.stalled.pop(connection, None)
        self.unfinished.forget(connection)
        self.held_requests.forget(connection)
        self.large.forget(connection)
        self.rates.forget(connection)
        self.hosts.forget(connection, self.now_us)
        self.listeners.forget(connection)
        self.publications.forget(connection)

    def abort_slow(self, connection: Connection) -> None:
        """Close a connection whose client does not read."""
        name = connection.protocol
        self.slow_total[name] = self.slow_total.get(name, 0) + 1
        connection.abort()

    def leave(self) -> None:
        """Prepare to stop: clients get no more jobs, except those already on their way."""
        self.leaving = True
        self.origin.leave()

    def drop_free(self) -> int:
        """Close the idle connections that hold nothing; return how many connections hold something.

        Calls are not counted: they have time limits of their own.
        """
        holders = 0
        for connection in list(self.connections):
            if self.holds(connection):
                holders += 1
            elif connection.is_at_rest:
                connection.drop()
        return holders

    def holds(self, connection: Connection) -> bool:
        """Whether the end of this connection would end a reservation, or a wait for a result.

        A stopping node goes on serving such connections, and closes the rest.
        """
        session = self.session(connection.number)
        if session is not None and session.secret:
            return False  # the session can be resumed at another node
        return bool(session and session.reserved) or self.listeners.has(connection)

    def drop_all(self) -> None:
        """Close every client's connection, between replies; calls fail."""
        for connection in list(self.connections):
            connection.drop()
        for call in list(self.calls):
            call.drop()

    # --- the turn -------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the replies of this turn."""
        dirty, self.dirty = self.dirty, []
        for connection in dirty:
            connection.flush()

    def run_periodic(self) -> None:
        """Close stalled clients and read paused ones; called every 100 ms of the loop's time."""
        loop_us = self._context.loop_us
        for connection, since_us in list(self.stalled.items()):
            if loop_us - since_us > STALL_MAX_US:
                self.abort_slow(connection)
        self.unread.make_room()
        self.large.go_on()
        self.rates.run_periodic(self.now_us)
        self.hosts.run_periodic(self.now_us)
        if self.paused and not (self._resuming or self.outbox_is_full):
            self._resuming = deque(self.paused)
            self._resume_some()

    def _resume_some(self) -> None:
        """Read some paused clients, each of which may have a row of requests."""
        for _ in range(min(RESUMED_IN_A_ROW_MAX, len(self._resuming))):
            if self.outbox_is_full:
                # The others are still paused, and are the first ones once there is room.
                self._resuming.clear()
                return
            connection = self._resuming.popleft()
            # A throttled one, of which there may be thousands, does nothing before its turn.
            if connection in self.paused and not connection.throttled:
                connection.room_again()
        if self._resuming:
            self.host.call_soon(self._resume_some)

    # --- queries --------------------------------------------------------------------------------

    @property
    def are_patient(self) -> bool:
        """Whether all clients learn of other clients' actions only by replies to commands."""
        return not self._impatient

    @property
    def outbox_is_full(self) -> bool:
        """Whether clients must not be read until commands are applied."""
        return self.origin.outbox_bytes > self.outbox_bytes_max

    def waiting_on(self, tube: bytes) -> int:
        """Return how many clients of this node wait for a job of a tube, by any of its names."""
        aliases = self._context.machine.queue.aliases
        queue = aliases.queue_of(tube)
        names = (queue, *aliases.names_of(queue))
        return sum(item.is_waiting and any(map(item.watches, names)) for item in self.connections)

    def refuses_tube(self, tube: bytes) -> bool:
        """Whether a tube that does not exist may not be created."""
        machine = self._context.machine
        return machine.queue.find(tube) is None and len(machine.queue.tubes) >= machine.tubes_max

    def session(self, number: int) -> Session | None:
        """Return a session of this node by number, as far as it is applied here."""
        state = self._context.machine.origins.get(self._context.index)
        if state is None or state.incarnation != self.origin.incarnation:
            return None
        return state.sessions.get(number)

    def reserved_by(self, session: int) -> dict[int, Job]:
        """Return the jobs of a session of this node by id, as far as they are applied here."""
        held = self.session(session)
        return {} if held is None else held.reserved

    def first_deadline_us(self, session: int) -> int:
        """Return when the first TTR of a session ends, in cluster time; -1 for none."""
        reserved = self.reserved_by(session)
        if not reserved:  # true of most that wait
            return -1
        deadline_us = self._context.machine.queue.deadline_us
        ends = filter(None, map(deadline_us, reserved.values()))
        return min(ends, default=-1)

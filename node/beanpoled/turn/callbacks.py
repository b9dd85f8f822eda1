"""The callbacks of the replica: the node's side of `consensus.Callbacks`.

This module applies committed entries, passes their outcomes to the parts of the node, and makes and
loads images of the machine. `node` decides when the replica acts.
"""

from collections.abc import Callable, Iterator

from beanpole import commands as c
from beanpole.core import accounts
from beanpole.core.applied import Applied
from beanpole.core.image import image
from beanpole.errors import BeanpoleError
from beanpole.replication.consensus import Image, Sink
from beanpoled.eventlog.store import EventLog
from beanpoled.frontends.listeners import Listeners
from beanpoled.frontends.publications import Publications
from beanpoled.host.seam import DEBUG, INFO, WARNING
from beanpoled.leading.leader import Leader
from beanpoled.links import frames
from beanpoled.origin.outbox import Origin
from beanpoled.peers.agreement import Agreement
from beanpoled.peers.digest import Digest
from beanpoled.shared.context import Context
from beanpoled.turn.lifecycle import Lifecycle
from beanpoled.turn.roles import Roles


class ReplicaCallbacks:
    """Implement `Callbacks` for the replica of one node."""

    def __init__(
        self,
        context: Context,
        events: EventLog,
        agreement: Agreement,
        digest: Digest,
        origin: Origin,
        leader: Leader,
        roles: Roles,
        lifecycle: Lifecycle,
        listeners: Listeners,
        publications: Publications,
    ) -> None:
        self._context = context
        self._events = events
        self._agreement = agreement
        self._digest = digest
        self._origin = origin
        self._leader = leader
        self._term = leader.term
        self._dispatcher = leader.dispatcher
        self._roles = roles
        self._lifecycle = lifecycle
        self._listeners = listeners
        self._publications = publications
        self._fetched = ("", 0)  # whose snapshot was fetched last, and at which index

    # --- the outside world ----------------------------------------------------------------------

    def now_s(self) -> float:
        """See `Callbacks`."""
        return self._context.host.now_us() / 1_000_000

    def random(self) -> float:
        """See `Callbacks`."""
        return self._context.host.random()

    def send(self, peer: str, message: bytes) -> bool:
        """See `Callbacks`."""
        return self._context.host.send_peer(peer, frames.RAFT, message)

    def flush(self) -> None:
        """See `Callbacks`."""
        self._context.host.flush_peers()

    def fetch_snapshot(
        self, peer: str, index: int, sink: Sink, done: Callable[[str | None], None]
    ) -> None:
        """See `Callbacks`."""
        host = self._context.host
        # A fetch that failed is repeated twice a second.
        again = self._fetched == (peer, index)
        self._fetched = peer, index
        line = f"fetching the snapshot at index {index} from {peer}"
        host.log(line, DEBUG if again else INFO)
        # The entries that the snapshot covers are not applied here again.
        self._events.seal()
        host.fetch_snapshot(peer, index, sink, done)

    def log(self, line: str, is_warning: bool = False) -> None:
        """See `Callbacks`."""
        self._context.host.log(line, WARNING if is_warning else INFO)

    def wake(self) -> None:
        """See `Callbacks`."""
        self._context.wake()

    def fatal(self, reason: str) -> None:
        """See `Callbacks`."""
        self._context.fatal(reason)

    # --- roles ----------------------------------------------------------------------------------

    def role_changed(self) -> None:
        """See `Callbacks`."""
        self._roles.changed = True
        self._context.wake()

    def rejoined(self) -> None:
        """See `Callbacks`."""
        self._lifecycle.rejoined()

    def committed(self) -> None:
        """See `Callbacks`."""
        if self._term.number:
            leader = self._leader
            leader.proposer.committed()
            self._origin.send()
            leader.proposer.propose()
            leader.unwaits.wake()

    # --- images ---------------------------------------------------------------------------------

    def begin_image(self) -> Image:
        """See `Callbacks`."""
        self._events.seal()
        return image.Image(self._context.machine)

    def image_bytes(self) -> int:
        """See `Callbacks`."""
        return accounts.image_bytes(self._context.machine)

    def load_image(self, chunks: Iterator[bytes]) -> None:
        """See `Callbacks`."""
        context = self._context
        self._digest.drop()
        context.machine = machine = self._leader.versions.load_image(chunks)
        context.loads += 1
        machine.queue.ready_tubes.clear()
        self._events.attach(machine, is_own=not context.started)
        # Facts about the previous machine no longer hold.
        self._agreement.forget()
        self._agreement.applied(machine.index, machine.state_hash)
        self._origin.image_loaded()
        self._lifecycle.image_loaded()
        self._listeners.image_loaded()
        self._publications.image_loaded()
        context.host.log(f"loaded a snapshot at index {context.machine.index}")

    # --- entries --------------------------------------------------------------------------------

    def apply(self, index: int, term: int, entry: bytes) -> None:
        """See `Callbacks`."""
        context = self._context
        try:
            flags, time_us, wall_us, sections = c.decode_entry(entry)
        except BeanpoleError as error:
            context.fatal(f"entry {index} cannot be applied: {error}")
            return
        if term == context.replica.term and context.clock.was_up():
            # A leader that falls soon after its election may never have sent a heartbeat.
            context.clock.receive(term, time_us, context.now_us)
        machine, origin = context.machine, self._origin
        applied = machine.apply(index, flags, time_us, wall_us, sections, context.index)
        if applied.raised:
            self._leader.versions.raised()
            self._lifecycle.open_in_time()
        self._events.applied(index, wall_us)
        self._agreement.applied(index, machine.state_hash)
        if applied.effects:
            self._listeners.coming(applied.effects)
        for incarnation, number, results in applied.results:
            if incarnation == origin.incarnation:
                origin.applied(number, results)
        for place, incarnation, session, request, outcome, job in applied.grants:
            if job is not None and place == context.index and incarnation == origin.incarnation:
                origin.granted(session, request, job)
            if self._term.number:
                self._dispatcher.outcome((place, incarnation, session), request, outcome)
        if self._term.commands or self._dispatcher.early.count:
            # The next client gets a job that was not granted; a wait may take its place in line.
            origin.leader_link.wake()
        if applied.effects:
            self._listeners.told()
        if applied.messages:
            self._publications.published(applied.messages)
        if applied.epoch:
            self._leader.epoch_applied(applied.epoch)
        if applied.ups or applied.downs or applied.gaps or applied.digest:
            self._applied_rare(applied)

    def _applied_rare(self, applied: Applied) -> None:
        context = self._context
        for origin, incarnation in applied.ups:
            self._dispatcher.incarnation_ended(origin, incarnation - 1)
            if origin == context.index:
                self._lifecycle.went_up(incarnation)
        for origin, incarnation in applied.downs:
            if self._origin.up:
                context.host.log(f"{context.members[origin]} was declared down", WARNING)
            self._dispatcher.incarnation_ended(origin, incarnation)
            if origin == context.index:
                self._lifecycle.went_down(incarnation)
        if context.index in applied.gaps:
            self._origin.resend()
        if applied.digest:
            self._digest.begin(context.machine)

"""All tubes: their creation and removal, pauses and rates, and the totals of their spaces.

A tube keeps its jobs in order (`core.jobs.job`); transitions of jobs are in `core.jobs.queue`.
"""

from beanpole.constants import DEFAULT_TUBE, QUEUE_NAME_MAX_BYTES, SECOND_US
from beanpole.core.jobs.aliases import Aliases
from beanpole.core.jobs.copy_on_write import CopyOnWrite
from beanpole.core.jobs.emitter import Emitter
from beanpole.core.jobs.job import PAUSED, RATE_SPENT, Tube
from beanpole.core.jobs.order import Order
from beanpole.core.jobs.rates import BUCKETS_MAX, Rates
from beanpole.core.jobs.spaces import SPACES, Space
from beanpole.core.jobs.transitions import TRANSITION_BITS
from beanpole.core.jobs.transitions import TUBE as TUBE_CHANGED
from beanpole.events import BEANSTALK


class Tubes(Emitter):
    """The tubes of all spaces. The only subclass is `States`.

    Attributes:
        tubes: tubes by their names, in the order of creation.
        spaces: spaces by the protocols of their sessions; protocols may share a space.
        ready_tubes: tubes that may have a job for a waiting client since the leader last looked.
        aliases: the names by which spaces know queues of other spaces.
        rates: the buckets of queues with a delivery rate.
        tubes_named: the numbers and names of new tubes, for the node to take out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tubes: dict[bytes, Tube] = {}
        self.every_space: list[Space] = []
        self.spaces: dict[int, Space] = {}
        for number, rules in SPACES.items():
            assert rules.name_max_bytes < QUEUE_NAME_MAX_BYTES, "hints have room for names"
            space = Space(number, rules)
            self.every_space.append(space)
            for protocol in rules.protocols:
                self.spaces[protocol] = space
        self.beanstalk = self.spaces[BEANSTALK]
        self.pauses = Order()  # (until, tube)
        self.rates = Rates()
        self.transitions: list[int] = []
        self.ready_tubes: dict[bytes, None] = {}
        self.aliases = Aliases()
        self.images: tuple[CopyOnWrite, ...] = ()
        self.tubes_total = 0
        self.tubes_named: list[tuple[int, bytes]] = []
        self.default = self.tube(DEFAULT_TUBE)

    def tube(self, name: bytes, space: Space | None = None) -> Tube:
        """Return the tube with this name, created if needed, in the given space or beanstalk's."""
        tube = self.tubes.get(name)
        if tube is None:
            if space is None:
                space = self.beanstalk
            space.tubes += 1
            self.tubes_total += 1
            tube = self.tubes[name] = Tube(name, self.tubes_total, space)
            if self.rates.buckets and self.rates.is_spent(name):
                tube.closed = RATE_SPENT  # the bucket outlived the tube, dropped with its last job
            if self.events_kept:
                self.tubes_named.append((tube.number, name))
        return tube

    def find(self, name: bytes) -> Tube | None:
        """Return the tube that a name or an alias denotes; None if there is none."""
        tube = self.tubes.get(name)
        if tube is None and self.aliases.queues:
            tube = self.tubes.get(self.aliases.queue_of(name))
        return tube

    def sees(self, space: Space, tube: Tube) -> bool:
        """Whether the sessions of a space have a name for a tube."""
        return tube.space is space or (
            bool(self.aliases.queues) and self.aliases.name_of(tube.name, space.number) is not None
        )

    def name_in(self, space: Space, tube: Tube) -> bytes:
        """Return the name of a tube for the sessions of a space; its own name if they have none."""
        if tube.space is space:
            return tube.name
        return self.aliases.name_of(tube.name, space.number) or tube.name

    def bare_name(self, space: Space, tube: Tube) -> bytes:
        """Return the name by which clients of a space know a tube, without a space's prefix.

        A job, or a session's tube, stays in the queue of an alias that was removed: clients know it
        by its own name then.
        """
        if self.sees(space, tube):
            return self.name_in(space, tube)[len(space.prefix) :]
        return tube.name[len(tube.space.prefix) :]

    def space_of(self, name: bytes) -> Space | None:
        """Return the space whose queues may have this name; None if no space allows it."""
        for space in self.every_space:
            if space.may_name(name):
                return space
        return None

    def drop_if_idle(self, tube: Tube) -> None:
        """Remove a tube if nothing refers to it; `default` always exists."""
        if tube is not self.default and tube.is_idle():
            self._remove(tube)

    def drop_queue(self, tube: Tube) -> None:
        """Remove a tube that has no jobs and that no session names."""
        self.transitions.append(tube.number << TRANSITION_BITS | TUBE_CHANGED)
        self._remove(tube)

    def _remove(self, tube: Tube) -> None:
        if tube.paused_until_us:
            self.pauses.remove((tube.paused_until_us, tube.name))
        del self.tubes[tube.name]
        tube.space.tubes -= 1
        # Otherwise names would pile up on a node that is not the leader.
        self.ready_tubes.pop(tube.name, None)

    def limit(self, tube: Tube, limits: tuple[int, int, int]) -> None:
        """Set the limits of a tube's jobs: for ranks before, at and after the middle."""
        for image in self.images:
            image.keep_tube(tube)
        tube.limits = limits
        for bound in limits:
            self.transitions.append(bound << TRANSITION_BITS | TUBE_CHANGED)

    def pause(self, tube: Tube, delay_s: int) -> None:
        """Pause a tube from now on; 0 ends a pause."""
        for image in self.images:
            image.keep_tube(tube)
        tube.pauses += 1
        tube.pause_s = delay_s
        self.transitions.append(delay_s << TRANSITION_BITS | TUBE_CHANGED)
        if tube.paused_until_us:
            self.pauses.remove((tube.paused_until_us, tube.name))
        if delay_s == 0:
            tube.paused_until_us = 0
            tube.closed &= ~PAUSED
            self.ready_tubes[tube.name] = None
            return
        tube.closed |= PAUSED
        tube.paused_until_us = self.now_us + delay_s * SECOND_US
        self.pauses.add((tube.paused_until_us, tube.name))

    def next_opening_us(self) -> int | None:
        """Return the end of the first pause or the due time of the first bucket; None if none is.

        A closed tube may give out jobs again then, unless it has another reason to be closed.
        """
        firsts = (self.pauses.first(), self.rates.first())
        return min([first[0] for first in firsts if first is not None], default=None)

    def end_pauses(self, budget: int) -> int:
        """End the pauses that are due, then refill buckets; returns the rest of the budget."""
        pauses = self.pauses
        while budget:
            first = pauses.first()
            if first is None or first[0] > self.now_us:
                break
            pauses.pop_first()
            tube = self.tubes[first[1]]
            for image in self.images:
                image.keep_tube(tube)
            tube.paused_until_us = 0
            tube.closed &= ~PAUSED
            tube.pause_s = 0
            self.ready_tubes[tube.name] = None
            self.transitions.append(TUBE_CHANGED)
            budget -= 1
        return self._refill(budget) if self.rates.buckets else budget

    # --- rates of delivery ----------------------------------------------------------------------

    def spend(self, tube: Tube, rate: int, period_us: int) -> None:
        """Take a token from a tube with a rate that has given out a job."""
        rates = self.rates
        if len(rates.buckets) >= BUCKETS_MAX and tube.name not in rates.buckets:
            first = rates.first()
            assert first is not None, "there are many"
            self.forget_rate(first[1])
        if rates.spend(tube.name, rate, period_us, self.now_us):
            tube.closed |= RATE_SPENT

    def forget_rate(self, name: bytes) -> None:
        """Reset the bucket of a queue, as if the queue had given out no job."""
        if self.rates.remove(name).is_spent():
            self._open(name)

    def _open(self, name: bytes) -> None:
        tube = self.tubes.get(name)
        if tube is not None:
            tube.closed &= ~RATE_SPENT
            self.ready_tubes[name] = None

    def _refill(self, budget: int) -> int:
        """Refill the buckets that are due; returns the rest of the budget."""
        rates = self.rates
        while budget:
            first = rates.first()
            if first is None or first[0] > self.now_us:
                break
            if rates.end_wait(first[1], self.now_us):
                self._open(first[1])
            self.transitions.append(TUBE_CHANGED)
            budget -= 1
        return budget

    # --- totals of all spaces -------------------------------------------------------------------

    @property
    def ready(self) -> int:
        """The number of ready jobs."""
        return sum([space.ready for space in self.every_space])

    @property
    def reserved(self) -> int:
        """The number of reserved jobs."""
        return sum([space.reserved for space in self.every_space])

    @property
    def delayed(self) -> int:
        """The number of delayed jobs."""
        return sum([space.delayed for space in self.every_space])

    @property
    def buried(self) -> int:
        """The number of buried jobs."""
        return sum([space.buried for space in self.every_space])

    @property
    def jobs_total(self) -> int:
        """The number of jobs ever created."""
        return sum([space.jobs_total for space in self.every_space])

    @property
    def timeouts(self) -> int:
        """The number of reservations that timed out."""
        return sum([space.timeouts for space in self.every_space])

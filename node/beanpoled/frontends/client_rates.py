"""Rate limits for the commands of one address or one user.

A client above its rate gets no error: its connection is not read until it may go on, as with a full
outbox. This file has the meters and the round robin of throttled connections. Addresses are in
`client_hosts`; `requests` decides when a connection asks its meters.
"""

from collections.abc import Callable, Mapping
from typing import Final

from beanpole.core.users import ANONYMOUS, User
from beanpoled.frontends.connection import Connection

# A silent address or user saves up this much of its rate, so that bursts pass.
BURST_US: Final = 1_000_000
# More than the commands in any chunk of input.
_UNLIMITED: Final = 1 << 30


class Meter:
    """A rate meter for the commands of one address or one user.

    Attributes:
        rate: commands per second; 0: no limit.
        throttled: the connections that this meter keeps from being read; they take turns.
        paid_us: the time up to which its commands are paid for; it lies in the past by the time
            that is saved up.
        turn: the number of commands that the throttled connection whose turn it is may send now;
            0 between turns.
    """

    __slots__ = ("paid_us", "rate", "throttled", "turn")

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.throttled: dict[Connection, None] = {}
        self.paid_us = 0.0
        self.turn = 0

    def allowance(self, now_us: int) -> int:
        """Return how many commands the connection whose turn it is may send now."""
        return self.turn if self.throttled else self.saved(now_us)

    def saved(self, now_us: int) -> int:
        """Return how many commands the saved-up time covers now."""
        saved_us = min(now_us - self.paid_us, BURST_US)
        return max(0, int(saved_us * self.rate / 1e6))

    def spend(self, commands: int, now_us: int) -> None:
        """Charge commands to the meter."""
        cost_us = commands * 1e6 / self.rate
        self.paid_us = max(self.paid_us, now_us - BURST_US) + cost_us


class ClientRates:
    """The meters of all clients of a node.

    Attributes:
        are_limited: whether any client has a rate; checked before anything else.
        throttled_total: how often a connection was throttled.
    """

    def __init__(self, of_host: Callable[[bytes], Meter | None]) -> None:
        """Begin without limits.

        Args:
            of_host: returns the meter of an address, or network of IPv6; None if it is not counted.
        """
        self.are_limited = False
        self.throttled_total = 0
        self._of_host = of_host
        self._host_rate = 0
        self._users: dict[bytes, Meter] = {}  # the users that have a rate
        # Meters with throttled connections, and the meter that is giving a turn to a connection.
        self._throttled: dict[Meter, None] = {}
        self._turning: Meter | None = None

    # --- limits ---------------------------------------------------------------------------------

    def set_host_rate(self, rate: int) -> None:
        """Set the rate of each address, which its meter has already; 0: no limit."""
        self._host_rate = rate
        self.are_limited = bool(rate or self._users)
        if not rate:
            for meter in list(self._throttled):
                if not meter.rate:
                    self._release(meter)

    def set_users(self, users: Mapping[bytes, User]) -> None:
        """Take over the current users; the meter of a user that keeps a rate is kept."""
        before, self._users = self._users, {}
        for name, user in users.items():
            rate = user.limits.commands_per_second_max
            if rate:
                meter = before.pop(name) if name in before else Meter(rate)
                meter.rate = rate
                self._users[name] = meter
        self.are_limited = bool(self._host_rate or self._users)
        for meter in before.values():
            self._release(meter)

    def _release(self, meter: Meter) -> None:
        """Let go of all throttled connections of a meter that is no longer in force.

        There may be thousands: `Clients` reads them a few at a time, like all that are paused.
        """
        for connection in list(meter.throttled):
            self._wake(meter, connection)

    @property
    def limits_users(self) -> bool:
        """Whether any user has a rate."""
        return bool(self._users)

    # --- commands -------------------------------------------------------------------------------

    def limits(self, connection: Connection) -> bool:
        """Whether a connection has a meter, which counts every single command.

        Behind its first request it may have that of a user, which is not known yet.
        """
        if not self.are_limited:
            return False
        return bool(self._users and not connection.is_metered) or bool(self._meters(connection))

    def allowance(self, connection: Connection, now_us: int) -> int:
        """Return how many commands a connection may send now; called once for all its input."""
        found = _UNLIMITED
        for meter in self._meters(connection):
            found = min(found, self._allowance(meter, now_us))
        return found

    def _allowance(self, meter: Meter, now_us: int) -> int:
        """Return how many commands a meter allows now.

        A connection whose turn it is at another meter does not wait for its turn at this one:
        with many clients of one user at one address, no client would ever have both turns.
        """
        if self._turning is None or meter is self._turning:
            return meter.allowance(now_us)
        return meter.saved(now_us)

    def spend(self, connection: Connection, commands: int, now_us: int) -> None:
        """Charge a connection's commands, which `allowance` granted."""
        for meter in self._meters(connection):
            meter.spend(commands, now_us)

    def throttle(self, connection: Connection, now_us: int) -> None:
        """Stop reading a connection that has used up its allowance, until its turn comes."""
        meters = self._meters(connection)
        if meters and not connection.throttled:
            spent = [meter for meter in meters if not self._allowance(meter, now_us)]
            meter = spent[0] if spent else self._turning or meters[0]
            connection.throttled = True
            meter.throttled[connection] = None
            self._throttled[meter] = None
            self.throttled_total += 1

    def forget(self, connection: Connection) -> None:
        """Forget a connection that ended."""
        if connection.throttled:
            for meter in (self._of_host(connection.network), self._of_user(connection)):
                if meter is not None:
                    self._wake(meter, connection)

    def run_periodic(self, now_us: int) -> None:
        """Let throttled connections go on as far as their meters allow."""
        for meter in list(self._throttled):
            self._take_turns(meter, now_us)

    def _meters(self, connection: Connection) -> list[Meter]:
        """Return the meters of a connection: of its address, its user, both or neither."""
        found = []
        if self._host_rate:
            host = self._of_host(connection.network)
            if host is not None:
                found.append(host)
        # The first request of a client may authenticate it, or one behind `extensions`, and must
        # not wait behind clients that never authenticate: the user's meter counts those behind it.
        if self._users and connection.is_metered:
            user = self._of_user(connection)
            if user is not None:
                found.append(user)
        return found

    def _of_user(self, connection: Connection) -> Meter | None:
        return self._users.get(connection.user or connection.payer or ANONYMOUS)

    def _take_turns(self, meter: Meter, now_us: int) -> None:
        if not meter.throttled:
            return  # the turn of another connection released them
        turn = max(1, meter.saved(now_us) // len(meter.throttled))
        for connection in list(meter.throttled):
            if not meter.saved(now_us):
                break
            if connection not in meter.throttled:
                continue  # it ended in the turn of another
            self._wake(meter, connection)
            meter.turn, self._turning = turn, meter
            connection.room_again()  # with more input, it is now the last in the row
            meter.turn, self._turning = 0, None

    def _wake(self, meter: Meter, connection: Connection) -> None:
        if connection in meter.throttled:
            connection.throttled = False
            del meter.throttled[connection]
            if not meter.throttled:
                self._throttled.pop(meter, None)

"""How fast the clients of one address, or of one user, may ask.

A client above a rate gets no error: it is not read until it may go on, as with a full outbox.
Belongs here: meters, and the turns of the connections that are not read. Which addresses there are
is in `client_hosts`; when a connection asks, in `requests`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from beanpole.core.users import ANONYMOUS, User
from beanpoled.frontends.connection import Connection

# An address or a user may save up this much of its rate while it is silent, so that bursts go
# through.
BURST_US: Final = 1_000_000
# No chunk of a client has as many commands.
_UNLIMITED: Final = 1 << 30


class Meter:
    """The commands of one address, or of one user.

    Attributes:
        rate: commands in a second; 0: without limit.
        throttled: the connections that are not read because of it; they take turns.
        paid_us: until when its commands are paid for; behind the present by what it has saved.
        turn: how many commands one of `throttled` may give now; 0 outside its turn.
    """

    __slots__ = ("paid_us", "rate", "throttled", "turn")

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.throttled: dict[Connection, None] = {}
        self.paid_us = 0.0
        self.turn = 0

    def allowance(self, now_us: int) -> int:
        """How many commands may be given now, by one whose turn it is."""
        return self.turn if self.throttled else self.saved(now_us)

    def saved(self, now_us: int) -> int:
        """How many commands may be given now."""
        saved_us = min(now_us - self.paid_us, BURST_US)
        return max(0, int(saved_us * self.rate / 1e6))

    def spend(self, commands: int, now_us: int) -> None:
        """Commands were given."""
        cost_us = commands * 1e6 / self.rate
        self.paid_us = max(self.paid_us, now_us - BURST_US) + cost_us


class ClientRates:
    """The meters of all clients of a node.

    Attributes:
        are_limited: whether any client has a rate, which is asked first.
        throttled_total: how often a connection was not read because of a rate.
    """

    def __init__(self, of_host: Callable[[bytes], Meter | None]) -> None:
        """Begin without limits.

        Args:
            of_host: the meter of an address; None if it is not counted.
        """
        self.are_limited = False
        self.throttled_total = 0
        self._of_host = of_host
        self._host_rate = 0
        self._users: dict[bytes, Meter] = {}  # those that have a rate
        # Meters with throttled connections, and the one of which a connection has its turn now.
        self._throttled: dict[Meter, None] = {}
        self._turning: Meter | None = None

    # --- limits ---------------------------------------------------------------------------------

    def set_host_rate(self, rate: int) -> None:
        """Take another rate of each address, which its meter has already; 0: without limit."""
        self._host_rate = rate
        self.are_limited = bool(rate or self._users)
        if not rate:
            for meter in list(self._throttled):
                if not meter.rate:
                    self._release(meter)

    def set_users(self, users: Mapping[bytes, User]) -> None:
        """There are these users now; a rate that stays goes on."""
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
        """A meter counts no more."""
        for connection in list(meter.throttled):
            self._wake(meter, connection)
            connection.room_again()

    # --- commands -------------------------------------------------------------------------------

    def allowance(self, connection: Connection, now_us: int) -> int:
        """How many commands a connection may give now; asked once for all that it has sent."""
        found = _UNLIMITED
        for meter in self._meters(connection):
            found = min(found, self._allowance(meter, now_us))
        return found

    def _allowance(self, meter: Meter, now_us: int) -> int:
        """How many commands a meter allows now.

        One whose turn it is at another meter does not wait for its turn at this one, too: where
        many clients of a user come from one address, none would ever have both.
        """
        if self._turning is None or meter is self._turning:
            return meter.allowance(now_us)
        return meter.saved(now_us)

    def spend(self, connection: Connection, commands: int, now_us: int) -> None:
        """A connection gave commands that `allowance` granted."""
        for meter in self._meters(connection):
            meter.spend(commands, now_us)

    def throttle(self, connection: Connection, now_us: int) -> None:
        """A connection has given all that it may: it is not read until it is its turn."""
        meters = self._meters(connection)
        if meters and not connection.throttled:
            spent = [meter for meter in meters if not self._allowance(meter, now_us)]
            meter = spent[0] if spent else self._turning or meters[0]
            connection.throttled = True
            meter.throttled[connection] = None
            self._throttled[meter] = None
            self.throttled_total += 1

    def forget(self, connection: Connection) -> None:
        """A connection ended."""
        if connection.throttled:
            for meter in (self._of_host(connection.client_host), self._of_user(connection)):
                if meter is not None:
                    self._wake(meter, connection)

    def run_periodic(self, now_us: int) -> None:
        """Let throttled connections go on as far as their meters have saved."""
        for meter in list(self._throttled):
            self._take_turns(meter, now_us)

    def _meters(self, connection: Connection) -> list[Meter]:
        """What counts its commands: its address, its user, both or neither."""
        found = []
        if self._host_rate:
            host = self._of_host(connection.client_host)
            if host is not None:
                found.append(host)
        # What a client says first may be whose it is, and must not wait for those that never say
        # so: it is counted behind that, when its session is open.
        if self._users and connection.number:
            user = self._of_user(connection)
            if user is not None:
                found.append(user)
        return found

    def _of_user(self, connection: Connection) -> Meter | None:
        return self._users.get(connection.user or ANONYMOUS)

    def _take_turns(self, meter: Meter, now_us: int) -> None:
        if not meter.throttled:
            return  # they have gone in the turn of another one
        turn = max(1, meter.saved(now_us) // len(meter.throttled))
        for connection in list(meter.throttled):
            if not meter.saved(now_us):
                break
            if connection in meter.throttled:
                self._wake(meter, connection)
                meter.turn, self._turning = turn, meter
                connection.room_again()  # if it has more to say, it is the last in the row now
                meter.turn, self._turning = 0, None

    def _wake(self, meter: Meter, connection: Connection) -> None:
        if connection in meter.throttled:
            connection.throttled = False
            del meter.throttled[connection]
            if not meter.throttled:
                self._throttled.pop(meter, None)

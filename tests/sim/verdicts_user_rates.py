"""Judge rates of users: no node acts on more commands of a user than it may send.

A rate is judged by its definition, over every stretch of time between two requests, and not by what
the product's meters have saved. Only requests that were answered are counted, and only of clients
whose user is certain: the count is never too high. A refusal may be that of an earlier request,
answered before its entry, which then ends the connection (life 107756).
"""

from collections import defaultdict
from typing import Final, NamedTuple

from beanpole import commands as c
from tests.sim.bearers import Ask
from tests.sim.cluster import Violation
from tests.sim.history import Connected
from tests.sim.verdicts_user_answers import Span, within
from tests.sim.verdicts_users import UserJudge

# A user that was silent has saved up its rate of this time.
BURST_S: Final = 1.0
# The fastest clock of a life, relative to true time.
FASTEST: Final = 1.1
# Answers to `auth`: the connection has another user, or still has the one before.
ACCEPTED, DENIED = b"ACCEPTED", b"DENIED"

Limits = dict[bytes, int]


class Meter(NamedTuple):
    """The count of one meter of the product: a user's commands at a node, until the node stops."""

    place: int
    incarnation: int
    name: bytes


class UserRateJudge:
    """The checks of one life, after those of its log.

    Attributes:
        reached: how many requests used up their user's rate.
    """

    def __init__(self, log: UserJudge, asks: list[Ask]) -> None:
        self.reached = 0
        self._log = log
        self._limits = limits_by_time(log)
        self._metered: dict[Meter, list[Ask]] = defaultdict(list)
        by_visit: dict[int, list[Ask]] = defaultdict(list)
        for ask in asks:
            by_visit[id(ask.visit)].append(ask)
        for some in by_visit.values():
            self._meter(some)

    def _meter(self, asks: list[Ask]) -> None:
        """Assign the requests of one connection to the meters of its users."""
        known_s: float | None = None  # since when its user is known to its node
        for ask in asks:
            if ask.kind == "auth":
                if ask.word != DENIED:
                    known_s = ask.done_s if ask.word == ACCEPTED else None
            elif known_s is not None and ask.at_s >= known_s and ask.word not in (b"", DENIED):
                states = self._log.states[ask.session]
                since = Span(known_s, ask.done_s)
                names = {one.who.name for one in within([(it.at_s, it) for it in states], since)}
                if len(names) == 1:
                    visit: Connected = ask.visit
                    self._metered[Meter(visit.place, visit.incarnation, *names)].append(ask)

    def all(self) -> None:
        """Check everything; raises Violation."""
        for meter, asks in self._metered.items():
            asks.sort(key=lambda ask: ask.at_s)
            for place, first in enumerate(asks):
                self._from(meter, first, sorted(asks[place:], key=lambda ask: ask.done_s))

    def _from(self, meter: Meter, first: Ask, asks: list[Ask]) -> None:
        """Check every stretch of time that begins with a request, up to each later answer."""
        for count, last in enumerate(asks, 1):
            time = Span(first.known_s, last.done_s)
            rates = [limits.get(meter.name, 0) for limits in within(self._limits, time)]
            if 0 in rates:
                return  # for some time there was no limit, and there is none to find further on
            allowed = max(rates) * (BURST_S + (last.done_s - first.at_s) * FASTEST)
            if count > allowed:
                raise Violation(
                    f"{count} commands of {meter} from {first.at_s:.4f} to {last.done_s:.4f}, "
                    f"at most {allowed:.1f} are allowed by {max(rates)} a second: {last}"
                )
            self.reached += count > allowed - 1


def limits_by_time(log: UserJudge) -> list[tuple[float, Limits]]:
    """Return the rates of all users from some time on, by the changes in the log."""
    found: list[tuple[float, Limits]] = [(0.0, {})]
    for deed in log.changes:
        limits = dict(found[-1][1])
        if deed.command[0] == c.SET_USER:
            limits[deed.command[2]] = (*deed.command[4:], 0, 0, 0)[2]
        elif deed.command[0] == c.DROP_USER:
            limits.pop(deed.command[2], None)
        found.append((deed.at_s, limits))
    return found

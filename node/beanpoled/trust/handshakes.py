"""Limits of TLS handshakes in progress, and the reasons of refused ones. No socket is opened here.

A refusal is logged at most once in half a minute for each reason: any host that reaches a port can
cause any number of them.
"""

import ssl
from collections import Counter
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from beanpole.addresses import network_of_host
from beanpoled.config.tls import TlsConfig
from beanpoled.host.seam import WARNING, Log

# A handshake takes two round trips. A client that needs longer than this will not complete it.
HANDSHAKE_TIMEOUT_S: Final = 10.0
COMPLAINT_PERIOD_S: Final = 30.0
# An address without failures accumulates this much of its rate, so that workers that start together
# with a wrong certificate receive the reason.
FAILURES_BURST_S: Final = 1.0
# The limit of addresses whose failures are stored. Above it, the address whose last failure is the
# oldest is forgotten. An address takes 200 bytes.
FAILING_ADDRESSES_MAX: Final = 10_000

# A handshake makes no room for others before it is this old: it takes milliseconds, and a fraction
# of a second where 200 of them share the processor. Otherwise, of many clients that connect again
# at the same time, each would end the handshake of another, and few would ever get through.
DISPLACED_AFTER_S: Final = 2.0
# Handshakes that end for one newcomer, at most: one makes room, and where a reload has lowered the
# limit, a second lets the number fall. All at once would keep the loop busy.
DISPLACED_AT_ONCE_MAX: Final = 2
# Entries of a room's heap that are out of date, beyond which it is made anew: as many as there are
# networks, and this number, below which that is not worth it.
STALE_ENTRIES_MAX: Final = 256

# Reasons of refused handshakes, as identifiers: labels of the metric.
TOO_MANY: Final = "too_many"
DISPLACED: Final = "displaced"
TOO_MANY_OF_ADDRESS: Final = "too_many_of_address"
TOO_MANY_FAILED: Final = "too_many_failed"
TIMED_OUT: Final = "timed_out"
CLOSED: Final = "closed"
NO_CERTIFICATE: Final = "no_certificate"
EXPIRED: Final = "certificate_expired"
REVOKED: Final = "certificate_revoked"
UNKNOWN: Final = "certificate_unknown"
OF_OTHER_USE: Final = "certificate_of_other_use"
UNREADABLE: Final = "certificate_unreadable"
NO_CRL: Final = "no_revocation_list"
OF_ANOTHER: Final = "certificate_of_another"
REFUSED_OURS: Final = "refused_ours"
NOT_TLS: Final = "not_tls"

WORDS: Final = {
    TOO_MANY: "handshakes_max are in progress, none of them for long",
    DISPLACED: (
        "handshakes_max, or handshakes_per_address_max of its address, were in progress, and it "
        "made room for a newcomer"
    ),
    TOO_MANY_OF_ADDRESS: (
        "handshakes_per_address_max of its address are in progress, none of them for long"
    ),
    TOO_MANY_FAILED: "failed_handshakes_per_second_max of its address have failed",
    TIMED_OUT: f"it did not end within {HANDSHAKE_TIMEOUT_S:.0f} s",
    CLOSED: "the other side closed the connection",
    NO_CERTIFICATE: "the other side shows no certificate",
    EXPIRED: "the certificate of the other side has expired, or is not valid yet",
    REVOKED: "the certificate of the other side is revoked",
    UNKNOWN: "the certificate of the other side is of no CA that is known here",
    OF_OTHER_USE: "the certificate of the other side is for another use (extendedKeyUsage)",
    UNREADABLE: "a name in the certificate of the other side cannot be read",
    NO_CRL: "the list of revoked certificates has expired, or is not of the CA",
    OF_ANOTHER: "the certificate of the other side is of another node",
    REFUSED_OURS: "the other side does not take our certificate",
    NOT_TLS: "the other side does not speak TLS, or none that is taken here",
}
# OpenSSL's reasons, and their meaning here.
_BY_REASON: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": NO_CERTIFICATE,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": REFUSED_OURS,
    "TLSV1_ALERT_UNKNOWN_CA": REFUSED_OURS,
    "SSLV3_ALERT_BAD_CERTIFICATE": REFUSED_OURS,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": REFUSED_OURS,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": REFUSED_OURS,
    "SSLV3_ALERT_CERTIFICATE_REVOKED": REFUSED_OURS,
}
# X509_V_ERR_... of OpenSSL.
_BY_CODE: Final = {
    1: UNREADABLE,  # unspecified: OpenSSL has no code of its own for it
    **dict.fromkeys((3, 8, 11, 12), NO_CRL),
    **dict.fromkeys((9, 10), EXPIRED),
    23: REVOKED,
    26: OF_OTHER_USE,
}


def reason_of(error: BaseException) -> str:
    """Return the reason of a failed handshake: one of the constants above."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _BY_CODE.get(error.verify_code, UNKNOWN)
    if isinstance(error, TimeoutError):
        return TIMED_OUT
    if isinstance(error, ssl.SSLError):
        return _BY_REASON.get(error.reason or "", NOT_TLS)
    if isinstance(error, ConnectionAbortedError):
        return TIMED_OUT  # uvloop reports a time-out like this
    return CLOSED


class Failures:
    """The failed handshakes of each address (a network of IPv6), and whether it may retry.

    A failed handshake costs as much as a successful one: an address with many failures is refused
    before it costs anything, until the rate allows one more. Successful handshakes do not count.
    """

    def __init__(self, per_second_max: int) -> None:
        """Begin; 0 means no limit."""
        self.per_second_max = per_second_max
        # By address, the time until which its failures are charged; the latest failure is the last
        # item.
        self._paid_s: dict[bytes, float] = {}

    def allow(self, host: bytes, now_s: float) -> bool:
        """Whether a handshake with an address may begin."""
        if not self.per_second_max:
            return True
        return self._paid_s.get(network_of_host(host), 0.0) <= now_s

    def set_limit(self, per_second_max: int) -> None:
        """Apply another limit; the failures so far are forgotten."""
        if per_second_max != self.per_second_max:
            self.per_second_max = per_second_max
            self._paid_s.clear()

    def failed(self, host: bytes, now_s: float) -> None:
        """Note that a handshake with an address has failed."""
        if not self.per_second_max:
            return
        network = network_of_host(host)
        paid_s = self._paid_s.pop(network, 0.0)
        saved_s = now_s - FAILURES_BURST_S
        paid_s = max(paid_s, saved_s) + 1 / self.per_second_max
        # Many handshakes may have begun before the first of them failed. Without a bound, they
        # would block their address for minutes.
        self._paid_s[network] = min(paid_s, now_s + HANDSHAKE_TIMEOUT_S)
        if len(self._paid_s) > FAILING_ADDRESSES_MAX:
            del self._paid_s[next(iter(self._paid_s))]


class Room:
    """The handshakes in progress with one kind of peer, and their limits.

    A newcomer in a full room ends the oldest handshake of the address (or network of IPv6) that has
    the most, if that one is slow: an address with many displaces its own. If it is not, the oldest
    of all makes room, if that is slow. Otherwise idle connections of strangers would keep all
    others out, also from many addresses while one address has two new ones.

    An address that has all that one may have ends its own oldest, if that is slow: a stranger may
    have the address of an honest client or a member, or one in its network of IPv6.
    """

    def __init__(self, handshakes_max: int, per_address_max: int, failures: Failures) -> None:
        self.handshakes_max = handshakes_max
        self.per_address_max = per_address_max
        self.failures = failures
        self._numbers = count()
        self._networks: dict[int, bytes] = {}  # by the number of the handshake
        # When each handshake began and how to end it, by network and number; the oldest of a
        # network first.
        self._by_network: dict[bytes, dict[int, tuple[float, Callable[[], None]]]] = {}
        # For each network its present count (negative), its oldest handshake and its name, among
        # entries that are out of date.
        self._heap: list[tuple[int, int, bytes]] = []

    @property
    def in_progress(self) -> int:
        """The number of handshakes in progress."""
        return len(self._networks)

    def refusal(self, host: bytes, now_s: float) -> str:
        """Return the reason (see above) why no handshake of an address may begin, or nothing."""
        if not self.failures.allow(host, now_s):
            return TOO_MANY_FAILED
        own = self._by_network.get(network_of_host(host), {})
        if len(own) >= self.per_address_max:
            began_s, _ = next(iter(own.values()))
            return TOO_MANY_OF_ADDRESS if now_s - began_s < DISPLACED_AFTER_S else ""
        if self.in_progress >= self.handshakes_max:
            _, (began_s, _) = self._first_to_go(now_s)
            if now_s - began_s < DISPLACED_AFTER_S:
                return TOO_MANY
        return ""

    def begin(self, host: bytes, now_s: float, displace: Callable[[], None]) -> int:
        """Begin a handshake that has no `refusal`; return its number.

        Args:
            host: its address.
            now_s: time of the loop.
            displace: ends the handshake, when it has made room for another.
        """
        number, network = next(self._numbers), network_of_host(host)
        own = self._by_network.get(network, {})
        for _ in range(DISPLACED_AT_ONCE_MAX):
            if len(own) >= self.per_address_max:
                self._displace(next(iter(own)))
            elif self.in_progress >= self.handshakes_max:
                self._displace(self._first_to_go(now_s)[0])
        self._networks[number] = network
        self._by_network.setdefault(network, {})[number] = (now_s, displace)
        self._rank(network)
        return number

    def end(self, number: int) -> None:
        """Note the end of a handshake, successful or not; one that has made room is forgotten."""
        network = self._networks.pop(number, None)
        if network is None:
            return
        own = self._by_network[network]
        del own[number]
        if own:
            self._rank(network)
        else:
            del self._by_network[network]

    def _displace(self, number: int) -> None:
        _, displace = self._by_network[self._networks[number]][number]
        self.end(number)
        displace()

    def _first_to_go(self, now_s: float) -> tuple[int, tuple[float, Callable[[], None]]]:
        """Return the handshake that makes room for the next newcomer; there must be one."""
        found = self._of_the_most()
        if now_s - found[1][0] >= DISPLACED_AFTER_S:
            return found
        number, network = next(iter(self._networks.items()))
        oldest = self._by_network[network][number]
        return (number, oldest) if now_s - oldest[0] >= DISPLACED_AFTER_S else found

    def _of_the_most(self) -> tuple[int, tuple[float, Callable[[], None]]]:
        """Return the oldest handshake of the network with the most; there must be one."""
        while True:
            negative, number, network = self._heap[0]
            own = self._by_network.get(network)
            if own and len(own) == -negative and next(iter(own)) == number:
                return number, own[number]
            heappop(self._heap)

    def _rank(self, network: bytes) -> None:
        """Add the present entry of a network to the heap."""
        if len(self._heap) > 2 * len(self._by_network) + STALE_ENTRIES_MAX:
            self._heap = [
                (-len(own), next(iter(own)), name) for name, own in self._by_network.items()
            ]
            heapify(self._heap)
        else:
            own = self._by_network[network]
            heappush(self._heap, (-len(own), next(iter(own)), network))


class Handshakes:
    """The TLS handshakes of one node.

    Attributes:
        refusals: failed and refused handshakes, by reason.
        of_clients: those in progress with clients.
        of_nodes: those in progress with other nodes. Their limits are separate from the clients',
            or a node that lost its links could not restore them while many client connections are
            half-open.
    """

    def __init__(
        self, handshakes_max: int, per_address_max: int, failures_per_second_max: int, log: Log
    ) -> None:
        self.refusals: Counter[str] = Counter()
        self.of_clients = Room(handshakes_max, per_address_max, Failures(failures_per_second_max))
        # Strangers at the address of a member must not keep the member out.
        self.of_nodes = Room(handshakes_max, per_address_max, Failures(0))
        self._log = log
        self._logged_s: dict[tuple[str, str], float] = {}

    def set_limits(self, config: TlsConfig) -> None:
        """Apply other limits; handshakes in progress continue."""
        for room in (self.of_clients, self.of_nodes):
            room.handshakes_max = config.handshakes_max
            room.per_address_max = config.handshakes_per_address_max
        self.of_clients.failures.set_limit(config.failed_handshakes_per_second_max)

    @property
    def in_progress(self) -> int:
        """The number of handshakes in progress."""
        return self.of_clients.in_progress + self.of_nodes.in_progress

    def refused(self, reason: str, whom: str, now_s: float, host: bytes = b"") -> None:
        """Count a failed or refused handshake, and log it at a limited rate.

        Args:
            reason: one of the constants above.
            whom: the kind of peer, in words; there are only a few.
            now_s: the time of the loop.
            host: its address, if the reason is about the address.
        """
        self.refusals[reason] += 1
        key = (reason, whom)
        logged_s = self._logged_s.get(key)
        if reason != CLOSED and (logged_s is None or now_s - logged_s > COMPLAINT_PERIOD_S):
            self._logged_s[key] = now_s
            at = f" at {host.decode(errors='replace')}" if host else ""
            self._log(f"refused a TLS handshake of {whom}{at}: {WORDS[reason]} ({reason})", WARNING)

"""Conversion of users and rules from and to messages: the texts of patterns, networks and rights.

The calls are in `users`; users are explained in `beanpole.core.users`.
"""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Final

import msgpack

from beanpole.constants import QUEUE_NAME_MAX_BYTES, U32_MAX
from beanpole.core.jobs import display_names
from beanpole.core.jobs.prefixes import ANY
from beanpole.core.jobs.quotas import Usage
from beanpole.core.jobs.spaces import SPACES
from beanpole.core.users import (
    ADMIN,
    CERTIFICATE_NAME_MAX_BYTES,
    EVENTS,
    EVERYWHERE,
    PUT,
    RIGHTS_MAX,
    RULES_MAX,
    USER_BYTES_MAX,
    USER_NAME_MAX_BYTES,
    WORK,
    Limits,
    Rights,
    Rule,
    User,
    may_be_name,
    may_be_pattern,
)
from beanpole.events import PROTOCOL_NAMES, PROTOCOL_NUMBERS
from beanpole.pb import users_pb2
from beanpole.protocol.beanstalk.requests import is_tube_name
from beanpoled.rpc.queue_names import NO_TUBE
from beanpoled.rpc.server import CallRefused

EVERYWHERE_TEXT: Final = "all:*"
# Digits of a digest that name a token: 64 bits distinguish the four tokens of a user.
TOKEN_ID_DIGITS: Final = 16
_BITS: Final = {
    users_pb2.RIGHT_PUT: PUT,
    users_pb2.RIGHT_WORK: WORK,
    users_pb2.RIGHT_ADMIN: ADMIN,
    users_pb2.RIGHT_EVENTS: EVENTS,
}
_LIMITS_MAX: Final = dict(zip(Limits._fields, (U32_MAX, USER_BYTES_MAX, U32_MAX), strict=True))
# The IPv6 addresses that stand for IPv4 ones, as text because Python 3.13 writes them differently.
_MAPPED_TEXT: Final = "::ffff:0:0/96"
_MAPPED: Final = IPv6Network(_MAPPED_TEXT)


def read_name(text: str, field: str) -> bytes:
    """Return the name of a user.

    Raises:
        CallRefused: it is not a valid name.
    """
    name = text.encode(errors="replace")
    if not may_be_name(name):
        words = f"{text!r} is no name of a user: 1 to {USER_NAME_MAX_BYTES} of A-Z a-z 0-9 - _ . @"
        raise CallRefused("BAD_USER", field, words)
    return name


def read_rights(messages: Iterable[users_pb2.Rights]) -> bytes:
    """Return rights as a command has them; the rights of equal patterns are joined.

    Raises:
        CallRefused: a pattern or a right is invalid, or there are too many.
    """
    found: dict[bytes, int] = {}
    for place, message in enumerate(messages):
        pattern = read_pattern(message.pattern, f"rights[{place}].pattern")
        bits = 0
        for right in message.rights:
            if right not in _BITS:
                words = f"{right} is no right: put, work, admin, events"
                raise CallRefused("BAD_RIGHT", f"rights[{place}].rights", words)
            bits |= _BITS[right]
        if not bits:
            words = f"no right in {message.pattern!r}: leave it out, or give one"
            raise CallRefused("BAD_RIGHT", f"rights[{place}].rights", words)
        found[pattern] = found.get(pattern, 0) | bits
    if len(found) > RIGHTS_MAX:
        words = f"{len(found)} patterns; a user has at most {RIGHTS_MAX}"
        raise CallRefused("TOO_MANY_RIGHTS", "rights", words)
    packed: bytes = msgpack.packb(tuple(sorted(found.items())))
    return packed


def read_pattern(text: str, field: str) -> bytes:
    """Return a pattern in the machine's form.

    Raises:
        CallRefused: it is not a pattern.
    """
    if text == EVERYWHERE_TEXT:
        return EVERYWHERE
    before, separator, behind = text.partition(display_names.SEPARATOR)
    any_text = ANY.decode()
    if separator:
        prefixes = {PROTOCOL_NAMES[rules.protocols[0]]: rules.prefix for rules in SPACES.values()}
        pattern = prefixes.get(before, b"\x1f") + display_names.bytes_of(behind)
        is_right = prefixes.get(before, b"") != b"" and may_be_pattern(pattern)
    else:
        pattern = text.encode(errors="replace")
        is_right = text == any_text or is_tube_name(pattern.removesuffix(ANY))
    if not is_right and not separator:
        words = (
            f"{text!r} {NO_TUBE}; perhaps with {any_text} at its end. Other patterns are such as "
            f"gearman:resize, or {EVERYWHERE_TEXT}"
        )
        raise CallRefused("BAD_PATTERN", field, words)
    if not is_right:
        words = (
            f"{text!r} is no pattern: a queue such as mail, gearman:resize, workq:resize or "
            f"qless:resize, in which at most {QUEUE_NAME_MAX_BYTES - 1} bytes are behind the "
            f"colon, perhaps the beginning of names with {any_text} at its end, or "
            f"{EVERYWHERE_TEXT}"
        )
        raise CallRefused("BAD_PATTERN", field, words)
    return pattern


def pattern_text(pattern: bytes) -> str:
    """Return the text of a pattern."""
    return EVERYWHERE_TEXT if pattern == EVERYWHERE else display_names.queue(pattern)


def rights(found: Rights) -> list[users_pb2.Rights]:
    """Return rights as messages."""
    return [
        users_pb2.Rights(
            pattern=pattern_text(pattern),
            rights=[right for right, bit in _BITS.items() if bits & bit],
        )
        for pattern, bits in found
    ]


def read_limits(message: users_pb2.Limits) -> Limits:
    """Return the limits of a user.

    Raises:
        CallRefused: one is too large.
    """
    for field, most in _LIMITS_MAX.items():
        number = getattr(message, field)
        if number > most:
            words = f"{field} is {number}; at most {most}, and 0 is no limit"
            raise CallRefused("BAD_LIMIT", f"limits.{field}", words)
    return Limits(*[getattr(message, field) for field in _LIMITS_MAX])


def user(found: User, usage: Usage | None) -> users_pb2.User:
    """Return a user as a message, with its usage of its quota."""
    return users_pb2.User(
        name=found.name.decode(),
        rights=rights(found.rights),
        token_ids=[token.hex()[:TOKEN_ID_DIGITS] for token in found.tokens],
        limits=users_pb2.Limits(**found.limits._asdict()),
        jobs=0 if usage is None else usage.jobs,
        bytes=0 if usage is None else usage.bytes,
    )


# --- rules ----------------------------------------------------------------------------------------


def read_rules(messages: Iterable[users_pb2.Rule]) -> bytes:
    """Return rules as a command has them.

    Raises:
        CallRefused: a rule is invalid, or there are too many.
    """
    found = [_read_rule(place, message) for place, message in enumerate(messages)]
    if len(found) > RULES_MAX:
        words = f"{len(found)} rules; there are at most {RULES_MAX}"
        raise CallRefused("TOO_MANY_RULES", "rules", words)
    packed: bytes = msgpack.packb(found)
    return packed


def _read_rule(place: int, message: users_pb2.Rule) -> tuple[int, bytes, bytes, bytes]:
    field = f"rules[{place}]"
    protocol = PROTOCOL_NUMBERS.get(message.protocol, 0)
    if message.protocol and not protocol:
        words = (
            f"{message.protocol!r} is no protocol: {', '.join(PROTOCOL_NUMBERS)}, or none for any"
        )
        raise CallRefused("BAD_PROTOCOL", f"{field}.protocol", words)
    # Names of DNS are equal in either case; `opening.either_case` gives those of a client.
    certificate = message.certificate.encode(errors="replace").lower()
    if len(certificate) > CERTIFICATE_NAME_MAX_BYTES:
        words = f"a name of {len(certificate)} bytes; at most {CERTIFICATE_NAME_MAX_BYTES}"
        raise CallRefused("BAD_CERTIFICATE", f"{field}.certificate", words)
    network = _read_network(message.network, f"{field}.network")
    return protocol, network, certificate, read_name(message.user, f"{field}.user")


def _read_network(text: str, field: str) -> bytes:
    """Return a network of a rule; clients at mapped addresses are IPv4 clients everywhere else.

    Raises:
        CallRefused: it is no network, or none that a client's address could be in.
    """
    if not text:
        return b""
    try:
        if "%" in text:
            raise ValueError("a network has no zone")
        network = ip_network(text)
        if isinstance(network, IPv6Network) and network.overlaps(_MAPPED):
            network = _unmapped(network)
    except ValueError as error:
        words = f"{text!r} is no network such as 10.0.0.0/8 or 2001:db8::/32: {error}"
        raise CallRefused("BAD_NETWORK", field, words) from None
    return bytes([network.prefixlen]) + network.network_address.packed


def _unmapped(network: IPv6Network) -> IPv4Network | IPv6Network:
    """Return the IPv4 network of a mapped one; ::/0 is the network of all IPv6 addresses.

    Raises:
        ValueError: the network has all mapped addresses and others.
    """
    if network.prefixlen >= _MAPPED.prefixlen:
        bits = network.prefixlen - _MAPPED.prefixlen
        return IPv4Network((network.network_address.packed[-4:], bits))
    if network.prefixlen:
        raise ValueError(f"give IPv4 networks for the mapped addresses in it, {_MAPPED_TEXT}")
    return network


def rule(found: Rule) -> users_pb2.Rule:
    """Return a rule as a message."""
    network = found.network
    address: Any = ip_address(network[1:]) if network else ""
    return users_pb2.Rule(
        protocol=PROTOCOL_NAMES.get(found.protocol, ""),
        network=f"{address}/{network[0]}" if network else "",
        certificate=found.certificate.decode(errors="replace"),
        user=found.user.decode(),
    )

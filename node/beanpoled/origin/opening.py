"""The commands with which a session begins: its host, its protocol, and the user set by a rule.

The frontends decide when a session begins; its commands travel as described in `outbox`.
"""

from collections.abc import Iterable

from beanpole import commands as c
from beanpole.addresses import address_of
from beanpole.core.machine import Machine
from beanpole.core.operations.table import since
from beanpole.events import BEANSTALK
from beanpoled.origin.batches import KIND_OPEN, KIND_QUIET, Client


def opening(client: Client, protocol: int, machine: Machine) -> list[tuple[int, c.Command]]:
    """Return the commands of a client that has its number, each with its kind.

    A session begins with the beanstalk protocol; a second command sets another one (`events`).
    Rules are applied here, as this node knows them; the client knows its user from here on.
    """
    number = client.number
    first: c.Command = (c.OPEN, number)
    if client.client_host and since(c.OPEN_FROM) <= machine.version:
        first = (c.OPEN_FROM, number, client.client_host)
    commands = [(KIND_OPEN, first)]
    if protocol != BEANSTALK:
        commands.append((KIND_QUIET, (c.SET_PROTOCOL, number, protocol)))
    if machine.users.rules:
        client.user = user_by_rule(client, protocol, machine)
        if client.user:
            client.token = machine.users.rows[client.user].birth
            commands.append((KIND_QUIET, (c.AS_USER, number, client.user, client.token)))
    return commands


def user_by_rule(client: Client, protocol: int, machine: Machine) -> bytes:
    """Return the user of a session that the client would open now; empty for anonymous."""
    users = machine.users
    if not users.rules:
        return b""
    address = address_of(client.client_host)
    return users.by_rule(protocol, address, either_case(client.client_names))


def either_case(names: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the names of a certificate for rules: as they are, and in lower case.

    Rules are stored in lower case, because names of DNS are equal in either case. Rules from before
    that have the case in which they were written.
    """
    return tuple({name for given in names for name in (given, given.lower())})

"""Redis commands that do not need the cluster: greetings, names and facts about the server.

In a cluster without users, AUTH is answered as by a Redis that has no password.
"""

import re
from collections.abc import Callable
from typing import Final

import beanpole
from beanpole.core.users import TOKEN_DIGEST_BYTES
from beanpole.protocol.resp.values import (
    OK,
    RESP2,
    RESP3,
    Error,
    Map,
    Simple,
    Value,
    encode,
)
from beanpoled.frontends.qless.calls import DEFAULT_USER, NO_NUMBER, SYNTAX, WRONG_USER, number
from beanpoled.frontends.qless.subscriptions import SubscriberSide

# Clients derive a server's features from it, so it is a version of Redis: one that has every form
# of reply that is used here.
REDIS_VERSION: Final = b"7.0.15"
# Of a client's name, and of its values about its library.
CLIENT_NAME_MAX_BYTES: Final = 4096

NO_PASSWORD: Final = Error(
    b"ERR AUTH <password> called without any password configured for the default user. "
    b"Are you sure your configuration is correct?"
)
AUTH_UNKNOWN: Final = Error(b"ERR no majority of the cluster answers: nothing was done")
NO_SUCH_VERSION: Final = Error(b"NOPROTO unsupported protocol version")
NO_VERSION: Final = Error(b"ERR Protocol version is not an integer or out of range")
BAD_NAME: Final = Error(b"ERR Client names cannot contain spaces, newlines or special characters.")
BAD_VALUE: Final = Error(
    b"ERR lib-name and lib-ver cannot contain spaces, newlines or special characters."
)
BAD_DATABASE: Final = Error(b"ERR DB index is out of range")

_is_name = re.compile(rb"[!-~]*").fullmatch


def hello(client: SubscriberSide, arguments: list[bytes]) -> None:
    """HELLO [version [AUTH user password] [SETNAME name]]."""
    version, name = client.version, client.name
    if len(arguments) > 1:
        asked = number(arguments[1])
        if asked is None:
            client.say(NO_VERSION)
            return
        if asked not in (RESP2, RESP3):
            client.say(NO_SUCH_VERSION)
            return
        version = asked
    rest = arguments[2:]
    given: list[bytes] = []
    while rest:
        option = rest[0].upper()
        if option == b"AUTH" and len(rest) >= 3:
            if rest[1] != DEFAULT_USER and not client.has_users:
                client.say(WRONG_USER)
                return
            given = rest[1:3]
            rest = rest[3:]
        elif option == b"SETNAME" and len(rest) >= 2:
            name = rest[1]
            if not _may_be_name(name):
                client.say(BAD_NAME)
                return
            rest = rest[2:]
        else:
            client.say(Error(b"ERR Syntax error in HELLO option '%b'" % rest[0][:128]))
            return
    if given and client.has_users:
        client.log_in(given[0], given[1], (version, name))
        return
    client.version, client.name = version, name
    client.say(facts_of(client, version))


def facts_of(client: SubscriberSide, version: int) -> Value:
    """Return the answer to HELLO."""
    facts: list[tuple[bytes, Value]] = [
        (b"server", b"redis"),
        (b"version", REDIS_VERSION),
        (b"proto", version),
        (b"id", client.place),
        (b"mode", b"standalone"),
        (b"role", b"master"),
        (b"modules", []),
    ]
    return Map(facts)


def _may_be_name(name: bytes) -> bool:
    return len(name) <= CLIENT_NAME_MAX_BYTES and _is_name(name) is not None


def auth(client: SubscriberSide, arguments: list[bytes]) -> None:
    """AUTH [user] password."""
    if len(arguments) == 2 and client.has_users:
        client.log_in(DEFAULT_USER, arguments[1])
    elif len(arguments) == 2:
        client.say(NO_PASSWORD)
    elif len(arguments) > 3:
        client.say(SYNTAX)
    elif client.has_users:
        client.log_in(arguments[1], arguments[2])
    else:
        client.say(OK if arguments[1] == DEFAULT_USER else WRONG_USER)


def ping(client: SubscriberSide, arguments: list[bytes]) -> None:
    """PING [text]."""
    if client.is_restricted:
        client.say([b"pong", arguments[1] if len(arguments) == 2 else b""])
    else:
        client.say(arguments[1] if len(arguments) == 2 else Simple(b"PONG"))


def echo(client: SubscriberSide, arguments: list[bytes]) -> None:
    """ECHO text."""
    client.say(arguments[1])


def select(client: SubscriberSide, arguments: list[bytes]) -> None:
    """SELECT 0: there is one database."""
    database = number(arguments[1])
    if database is None:
        client.say(NO_NUMBER)
    else:
        client.say(OK if database == 0 else BAD_DATABASE)


def reset(client: SubscriberSide, arguments: list[bytes]) -> None:
    """RESET: return to the state of a new connection, which has given no token."""
    client.clients.publications.forget(client)
    client.version = RESP2
    client.name = b""
    if len(client.token) == TOKEN_DIGEST_BYTES:  # not by a rule, which would apply again
        client.log_out(encode(Simple(b"RESET")))
    else:
        client.say(Simple(b"RESET"))


def time(client: SubscriberSide, arguments: list[bytes]) -> None:
    """TIME: this node's wall clock."""
    seconds, us = divmod(client.clients.host.wall_us(), 1_000_000)
    client.say([b"%d" % seconds, b"%d" % us])


# --- CLIENT ---------------------------------------------------------------------------------------


def client_id(client: SubscriberSide, arguments: list[bytes]) -> None:
    """CLIENT ID."""
    client.say(client.place)


def client_getname(client: SubscriberSide, arguments: list[bytes]) -> None:
    """CLIENT GETNAME."""
    client.say(client.name or None)


def client_setname(client: SubscriberSide, arguments: list[bytes]) -> None:
    """CLIENT SETNAME name."""
    name = arguments[2]
    if _may_be_name(name):
        client.name = name
        client.say(OK)
    else:
        client.say(BAD_NAME)


def client_setinfo(client: SubscriberSide, arguments: list[bytes]) -> None:
    """CLIENT SETINFO attribute value: accepted, but not shown anywhere."""
    if arguments[2].lower() not in (b"lib-name", b"lib-ver"):
        client.say(Error(b"ERR Unrecognized option '%b'" % arguments[2][:128]))
    else:
        client.say(OK if _may_be_name(arguments[3]) else BAD_VALUE)


def client_switch(client: SubscriberSide, arguments: list[bytes]) -> None:
    """CLIENT NO-EVICT and NO-TOUCH ON|OFF: accepted without effect, as nothing is evicted."""
    client.say(OK if arguments[2].lower() in (b"on", b"off") else SYNTAX)


def client_info(client: SubscriberSide, arguments: list[bytes]) -> None:
    """CLIENT INFO."""
    publications = client.clients.publications
    text = b"id=%d addr=%b name=%b db=0 sub=%d psub=%d resp=%d\n"
    client.say(
        text
        % (
            client.place,
            client.client_host,
            client.name,
            len(publications.channels_of(client)),
            len(publications.patterns_of(client)),
            client.version,
        )
    )


# --- about the server -----------------------------------------------------------------------------


def config_get(client: SubscriberSide, arguments: list[bytes]) -> None:
    """CONFIG GET pattern...: empty, as none of Redis's settings exists here."""
    client.say(Map([]))


def command_docs(client: SubscriberSide, arguments: list[bytes]) -> None:
    """COMMAND DOCS [command...]: empty."""
    client.say(Map([]))


def command_info(client: SubscriberSide, arguments: list[bytes]) -> None:
    """COMMAND, and COMMAND INFO [command...]: nil for each command."""
    client.say([None] * (len(arguments) - 2))


def info(client: SubscriberSide, arguments: list[bytes]) -> None:
    """INFO [section...]: the values that libraries read."""
    asked = {word.lower() for word in arguments[1:]} or {b"default"}
    every = not asked.isdisjoint({b"default", b"all", b"everything"})
    texts = [
        b"# %b\r\n%b" % (name, b"".join([b"%b:%b\r\n" % pair for pair in section(client)]))
        for name, section in _SECTIONS
        if every or name.lower() in asked
    ]
    client.say(b"\r\n".join(texts))


_Pairs = list[tuple[bytes, bytes]]


def _server(client: SubscriberSide) -> _Pairs:
    host = client.clients.host
    uptime_s = (host.now_us() - client.shared.started_us) // 1_000_000
    return [
        (b"redis_version", REDIS_VERSION),
        (b"redis_mode", b"standalone"),
        (b"beanpole_version", beanpole.VERSION.encode()),
        (b"arch_bits", b"64"),
        (b"process_id", b"%d" % host.process().pid),
        (b"uptime_in_seconds", b"%d" % uptime_s),
    ]


def _clients(client: SubscriberSide) -> _Pairs:
    clients = client.clients
    count = sum(item.protocol == client.protocol for item in clients.connections)
    return [
        (b"connected_clients", b"%d" % count),
        (b"maxclients", b"%d" % clients.connections_max),
    ]


def _persistence(client: SubscriberSide) -> _Pairs:
    return [(b"loading", b"0")]


def _stats(client: SubscriberSide) -> _Pairs:
    return [
        (b"total_connections_received", b"%d" % client.shared.connections),
        (b"total_commands_processed", b"%d" % sum(client.shared.counts.values())),
    ]


def _replication(client: SubscriberSide) -> _Pairs:
    return [(b"role", b"master"), (b"connected_slaves", b"0")]


_SECTIONS: Final[tuple[tuple[bytes, Callable[[SubscriberSide], _Pairs]], ...]] = (
    (b"Server", _server),
    (b"Clients", _clients),
    (b"Persistence", _persistence),
    (b"Stats", _stats),
    (b"Replication", _replication),
)

"""The connections of clients as operators see them: listed, and closed one by one.

Their numbers by protocol are in the metrics; the connections themselves are in `frontends`.
"""

from itertools import islice
from typing import Final

from beanpole.core.jobs import display_names
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.connection import Connection
from beanpoled.view import ConnectionFigures

# A client may watch or hold thousands, and a page of connections is one message.
NAMES_MAX: Final = 20


def page(clients: Clients, after: int, limit: int) -> list[ConnectionFigures]:
    """Return connections with higher ids, the oldest first, `limit` at most."""
    found = (item for item in clients.connections if item.id > after)
    return [_figures(clients, item) for item in islice(found, limit)]


def close(clients: Clients, connection_id: int) -> bool:
    """Close a connection as if its network were lost; False if there is none with this id."""
    for connection in clients.connections:
        if connection.id == connection_id:
            connection.drop()
            return True
    return False


def _figures(clients: Clients, item: Connection) -> ConnectionFigures:
    session = clients.session(item.number)
    age_s = max(0, clients.now_us - item.since_us) / 1e6
    host = display_names.text(item.client_host)
    if session is None:
        return ConnectionFigures(item.id, item.protocol, host, age_s, item.is_waiting)
    return ConnectionFigures(
        item.id,
        item.protocol,
        host,
        age_s,
        item.is_waiting,
        "" if session.used is None else display_names.queue(session.used.name),
        [display_names.queue(name) for name in islice(session.watched, NAMES_MAX)],
        len(session.watched),
        list(islice(session.reserved, NAMES_MAX)),
        len(session.reserved),
    )

"""The protocols that have listeners: one row for each.

The protocols themselves are in `beanpoled.frontends`, whose table has the same names.
"""

from typing import Final, NamedTuple

# Its addresses are in the setting `listen`, for compatibility; those of other protocols in
# `listeners`.
FIRST: Final = "beanstalk"


class Protocol(NamedTuple):
    """A protocol that clients may speak.

    Attributes:
        name: in the configuration, the metrics and cluster.json.
        listen: the default addresses for its clients; empty: none.
        port_offset: `beanpole up` assigns ports beginning with this offset from the base port.
    """

    name: str
    listen: tuple[str, ...]
    port_offset: int


PROTOCOLS: Final = (
    Protocol(FIRST, ("127.0.0.1:11300",), 0),
    Protocol("workq", ("127.0.0.1:9922",), 40),
    Protocol("gearman", ("127.0.0.1:4730",), 50),
    Protocol("qless", ("127.0.0.1:6380",), 60),
)

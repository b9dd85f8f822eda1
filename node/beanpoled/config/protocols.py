"""Which protocols have listeners: one row for each.

What a protocol says is in `beanpoled.frontends`, whose table has the same names.
"""

from typing import Final, NamedTuple

# Its addresses are the setting `listen`, as before there were others; theirs are in `listeners`.
FIRST: Final = "beanstalk"


class Protocol(NamedTuple):
    """A protocol that clients may speak.

    Attributes:
        name: in the configuration, the metrics and cluster.json.
        listen: where its clients connect if nothing is configured; empty: nowhere.
        port_offset: `beanpole up` gives it this port and the next ones, counted from the base port.
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

"""Planted defects of the hosts of clients, and how each is caught.

A patch is (owner, name, replacement), as in `mutations`.
"""

from typing import Any, Final

from beanpole.commands import BASE_VERSION
from beanpole.core.image import restore
from beanpole.core.image.records import SessionRecord
from beanpole.core.sessions import Origin
from beanpole.core.state import MachineState
from beanpoled.origin import opening
from tests.sim import schedules_hosts as h
from tests.sim.mutant import Mutant, storm
from tests.sim.mutations import Patch


def newest_host() -> list[Patch]:
    """A session gets the newest host instead of its own."""
    begin = vars(MachineState)["open_session"]

    def wrong(self: MachineState, origin: Origin, number: int, host: int) -> None:
        begin(self, origin, number, len(self.hosts.names) if host else host)

    return [(MachineState, "open_session", wrong)]


def host_lost_in_image() -> list[Patch]:
    """A node that starts from a snapshot knows the hosts, but not their sessions."""
    loading: Any = vars(restore)["_Loading"]
    load = vars(loading)["_load_session"]

    def wrong(self: Any, record: SessionRecord) -> None:
        load(self, record._replace(host=0))

    return [(loading, "_load_session", wrong)]


def host_before_the_raise() -> list[Patch]:
    """An upgraded node opens sessions with hosts before all machines know of them."""
    return [(opening, "since", lambda operation: BASE_VERSION)]


HOSTS: Final = (
    Mutant(
        "newest_host",
        "hosts: a session has the host that came last",
        storm,
        r"event \d+ is of host .*, its session of ",
        newest_host,
        seed=1,
    ),
    Mutant(
        "host_lost_in_image",
        "hosts: an image forgets which host a session has",
        h.hosts_live_through_images,
        r"the events of n\d differ|differs",
        host_lost_in_image,
    ),
    Mutant(
        "host_before_the_raise",
        "hosts: a node names hosts before the raise",
        h.hosts_come_with_the_raise,
        r"a put is answered with .*OUT_OF_MEMORY.* before the raise",
        host_before_the_raise,
    ),
)

"""The table of the parts of an image that were added after the base version.

The contents of every image, and their order, are in `core.image.image`; loading is in
`core.image.restore`.

The parts come after the keys and before the jobs, each in chunks of its own kind; a chunk with None
ends a part. A part is written when the machine works at its version or a later one, and expected in
images of these versions. So an image of an older version keeps its bytes, and is read as before.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from beanpole.constants import HOST_NAME_MAX_BYTES, HOSTS_MAX
from beanpole.core.hosts import HOSTS_SINCE
from beanpole.core.image import policies, qless_loading, users
from beanpole.core.image.qless import QlessCopy
from beanpole.core.image.records import EXTENDED_SINCE
from beanpole.core.jobs.aliases import ALIASES_MAX, ALIASES_SINCE
from beanpole.core.jobs.spaces import SPACES_SINCE
from beanpole.core.operations.policies import POLICIES_SINCE
from beanpole.core.state import MachineState
from beanpole.core.users import USERS_SINCE

# Hosts of one chunk: a slice takes a tenth of a millisecond.
CHUNK_HOSTS: Final = 1024
# The machine version of qless.
QLESS_SINCE: Final = 4
# Aliases of one chunk: 140 KB of the longest names.
CHUNK_ALIASES: Final = 128


def _nothing(_machine: MachineState) -> None:
    """The default of `Part.end`: no check of the whole part."""


class Part(NamedTuple):
    """One part.

    Attributes:
        since: the machine version that introduced it.
        write: returns the values of its chunks. It is called when the image begins; the iterable is
            consumed later, between entries, and must yield the state at the time of the call.
        read: loads the value of one chunk into a machine that has everything but its jobs; arrays
            are tuples. For an invalid value, it raises Damaged, ValueError, TypeError, KeyError or
            IndexError.
        end: checks the consistency of the whole part; it raises the same exceptions.
    """

    since: int
    write: Callable[[MachineState], Iterable[Any]]
    read: Callable[[MachineState, Any], None]
    end: Callable[[MachineState], None] = _nothing


def _totals(machine: MachineState) -> list[Any]:
    """Return the totals of each space but beanstalk's (which are in the head), by number."""
    queue = machine.queue
    fields = 4 if machine.version >= EXTENDED_SINCE else 3
    return [
        [space.number, space.jobs_total, space.timeouts, space.evicted][:fields]
        for space in sorted(queue.every_space, key=lambda space: space.number)
        if space is not queue.beanstalk and (space.jobs_total or space.timeouts)
    ]


def _set_totals(machine: MachineState, value: Any) -> None:
    number, jobs_total, timeouts, *later = value
    evicted = 0
    if machine.version >= EXTENDED_SINCE:
        (evicted,) = later
    space = machine.queue.spaces[number]
    if (
        space.number != number
        or space is machine.queue.beanstalk
        or min(jobs_total, timeouts, evicted) < 0
    ):
        raise ValueError(f"space {number}")
    space.jobs_total = jobs_total
    space.timeouts = timeouts
    space.evicted = evicted


def _hosts(machine: MachineState) -> Iterable[Any]:
    """Return the chunks of the names of all hosts, in the order of their numbers."""
    names = machine.hosts.names
    return _slices(names, len(names) + 1)


def _slices(names: dict[int, bytes], end: int) -> Iterator[list[bytes]]:
    """Yield chunks of the names from 1 to before `end`; names may be added meanwhile."""
    for first in range(1, end, CHUNK_HOSTS):
        yield [names[number] for number in range(first, min(first + CHUNK_HOSTS, end))]


def _add_hosts(machine: MachineState, value: Any) -> None:
    hosts = machine.hosts
    for name in value:
        known = len(hosts.names)
        if type(name) is not bytes or not 0 < len(name) <= HOST_NAME_MAX_BYTES:
            raise ValueError(f"the host {name!r}")
        if hosts.number(name) != known + 1:
            raise ValueError(f"the host {name!r} stands twice, or is one of more than {HOSTS_MAX}")


def _aliases(machine: MachineState) -> Iterable[Any]:
    """Return the chunks of all aliases, in the order of their names."""
    found = sorted(machine.queue.aliases.queues.items())
    return [found[first : first + CHUNK_ALIASES] for first in range(0, len(found), CHUNK_ALIASES)]


def _add_aliases(machine: MachineState, value: Any) -> None:
    queue = machine.queue
    aliases = queue.aliases
    for alias, name in value:
        space, home = queue.space_of(alias), queue.space_of(name)
        if (
            space is None
            or home is None
            or home is space
            or alias in aliases.queues
            or alias in queue.tubes
            or aliases.name_of(name, space.number) is not None
            or len(aliases.queues) >= ALIASES_MAX
        ):
            raise ValueError(f"the alias {alias!r} of {name!r}")
        aliases.add(alias, space.number, name)


def _qless(machine: MachineState) -> QlessCopy:
    """Return a copy in progress of qless's tables, which must be closed."""
    return QlessCopy(machine.qless)


# By the kind of their chunks, in the order in the image.
PARTS: Final[dict[str, Part]] = {
    "spaces": Part(SPACES_SINCE, _totals, _set_totals),
    "hosts": Part(HOSTS_SINCE, _hosts, _add_hosts),
    "aliases": Part(ALIASES_SINCE, _aliases, _add_aliases),
    "policies": Part(POLICIES_SINCE, policies.write, policies.read, policies.end),
    "users": Part(USERS_SINCE, users.write, users.read, users.end),
    "qless": Part(QLESS_SINCE, _qless, qless_loading.read, qless_loading.end),
}


def of_version(version: int) -> list[tuple[str, Part]]:
    """Return the parts of an image of a version, in order."""
    return [(kind, part) for kind, part in PARTS.items() if part.since <= version]

"""Parts of an image that the base version lacks, each since a version of the machine.

Belongs here: the one table of such parts. What every image has, and in which order, is in
`core.image.image`; how it is read is in `core.image.restore`.

A part stands behind the keys and before the jobs, in chunks of its own kind that end with one that
holds None. It is written when the machine works at its version, and expected when the image is of
that version. So an image of an older version keeps its bytes, and is read as before.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from beanpole.constants import HOST_NAME_MAX_BYTES, HOSTS_MAX
from beanpole.core.hosts import HOSTS_SINCE
from beanpole.core.image import policies, qless_loading, users
from beanpole.core.image.qless import QlessCopy
from beanpole.core.image.records import EXTENDED_SINCE
from beanpole.core.jobs.aliases import ALIASES_MAX
from beanpole.core.jobs.spaces import SPACES_SINCE
from beanpole.core.operations.policies import POLICIES_SINCE
from beanpole.core.state import MachineState
from beanpole.core.users import USERS_SINCE

# Hosts of one chunk: a slice of a tenth of a millisecond.
CHUNK_HOSTS: Final = 1024
# The machine version of qless.
QLESS_SINCE: Final = 4
# Aliases of one chunk: 140 KB of the longest names.
CHUNK_ALIASES: Final = 128


def _nothing(_machine: MachineState) -> None:
    """Most parts need no more than to be read."""


class Part(NamedTuple):
    """One part.

    Attributes:
        since: the machine version that brought it.
        write: gives the values of its chunks. It is called when the image begins; what it returns
            is taken later, between entries, and must stay as it is.
        read: puts the value of one chunk into a machine that has all but its jobs; arrays are
            tuples. What it cannot read it raises as Damaged, ValueError, TypeError, KeyError or
            IndexError.
        end: sees to it that all of it together could be; it raises the same.
    """

    since: int
    write: Callable[[MachineState], Iterable[Any]]
    read: Callable[[MachineState, Any], None]
    end: Callable[[MachineState], None] = _nothing


def _totals(machine: MachineState) -> list[Any]:
    """Of each space but beanstalk's, in the order of their numbers; those are in the head."""
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
    """The names of all hosts so far, in the order of their numbers."""
    names = machine.hosts.names
    return _slices(names, len(names) + 1)


def _slices(names: dict[int, bytes], end: int) -> Iterator[list[bytes]]:
    """The names from 1 on, before `end`; later ones may come meanwhile."""
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
    """All aliases, in the order of their names."""
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
    """What qless knows; it is copied on the way, and to be closed."""
    return QlessCopy(machine.qless)


# By the kind of its chunks, in the order in which they stand.
PARTS: Final[dict[str, Part]] = {
    "spaces": Part(SPACES_SINCE, _totals, _set_totals),
    "hosts": Part(HOSTS_SINCE, _hosts, _add_hosts),
    "aliases": Part(EXTENDED_SINCE, _aliases, _add_aliases),
    "policies": Part(POLICIES_SINCE, policies.write, policies.read, policies.end),
    "users": Part(USERS_SINCE, users.write, users.read, users.end),
    "qless": Part(QLESS_SINCE, _qless, qless_loading.read, qless_loading.end),
}


def of_version(version: int) -> list[tuple[str, Part]]:
    """The parts that an image of a version has, in order."""
    return [(kind, part) for kind, part in PARTS.items() if part.since <= version]

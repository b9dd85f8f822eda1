"""Aliases: a second name by which another space knows a queue, so that two names are one queue.

Belongs here: the two directions of the table. Who may set an alias is decided in
`core.operations.queues`; where names are resolved, in `core.operations.checks`.
"""

from typing import Final

# Every listing of queues goes through the aliases, and every image holds them.
ALIASES_MAX: Final = 1024


class Aliases:
    """All aliases; a queue has one at most in each space but its own. Names have their prefixes.

    Attributes:
        queues: the queues by their aliases. Empty in most clusters, which is asked first.
    """

    def __init__(self) -> None:
        self.queues: dict[bytes, bytes] = {}
        self._names: dict[bytes, dict[int, bytes]] = {}

    def queue_of(self, name: bytes) -> bytes:
        """Return the name of the queue that is meant by a name, which may be its own."""
        return self.queues.get(name, name)

    def name_of(self, queue: bytes, space: int) -> bytes | None:
        """Return the alias of a queue in the space of this number; None if there is none."""
        names = self._names.get(queue)
        return None if names is None else names.get(space)

    def names_of(self, queue: bytes) -> list[bytes]:
        """Return all aliases of a queue."""
        names = self._names.get(queue)
        return [] if names is None else list(names.values())

    def add(self, alias: bytes, space: int, queue: bytes) -> None:
        """Add an alias of the space of this number."""
        self.queues[alias] = queue
        self._names.setdefault(queue, {})[space] = alias

    def remove(self, alias: bytes, space: int) -> None:
        """Remove an alias that there is."""
        queue = self.queues.pop(alias)
        names = self._names[queue]
        del names[space]
        if not names:
            del self._names[queue]

"""Aliases: second names of queues, in other spaces, so that two names denote one queue.

This module holds the table in both directions. Permission to set an alias is decided in
`core.operations.queues`; names are resolved in `core.operations.checks`.
"""

from typing import Final

# The machine version from which two names may denote one queue.
ALIASES_SINCE: Final = 4
# Every listing of queues iterates over the aliases, and every image holds them.
ALIASES_MAX: Final = 1024


class Aliases:
    """All aliases; a queue has at most one in each space but its own. Names include prefixes.

    Attributes:
        queues: queues by their aliases. It is empty in most clusters, so callers test it first.
    """

    def __init__(self) -> None:
        self.queues: dict[bytes, bytes] = {}
        self._names: dict[bytes, dict[int, bytes]] = {}

    def queue_of(self, name: bytes) -> bytes:
        """Return the queue that a name denotes: the target of an alias, or the name itself."""
        return self.queues.get(name, name)

    def name_of(self, queue: bytes, space: int) -> bytes | None:
        """Return the alias of a queue in the space with this number; None if there is none."""
        names = self._names.get(queue)
        return None if names is None else names.get(space)

    def names_of(self, queue: bytes) -> list[bytes]:
        """Return all aliases of a queue."""
        names = self._names.get(queue)
        return [] if names is None else list(names.values())

    def add(self, alias: bytes, space: int, queue: bytes) -> None:
        """Add an alias in the space with this number."""
        self.queues[alias] = queue
        self._names.setdefault(queue, {})[space] = alias

    def remove(self, alias: bytes, space: int) -> None:
        """Remove an existing alias."""
        queue = self.queues.pop(alias)
        names = self._names[queue]
        del names[space]
        if not names:
            del self._names[queue]

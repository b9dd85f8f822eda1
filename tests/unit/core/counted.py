"""A name that counts the steps of its lookup, for the tests of `core`."""

from typing import Any


class Counted(bytes):
    """Counts how often it is compared in order, and how often a part of it is taken."""

    steps = 0

    def __lt__(self, other: bytes) -> bool:
        self.steps += 1
        return super().__lt__(other)

    def __getitem__(self, place: Any) -> Any:
        self.steps += 1
        return super().__getitem__(place)

"""The outcome of an import of qless: the counts of items by their kinds, and what went wrong."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from beanpole.client.qless_source import shown

# Refusals that are listed, and items that lack a part; there may be as many as jobs.
REASONS_MAX: Final = 20


class Tally(NamedTuple):
    """The numbers of items of one kind: `there` counts those that existed in the cluster."""

    found: int = 0
    brought: int = 0
    there: int = 0
    refused: int = 0


class Outcome:
    """The outcome of an import; `reasons` has the first `REASONS_MAX` refusals.

    `lacking` has the first of the items that were imported without a part, `lacking_count` is the
    number of all of them.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, Tally] = {}
        self.reasons: list[str] = []
        self.lacking: list[str] = []
        self.lacking_count = 0

    @property
    def refused(self) -> int:
        """The number of refused items."""
        return sum(tally.refused for tally in self.kinds.values())

    @property
    def begun(self) -> bool:
        """Whether any item was sent, or refused."""
        return any(tally.found for tally in self.kinds.values())

    def note(self, kind: str, *, brought: int = 0, there: int = 0) -> None:
        """Count items that were imported or existed already; zero adds the kind alone."""
        self._add(kind, Tally(brought + there, brought, there))

    def found(self, kind: str, count: int) -> None:
        """Count items that were found and not imported."""
        self._add(kind, Tally(found=count))

    def refuse(self, kind: str, name: bytes, why: str) -> None:
        """Count an item that cannot be imported, and keep the reason."""
        self._add(kind, Tally(found=1, refused=1))
        if len(self.reasons) < REASONS_MAX:
            self.reasons.append(f"{kind} {shown(name)}: {why}")

    def lack(self, kind: str, name: bytes, parts: Sequence[str]) -> None:
        """Keep the parts without which an item was imported, if there are any."""
        if parts:
            self.lacking_count += 1
            if len(self.lacking) < REASONS_MAX:
                self.lacking.append(f"{kind} {shown(name)}: {' and '.join(parts)}")

    def _add(self, kind: str, more: Tally) -> None:
        before = self.kinds.get(kind, Tally())
        self.kinds[kind] = Tally(*map(sum, zip(before, more, strict=True)))
